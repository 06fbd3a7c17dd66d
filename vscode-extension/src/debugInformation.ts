// What a report of a problem needs, and nothing of the user's text.
import { homedir } from "node:os";

export interface Facts {
  readonly extension: string;
  readonly editor: string;
  readonly platform: string;
  readonly trusted: boolean;
  readonly remote: string | undefined;
  readonly folders: number;
  readonly settings: Record<string, unknown>;
  readonly server: string;
  readonly starts: number;
  readonly status: string;
  readonly doctor: unknown;
}

/** As text for a report; the home directory, which often is a name, is written `~`. */
export function debugInformation(facts: Facts, home = homedir()): string {
  const text = JSON.stringify(facts, undefined, 2);
  return home.length > 1 ? text.replaceAll(JSON.stringify(home).slice(1, -1), "~") : text;
}
