// The server of this window: found, started, restarted and ended here, one step at a time.
import { mkdir } from "node:fs/promises";
import { commands, type Disposable, EventEmitter, type LogOutputChannel, window, workspace } from "vscode";
import type { Client } from "./client";
import { privateInterpreter } from "./environment";
import { type Launch, locateServer, ServerNotFound } from "./locate";
import { findExecutable, hasServer } from "./machine";
import type { CompletionRequest, CompletionServer, RawItem } from "./protocol";
import { activeInterpreters } from "./python";
import { RestartBudget } from "./restartBudget";
import { serialised } from "./serial";
import { ServerProcess } from "./serverProcess";
import { isNeeded, readSettings, SECTION, type Settings } from "./settings";
import type { Status } from "./status";
import { parseEngineStatus, summarise } from "./statusText";

/** `initialize` takes about a second; a slow disk may make it many. */
const START_LIMIT_MS = 60_000;

export class Server implements CompletionServer, Disposable {
  /** How the server was found, while there is one. */
  launch: Launch | undefined;
  /** How often it was started in this window. */
  starts = 0;
  private readonly ending = new EventEmitter<void>();
  /** Fires before a server ends: what was asked of it will not be answered. */
  readonly onEnding = this.ending.event;
  private process: ServerProcess | undefined;
  private client: Client | undefined;
  private isReady = false;
  private retry: NodeJS.Timeout | undefined;
  private ended = false;
  private told = "";
  private summary = "";
  private readonly budget = new RestartBudget();
  private readonly renew = serialised(() => this.stopAndStart());

  /** `folder` is a directory of ours, the server's working directory. */
  constructor(
    readonly folder: string,
    private readonly log: LogOutputChannel,
    private readonly trace: LogOutputChannel,
    private readonly status: Status,
  ) {}

  get running(): boolean {
    return this.isReady;
  }

  get pid(): number | undefined {
    return this.process?.child.pid;
  }

  /** Brings the server in line with the settings as they are now: started afresh, or stopped when disabled. */
  restart({ asked = false } = {}): Promise<void> {
    if (asked) {
      this.told = "";
      this.budget.refill();
    }
    return this.renew();
  }

  /** Ends the server for good. */
  shutdown(): Promise<void> {
    this.ended = true;
    return this.renew();
  }

  dispose(): void {
    this.ending.dispose();
  }

  async complete(
    request: CompletionRequest,
    grown: ((items: readonly RawItem[]) => void) | undefined,
    signal: AbortSignal,
  ): Promise<readonly RawItem[]> {
    if (!this.client || !this.isReady) return [];
    const begun = performance.now();
    const answered = once(() => {
      this.log.debug(`First text of a completion after ${(performance.now() - begun).toFixed(1)} ms`);
    });
    const growing = (items: readonly RawItem[]) => {
      answered();
      grown?.(items);
    };
    try {
      const items = await this.client.complete(request, grown && growing, signal);
      if (items.length > 0) answered();
      return items;
    } catch (error) {
      if (!signal.aborted)
        this.log.debug(`A completion failed: ${error instanceof Error ? error.message : error}`);
      return [];
    }
  }

  shown(item: RawItem): void {
    this.notify("textDocument/didShowCompletion", { item });
  }

  partlyAccepted(item: RawItem, units: number): void {
    this.status.setAccepted();
    this.notify("textDocument/didPartiallyAcceptCompletion", { item, acceptedLength: units });
  }

  /** Runs one of the server's own commands; undefined where no server runs, or where it fails. */
  async execute(command: string, ...args: unknown[]): Promise<unknown> {
    if (!this.client || !this.isReady) return undefined;
    try {
      return await this.client.execute(command, args);
    } catch (error) {
      this.log.warn(`${command} failed: ${error instanceof Error ? error.message : error}`);
      return undefined;
    }
  }

  private notify(method: string, params: object): void {
    if (!this.isReady) return;
    void this.client
      ?.sendNotification(method, params)
      .catch((error: unknown) => this.log.debug(String(error)));
  }

  private async stopAndStart(): Promise<void> {
    const isWanted = () => isNeeded(workspace.getConfiguration(SECTION));
    // Said before the one that runs has ended, which may take a while.
    if (!this.ended) this.status.setServer({ kind: isWanted() ? "starting" : "disabled" });
    await this.stop();
    if (this.ended) return;
    if (!isWanted()) {
      this.status.setServer({ kind: "disabled" });
      return;
    }
    this.status.setServer({ kind: "starting" });
    try {
      await this.start(readSettings(workspace.getConfiguration(SECTION)));
    } catch (error) {
      await this.stop();
      const isAbsent = error instanceof ServerNotFound && error.isAbsent;
      this.fail(error instanceof Error ? error.message : String(error), isAbsent);
    }
  }

