// One completion that grows: asked for at one place of a document, shown while it comes, ended for good by many things.

/** Where a completion was asked for; another version of the document is another place. */
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

/** What the server has to say at a place; the first item is the one that is shown. */
export interface Answer<Item> {
  readonly items: readonly Item[];
}

/**
 * Asks the server. `grown` hears of each growth, all of the text so far; the result is the whole, or nothing. The
 * signal ends it.
 */
export type Ask<Item> = (
  place: Place,
  invoked: boolean,
  grown: (answer: Answer<Item>) => void,
  signal: AbortSignal,
) => Promise<Answer<Item> | undefined>;

/** A request under way or answered. `items` is what there is by now. */
export class Stream<Item> {
  items: readonly Item[] = [];
  /** Whether all that will come has come. */
  complete = false;
  /** Resolves when there is something to show, or when nothing will come. Never rejects. */
  readonly first: Promise<void>;
  /** Resolves when it is complete or stopped. Never rejects. */
  readonly whole: Promise<void>;
  private readonly ending = new AbortController();

  /** `changed` hears of each change but the first text, which whoever asked waits for. */
  constructor(
    readonly place: Place,
    readonly invoked: boolean,
    ask: Ask<Item>,
    changed: () => void,
  ) {
    let hasText = () => {};
    const text = new Promise<void>((resolve) => {
      hasText = resolve;
    });
    const become = (items: readonly Item[]) => {
      if (this.stopped) return;
      const isFirst = this.items.length === 0;
      this.items = items;
      if (isFirst) hasText();
      else changed();
    };
    this.whole = ask(place, invoked, ({ items }) => become(items), this.ending.signal)
      // Who asked has told of the failure; here it is an answer with nothing in it.
      .catch(() => undefined)
      .then((answer) => {
        this.complete = true;
        if (answer?.items.length) become(answer.items);
      });
    this.first = Promise.race([text, this.whole]);
  }

  get stopped(): boolean {
    return this.ending.signal.aborted;
  }

  /** Ends it for good: nothing of it is shown any more, and the server hears of it at once. */
  stop(): void {
    if (!this.stopped) this.ending.abort();
    this.items = [];
  }
}
