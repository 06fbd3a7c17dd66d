// The server of this window: found, started, restarted and ended here, one step at a time.
import { mkdir } from "node:fs/promises";
import { commands, type LogOutputChannel, window, workspace } from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import { createClient } from "./client";
import { locateServer } from "./locate";
import { findExecutable, hasServer } from "./machine";
import { activeInterpreters } from "./python";
import { RestartBudget } from "./restartBudget";
import { serialised } from "./serial";
import { ServerProcess } from "./serverProcess";
import { readSettings, SECTION, type Settings } from "./settings";
import type { Status } from "./status";
import { parseEngineStatus, summarise } from "./statusText";

/** `initialize` takes about a second; a slow disk may make it many. */
const START_LIMIT_MS = 60_000;

export class Server {
  private process: ServerProcess | undefined;
  private client: LanguageClient | undefined;
  private retry: NodeJS.Timeout | undefined;
  private ended = false;
  private told = "";
  private summary = "";
  private readonly budget = new RestartBudget();
  private readonly renew = serialised(() => this.stopAndStart());

  /** `folder` is a directory of ours, the server's working directory. */
  constructor(
    private readonly folder: string,
    private readonly log: LogOutputChannel,
    private readonly status: Status,
  ) {}

  get running(): boolean {
    return this.process !== undefined;
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

  private async stopAndStart(): Promise<void> {
    await this.stop();
    if (this.ended) return;
    const settings = readSettings(workspace.getConfiguration(SECTION));
    if (!settings.enable) {
      this.status.setServer({ kind: "disabled" });
      return;
    }
    this.status.setServer({ kind: "starting" });
    try {
      await this.start(settings);
    } catch (error) {
      await this.stop();
      this.fail(error instanceof Error ? error.message : String(error));
    }
  }

  private async start(settings: Settings): Promise<void> {
    await mkdir(this.folder, { recursive: true });
    const launch = await locateServer(settings, {
      trusted: workspace.isTrusted,
      executable: findExecutable,
      hasServer: (interpreter) => hasServer(interpreter, this.folder),
      activeInterpreters: () => activeInterpreters((line) => this.log.info(line)),
    });
    this.log.info(`Starting ${[launch.command, ...launch.args].join(" ")} (from ${launch.origin})`);
    const server = await ServerProcess.start(launch, this.folder, (line) => this.log.info(line));
    this.process = server;
    this.client = createClient(server, settings, this.log, {
      onStatus: (params) => {
        const status = parseEngineStatus(params);
        if (!status) return;
        this.status.setEngine(status);
        if (this.summary !== summarise(status)) {
          this.summary = summarise(status);
          this.log.info(`Engine: ${this.summary}`);
        }
      },
      onActivity: (params) => this.status.setBusy(params?.busy === true),
    });
    await startWithin(START_LIMIT_MS, this.client, server);
    this.status.setRunning();
    this.told = "";
    void server.exited.then((how) => this.endedByItself(server, how));
  }

  private async stop(): Promise<void> {
    clearTimeout(this.retry);
    const { client, process } = this;
    this.client = undefined;
    this.process = undefined;
    // A client whose server is gone has nothing to say goodbye to, and says so by rejecting.
    await client?.dispose().catch((error: unknown) => this.log.debug(String(error)));
    await process?.end();
  }

  private endedByItself(server: ServerProcess, how: string): void {
    if (this.process !== server) return;
    const wait = this.budget.take(Date.now());
    if (wait === undefined) {
      this.process = undefined;
      this.fail(`the server ${how}${server.lastLine && `: ${server.lastLine}`}`);
      return;
    }
    this.log.warn(`The server ${how}; starting it again in ${wait} ms`);
    this.status.setServer({ kind: "starting" });
    this.retry = setTimeout(() => void this.restart(), wait);
  }

  /** Shows a failure in the status, and in a message unless the user has just been told the same. */
  private fail(reason: string): void {
    this.log.error(reason);
    this.status.setServer({ kind: "failed", reason });
    if (this.told === reason) return;
    this.told = reason;
    void window.showErrorMessage(`DFlash: ${reason}`, "Open Settings", "Show Logs").then((choice) => {
      if (choice === "Open Settings") void commands.executeCommand("workbench.action.openSettings", "dflash");
      if (choice === "Show Logs") this.log.show();
    });
  }
}

/** Waits for the answer to `initialize`; a server that gives none, or ends, is an error of one line. */
async function startWithin(limit: number, client: LanguageClient, server: ServerProcess): Promise<void> {
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
