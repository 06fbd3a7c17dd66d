import assert from "node:assert/strict";
import { test } from "node:test";
import { Completions } from "../src/completions";
import type { Place, Typed } from "../src/stream";

const PLACE: Place = { uri: "file:///a.py", version: 1, line: 0, character: 4 };
const never = () => ({ dispose: () => undefined });
const later = (milliseconds = 0) => new Promise((resolve) => setTimeout(resolve, milliseconds));

interface Asked {
  readonly place: Place;
  readonly invoked: boolean;
  readonly signal: AbortSignal;
  grow(text: string): void;
  end(...texts: string[]): void;
  fail(): void;
}

/** A fake of the editor and of the server behind it: items are their texts, and answers come when told to. */
class FakeHost {
  readonly asked: Asked[] = [];
  refreshes = 0;
  busy = false;
  growing = false;
  version = 1;
  readonly completions = new Completions<string>({
    ask: (place, invoked, grown, signal) =>
      new Promise<string[]>((resolve, reject) => {
        signal.addEventListener("abort", () => reject(new Error("cancelled")));
        this.asked.push({
          place,
          invoked,
          signal,
          grow: (text) => grown([text]),
          end: (...texts) => resolve(texts),
          fail: () => reject(new Error("no")),
        });
      }),
    refresh: async () => {
      this.refreshes += 1;
    },
    busy: (on) => {
      this.busy = on;
    },
    growing: (on) => {
      this.growing = on;
    },
    version: () => this.version,
    texts: {
      text: (item) => item,
      rest: (item, typed: Typed) => item.slice(typed.text.length),
      isSame: (one, other) => one === other,
    },
  });

  get last(): Asked {
    const last = this.asked.at(-1);
    assert.ok(last);
    return last;
  }

  /** What the editor is given at a place, or undefined as long as it waits. */
  provide(place = PLACE, invoked = false) {
    return this.completions.provide(place, invoked, never);
  }

  /** One insertion at the place that was asked for. */
  type(text: string, at = PLACE): void {
    this.version += 1;
    this.completions.edited(at.uri, this.version, [
      { line: at.line, character: at.character, replaced: 0, text },
    ]);
  }
}

test("the first text is shown as soon as it is there, and growth by asking the editor again", async () => {
  const host = new FakeHost();
  const first = host.provide();
  assert.equal(host.busy, true);
  host.last.grow("one");
  assert.deepEqual(await first, ["one"]);
  host.last.grow("one two");
  await later(130);
  assert.equal(host.refreshes, 1);
  assert.deepEqual(await host.provide(), ["one two"]);
  host.last.end("one two three");
  await later(130);
  assert.equal(host.refreshes, 2);
  assert.deepEqual(await host.provide(), ["one two three"]);
  assert.equal(host.asked.length, 1, "the server is asked once");
  assert.equal(host.busy, false);
});

test("the editor is told that a text grows behind its first piece, and not at all where that is the whole", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  await first;
  assert.equal(host.growing, false);
  await later(40);
  assert.equal(host.growing, true);
  host.last.end("one two");
  await later();
  assert.equal(host.growing, false);
  const whole = host.provide({ ...PLACE, version: 2 });
  host.last.grow("all");
  host.last.end("all");
  await whole;
  await later(40);
  assert.equal(host.growing, false);
});

test("growth is shown at most ten times a second, and the last of it always", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("0");
  await first;
  for (let turn = 1; turn <= 20; turn++) {
    host.last.grow("0".repeat(turn + 1));
    await later(10);
  }
  host.last.end("0".repeat(30));
  await later(220);
  assert.ok(host.refreshes >= 2 && host.refreshes <= 5, `${host.refreshes}`);
  assert.deepEqual(await host.provide(), ["0".repeat(30)]);
});

test("an answer of nothing, or a failure, shows nothing", async () => {
  const host = new FakeHost();
  const nothing = host.provide();
  host.last.end();
  assert.deepEqual(await nothing, []);
  const failed = host.provide({ ...PLACE, version: 2 });
  host.last.fail();
  assert.deepEqual(await failed, []);
  assert.equal(host.busy, false);
});

test("after it was stopped nothing of it is shown any more, and the server hears of it", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  await first;
  host.last.grow("one two");
  host.completions.stop();
  assert.equal(host.last.signal.aborted, true);
  await later(150);
  assert.equal(host.refreshes, 0);
  assert.equal(host.busy, false);
});

test("a key that disagrees ends it at once", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  await first;
  host.type("x");
  assert.equal(host.last.signal.aborted, true);
});

test("what is typed of the text leaves the rest, and it goes on growing there", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one two");
  await first;
  host.type("o");
  const next = { ...PLACE, version: 2, character: 5 };
  assert.deepEqual(await host.provide(next), ["ne two"]);
  host.last.grow("one two\nthree");
  await later(130);
  assert.equal(host.refreshes, 1);
  assert.deepEqual(await host.provide(next), ["ne two\nthree"]);
  host.type("ne two\n", next);
  assert.deepEqual(await host.provide({ ...PLACE, version: 3, line: 1, character: 0 }), ["three"]);
  assert.equal(host.asked.length, 1, "the server is not asked again");
});

