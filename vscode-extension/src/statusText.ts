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

export function describeServer(state: ServerState): StatusText {
  switch (state.kind) {
    case "disabled":
      return {
        text: "DFlash: off",
        detail: "Completions are disabled",
        severity: "information",
        busy: false,
      };
    case "starting":
      return { text: "DFlash: starting", detail: "Starting the server", severity: "information", busy: true };
    case "running":
      return { text: "DFlash", detail: "The server is running", severity: "information", busy: false };
    case "failed":
      return { text: "DFlash: failed", detail: state.reason, severity: "error", busy: false };
  }
}

/** `busy` is true while a completion is being made. */
export function describeEngine(status: EngineStatus, busy: boolean): StatusText {
  const pair = modelPair(status);
  const title = pair ? `DFlash: ${pair}` : "DFlash";
  switch (status.state) {
    case "loading": {
      const percent = status.progress === undefined ? "" : ` ${Math.floor(status.progress * 100)} %`;
      return {
        text: `DFlash: loading${percent}`,
        detail: sentence(pair, status.reason),
        severity: "information",
        busy: true,
      };
    }
    case "ready":
      return {
        text: title,
        detail: sentence(figures(status), silence(status)),
        severity: "information",
        busy,
      };
    case "degraded":
      return {
        text: title,
        detail: sentence("degraded", status.reason, figures(status)),
        severity: "warning",
        busy,
      };
    case "failed":
      return {
        text: "DFlash: failed",
        detail: sentence(status.reason, pair),
        severity: "error",
        busy: false,
      };
  }
}

function modelPair(status: EngineStatus): string {
  if (!status.target) return status.profile ?? "";
  return status.draft ? `${status.target} + ${status.draft}` : `${status.target}, no draft`;
}

/** A reason while the engine is ready is the reason why the last answer was empty. */
function silence(status: EngineStatus): string {
  return status.reason ? `last answer empty: ${status.reason}` : "";
}

function figures(status: EngineStatus): string {
  // An engine that has completed nothing yet reports 0.
  const acceptance = status.acceptanceLength ? `acceptance length ${status.acceptanceLength.toFixed(2)}` : "";
  const speed = status.tokensPerSecond ? `${status.tokensPerSecond.toFixed(0)} tokens/s` : "";
  const profile = status.target && status.profile ? `profile ${status.profile}` : "";
  return sentence(acceptance, speed, profile);
}

function sentence(...parts: (string | undefined)[]): string {
  return parts.filter(Boolean).join(" · ");
}
