// The language client: the standard protocol over the pipes of a process that is not its own.
import type { LogOutputChannel } from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
} from "vscode-languageclient/node";
import { DOCUMENTS } from "./documents";
import type { ServerProcess } from "./serverProcess";
import type { Settings } from "./settings";

/** The server's own settings. Inline completions come by the client's own feature, so it shall not stream to us. */
function initializationOptions(settings: Settings): Record<string, string> {
  return { surface: "inline", ...(settings.profile && { profile: settings.profile }) };
}

export interface ClientEvents {
  /** Params of `dflash/status`. */
  onStatus(params: unknown): void;
  /** Params of `didChangeStatus`. */
  onActivity(params: { busy?: unknown } | undefined): void;
}

/** Logs and never pops up: a failed request would otherwise cost the user a message for each key. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

export function createClient(
  server: ServerProcess,
  settings: Settings,
  log: LogOutputChannel,
  events: ClientEvents,
): LanguageClient {
  const options: LanguageClientOptions = {
    documentSelector: DOCUMENTS,
    initializationOptions: initializationOptions(settings),
    outputChannel: log,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    // stderr is read by ServerProcess.
    stdioOptions: { stdout: () => undefined, stderr: () => undefined },
    initializationFailedHandler: () => false,
    // Whether to start again is decided where the process is owned.
    errorHandler: {
      error: () => ({ action: ErrorAction.Continue, handled: true }),
      closed: () => ({
        action: CloseAction.DoNotRestart,
        handled: true,
        message: "The connection to the server closed.",
      }),
    },
  };
  // `detached` keeps the client from ending a process that it did not start.
  const client = new QuietClient(
    "dflash",
    "DFlash",
    async () => ({ process: server.child, detached: true }),
    options,
  );
  client.onNotification("dflash/status", events.onStatus);
  client.onNotification("didChangeStatus", events.onActivity);
  return client;
}
