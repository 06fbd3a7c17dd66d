import assert from "node:assert/strict";
import { test } from "node:test";
import { locateServer, ServerNotFound, type Surroundings } from "../src/locate";
import type { Settings } from "../src/settings";

const NOTHING_SET: Settings = { enable: true, command: "", interpreter: "", profile: "" };

/** A fake machine: its executables, its interpreters with the server, and the active ones of a fake Python extension. */
function fakeMachine(machine: {
  executables?: string[];
  path?: Record<string, string>;
  withServer?: string[];
  active?: string[];
  trusted?: boolean;
}): Surroundings {
  return {
    trusted: machine.trusted ?? true,
    executable: async (name) => machine.path?.[name] ?? machine.executables?.find((path) => path === name),
    hasServer: async (interpreter) => machine.withServer?.includes(interpreter) ?? false,
    activeInterpreters: async () => machine.active ?? [],
  };
}

const EVERYTHING = fakeMachine({
  executables: ["/opt/dflash-lsp", "/opt/python"],
  path: { "dflash-lsp": "/usr/bin/dflash-lsp" },
  withServer: ["/opt/python", "/venv/bin/python"],
  active: ["/venv/bin/python"],
});

test("the command setting comes first", async () => {
  const launch = await locateServer(
    { ...NOTHING_SET, command: "/opt/dflash-lsp", interpreter: "/opt/python" },
    EVERYTHING,
  );
  assert.deepEqual([launch.command, ...launch.args], ["/opt/dflash-lsp", "lsp"]);
});

test("a command setting that names nothing executable is an error, not the next place", async () => {
  const settings = { ...NOTHING_SET, command: "/opt/missing" };
  await assert.rejects(locateServer(settings, EVERYTHING), (error: Error) => {
    assert.ok(error instanceof ServerNotFound);
    assert.match(error.message, /^dflash\.server\.command .*: \/opt\/missing$/);
    return true;
  });
});

test("the interpreter setting comes second, and keeps the working directory off the module path", async () => {
  const launch = await locateServer({ ...NOTHING_SET, interpreter: "/opt/python" }, EVERYTHING);
  assert.deepEqual([launch.command, ...launch.args], ["/opt/python", "-P", "-m", "server", "lsp"]);
});

test("an interpreter setting without the server is an error that names it", async () => {
  const machine = fakeMachine({ executables: ["/opt/bare-python"] });
  await assert.rejects(
    locateServer({ ...NOTHING_SET, interpreter: "/opt/bare-python" }, machine),
    /not installed .*: \/opt\/bare-python$/,
  );
});

test("a relative interpreter setting is refused", async () => {
  const machine = fakeMachine({ executables: ["bin/python"], withServer: ["bin/python"] });
  await assert.rejects(locateServer({ ...NOTHING_SET, interpreter: "bin/python" }, machine), /absolute path/);
});

test("with nothing set, the active environment comes before PATH", async () => {
  const launch = await locateServer(NOTHING_SET, EVERYTHING);
  assert.deepEqual([launch.command, ...launch.args], ["/venv/bin/python", "-P", "-m", "server", "lsp"]);
});

test("an active environment without the server is passed over", async () => {
  const machine = fakeMachine({
    path: { "dflash-lsp": "/usr/bin/dflash-lsp" },
    active: ["/venv/bin/python"],
  });
  assert.equal((await locateServer(NOTHING_SET, machine)).command, "/usr/bin/dflash-lsp");
});

test("the environment of an untrusted workspace is never run", async () => {
  const machine = fakeMachine({
    withServer: ["/ws/.venv/bin/python"],
    active: ["/ws/.venv/bin/python"],
    trusted: false,
  });
  machine.hasServer = async () => assert.fail("an interpreter was run");
  await assert.rejects(locateServer(NOTHING_SET, machine), ServerNotFound);
});

test("with no server anywhere, one line says what to do", async () => {
  await assert.rejects(locateServer(NOTHING_SET, fakeMachine({})), (error: Error) => {
    assert.match(error.message, /install it .* or set dflash\.server\.command$/);
    assert.ok(!error.message.includes("\n"));
    return true;
  });
});
