// VS Code's inline completions from ours: registered, renewed for each update, and told of keys and moves.
import {
  commands,
  Disposable,
  InlineCompletionItem,
  InlineCompletionTriggerKind,
  languages,
  Position,
  Range,
  type TextDocument,
  type TextDocumentContentChangeEvent,
  type TextEditor,
  window,
  workspace,
} from "vscode";
import { ACCEPTED, Acceptance } from "./acceptance";
import { Completions } from "./completions";
import { DOCUMENTS } from "./documents";
import type { CompletionServer, RawItem } from "./protocol";
import { isEnabled, SECTION } from "./settings";
import type { Edit, Place, Typed } from "./stream";

const GROWING_CONTEXT = "dflash.growing";
/** A provider that has been replaced stays so long, for the editor to be done with what it gave. */
const RETIRED_MS = 50;

export class Provider implements Disposable {
  private readonly completions: Completions<InlineCompletionItem>;
  private readonly acceptance: Acceptance<InlineCompletionItem>;
  private registration: Disposable | undefined;
  private readonly listening: Disposable;
  private isGrowing = false;

  /** `grows`: whether growth is to be shown. `onBusy` hears whether a completion is being made. */
  constructor(
    private readonly server: CompletionServer,
    private readonly extensionId: string,
    grows: () => boolean,
    onBusy: (busy: boolean) => void,
  ) {
    this.completions = new Completions<InlineCompletionItem>({
      ask: async (place, invoked, grown, signal) => {
        const items = await server.complete(
          { ...place, invoked },
          grows() ? (growth) => grown(growth.map((raw) => toItem(raw, place.uri))) : undefined,
          signal,
        );
        return items.map((raw) => toItem(raw, place.uri));
      },
      texts: { text: textOf, rest, isSame },
      refresh: () => this.refresh(),
      busy: onBusy,
      growing: (on) => this.setGrowing(on),
      version: (uri) => workspace.textDocuments.find((document) => document.uri.toString() === uri)?.version,
    });
    this.acceptance = new Acceptance({
      shown: (item) => server.shown(toRaw(item)),
      partlyAccepted: (item, units) => server.partlyAccepted(toRaw(item), units),
    });
    this.listening = Disposable.from(
      workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        const edits = contentChanges.map(toEdit);
        this.completions.edited(document.uri.toString(), document.version, edits);
        this.acceptance.edited(document.uri.toString(), edits);
      }),
      window.onDidChangeTextEditorSelection(({ textEditor }) => this.moved(textEditor)),
      window.onDidChangeActiveTextEditor((editor) => this.moved(editor)),
    );
    this.renew();
  }

  /** Ends what is being made, for good, and hides what is shown. */
  async dismiss(): Promise<void> {
    this.completions.stop();
    await commands.executeCommand("editor.action.inlineSuggest.hide");
  }

  /** Ends what is being made: it would be of another server, or of none. */
  stop(): void {
    this.completions.stop();
  }

  dispose(): void {
    this.completions.stop();
    this.listening.dispose();
    this.registration?.dispose();
  }

  /**
   * The editor does not ask a provider again that it has asked for the same text and place, but it does ask a new one;
   * and what a request that is not explicit brings takes the place of what is shown, without a gap. Triggering a
   * provider by name is known to VS Code from 1.106 on; seen to work in 1.139.
   */
  private async refresh(): Promise<void> {
    this.renew();
    await commands.executeCommand("editor.action.inlineSuggest.trigger", {
      explicit: false,
      providerId: `${this.extensionId}:*`,
    });
  }

  private renew(): void {
    const retired = this.registration;
    const registration: Disposable = languages.registerInlineCompletionItemProvider(DOCUMENTS, {
      provideInlineCompletionItems: async (document, position, context, token) => {
        // Both are asked while the old one is still there; only one answers.
        if (this.registration !== registration || token.isCancellationRequested) return null;
        const place = { ...placeOf(document, position) };
        if (!this.isOffered(document)) return null;
        const invoked = context.triggerKind === InlineCompletionTriggerKind.Invoke;
        const items = await this.completions.provide(place, invoked, (listener) =>
          token.onCancellationRequested(listener),
        );
        const [item] = items;
        if (!item || token.isCancellationRequested) return null;
        this.acceptance.show(place, item, textOf(item));
        return [...items];
      },
    });
    this.registration = registration;
    if (retired) setTimeout(() => retired.dispose(), RETIRED_MS);
  }

  /** Several cursors each stand in another text, and a selection is about to be replaced. */
  private isOffered(document: TextDocument): boolean {
    const editor = window.activeTextEditor;
    if (editor?.document === document && !(editor.selections.length === 1 && editor.selection.isEmpty)) {
      return false;
    }
    return this.server.running && isEnabled(workspace.getConfiguration(SECTION, document));
  }

  private moved(editor: TextEditor | undefined): void {
    if (editor !== window.activeTextEditor) return;
    this.completions.moved(editor && placeOf(editor.document, editor.selection.active));
  }

  private setGrowing(on: boolean): void {
    if (this.isGrowing === on) return;
    this.isGrowing = on;
    void commands.executeCommand("setContext", GROWING_CONTEXT, on);
  }
}

function placeOf(document: TextDocument, position: Position): Place {
  return {
    uri: document.uri.toString(),
    version: document.version,
    line: position.line,
    character: position.character,
  };
}

function toEdit(change: TextDocumentContentChangeEvent): Edit {
  const { line, character } = change.range.start;
  return { line, character, replaced: change.rangeLength, text: unified(change.text) };
}

/** Acceptance of a growing item is told as well, so each has the command of the whole one. */
function toItem(raw: RawItem, uri: string): InlineCompletionItem {
  const { start, end } = raw.range;
  return new InlineCompletionItem(
    raw.insertText,
    new Range(new Position(start.line, start.character), new Position(end.line, end.character)),
    raw.command ?? { title: "Accepted", command: ACCEPTED, arguments: [uri, "stream"] },
  );
}

function toRaw(item: InlineCompletionItem): RawItem {
  const { start, end } = item.range ?? new Range(0, 0, 0, 0);
  return {
    insertText: typeof item.insertText === "string" ? item.insertText : item.insertText.value,
    range: {
      start: { line: start.line, character: start.character },
      end: { line: end.line, character: end.character },
    },
    command: item.command,
  };
}

/** What is left of an item at the place that typing has come to; it replaces what is left of what it replaced. */
function rest(item: InlineCompletionItem, { place, text, more }: Typed): InlineCompletionItem {
  const width = item.range ? item.range.end.character - item.range.start.character + more : more;
  const start = new Position(place.line, place.character);
  const left = textOf(item).slice(text.length);
  const isCrlf = typeof item.insertText === "string" && item.insertText.includes("\r\n");
  return new InlineCompletionItem(
    isCrlf ? left.replaceAll("\n", "\r\n") : left,
    new Range(start, start.translate(0, Math.max(0, width))),
    item.command,
  );
}

function isSame(one: InlineCompletionItem, other: InlineCompletionItem): boolean {
  const isInPlace = one.range === undefined || (other.range?.isEqual(one.range) ?? false);
  return textOf(one) === textOf(other) && isInPlace;
}

/** Line ends as one character: the document's own may be two. */
function unified(text: string): string {
  return text.replaceAll("\r\n", "\n");
}

function textOf(item: InlineCompletionItem): string {
  return unified(typeof item.insertText === "string" ? item.insertText : item.insertText.value);
}
