// Asks the machine about executables and interpreters.
import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { delimiter, isAbsolute, join } from "node:path";

/** Resolves a bare name in `PATH`, or an absolute path, to an executable file; relative paths are never run. */
export async function findExecutable(
  nameOrPath: string,
  environment: NodeJS.ProcessEnv = process.env,
): Promise<string | undefined> {
  if (isAbsolute(nameOrPath)) return firstExecutable([nameOrPath], environment);
  if (/[\\/]/.test(nameOrPath)) return undefined;
  // A relative folder in PATH would be looked up from wherever the editor was started.
  const folders = (environment.PATH ?? "").split(delimiter).filter(isAbsolute);
  return firstExecutable(
    folders.map((folder) => join(folder, nameOrPath)),
    environment,
  );
}

async function firstExecutable(paths: string[], environment: NodeJS.ProcessEnv): Promise<string | undefined> {
  const suffixes = process.platform === "win32" ? ["", ...(environment.PATHEXT ?? ".EXE").split(";")] : [""];
  for (const path of paths) {
    for (const suffix of suffixes) {
      if (await isExecutable(path + suffix)) return path + suffix;
    }
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

// Asks for the distribution and not for a module: many projects have a module named `server`.
const PROBE = "from importlib.metadata import version; version('dflash-lsp')";

/** Whether the interpreter (Python 3.11 or later) has the distribution `dflash-lsp`; `folder` is the probe's cwd. */
export function hasServer(interpreter: string, folder: string): Promise<boolean> {
  return new Promise((resolve) => {
    const options = { cwd: folder, timeout: 10_000, windowsHide: true };
    execFile(interpreter, ["-P", "-c", PROBE], options, (error) => resolve(error === null));
  });
}
