// The extension's settings, read once into a typed object and checked where they enter.
import { homedir } from "node:os";
import { join } from "node:path";
import type { WorkspaceConfiguration } from "vscode";

export const SECTION = "dflash";

/** A change of one of these takes a new server process; the language client follows `trace.server` itself. */
export const RESTART_ON = ["dflash.enable", "dflash.server", "dflash.profile"];

export interface Settings {
  readonly enable: boolean;
  /** Executable of the server: an absolute path or a bare name; empty when not set. */
  readonly command: string;
  /** Python interpreter that has the server installed; empty when not set. */
  readonly interpreter: string;
  /** Profile name or path; empty for the server's own default. */
  readonly profile: string;
}

/** Reads the settings from the section `dflash`; a value of the wrong type counts as not set. */
export function readSettings(section: Pick<WorkspaceConfiguration, "get" | "inspect">): Settings {
  const text = (key: string) => {
    const value = section.get<unknown>(key);
    return typeof value === "string" ? expandHome(value.trim()) : "";
  };
  return {
    enable: isEnabled(section),
    command: text("server.command"),
    interpreter: text("server.interpreter"),
    profile: text("profile"),
  };
}

/** A workspace comes from anyone: it may turn completions off, never on against the user's own word. */
function isEnabled(section: Pick<WorkspaceConfiguration, "inspect">): boolean {
  const values = section.inspect<unknown>("enable");
  return ![values?.globalValue, values?.workspaceValue, values?.workspaceFolderValue].includes(false);
}

function expandHome(path: string): string {
  return path.startsWith("~/") || path.startsWith("~\\") ? join(homedir(), path.slice(2)) : path;
}
