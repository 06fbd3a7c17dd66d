// The extension's settings, read once into a typed object and checked where they enter.
import { homedir } from "node:os";
import { join } from "node:path";
import type { WorkspaceConfiguration } from "vscode";

export const SECTION = "dflash";

/** A change of one of these takes a new server process; everything else is heard of while it runs. */
export const RESTART_ON = ["dflash.server", "dflash.profile"];

export interface Settings {
  /** Executable of the server: an absolute path or a bare name; empty when not set. */
  readonly command: string;
  /** Python interpreter that has the server installed; empty when not set. */
  readonly interpreter: string;
  /** What a private environment is made of: a package name, or the path of a wheel. */
  readonly package: string;
  /** Profile name or path; empty for the server's own default. */
  readonly profile: string;
}

type Section = Pick<WorkspaceConfiguration, "get" | "inspect">;

/** Reads the settings from the section `dflash`; a value of the wrong type counts as not set. */
export function readSettings(section: Section): Settings {
  const text = (key: string) => {
    const value = section.get<unknown>(key);
    return typeof value === "string" ? expandHome(value.trim()) : "";
  };
  return {
    command: text("server.command"),
    interpreter: text("server.interpreter"),
    package: text("server.package"),
    profile: text("profile"),
  };
}

/**
 * Whether completions are on in a document whose section (with its folder and language as scope) is given. A
 * workspace comes from anyone: it may turn completions off, never on against the user's own word.
 */
export function isEnabled(section: Pick<WorkspaceConfiguration, "inspect">): boolean {
  const values = section.inspect<unknown>("enable");
  const user = values?.globalLanguageValue ?? values?.globalValue;
  const folder = values?.workspaceFolderLanguageValue ?? values?.workspaceFolderValue;
  const workspace = values?.workspaceLanguageValue ?? values?.workspaceValue;
  return user !== false && folder !== false && workspace !== false;
}

/** Whether completions can be on anywhere in this window, so that a server is needed. */
export function isNeeded(section: Pick<WorkspaceConfiguration, "inspect">): boolean {
  const values = section.inspect<unknown>("enable");
  // The values of single languages are not told here, but that there are some is.
  return isEnabled(section) || (values?.languageIds?.length ?? 0) > 0;
}

function expandHome(path: string): string {
  return path.startsWith("~/") || path.startsWith("~\\") ? join(homedir(), path.slice(2)) : path;
}
