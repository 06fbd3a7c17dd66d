import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { ServerProcess } from "../src/serverProcess";

/** Starts a real process that runs `script`. */
function start(script: string, log: (line: string) => void = () => undefined): Promise<ServerProcess> {
  return ServerProcess.start(
    { command: process.execPath, prefix: ["-e", script], origin: "test" },
    tmpdir(),
    log,
  );
}

test("the last line on stderr is kept, and every line is logged", async () => {
  const lines: string[] = [];
  const server = await start(
    "console.error('first'); console.error('no profile named x'); process.exitCode = 1",
    (line) => lines.push(line),
  );
  assert.equal(await server.exited, "ended with exit code 1");
  assert.equal(server.lastLine, "no profile named x");
  assert.deepEqual(lines, ["first", "no profile named x"]);
});

test("output is unbuffered and the working directory is the one given", async () => {
  const server = await start("console.error(process.env.PYTHONUNBUFFERED + process.cwd())");
  await server.exited;
  assert.equal(server.lastLine, `1${tmpdir()}`);
});

test("a server that reads its input ends with it", async () => {
  const server = await start("process.stdin.resume()");
  await server.end();
  assert.equal(await server.exited, "ended with exit code 0");
});

test("a server that listens to nothing is ended all the same", async () => {
  const server = await start(
    "process.on('SIGTERM', () => {}); console.error('deaf'); setInterval(() => {}, 1000)",
  );
  while (server.lastLine !== "deaf") await new Promise((resolve) => setTimeout(resolve, 10));
  await server.end();
  assert.equal(await server.exited, "was ended by SIGKILL");
});

test("a command that the system cannot start is an error", async () => {
  const launch = { command: "/no/such/dflash-lsp", prefix: [], origin: "test" };
  await assert.rejects(
    ServerProcess.start(launch, tmpdir(), () => undefined),
    /ENOENT/,
  );
});

test("what the server started and left behind ends with it", {
  skip: process.platform !== "linux",
}, async () => {
  const server = await start(
    "const {spawn} = require('child_process');" +
      "console.error(spawn('sleep', ['60'], {stdio: 'ignore'}).pid); process.stdin.resume()",
  );
  while (!server.lastLine) await new Promise((resolve) => setTimeout(resolve, 10));
  const child = Number(server.lastLine);
  process.kill(child, 0);
  await server.end();
  for (let turn = 0; turn < 100 && isAlive(child); turn++)
    await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(!isAlive(child));
});

/** Whether a process runs; one that has ended and was not waited for does not. */
function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
