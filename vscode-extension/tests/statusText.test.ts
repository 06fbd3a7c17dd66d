import assert from "node:assert/strict";
import { test } from "node:test";
import {
  describe,
  describeEngine,
  describeFigures,
  describeServer,
  type EngineStatus,
  parseEngineStatus,
  summarise,
} from "../src/statusText";

/** The params of `dflash/status` as the server sends them. */
function status(params: Record<string, unknown>): EngineStatus {
  const parsed = parseEngineStatus(params);
  assert.ok(parsed);
  return parsed;
}

const PAIR = { profile: "embedded", target: "Qwen3-8B", draft: "Qwen3-8B-DFlash" };

test("while loading, the share done is shown and the item is busy", () => {
  const said = describeEngine(status({ state: "loading", progress: 0.429, ...PAIR }), false);
  assert.equal(said.text, "DFlash: loading 42 %");
  assert.equal(said.busy, true);
});

test("loading without a known share shows none", () => {
  assert.equal(describeEngine(status({ state: "loading", progress: null }), false).text, "DFlash: loading");
});

test("ready names the target and that it has a draft, and has its figures in a line of their own", () => {
  const ready = status({ state: "ready", ...PAIR, acceptance_length: 2.614, tokens_per_s: 31.4 });
  assert.equal(describeFigures(ready), "acceptance length 2.61 · 31 tokens/s");
  assert.deepEqual(describeEngine(ready, false), {
    text: "DFlash: Qwen3-8B + draft",
    detail: "",
    severity: "information",
    busy: false,
    action: { command: "dflash.openStatusPage", title: "Status page" },
  });
});

test("ready with a reason says why the last answer was empty", () => {
  const said = describeEngine(status({ state: "ready", ...PAIR, reason: "excluded" }), false);
  assert.equal(said.detail, "nothing offered: excluded");
  assert.equal(said.severity, "information");
});

test("no figure is shown before there is one", () => {
  assert.equal(describeFigures(status({ state: "ready", ...PAIR, acceptance_length: 0 })), undefined);
  assert.equal(describeFigures(status({ state: "failed", acceptance_length: 2 })), undefined);
  assert.equal(describeFigures(undefined), undefined);
});

test("a target without a draft says so", () => {
  assert.equal(
    describeEngine(status({ state: "ready", target: "T", draft: "" }), false).text,
    "DFlash: T, no draft",
  );
});

test("an engine without a model is named by its profile", () => {
  assert.equal(describeEngine(status({ state: "ready", profile: "replay" }), false).text, "DFlash: replay");
});

test("busy shows while a completion is being made", () => {
  assert.equal(describeEngine(status({ state: "ready", ...PAIR }), true).busy, true);
});

test("degraded is a warning with its reason, however long the target's name", () => {
  const reason = "out of memory: draft dropped";
  const said = describeEngine(
    status({ state: "degraded", reason, target: "SmolLM2-135M-Instruct, tuned" }),
    false,
  );
  assert.deepEqual([said.severity, said.text, said.detail], ["warning", "DFlash: degraded", reason]);
});

test("failed is an error with its reason, of the engine and of the server alike", () => {
  const engine = describeEngine(status({ state: "failed", reason: "no weights" }), true);
  assert.deepEqual([engine.severity, engine.detail, engine.busy], ["error", "no weights", false]);
  const server = describeServer({ kind: "failed", reason: "not found" });
  assert.deepEqual([server.severity, server.detail, server.busy], ["error", "not found", false]);
});

test("what is no status is not taken for one", () => {
  for (const params of [undefined, null, "ready", [], {}, { state: "happy" }]) {
    assert.equal(parseEngineStatus(params), undefined);
  }
});

test("a field of the wrong type counts as absent", () => {
  assert.deepEqual(
    Object.values(
      status({ state: "ready", progress: "half", target: 3, acceptance_length: Number.NaN }),
    ).filter(Boolean),
    ["ready"],
  );
});

test("text and detail fit the one line that VS Code shows, the more important part first", () => {
  const long = "x".repeat(200);
  for (const state of ["loading", "ready", "degraded", "failed"]) {
    const said = describeEngine(
      status({ state, reason: long, target: long, draft: long, acceptance_length: 2.5, tokens_per_s: 9 }),
      false,
    );
    assert.ok(said.text.length + said.detail.length <= 62, `${said.text} ${said.detail}`);
    assert.match(said.detail, /x…$/);
  }
  const said = describeEngine(status({ state: "degraded", reason: "short", target: "T", draft: "D" }), false);
  assert.equal(said.detail, "short · T + draft");
});

test("the log has the full names, and no line for each change of the figures", () => {
  const before = summarise(status({ state: "ready", ...PAIR, acceptance_length: 2 }));
  assert.equal(before, "ready, profile embedded, Qwen3-8B + Qwen3-8B-DFlash");
  assert.equal(
    summarise(status({ state: "ready", ...PAIR, acceptance_length: 3, reason: "excluded" })),
    before,
  );
});

test("what the user switched off or paused is said before what the engine says", () => {
  const situation = {
    server: { kind: "running" as const },
    engine: status({ state: "ready", ...PAIR }),
    busy: true,
    offFor: undefined,
    snoozedUntil: undefined,
  };
  assert.match(describe(situation).text, /Qwen/);
  const paused = describe({ ...situation, snoozedUntil: new Date(2026, 1, 1, 14, 5) });
  assert.deepEqual(
    [paused.text, paused.detail, paused.action.command],
    ["DFlash: paused", "until 14:05", "dflash.resume"],
  );
  const off = describe({ ...situation, offFor: "markdown" });
  assert.deepEqual([off.text, off.detail, off.busy], ["DFlash: off", "for markdown", false]);
  const failed = describe({ ...situation, server: { kind: "failed", reason: "gone" }, offFor: "markdown" });
  assert.equal(failed.text, "DFlash: failed");
});

test("the link of the status does what helps", () => {
  assert.equal(
    describeServer({ kind: "failed", reason: "not found", isAbsent: true }).action.command,
    "dflash.install",
  );
  assert.equal(describeServer({ kind: "failed", reason: "broken" }).action.command, "dflash.showLogs");
  assert.equal(describeServer({ kind: "disabled" }).action.command, "dflash.enable");
  const lacking = status({ state: "failed", reason: "no target: run `dflash-lsp fetch embedded`" });
  assert.equal(describeEngine(lacking, false).action.command, "dflash.fetchModel");
});
