// Real environments, made by the machine's own Python, with a wheel that is a fake of the server's distribution.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { createEnvironment, findPython, privateInterpreter } from "../src/environment";

const folder = mkdtempSync(join(tmpdir(), "dflash-environment-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A wheel of that name with one module, written by Python, which can write archives. */
function fakeWheel(name: string): string {
  const path = join(folder, `${name}-0.1.0-py3-none-any.whl`);
  const script = `
import sys, zipfile
name, path = sys.argv[1:]
with zipfile.ZipFile(path, "w") as archive:
    archive.writestr(name + ".py", "")
    info = name + "-0.1.0.dist-info/"
    archive.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: " + name.replace("_", "-") + "\\nVersion: 0.1.0\\n")
    archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    archive.writestr(info + "RECORD", "")
`;
  execFileSync("python3", ["-c", script, name, path]);
  return path;
}

const storage = join(folder, "storage");

type Create = (what: string, signal?: AbortSignal) => Promise<string>;

/** A test that makes environments with the machine's own Python, where there is one that can. */
function testWithPython(name: string, body: (create: Create) => Promise<void>): void {
  test(name, async (context) => {
    const python = await findPython();
    if (!python) {
      context.skip("no Python 3.11 or later with venv and pip in PATH");
      return;
    }
    await body((what, signal = new AbortController().signal) =>
      createEnvironment(storage, python, what, () => undefined, signal),
    );
  });
}

test("an old Python, or none, is not taken", async () => {
  const old = join(folder, "old");
  execFileSync("mkdir", ["-p", old]);
  writeFileSync(join(old, "python3"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  assert.equal(await findPython({ PATH: old }), undefined);
  assert.equal(await findPython({ PATH: "" }), undefined);
});

testWithPython("an environment holds what was installed, and is found again", async (create) => {
  assert.equal(await privateInterpreter(storage), undefined);
  const interpreter = await create(fakeWheel("dflash_lsp"));
  assert.equal(await privateInterpreter(storage), interpreter);
});

testWithPython("what does not bring the server is refused, and nothing is left of it", async (create) => {
  const before = readdirSync(join(storage, "environments"));
  await assert.rejects(create(fakeWheel("something_else")), /holds no dflash-lsp$/);
  await assert.rejects(create(join(folder, "missing.whl")), (error: Error) => {
    assert.match(error.message, /missing\.whl/);
    assert.ok(!error.message.includes("\n"));
    return true;
  });
  assert.deepEqual(readdirSync(join(storage, "environments")), before);
});

testWithPython("an installation that is stopped leaves nothing", async (create) => {
  const before = readdirSync(join(storage, "environments"));
  const ending = new AbortController();
  const creating = create(fakeWheel("dflash_lsp"), ending.signal);
  setTimeout(() => ending.abort(), 100);
  await assert.rejects(creating, /stopped/);
  assert.deepEqual(readdirSync(join(storage, "environments")), before);
});
