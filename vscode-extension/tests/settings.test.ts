import assert from "node:assert/strict";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readSettings } from "../src/settings";

type Scope = "globalValue" | "workspaceValue" | "workspaceFolderValue";

/** A fake of VS Code's configuration section, with values by key and scope. */
function fakeSection(values: Record<string, Partial<Record<Scope, unknown>>>) {
  return {
    get: (key: string) =>
      values[key]?.workspaceFolderValue ?? values[key]?.workspaceValue ?? values[key]?.globalValue,
    inspect: (key: string) => ({ key: `dflash.${key}`, ...values[key] }),
  } as unknown as Parameters<typeof readSettings>[0];
}

test("with nothing set, completions are on and the server is left to the lookup", () => {
  assert.deepEqual(readSettings(fakeSection({})), {
    enable: true,
    command: "",
    interpreter: "",
    profile: "",
  });
});

test("a workspace can turn completions off", () => {
  const section = fakeSection({ enable: { globalValue: true, workspaceValue: false } });
  assert.equal(readSettings(section).enable, false);
});

test("a workspace cannot turn completions on against the user's own settings", () => {
  const section = fakeSection({ enable: { globalValue: false, workspaceValue: true } });
  assert.equal(readSettings(section).enable, false);
});

test("a path under the home directory is expanded, surrounding blanks are dropped", () => {
  const section = fakeSection({ "server.command": { globalValue: " ~/bin/dflash-lsp " } });
  assert.equal(readSettings(section).command, join(homedir(), "bin", "dflash-lsp"));
});

test("a value of the wrong type counts as not set", () => {
  const section = fakeSection({ "server.command": { globalValue: ["rm"] }, profile: { globalValue: 7 } });
  assert.deepEqual(readSettings(section), { enable: true, command: "", interpreter: "", profile: "" });
});
