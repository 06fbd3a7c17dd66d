// The provider in a fake host, with a fake of the server behind it.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { CompletionRequest, CompletionServer, RawItem } from "../src/protocol";
import { Provider } from "../src/provider";
import { host, InlineCompletionTriggerKind, Position, Selection, window } from "./fakeHost";

const CURSOR = new Position(2, 4);
const later = (milliseconds = 0) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** A fake server: answers with the texts it is given, the first ones as growth. */
class FakeServer implements CompletionServer {
  running = true;
  growth: string[] = [];
  /** Between the last growth and the answer, ms. */
  pause = 0;
  answer: string[] = ["return 1"];
  readonly asked: CompletionRequest[] = [];
  readonly told: string[] = [];

  async complete(
    request: CompletionRequest,
    grown: ((items: readonly RawItem[]) => void) | undefined,
  ): Promise<readonly RawItem[]> {
    this.asked.push(request);
    for (const text of this.growth) {
      await later();
      grown?.([this.item(request, text)]);
    }
    await later(this.pause);
    return this.answer.map((text) => this.item(request, text));
  }

  shown(item: RawItem): void {
    this.told.push(`shown ${item.insertText}`);
  }

  partlyAccepted(item: RawItem, units: number): void {
    this.told.push(`${units} of ${item.insertText}`);
  }

  private item({ line, character }: CompletionRequest, insertText: string): RawItem {
    const place = { line, character };
    return { insertText, range: { start: place, end: place } };
  }
}

let server: FakeServer;
let provider: Provider;
let busy: boolean[];

beforeEach(() => {
  provider?.dispose();
  server = new FakeServer();
  busy = [];
  host.enable = {};
  host.executed = [];
  const at = new Selection(CURSOR, CURSOR);
  const document = { uri: { toString: () => "file:///a.py" }, languageId: "python", version: 1 };
  window.activeTextEditor = { document, selection: at, selections: [at] };
  provider = new Provider(
    server,
    "dflash.dflash-lsp",
    () => true,
    (on) => busy.push(on),
  );
});

test("what the server offers is shown and told, with the command that tells of its acceptance", async () => {
  assert.deepEqual(await host.ask(CURSOR), ["return 1"]);
  assert.deepEqual(server.told, ["shown return 1"]);
  assert.deepEqual(server.asked, [
    { uri: "file:///a.py", version: 1, line: 2, character: 4, invoked: false },
  ]);
});

test("growth is shown by triggering a fresh provider, of which there is one in the end", async () => {
  server.growth = ["ret", "return"];
  assert.deepEqual(await host.ask(CURSOR), ["ret"]);
  await later(250);
  assert.ok(host.executed.includes("editor.action.inlineSuggest.trigger"));
  assert.deepEqual(await host.ask(CURSOR), ["return 1"]);
  assert.equal(host.providers.length, 1);
});

test("nothing is asked for several cursors, a selection, a language that is off, or no server", async () => {
  const editor = window.activeTextEditor;
  assert.ok(editor);
  const [one] = editor.selections;
  assert.ok(one);
  editor.selections = [one, one];
  assert.deepEqual(await host.ask(CURSOR), []);
  editor.selections = [new Selection(new Position(0, 0), CURSOR)];
  editor.selection = editor.selections[0] ?? one;
  assert.deepEqual(await host.ask(CURSOR), []);
  editor.selections = [one];
  editor.selection = one;
  host.enable = { globalLanguageValue: false };
  assert.deepEqual(await host.ask(CURSOR), []);
  host.enable = {};
  server.running = false;
  assert.deepEqual(await host.ask(CURSOR), []);
  assert.deepEqual(server.asked, []);
});

test("a part that is accepted is told, and its rest shown without asking the server", async () => {
  await host.ask(CURSOR);
  host.insert(CURSOR, "return");
  assert.deepEqual(server.told, ["shown return 1", "6 of return 1"]);
  assert.deepEqual(await host.ask(new Position(2, 10)), [" 1"]);
  assert.equal(server.asked.length, 1);
});

test("line ends are compared as one character and given back as the document has them", async () => {
  server.answer = ["a\r\n    b\r\n    c"];
  await host.ask(CURSOR);
  host.insert(CURSOR, "a\r\n    ");
  assert.deepEqual(await host.ask(new Position(3, 4)), ["b\r\n    c"]);
});

test("Escape ends it for good, and hides what is shown", async () => {
  server.growth = ["ret"];
  server.pause = 200;
  await host.ask(CURSOR);
  await later(60);
  assert.equal(host.contexts.get("dflash.growing"), true);
  await provider.dismiss();
  assert.equal(host.contexts.get("dflash.growing"), false);
  assert.deepEqual(host.executed, ["editor.action.inlineSuggest.hide"]);
  await later(250);
  assert.deepEqual(host.executed, ["editor.action.inlineSuggest.hide"]);
  assert.deepEqual(busy, [true, false]);
});

test("all alternatives come when one is asked for by hand", async () => {
  await host.ask(CURSOR);
  server.answer = ["return 1", "return 2"];
  assert.deepEqual(await host.ask(CURSOR, InlineCompletionTriggerKind.Invoke), ["return 1", "return 2"]);
  assert.equal(server.asked[1]?.invoked, true);
});

test("after 1,000 completions that grew, as much is registered as before", async () => {
  const before = host.registered;
  server.growth = ["ret"];
  const document = window.activeTextEditor?.document;
  assert.ok(document);
  for (let turn = 0; turn < 1000; turn++) {
    document.version += 1;
    await host.ask(CURSOR);
    if (turn % 3 === 0) host.insert(CURSOR, "r");
    if (turn % 100 === 0) await later(120); // so that growth is shown as well
  }
  await later(400);
  assert.equal(host.registered, before);
  provider.dispose();
  assert.equal(host.registered, 0);
});
