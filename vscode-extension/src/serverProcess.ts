// The server's process: started here, ended here, with its last words kept for the message on failure.
import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Launch } from "./locate";

export class ServerProcess {
  /** Resolves when the process is gone, to a few words that say how. Never rejects. */
  readonly exited: Promise<string>;
  /** The last line that it wrote to stderr: by the server's own rule the one that tells the user what went wrong. */
  lastLine = "";

  private constructor(
    readonly child: ChildProcessWithoutNullStreams,
    log: (line: string) => void,
  ) {
    this.exited = new Promise((resolve) => {
      child.once("exit", (code, signal) => {
        const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
        // stderr may still hold the last line. Not waited for long: a child of its own could keep it open.
        child.once("close", () => resolve(how));
        setTimeout(() => resolve(how), 200);
      });
    });
    createInterface({ input: child.stderr }).on("line", (line) => {
      if (line.trim()) this.lastLine = line.trim();
      log(line);
    });
    // A write to a process that just ended: `exited` tells of it.
    child.stdin.on("error", () => undefined);
  }

  /** Starts the server in `folder`; rejects where the system cannot start it. */
  static start(launch: Launch, folder: string, log: (line: string) => void): Promise<ServerProcess> {
    return new Promise((resolve, reject) => {
      const child = spawn(launch.command, [...launch.prefix, "lsp"], {
        cwd: folder,
        env: { ...process.env, PYTHONUNBUFFERED: "1" },
        stdio: "pipe",
        windowsHide: true,
        // A process group of its own, so that what it started can be ended with it.
        detached: process.platform !== "win32",
      });
      child.once("spawn", () => resolve(new ServerProcess(child, log)));
      child.once("error", reject);
    });
  }

  /** Ends it and what it started: by the end of its input, then by signals. Resolves when it is gone. */
  async end(): Promise<void> {
    this.child.stdin.end();
    if (await this.goneWithin(1000)) return this.signal("SIGKILL"); // to what it left behind
    this.signal("SIGTERM");
    if (await this.goneWithin(1000)) return;
    this.signal("SIGKILL");
    await this.goneWithin(1000);
  }

  private signal(name: NodeJS.Signals): void {
    const { pid } = this.child;
    if (pid === undefined) return;
    if (process.platform === "win32") {
      // A console script there is a launcher with the server as its child.
      execFile("taskkill", ["/pid", String(pid), "/T", "/F"], { windowsHide: true }, () => undefined);
      return;
    }
    try {
      process.kill(-pid, name);
    } catch {
      // The whole group is gone.
    }
  }

  private async goneWithin(milliseconds: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<false>((resolve) => {
      timer = setTimeout(() => resolve(false), milliseconds);
    });
    const gone = await Promise.race([this.exited.then(() => true), late]);
    clearTimeout(timer);
    return gone;
  }
}
