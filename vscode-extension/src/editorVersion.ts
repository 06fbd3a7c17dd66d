// What the editor can do, by its version.

/** The first that can be told which provider to ask again. */
const GROWS_FROM = [1, 106];

/** Whether the editor can show growth; without, completions are shown once they are whole. */
export function canGrow(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map((part) => Number.parseInt(part, 10));
  const [wantedMajor = 0, wantedMinor = 0] = GROWS_FROM;
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
