// Runs a command of the server's own command line, such as `status --json`.
import { execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Launch } from "./locate";

/** The JSON object that a command prints. Rejects with its last line where it fails. */
export function readJson(launch: Launch, folder: string, args: readonly string[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const options = { cwd: folder, timeout: 60_000, maxBuffer: 16 * 1024 * 1024, windowsHide: true };
    execFile(launch.command, [...launch.prefix, ...args, "--json"], options, (error, stdout, stderr) => {
      if (error) reject(new Error(lastLine(stderr) || error.message));
      else resolve(JSON.parse(stdout));
    });
  });
}

/** Runs a command to its end. `say` hears its output; rejects with its last line where it fails. */
export function runCommand(
  launch: Launch,
  folder: string,
  args: readonly string[],
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let last = "";
    const child = spawn(launch.command, [...launch.prefix, ...args], {
      cwd: folder,
      env: { ...process.env, PYTHONUNBUFFERED: "1" },
      signal,
      stdio: ["ignore", "pipe", "pipe"],
      windowsHide: true,
    });
    for (const stream of [child.stdout, child.stderr]) {
      // A progress bar draws over its own line.
      createInterface({ input: stream }).on("line", (line) => {
        for (const part of line.split("\r")) {
          if (!part.trim()) continue;
          last = part.trim();
          say(last);
        }
      });
    }
    child.once("error", reject);
    child.once("close", (code) =>
      code === 0 ? resolve() : reject(new Error(last || `ended with exit code ${code}`)),
    );
  });
}

function lastLine(text: string): string {
  return (
    text
      .trim()
      .split("\n")
      .at(-1)
      ?.replace(/^dflash-lsp: /, "") ?? ""
  );
}
