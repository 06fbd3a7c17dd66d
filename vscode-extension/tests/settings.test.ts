import assert from "node:assert/strict";
import { homedir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isEnabled, isNeeded, readSettings } from "../src/settings";

type Scope =
  | "globalValue"
  | "workspaceValue"
  | "workspaceFolderValue"
  | "globalLanguageValue"
  | "workspaceLanguageValue"
  | "languageIds";

/** A fake of VS Code's configuration section, with values by key and scope. */
function fakeSection(values: Record<string, Partial<Record<Scope, unknown>>>) {
  return {
    get: (key: string) =>
      values[key]?.workspaceFolderValue ?? values[key]?.workspaceValue ?? values[key]?.globalValue,
    inspect: (key: string) => ({ key: `dflash.${key}`, ...values[key] }),
  } as unknown as Parameters<typeof readSettings>[0];
}

test("with nothing set, completions are on and the server is left to the lookup", () => {
  assert.deepEqual(readSettings(fakeSection({})), { command: "", interpreter: "", package: "", profile: "" });
  assert.equal(isEnabled(fakeSection({})), true);
});

test("a workspace can turn completions off", () => {
  assert.equal(isEnabled(fakeSection({ enable: { globalValue: true, workspaceValue: false } })), false);
  assert.equal(isEnabled(fakeSection({ enable: { workspaceFolderValue: false } })), false);
  assert.equal(isEnabled(fakeSection({ enable: { workspaceLanguageValue: false } })), false);
});

test("a workspace cannot turn completions on against the user's own settings", () => {
  assert.equal(isEnabled(fakeSection({ enable: { globalValue: false, workspaceValue: true } })), false);
  assert.equal(
    isEnabled(fakeSection({ enable: { globalLanguageValue: false, workspaceLanguageValue: true } })),
    false,
  );
});

test("the user's word on a language wins over the user's word on all", () => {
  assert.equal(isEnabled(fakeSection({ enable: { globalValue: false, globalLanguageValue: true } })), true);
  assert.equal(isEnabled(fakeSection({ enable: { globalValue: true, globalLanguageValue: false } })), false);
});

test("a server is needed unless completions are off everywhere", () => {
  assert.equal(isNeeded(fakeSection({})), true);
  assert.equal(isNeeded(fakeSection({ enable: { globalValue: false } })), false);
  assert.equal(isNeeded(fakeSection({ enable: { globalValue: false, languageIds: ["python"] } })), true);
});

test("a path under the home directory is expanded, surrounding blanks are dropped", () => {
  const section = fakeSection({ "server.command": { globalValue: " ~/bin/dflash-lsp " } });
  assert.equal(readSettings(section).command, join(homedir(), "bin", "dflash-lsp"));
});

test("a value of the wrong type counts as not set", () => {
  const section = fakeSection({ "server.command": { globalValue: ["rm"] }, profile: { globalValue: 7 } });
  assert.deepEqual(readSettings(section), { command: "", interpreter: "", package: "", profile: "" });
});
