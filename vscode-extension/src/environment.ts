// A Python environment of the extension's own, with the server in it.
import { execFile, spawn } from "node:child_process";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { createInterface } from "node:readline";
import { findExecutable, hasServer } from "./machine";

const NAMES = ["python3", "python3.13", "python3.12", "python3.11", "python3.14", "python"];
const PROBE = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";

/** Why there is no environment, in one line for the user. */
export class InstallFailed extends Error {}

/** A Python of the machine that can make an environment; undefined where there is none. */
export async function findPython(environment: NodeJS.ProcessEnv = process.env): Promise<string | undefined> {
  for (const name of NAMES) {
    const python = await findExecutable(name, environment);
    if (python && (await succeeds(python, ["-c", PROBE]))) return python;
  }
  return undefined;
}

/** The interpreter of the environment that was made last in `folder`; undefined before there is one. */
export async function privateInterpreter(folder: string): Promise<string | undefined> {
  try {
    const record: unknown = JSON.parse(await readFile(join(folder, "environment.json"), "utf8"));
    const { interpreter } = record as { interpreter?: unknown };
    return typeof interpreter === "string" ? findExecutable(interpreter) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Makes an environment in `folder`, installs `what` (a package name or the path of a wheel) and returns its interpreter.
 * `say` hears each line of output. Raises InstallFailed, and leaves nothing behind then. Servers of other windows may
 * run from the one before, so that is taken away only by the next.
 */
export async function createEnvironment(
  folder: string,
  python: string,
  what: string,
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<string> {
  if (isAbsolute(what) && !(await isFile(what))) throw new InstallFailed(`there is no file ${what}`);
  const environments = join(folder, "environments");
  const name = `${Date.now()}-${process.pid}`;
  const target = join(environments, name);
  const before = await privateInterpreter(folder);
  await mkdir(environments, { recursive: true });
  try {
    await run(python, ["-m", "venv", target], folder, say, signal);
    const interpreter = join(
      target,
      ...(process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"]),
    );
    const install = ["-P", "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--", what];
    await run(interpreter, install, folder, say, signal);
    if (!(await hasServer(interpreter, folder))) {
      throw new InstallFailed(`${what} was installed, but holds no dflash-lsp`);
    }
    const record = join(environments, `${name}.json`);
    await writeFile(record, JSON.stringify({ interpreter, package: what }));
    await rename(record, join(folder, "environment.json"));
    for (const other of await readdir(environments)) {
      const path = join(environments, other);
      if (other !== name && !before?.startsWith(path)) await rm(path, { recursive: true, force: true });
    }
    return interpreter;
  } catch (error) {
    await rm(target, { recursive: true, force: true });
    throw error;
  }
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

function succeeds(command: string, args: string[]): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(command, args, { timeout: 10_000, windowsHide: true }, (error) => resolve(error === null));
  });
}

/** Runs a command to its end; a failure has the words of the command itself. */
function run(
  command: string,
  args: string[],
  cwd: string,
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let words = "";
    const child = spawn(command, args, { cwd, signal, stdio: ["ignore", "pipe", "pipe"], windowsHide: true });
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        if (!line.trim()) return;
        // pip says first what went wrong, and then much more.
        if (!words.startsWith("ERROR:")) words = line.trim();
        say(line.trimEnd());
      });
    }
    child.once("error", (error) =>
      reject(new InstallFailed(signal.aborted ? "the installation was stopped" : error.message)),
    );
    child.once("close", (code) => {
      if (code === 0) resolve();
      else
        reject(new InstallFailed(words.replace(/^ERROR: /, "") || `${command} ended with exit code ${code}`));
    });
  });
}