test("who types faster than the text comes is shown the rest when it has come", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  await first;
  host.type("one t");
  const shown = host.provide({ ...PLACE, version: 2, character: 9 });
  host.last.grow("one two");
  assert.deepEqual(await shown, ["wo"]);
  assert.equal(host.last.signal.aborted, false);
});

test("after all of it was accepted the rest follows, and when there is none the server is asked what comes next", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  await first;
  host.type("one");
  const shown = host.provide({ ...PLACE, version: 2, character: 7 });
  host.last.end("one");
  await later();
  assert.equal(host.asked.length, 2);
  host.last.end(" and more");
  assert.deepEqual(await shown, [" and more"]);
});

test("of a bracket that the editor closes, the opening one was typed", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("(a, b)");
  await first;
  host.type("()");
  assert.deepEqual(await host.provide({ ...PLACE, version: 2, character: 5 }), ["a, b)"]);
});

test("before anything is known of the text, a key leaves the stream to the next request to join", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.type("o");
  const next = host.provide({ ...PLACE, version: 2, character: 5 });
  assert.equal(host.asked[0]?.signal.aborted, false, "the server joins the two");
  host.last.grow("ne");
  assert.deepEqual(await next, ["ne"]);
  host.asked[0]?.end("one");
  assert.deepEqual(await first, ["one"]);
  await later(130);
  assert.equal(host.refreshes, 0, "what belongs to the old place is not shown");
});

test("a key that no request follows ends what nothing is known of", async () => {
  const host = new FakeHost();
  void host.provide();
  host.type("o");
  assert.equal(host.last.signal.aborted, false);
  await later(300);
  assert.equal(host.last.signal.aborted, true);
});

test("an edit elsewhere, and edits at several cursors, end it", async () => {
  for (const edits of [
    [{ line: 5, character: 0, replaced: 0, text: "one" }],
    [
      { line: 0, character: 4, replaced: 0, text: "o" },
      { line: 1, character: 4, replaced: 0, text: "o" },
    ],
  ]) {
    const host = new FakeHost();
    const first = host.provide();
    host.last.grow("one");
    await first;
    host.completions.edited(PLACE.uri, 2, edits);
    assert.equal(host.last.signal.aborted, true);
  }
});

test("an edit of another document changes nothing", async () => {
  const host = new FakeHost();
  void host.provide();
  host.type("x", { ...PLACE, uri: "file:///b.py" });
  assert.equal(host.last.signal.aborted, false);
});

test("a cursor that is moved ends it, one that moves by typing does not", () => {
  const host = new FakeHost();
  void host.provide();
  host.completions.moved(PLACE);
  host.completions.moved({ ...PLACE, version: 2, character: 5 });
  assert.equal(host.last.signal.aborted, false);
  host.completions.moved({ ...PLACE, character: 2 });
  assert.equal(host.last.signal.aborted, true);
  void host.provide();
  host.completions.moved(undefined);
  assert.equal(host.last.signal.aborted, true);
});

test("when the editor wants no answer any more it is over, unless a key has changed the text", async () => {
  for (const isKey of [false, true]) {
    const host = new FakeHost();
    let cancel = () => {};
    void host.completions.provide(PLACE, false, (listener) => {
      cancel = listener;
      return never();
    });
    cancel();
    if (isKey) host.type("o");
    await later(40);
    assert.equal(host.last.signal.aborted, !isKey);
  }
});

test("another document's request ends the one before", () => {
  const host = new FakeHost();
  void host.provide();
  const before = host.last;
  void host.provide({ ...PLACE, uri: "file:///b.py" });
  assert.equal(before.signal.aborted, true);
});

test("by hand where a completion is shown, all alternatives are waited for and kept", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.end("one");
  await first;
  const cycled = host.provide(PLACE, true);
  assert.equal(host.last.invoked, true);
  host.last.grow("one");
  await later();
  host.last.end("one", "two", "three");
  assert.deepEqual(await cycled, ["one", "two", "three"]);
  assert.deepEqual(await host.provide(PLACE, true), ["one", "two", "three"]);
  await later(130);
  assert.equal(host.refreshes, 0, "an update would make the editor forget that it asked");
  assert.equal(host.asked.length, 2);
});

test("an answer that says nothing new is no update", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  await first;
  host.last.end("one");
  await later(130);
  assert.equal(host.refreshes, 0);
  assert.equal(host.busy, false);
});

test("by hand before it is known that what is shown is all of it, the alternatives come all the same", async () => {
  const host = new FakeHost();
  const first = host.provide();
  host.last.grow("one");
  assert.deepEqual(await first, ["one"]);
  await later(130); // from now on an update would be shown at once
  const cycled = host.provide(PLACE, true);
  await later();
  assert.equal(host.asked.length, 1, "the server would end the text for another request");
  host.last.grow("one more");
  host.last.end("one more");
  await later();
  assert.equal(host.last.invoked, true);
  host.last.end("one more", "two");
  assert.deepEqual(await cycled, ["one more", "two"]);
  assert.equal(host.refreshes, 0, "an update would make the editor forget that it asked");
});
