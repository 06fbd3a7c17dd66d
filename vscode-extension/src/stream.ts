// One completion that grows: asked for at one place of a document, and what is left of it at the place that typing has
// come to since.

/** Where a completion is wanted; another version of the document is another place. */
export interface Place {
  readonly uri: string;
  readonly version: number;
  readonly line: number;
  readonly character: number;
}

export function isSamePlace(one: Place, other: Place): boolean {
  return (
    one.uri === other.uri &&
    one.version === other.version &&
    one.line === other.line &&
    one.character === other.character
  );
}

/** One edit: `text` (with `\n` line ends) in the place of `replaced` characters. */
export interface Edit {
  readonly line: number;
  readonly character: number;
  readonly replaced: number;
  readonly text: string;
}

/** Of a bracket or quote that the editor closes itself, what was typed. */
export function withoutClosedPair(text: string): string {
  return ["()", "[]", "{}", '""', "''", "``"].includes(text) ? text.slice(0, 1) : text;
}

/** Where the cursor is after `text` was typed. */
export function placeAfter<P extends { line: number; character: number }>(place: P, text: string): P {
  const lines = text.split("\n");
  const last = lines[lines.length - 1] ?? "";
  return {
    ...place,
    line: place.line + lines.length - 1,
    character: lines.length > 1 ? last.length : place.character + last.length,
  };
}

/** How far a document has come since the completion was asked for. */
export interface Typed {
  readonly place: Place;
  /** What of the completion's text is in the document by now. */
  readonly text: string;
  /** How many more characters stand right of the cursor than then: closed by the editor, less what was replaced. */
  readonly more: number;
}

/**
 * Asks the server. `grown` hears of each growth, all of the text so far; the result is the whole, none for nothing. The
 * signal ends it.
 */
export type Ask<Item> = (
  place: Place,
  invoked: boolean,
  grown: (items: readonly Item[]) => void,
  signal: AbortSignal,
) => Promise<readonly Item[]>;

/** What items are made of. */
export interface Texts<Item> {
  /** With `\n` line ends. */
  text(item: Item): string;
  /** What is left of an item whose text begins with what was typed. */
  rest(item: Item, typed: Typed): Item;
  /** Whether both look the same to the user, and do the same to the document. */
  isSame(one: Item, other: Item): boolean;
}

export class Stream<Item> {
  /** Whether all that will come has come. */
  complete = false;
  /** Resolves when it is complete or stopped. Never rejects. */
  readonly whole: Promise<void>;
  private told: readonly Item[] = [];
  private typed: Typed;
  private waiting: (() => void)[] = [];
  private readonly ending = new AbortController();

  /** `grown` hears of more text where there was some before; the first is what `text` waits for. */
  constructor(
    place: Place,
    readonly invoked: boolean,
    ask: Ask<Item>,
    private readonly texts: Texts<Item>,
    private readonly grown: () => void,
  ) {
    this.typed = { place, text: "", more: 0 };
    this.whole = ask(place, invoked, (items) => this.become(items), this.ending.signal)
      // Who asked has told of the failure; here it is an answer with nothing in it.
      .catch(() => [])
      .then((items) => {
        this.complete = true;
        if (items.length > 0) this.become(items);
        this.wake();
      });
  }

  /** Where the cursor must be for what there is to be shown. */
  get place(): Place {
    return this.typed.place;
  }

  /** Whether some of it was typed or accepted. */
  get isTyped(): boolean {
    return this.typed.text !== "";
  }

  get stopped(): boolean {
    return this.ending.signal.aborted;
  }

  /** What there is to show by now at its place. */
  get items(): readonly Item[] {
    if (this.stopped) return [];
    if (!this.isTyped) return this.told;
    const { text } = this.typed;
    return this.told
      .filter((item) => this.texts.text(item).length > text.length && this.texts.text(item).startsWith(text))
      .map((item) => this.texts.rest(item, this.typed));
  }

  /** Whether something is known of the text, so that a key can be told to agree with it. */
  get isKnown(): boolean {
    return this.told.length > 0;
  }

  /** Resolves when there is something to show, or when nothing will come. Never rejects. */
  async text(): Promise<void> {
    while (this.items.length === 0 && !this.complete && !this.stopped) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
  }

  /** The document, now of this version, was edited: true when the edit typed on in what is known of the text. */
  type(edit: Edit, version: number): boolean {
    const { place, text, more } = this.typed;
    const added = withoutClosedPair(edit.text);
    if (edit.line !== place.line || edit.character !== place.character || !added) return false;
    const typed = {
      place: { ...placeAfter(place, added), version },
      text: text + added,
      more: more + edit.text.length - added.length - edit.replaced,
    };
    // Who types faster than the text comes is not wrong yet.
    const isOurs = this.told.some((item) => {
      const known = this.texts.text(item);
      return known.startsWith(typed.text) || (!this.complete && typed.text.startsWith(known));
    });
    if (isOurs) this.typed = typed;
    return isOurs;
  }

  /** Ends it for good: nothing of it is shown any more, and the server hears of it at once. */
  stop(): void {
    this.ending.abort();
    this.wake();
  }

  private become(items: readonly Item[]): void {
    if (this.stopped) return;
    const hadText = this.items.length > 0;
    const before = this.told;
    this.told = items;
    if (!hadText) {
      this.wake();
    } else if (
      items.length !== before.length ||
      !items.every((item, index) => this.texts.isSame(item, before[index] as Item))
    ) {
      // The last answer often says nothing new: an update for it could only come between the user and the next key.
      this.grown();
    }
  }

  private wake(): void {
    const { waiting } = this;
    this.waiting = [];
    for (const resolve of waiting) resolve();
  }
}
