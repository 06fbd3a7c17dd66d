import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { activeInterpreters } from "../src/python";
import { host, workspace } from "./fakeHost";

const ENVIRONMENTS = "ms-python.vscode-python-envs";
const PYTHON = "ms-python.python";

/** As the two extensions document their interfaces; neither is to be had without the Marketplace. */
const environments = (active: (scope?: string) => string) => () => ({
  getEnvironment: async (scope?: string) => ({ execInfo: { run: { executable: active(scope) } } }),
});
const python = (path: string) => () => ({
  environments: {
    getActiveEnvironmentPath: () => ({ path }),
    resolveEnvironment: async (environment: { path: string }) => ({
      executable: { uri: { fsPath: environment.path } },
    }),
  },
});
let told: string[] = [];
const ask = () => activeInterpreters((line) => told.push(line));

beforeEach(() => {
  host.extensions = {};
  workspace.workspaceFolders = undefined;
  told = [];
});

test("without a Python extension there is no active interpreter, and nothing to tell", async () => {
  assert.deepEqual(await ask(), []);
  assert.deepEqual(told, []);
});

test("each folder's interpreter comes before the window's, each once", async () => {
  workspace.workspaceFolders = [{ uri: "one" }, { uri: "other" }];
  const active: Record<string, string> = { one: "/one/python", other: "/both/python" };
  host.extensions = { [ENVIRONMENTS]: environments((scope) => (scope && active[scope]) || "/both/python") };
  assert.deepEqual(await ask(), ["/one/python", "/both/python"]);
});

test("the older extension is asked where the newer one is absent or gives none", async () => {
  host.extensions = { [PYTHON]: python("/old/python") };
  assert.deepEqual(await ask(), ["/old/python"]);
  host.extensions = { [ENVIRONMENTS]: () => ({}), [PYTHON]: python("/old/python") };
  assert.deepEqual(await ask(), ["/old/python"]);
  host.extensions = { [ENVIRONMENTS]: environments(() => "/new/python"), [PYTHON]: python("/old/python") };
  assert.deepEqual(await ask(), ["/new/python"]);
});

test("an extension that fails is told in the log, and the lookup goes on", async () => {
  const fails = () => {
    throw new Error("it is broken");
  };
  host.extensions = { [ENVIRONMENTS]: fails, [PYTHON]: python("/old/python") };
  assert.deepEqual(await ask(), ["/old/python"]);
  assert.deepEqual(told, ["A Python extension gave no interpreter: it is broken"]);
});
