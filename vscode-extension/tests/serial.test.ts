import assert from "node:assert/strict";
import { test } from "node:test";
import { serialised } from "../src/serial";

/** An action whose runs end when told to, with the most that ran at once. */
function recorded() {
  const runs: { end: (error?: Error) => void }[] = [];
  let active = 0;
  const seen = { most: 0 };
  const action = () =>
    new Promise<void>((resolve, reject) => {
      active += 1;
      seen.most = Math.max(seen.most, active);
      runs.push({
        end: (error) => {
          active -= 1;
          if (error) reject(error);
          else resolve();
        },
      });
    });
  return { action, runs, seen };
}

test("runs never overlap, and a burst of calls costs one further run", async () => {
  const { action, runs, seen } = recorded();
  const call = serialised(action);
  const first = call();
  const rest = [call(), call(), call()];
  assert.equal(runs.length, 1);
  runs[0]?.end();
  await first;
  await new Promise(setImmediate);
  assert.equal(runs.length, 2);
  runs[1]?.end();
  await Promise.all(rest);
  assert.equal(runs.length, 2);
  assert.equal(seen.most, 1);
});

test("a run that fails is told to its caller and does not keep the next from running", async () => {
  const { action, runs } = recorded();
  const call = serialised(action);
  const first = call();
  const second = call();
  runs[0]?.end(new Error("no"));
  await assert.rejects(first, /no/);
  await new Promise(setImmediate);
  runs[1]?.end();
  await second;
  assert.equal(runs.length, 2);
});
