// Turns what the server says of itself into the few words of the status item.

/** Params of the notification `dflash/status`; any of them may be absent. */
export interface EngineStatus {
  readonly state: "loading" | "ready" | "degraded" | "failed";
  /** Share of the loading that is done, 0 to 1. */
  readonly progress?: number;
  readonly reason?: string;
  readonly profile?: string;
  readonly target?: string;
  readonly draft?: string;
  readonly acceptanceLength?: number;
  readonly tokensPerSecond?: number;
}

/** What the extension itself knows while no engine has been heard of. */
export type ServerState =
  | { readonly kind: "disabled" }
  | { readonly kind: "starting" }
  | { readonly kind: "running" }
  | { readonly kind: "failed"; readonly reason: string; readonly isAbsent?: boolean };

/** All that decides what is said. */
export interface Situation {
  readonly server: ServerState;
  readonly engine: EngineStatus | undefined;
  /** Whether a completion is being made. */
  readonly busy: boolean;
  /** The language of the document in front, when completions are off for it. */
  readonly offFor: string | undefined;
  readonly snoozedUntil: Date | undefined;
}

export interface StatusText {
  readonly text: string;
  readonly detail: string;
  readonly severity: "information" | "warning" | "error";
  readonly busy: boolean;
  /** What the link behind the text does. */
  readonly action: { readonly command: string; readonly title: string };
}

const SHOW_LOGS = { command: "dflash.showLogs", title: "Show logs" };
const INSTALL = { command: "dflash.install", title: "Install" };
const FETCH = { command: "dflash.fetchModel", title: "Get model" };
const WAKE = { command: "dflash.resume", title: "Resume" };
const ENABLE = { command: "dflash.enable", title: "Enable" };
const ENABLE_LANGUAGE = { command: "dflash.enableForLanguage", title: "Enable" };
const STATUS_PAGE = { command: "dflash.openStatusPage", title: "Status page" };

/** What the user asked for himself comes before what the engine says. */
export function describe({ server, engine, busy, offFor, snoozedUntil }: Situation): StatusText {
  if (server.kind === "disabled" || server.kind === "failed") return describeServer(server);
  if (offFor !== undefined) return say("DFlash: off", [`for ${offFor}`], { action: ENABLE_LANGUAGE });
  if (snoozedUntil) {
    const time = snoozedUntil.toTimeString().slice(0, 5);
    return say("DFlash: paused", [`until ${time}`], { action: WAKE });
  }
  return engine ? describeEngine(engine, busy) : describeServer(server);
}

/** Reads the params of `dflash/status`; undefined where they are not a status at all. */
export function parseEngineStatus(params: unknown): EngineStatus | undefined {
  if (typeof params !== "object" || params === null) return undefined;
  const values = params as Record<string, unknown>;
  const { state } = values;
  if (state !== "loading" && state !== "ready" && state !== "degraded" && state !== "failed")
    return undefined;
  const text = (key: string) => (typeof values[key] === "string" && values[key] ? values[key] : undefined);
  const number = (key: string) => (Number.isFinite(values[key]) ? (values[key] as number) : undefined);
  return {
    state,
    progress: number("progress"),
    reason: text("reason"),
    profile: text("profile"),
    target: text("target"),
    draft: text("draft"),
    acceptanceLength: number("acceptance_length"),
    tokensPerSecond: number("tokens_per_s"),
  };
}

// VS Code shows text, detail and the link on one line of 500 px that neither wraps nor scrolls: what does not fit
// pushes the rest out of sight. So many characters leave room for the link.
const ROOM = 62;

export function describeServer(state: ServerState): StatusText {
  switch (state.kind) {
    case "disabled":
      return say("DFlash: off", ["completions are disabled"], { action: ENABLE });
    case "starting":
      return say("DFlash: starting", ["starting the server"], { busy: true });
    case "running":
      return say("DFlash", ["the server is running"]);
    case "failed":
      return say("DFlash: failed", [state.reason], {
        severity: "error",
        action: state.isAbsent ? INSTALL : SHOW_LOGS,
      });
  }
}

/** `busy` is true while a completion is being made. */
export function describeEngine(status: EngineStatus, busy: boolean): StatusText {
  const { reason } = status;
  switch (status.state) {
    case "loading": {
      const percent = status.progress === undefined ? "" : ` ${Math.floor(status.progress * 100)} %`;
      return say(`DFlash: loading${percent}`, [reason, shortPair(status)], { busy: true });
    }
    case "ready":
      // A reason while the engine is ready is the reason why the last answer was empty.
      return say(title(status), [reason && `nothing offered: ${reason}`], {
        busy,
        action: STATUS_PAGE,
      });
    case "degraded":
      // The reason tells what of the pair is gone; beside a target's name there would be no room for it.
      return say("DFlash: degraded", [reason, shortPair(status)], {
        severity: "warning",
        busy,
        action: STATUS_PAGE,
      });
    case "failed":
      return say("DFlash: failed", [reason, shortPair(status)], {
        severity: "error",
        action: lacksModel(status) ? FETCH : SHOW_LOGS,
      });
  }
}

/** What the engine does, in figures; none before it has completed anything, or while it cannot. */
export function describeFigures(status: EngineStatus | undefined): string | undefined {
  const { state, acceptanceLength, tokensPerSecond } = status ?? {};
  // An engine that has completed nothing yet reports 0.
  if ((state !== "ready" && state !== "degraded") || !acceptanceLength) return undefined;
  const speed = tokensPerSecond ? ` · ${tokensPerSecond.toFixed(0)} tokens/s` : "";
  return `acceptance length ${acceptanceLength.toFixed(2)}${speed}`;
}

/** State and full names, for the log; the same for all statuses that differ in figures only. */
export function summarise(status: EngineStatus): string {
  const pair = [status.target, status.draft].filter(Boolean).join(" + ");
  const failing = status.state === "failed" || status.state === "degraded";
  return [status.state, status.profile && `profile ${status.profile}`, pair, failing && status.reason]
    .filter(Boolean)
    .join(", ");
}

function say(
  text: string,
  details: (string | undefined)[],
  {
    severity = "information",
    busy = false,
    action = SHOW_LOGS,
  }: Partial<Pick<StatusText, "severity" | "busy" | "action">> = {},
): StatusText {
  let detail = "";
  for (const part of details.filter((each) => each !== undefined && each !== "")) {
    const longer = detail ? `${detail} · ${part}` : clip(`${part}`, ROOM - text.length);
    if (text.length + longer.length <= ROOM) detail = longer;
  }
  return { text, detail, severity, busy, action };
}

/** The server names the command that would help. */
function lacksModel(status: EngineStatus): boolean {
  return /\bdflash-lsp fetch\b/.test(status.reason ?? "");
}

function title(status: EngineStatus): string {
  const pair = shortPair(status);
  return pair ? `DFlash: ${pair}` : "DFlash";
}

/** The draft of a target has no name of its own worth the room, and the target's has its description behind a comma. */
function shortPair(status: EngineStatus): string {
  if (!status.target) return clip(status.profile ?? "", 30);
  return `${clip(status.target.replace(/,.*/, ""), 24)}${status.draft ? " + draft" : ", no draft"}`;
}

function clip(text: string, limit: number): string {
  return text.length <= limit ? text : `${text.slice(0, limit - 1).trimEnd()}…`;
}
