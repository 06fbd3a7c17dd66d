import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, test } from "node:test";
import { findExecutable, hasServer } from "../src/machine";

const folder = mkdtempSync(join(tmpdir(), "dflash-machine-"));
after(() => rmSync(folder, { recursive: true }));

function file(name: string, mode: number, text = ""): string {
  const path = join(folder, name);
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

test("a bare name is found in the first folder of PATH that has it as an executable", async () => {
  file("a/tool", 0o644);
  mkdirSync(join(folder, "b", "tool"), { recursive: true });
  const wanted = file("c/tool", 0o755);
  file("d/tool", 0o755);
  const PATH = ["a", "b", "c", "d"].map((name) => join(folder, name)).join(delimiter);
  assert.equal(await findExecutable("tool", { PATH }), wanted);
});

test("an absolute path is taken as it is, when it can be executed", async () => {
  const executable = file("e/tool", 0o755);
  assert.equal(await findExecutable(executable, {}), executable);
  assert.equal(await findExecutable(file("e/text", 0o644), {}), undefined);
  assert.equal(await findExecutable(join(folder, "e"), {}), undefined);
});

test("relative paths are never run, in a name or in PATH", async () => {
  const before = process.cwd();
  file("bin/tool", 0o755);
  process.chdir(folder);
  try {
    assert.equal(await findExecutable("./bin/tool", { PATH: folder }), undefined);
    assert.equal(await findExecutable("tool", { PATH: ["bin", ".", ""].join(delimiter) }), undefined);
  } finally {
    process.chdir(before);
  }
});

test("an interpreter has the server when it has the distribution, and not for a module of the same name", async () => {
  // A real interpreter, told by a script where to look for packages.
  const python = (packages: string) =>
    file(
      `${packages}-python`,
      0o755,
      `#!/bin/sh\nPYTHONPATH='${join(folder, packages)}' exec python3 "$@"\n`,
    );
  file("module/server/__init__.py", 0o644);
  file(
    "installed/dflash_lsp-0.1.0.dist-info/METADATA",
    0o644,
    "Metadata-Version: 2.1\nName: dflash-lsp\nVersion: 0.1.0\n",
  );
  assert.equal(await hasServer(python("module"), folder), false);
  assert.equal(await hasServer(python("installed"), folder), true);
  assert.equal(await hasServer(join(folder, "no-python"), folder), false);
});
