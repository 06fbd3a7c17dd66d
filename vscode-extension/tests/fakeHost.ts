// A fake of the part of VS Code's API that the completions use. It counts what is registered, so that leaks are seen.

export class Position {
  constructor(
    readonly line: number,
    readonly character: number,
  ) {}

  translate(lines: number, characters: number): Position {
    return new Position(this.line + lines, this.character + characters);
  }
}

export class Range {
  constructor(
    readonly start: Position,
    readonly end: Position,
  ) {}

  isEqual(other: Range): boolean {
    const pairs = [
      [this.start, other.start],
      [this.end, other.end],
    ] as const;
    return pairs.every(([one, two]) => one.line === two.line && one.character === two.character);
  }
}

export class Selection extends Range {
  get active(): Position {
    return this.end;
  }

  get isEmpty(): boolean {
    return this.start.line === this.end.line && this.start.character === this.end.character;
  }
}

export class InlineCompletionItem {
  constructor(
    readonly insertText: string,
    readonly range?: Range,
    readonly command?: unknown,
  ) {}
}

export const InlineCompletionTriggerKind = { Invoke: 0, Automatic: 1 };

export class Disposable {
  constructor(private readonly end: () => void) {}

  static from(...all: { dispose(): void }[]): Disposable {
    return new Disposable(() => {
      for (const each of all) each.dispose();
    });
  }

  dispose(): void {
    this.end();
  }
}

/** Who listens to one kind of event. */
class Listeners<Event> {
  private readonly all = new Set<(event: Event) => void>();

  readonly subscribe = (listener: (event: Event) => void): Disposable => {
    this.all.add(listener);
    return new Disposable(() => this.all.delete(listener));
  };

  get size(): number {
    return this.all.size;
  }

  fire(event: Event): void {
    for (const listener of [...this.all]) listener(event);
  }
}

export interface FakeDocument {
  readonly uri: { toString(): string };
  readonly languageId: string;
  version: number;
}

interface FakeEditor {
  readonly document: FakeDocument;
  selections: Selection[];
  selection: Selection;
}

interface FakeProvider {
  provideInlineCompletionItems(
    document: FakeDocument,
    position: Position,
    context: { triggerKind: number },
    token: object,
  ): Promise<InlineCompletionItem[] | null>;
}

/** What stands behind the fake API; a test drives it and looks at it. */
export const host = {
  changes: new Listeners<unknown>(),
  selections: new Listeners<unknown>(),
  editors: new Listeners<unknown>(),
  cancellations: new Listeners<unknown>(),
  providers: [] as FakeProvider[],
  executed: [] as string[],
  contexts: new Map<string, unknown>(),
  enable: {} as Record<string, unknown>,
  /** What the other extensions give to who activates them, by their names. */
  extensions: {} as Record<string, () => unknown>,

  get registered(): number {
    return (
      this.changes.size +
      this.selections.size +
      this.editors.size +
      this.cancellations.size +
      this.providers.length
    );
  },

  /** What the editor shows: the answer of the newest provider that has one. */
  async ask(position: Position, triggerKind = InlineCompletionTriggerKind.Automatic): Promise<string[]> {
    const { activeTextEditor } = window;
    if (!activeTextEditor) return [];
    const token = { isCancellationRequested: false, onCancellationRequested: this.cancellations.subscribe };
    const answers = await Promise.all(
      this.providers.map((each) =>
        each.provideInlineCompletionItems(activeTextEditor.document, position, { triggerKind }, token),
      ),
    );
    return answers.flatMap((items) => items ?? []).map((item) => item.insertText);
  },

  /** One key, or what a command inserts, at a position. */
  insert(position: Position, text: string): void {
    const { activeTextEditor } = window;
    if (!activeTextEditor) return;
    activeTextEditor.document.version += 1;
    const contentChanges = [{ range: new Range(position, position), rangeLength: 0, text }];
    this.changes.fire({ document: activeTextEditor.document, contentChanges });
  },
};

export const commands = {
  async executeCommand(name: string, ...args: unknown[]): Promise<void> {
    if (name === "setContext") host.contexts.set(String(args[0]), args[1]);
    else host.executed.push(name);
  },
};

export const languages = {
  registerInlineCompletionItemProvider(_selector: unknown, provider: FakeProvider): Disposable {
    host.providers.unshift(provider);
    return new Disposable(() => {
      host.providers = host.providers.filter((each) => each !== provider);
    });
  },
};

export const window = {
  activeTextEditor: undefined as FakeEditor | undefined,
  onDidChangeTextEditorSelection: host.selections.subscribe,
  onDidChangeActiveTextEditor: host.editors.subscribe,
};

export const extensions = {
  getExtension(name: string): { activate(): Promise<unknown> } | undefined {
    const give = host.extensions[name];
    return give && { activate: async () => give() };
  },
};

export const workspace = {
  workspaceFolders: undefined as { uri: string }[] | undefined,
  get textDocuments(): FakeDocument[] {
    return window.activeTextEditor ? [window.activeTextEditor.document] : [];
  },
  onDidChangeTextDocument: host.changes.subscribe,
  getConfiguration: () => ({ inspect: () => host.enable }),
};
