import assert from "node:assert/strict";
import { test } from "node:test";
import { Acceptance } from "../src/acceptance";
import type { Place } from "../src/stream";

const PLACE: Place = { uri: "file:///a.py", version: 1, line: 3, character: 4 };

/** Acceptance with a fake of the server that keeps what it is told. */
function recorded() {
  const told: string[] = [];
  const acceptance = new Acceptance<string>({
    shown: (item) => told.push(`shown ${item}`),
    partlyAccepted: (item, units) => told.push(`${units} of ${item}`),
  });
  const insert = (line: number, character: number, text: string) =>
    acceptance.edited(PLACE.uri, [{ line, character, replaced: 0, text }]);
  return { told, acceptance, insert };
}

test("a word that is accepted is told in units from the item's start, across what was typed", () => {
  const { told, acceptance, insert } = recorded();
  acceptance.show(PLACE, "item", "return 🚀 value");
  insert(3, 4, "r");
  insert(3, 5, "eturn");
  acceptance.show({ ...PLACE, version: 3, character: 10 }, "again", " 🚀 value");
  insert(3, 10, " 🚀");
  assert.deepEqual(told, ["shown item", "6 of item", "9 of item"]);
});

test("a line that is accepted moves the place to the next", () => {
  const { told, acceptance, insert } = recorded();
  acceptance.show(PLACE, "item", "one\n    two three");
  insert(3, 4, "one\n    ");
  insert(4, 4, "two");
  assert.deepEqual(told, ["shown item", "8 of item", "11 of item"]);
});

test("keys alone, with the brackets that the editor closes, are no acceptance", () => {
  const { told, acceptance, insert } = recorded();
  acceptance.show(PLACE, "item", "f(x)");
  insert(3, 4, "f");
  insert(3, 5, "()");
  assert.deepEqual(told, ["shown item"]);
});

test("all of it is no part of it: its own command tells", () => {
  const { told, acceptance, insert } = recorded();
  acceptance.show(PLACE, "item", "whole");
  insert(3, 4, "whole");
  assert.deepEqual(told, ["shown item"]);
});

test("text that grows is shown once, something else is shown anew", () => {
  const { told, acceptance, insert } = recorded();
  acceptance.show(PLACE, "one", "first");
  acceptance.show(PLACE, "one grown", "first and more");
  acceptance.show(PLACE, "two", "other");
  insert(3, 4, "ot");
  assert.deepEqual(told, ["shown one", "shown two", "2 of two"]);
});

test("an edit elsewhere ends it", () => {
  const { told, acceptance, insert } = recorded();
  acceptance.show(PLACE, "item", "first second");
  insert(0, 0, "first");
  insert(3, 4, "first");
  assert.deepEqual(told, ["shown item"]);
});