  private async start(settings: Settings): Promise<void> {
    await mkdir(this.folder, { recursive: true });
    const launch = await locateServer(settings, {
      trusted: workspace.isTrusted,
      executable: findExecutable,
      hasServer: (interpreter) => hasServer(interpreter, this.folder),
      activeInterpreters: () => activeInterpreters((line) => this.log.info(line)),
      privateInterpreter: () => privateInterpreter(this.folder),
    });
    this.log.info(`Starting ${[launch.command, ...launch.prefix, "lsp"].join(" ")} (from ${launch.origin})`);
    const server = await ServerProcess.start(launch, this.folder, (line) => this.log.info(line));
    this.process = server;
    this.launch = launch;
    this.starts += 1;
    const { createClient } = await import("./client");
    this.client = createClient(server, settings, this.log, this.trace, {
      onAccepted: () => this.status.setAccepted(),
      onStatus: (params) => {
        const status = parseEngineStatus(params);
        if (!status) return;
        this.status.setEngine(status);
        if (this.summary !== summarise(status)) {
          this.summary = summarise(status);
          this.log.info(`Engine: ${this.summary}`);
        }
      },
    });
    await startWithin(START_LIMIT_MS, this.client, server);
    this.isReady = true;
    this.status.setRunning();
    this.told = "";
    void server.exited.then((how) => this.endedByItself(server, how));
  }

  private async stop(): Promise<void> {
    clearTimeout(this.retry);
    if (this.isReady) this.ending.fire();
    this.isReady = false;
    const { client, process } = this;
    this.client = undefined;
    this.process = undefined;
    // A client whose server is gone has nothing to say goodbye to, and says so by rejecting.
    await client?.dispose().catch((error: unknown) => this.log.debug(String(error)));
    await process?.end();
  }

  private endedByItself(server: ServerProcess, how: string): void {
    if (this.process !== server) return;
    if (this.isReady) this.ending.fire();
    this.isReady = false;
    const wait = this.budget.take(Date.now());
    if (wait === undefined) {
      this.process = undefined;
      this.fail(`the server ${how}${server.lastLine && `: ${server.lastLine}`}`, false);
      return;
    }
    this.log.warn(`The server ${how}; starting it again in ${wait} ms`);
    this.status.setServer({ kind: "starting" });
    this.retry = setTimeout(() => void this.restart(), wait);
  }

  /** Shows a failure in the status, and in a message unless the user has just been told the same. */
  private fail(reason: string, isAbsent: boolean): void {
    this.log.error(reason);
    this.status.setServer({ kind: "failed", reason, isAbsent });
    if (this.told === reason) return;
    this.told = reason;
    const choices = [...(isAbsent ? ["Install"] : []), "Open Settings", "Show Logs"];
    void window.showErrorMessage(`DFlash: ${reason}`, ...choices).then((choice) => {
      if (choice === "Install") void commands.executeCommand("dflash.install");
      if (choice === "Open Settings") void commands.executeCommand("workbench.action.openSettings", "dflash");
      if (choice === "Show Logs") this.log.show();
    });
  }
}

function once(action: () => void): () => void {
  let done = false;
  return () => {
    if (!done) action();
    done = true;
  };
}

/** Waits for the answer to `initialize`; a server that gives none, or ends, is an error of one line. */
async function startWithin(limit: number, client: Client, server: ServerProcess): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const started = client.start();
  const failed = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the server did not answer in ${limit / 1000} s`)), limit);
    void server.exited.then((how) => reject(new Error(lastWords(server, how))));
  });
  try {
    // A server that ends breaks the connection first; its own words say more than the client's.
    await Promise.race([started.catch((error) => Promise.race([failed, rejectAfter(500, error)])), failed]);
  } finally {
    clearTimeout(timer);
    failed.catch(() => undefined);
  }
}

function rejectAfter(milliseconds: number, error: unknown): Promise<never> {
  return new Promise((_, reject) => setTimeout(() => reject(error), milliseconds));
}

function lastWords(server: ServerProcess, how: string): string {
  return server.lastLine || `the server ${how}`;
}
