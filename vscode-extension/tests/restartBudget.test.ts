import assert from "node:assert/strict";
import { test } from "node:test";
import { RestartBudget } from "../src/restartBudget";

test("a server that keeps ending is started four times, ever later, and then left", () => {
  const budget = new RestartBudget();
  const waits = [0, 1, 2, 3, 4].map((second) => budget.take(second * 1000));
  assert.deepEqual(waits, [500, 1000, 2000, 4000, undefined]);
});

test("after a quiet while, or when the user asks, it is started again", () => {
  const budget = new RestartBudget();
  for (let turn = 0; turn < 5; turn++) budget.take(0);
  assert.equal(budget.take(3 * 60_000), 500);
  for (let turn = 0; turn < 5; turn++) budget.take(3 * 60_000);
  budget.refill();
  assert.equal(budget.take(3 * 60_000), 500);
});
