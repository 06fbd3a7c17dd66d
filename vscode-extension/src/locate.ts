// Decides which server to start, by the order that the README promises.
import { isAbsolute } from "node:path";
import type { Settings } from "./settings";

export interface Launch {
  readonly command: string;
  /** What comes before the name of one of its commands, such as `lsp`. */
  readonly prefix: readonly string[];
  /** Where the command was found, for the log. */
  readonly origin: string;
}

/** What the lookup asks of the machine and of the editor. */
export interface Surroundings {
  readonly trusted: boolean;
  /** Absolute path of an executable, from a name in `PATH` or an absolute path; undefined where there is none. */
  executable(nameOrPath: string): Promise<string | undefined>;
  /** Whether the interpreter has the distribution `dflash-lsp`. */
  hasServer(interpreter: string): Promise<boolean>;
  /** The interpreters that the Python extensions call active, most specific first. */
  activeInterpreters(): Promise<readonly string[]>;
  /** The interpreter of the extension's own environment, if one was made. */
  privateInterpreter(): Promise<string | undefined>;
}

/** No server can be started; the text is one line for the user. */
export class ServerNotFound extends Error {
  /** `isAbsent`: there is none, and an environment of our own would help. */
  constructor(
    message: string,
    readonly isAbsent = false,
  ) {
    super(message);
  }
}

/**
 * What the user set is final: where it cannot work the answer is an error, not the next best server.
 * Raises ServerNotFound.
 */
export async function locateServer(settings: Settings, around: Surroundings): Promise<Launch> {
  if (settings.command) {
    const command = await around.executable(settings.command);
    if (!command) throw new ServerNotFound(`dflash.server.command is not an executable: ${settings.command}`);
    return { command, prefix: [], origin: "dflash.server.command" };
  }
  if (settings.interpreter) {
    if (!isAbsolute(settings.interpreter) || !(await around.executable(settings.interpreter))) {
      throw new ServerNotFound(
        `dflash.server.interpreter is not the absolute path of an executable: ${settings.interpreter}`,
      );
    }
    if (!(await around.hasServer(settings.interpreter))) {
      throw new ServerNotFound(
        `dflash-lsp is not installed for dflash.server.interpreter: ${settings.interpreter}`,
      );
    }
    return asModule(settings.interpreter, "dflash.server.interpreter");
  }
  // The active environment often lies in the workspace: running its Python runs what the workspace brought along.
  if (around.trusted) {
    for (const interpreter of await around.activeInterpreters()) {
      if (await around.hasServer(interpreter)) {
        return asModule(interpreter, "the active Python environment");
      }
    }
  }
  const command = await around.executable("dflash-lsp");
  if (command) return { command, prefix: [], origin: "PATH" };
  const own = await around.privateInterpreter();
  if (own && (await around.hasServer(own))) return asModule(own, "the extension's own environment");
  throw new ServerNotFound(
    "the server dflash-lsp was not found: install it here, or set dflash.server.command",
    true,
  );
}

function asModule(interpreter: string, origin: string): Launch {
  // -P keeps the working directory off sys.path, where a folder named `server` could be taken for ours.
  return { command: interpreter, prefix: ["-P", "-m", "server"], origin };
}
