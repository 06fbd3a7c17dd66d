import assert from "node:assert/strict";
import { test } from "node:test";
import { locateServer, ServerNotFound, type Surroundings } from "../src/locate";
import type { Settings } from "../src/settings";

const NOTHING_SET: Settings = { command: "", interpreter: "", package: "", profile: "" };

/** A fake machine: its executables, its interpreters with the server, and the active ones of a fake Python extension. */
function fakeMachine(machine: {
  executables?: string[];
  path?: Record<string, string>;
  withServer?: string[];
  active?: string[];
  trusted?: boolean;
  own?: string;
}): Surroundings {
  return {
    trusted: machine.trusted ?? true,
    executable: async (name) => machine.path?.[name] ?? machine.executables?.find((path) => path === name),
    hasServer: async (interpreter) => machine.withServer?.includes(interpreter) ?? false,
    activeInterpreters: async () => machine.active ?? [],
    privateInterpreter: async () => machine.own,
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
  assert.deepEqual([launch.command, ...launch.prefix], ["/opt/dflash-lsp"]);
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
  assert.deepEqual([launch.command, ...launch.prefix], ["/opt/python", "-P", "-m", "server"]);
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
  assert.deepEqual([launch.command, ...launch.prefix], ["/venv/bin/python", "-P", "-m", "server"]);
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
    assert.match(error.message, /install it here, or set dflash\.server\.command$/);
    assert.ok(error instanceof ServerNotFound && error.isAbsent, "an environment of our own would help");
    assert.ok(!error.message.includes("\n"));
    return true;
  });
});

test("the extension's own environment comes last, and only while it has the server", async () => {
  const path = { "dflash-lsp": "/usr/bin/dflash-lsp" };
  const machine = { own: "/storage/bin/python", withServer: ["/storage/bin/python"] };
  assert.equal(
    (await locateServer(NOTHING_SET, fakeMachine({ ...machine, path }))).command,
    "/usr/bin/dflash-lsp",
  );
  const launch = await locateServer(NOTHING_SET, fakeMachine(machine));
  assert.deepEqual([launch.command, ...launch.prefix], ["/storage/bin/python", "-P", "-m", "server"]);
  await assert.rejects(
    locateServer(NOTHING_SET, fakeMachine({ ...machine, withServer: [] })),
    ServerNotFound,
  );
});

test("where the user named a server, an environment of our own is not offered", async () => {
  await assert.rejects(
    locateServer({ ...NOTHING_SET, command: "/opt/missing" }, EVERYTHING),
    (error: Error) => error instanceof ServerNotFound && !error.isAbsent,
  );
});
