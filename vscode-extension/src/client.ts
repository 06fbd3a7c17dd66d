// The language client: the standard protocol over the pipes of a process that is not its own. Loaded when a server
// starts, not with the extension: it is most of the code.
import { type LogOutputChannel, workspace } from "vscode";
import {
  CloseAction,
  ErrorAction,
  ExecuteCommandRequest,
  LanguageClient,
  type LanguageClientOptions,
  RevealOutputChannelOn,
} from "vscode-languageclient/node";
import { ACCEPTED } from "./acceptance";
import { DOCUMENTS } from "./documents";
import { type CompletionRequest, type RawItem, requestCompletion } from "./protocol";
import type { ServerProcess } from "./serverProcess";
import { SECTION, type Settings } from "./settings";

/** The server's own settings. `stream` keeps the client's own inline completions out: ours show growth. */
function initializationOptions(settings: Settings): Record<string, unknown> {
  return { surface: "stream", status: true, ...(settings.profile && { profile: settings.profile }) };
}

/** What of the configuration is the server's: whether a document is completed at all is decided here. */
function configuration(): { exclude: unknown } {
  return { exclude: workspace.getConfiguration(SECTION).get("exclude") };
}

export interface ClientEvents {
  /** Params of `dflash/status`. */
  onStatus(params: unknown): void;
  /** All of a completion was accepted. */
  onAccepted(): void;
}

/** Logs and never pops up: a failed request would otherwise cost the user a message for each key. */
export class Client extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  /** Rejects where the server refuses, and where the signal ends it. */
  complete(
    request: CompletionRequest,
    grown: ((items: readonly RawItem[]) => void) | undefined,
    signal: AbortSignal,
  ): Promise<readonly RawItem[]> {
    return requestCompletion(this, request, grown, signal);
  }

  /** Runs one of the server's own commands. */
  execute(command: string, args: unknown[]): Promise<unknown> {
    return this.sendRequest(ExecuteCommandRequest.type, { command, arguments: args });
  }
}

export function createClient(
  server: ServerProcess,
  settings: Settings,
  log: LogOutputChannel,
  trace: LogOutputChannel,
  events: ClientEvents,
): Client {
  const options: LanguageClientOptions = {
    documentSelector: DOCUMENTS,
    initializationOptions: initializationOptions(settings),
    outputChannel: log,
    traceOutputChannel: trace,
    synchronize: { configurationSection: SECTION },
    middleware: {
      workspace: { configuration: (params) => params.items.map(configuration) },
      executeCommand: (command, args, next) => {
        if (command === ACCEPTED) events.onAccepted();
        return next(command, args);
      },
    },
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
  const client = new Client(
    "dflash",
    "DFlash",
    async () => ({ process: server.child, detached: true }),
    options,
  );
  client.onNotification("dflash/status", events.onStatus);
  return client;
}
