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
  | { readonly kind: "failed"; readonly reason: string };

export interface StatusText {
  readonly text: string;
  readonly detail: string;
  readonly severity: "information" | "warning" | "error";
  readonly busy: boolean;
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

// VS Code shows text, detail and "Show logs" on one line of 500 px that neither wraps nor scrolls: what does not fit
// pushes the rest out of sight. So many characters leave room for the link.
const ROOM = 62;

export function describeServer(state: ServerState): StatusText {
  switch (state.kind) {
    case "disabled":
      return say("DFlash: off", ["completions are disabled"]);
    case "starting":
      return say("DFlash: starting", ["starting the server"], { busy: true });
    case "running":
      return say("DFlash", ["the server is running"]);
    case "failed":
      return say("DFlash: failed", [state.reason], { severity: "error" });
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
      return say(title(status), [reason && `nothing offered: ${reason}`, ...figures(status)], { busy });
    case "degraded":
      return say(title(status), [reason ?? "degraded", ...figures(status)], { severity: "warning", busy });
    case "failed":
      return say("DFlash: failed", [reason, shortPair(status)], { severity: "error" });
  }
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
  { severity = "information", busy = false }: Partial<Pick<StatusText, "severity" | "busy">> = {},
): StatusText {
  let detail = "";
  for (const part of details.filter((each) => each !== undefined && each !== "")) {
    const longer = detail ? `${detail} · ${part}` : clip(`${part}`, ROOM - text.length);
    if (text.length + longer.length <= ROOM) detail = longer;
  }
  return { text, detail, severity, busy };
}

function title(status: EngineStatus): string {
  const pair = shortPair(status);
  return pair ? `DFlash: ${pair}` : "DFlash";
}

/** The draft of a target has no name of its own worth the room. */
function shortPair(status: EngineStatus): string {
  if (!status.target) return clip(status.profile ?? "", 30);
  return `${clip(status.target, 24)}${status.draft ? " + draft" : ", no draft"}`;
}

function figures(status: EngineStatus): string[] {
  const said: string[] = [];
  // An engine that has completed nothing yet reports 0.
  if (status.acceptanceLength) said.push(`acceptance length ${status.acceptanceLength.toFixed(2)}`);
  if (status.tokensPerSecond) said.push(`${status.tokensPerSecond.toFixed(0)} tokens/s`);
  return said;
}

function clip(text: string, limit: number): string {
  return text.length <= limit ? text : `${text.slice(0, limit - 1).trimEnd()}…`;
}
