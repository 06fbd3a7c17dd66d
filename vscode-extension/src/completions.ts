// Which completion is shown: at most one stream at a time, and what each key, move and answer means for it.
import { Refresher } from "./refresher";
import { type Ask, isSamePlace, type Place, Stream } from "./stream";

/**
 * A stream whose document has changed goes on so long for the next request to join it: the editor asks again 50 ms
 * after a key, and the server goes on with a text that the key agrees with. Ending it at the key would waste it; for a
 * key that disagrees the server ends it itself, on hearing of the change.
 */
const JOIN_MS = 250;
/** The editor cancels a request before or after it tells of the change that made it do so. */
const ORDER_MS = 15;

/** What the editor does for us. */
export interface Host<Item> {
  readonly ask: Ask<Item>;
  /** Makes the editor ask us again and show the answer in the place of what it shows. */
  refresh(): Promise<void>;
  /** Whether a completion is being made, so that Escape must end it and the status is busy. */
  streaming(on: boolean): void;
  /** The document's version now. */
  version(uri: string): number | undefined;
  /** Whether text that was inserted is the beginning of the item's own. */
  begins(item: Item, inserted: string): boolean;
}

/** One edit of a document: `text` in the place of `replaced` characters. */
export interface Edit {
  readonly line: number;
  readonly character: number;
  readonly replaced: number;
  readonly text: string;
}

export class Completions<Item> {
  private stream: Stream<Item> | undefined;
  private readonly refresher: Refresher;

  constructor(private readonly host: Host<Item>) {
    this.refresher = new Refresher(() => host.refresh());
  }

  /**
   * The items to show at a place: of the stream that is there already, or of a new one as soon as it has any.
   * `invoked`: by hand, so that every alternative is wanted. `cancelled` tells when the editor wants no answer any more.
   */
  async provide(
    place: Place,
    invoked: boolean,
    cancelled: (listener: () => void) => { dispose(): void },
  ): Promise<readonly Item[]> {
    const before = this.stream && isSamePlace(this.stream.place, place) ? this.stream : undefined;
    // By hand where something is shown: the next alternative is wanted, so the answer is not there before all are.
    const cycles = invoked && before?.complete === true && !before.invoked && before.items.length > 0;
    const stream = before && !cycles ? before : this.begin(place, invoked, cycles);
    if (stream.items.length > 0) return stream.items;
    const listening = cancelled(() => this.unwanted(stream));
    await (cycles ? stream.whole : stream.first);
    listening.dispose();
    this.refresher.shown();
    return stream.items;
  }

  /** The document was edited. */
  edited(uri: string, edits: readonly Edit[]): void {
    const { stream } = this;
    if (!stream || stream.place.uri !== uri || edits.length === 0) return;
    this.refresher.clear();
    const [edit] = edits;
    if (!edit || edits.length > 1 || !this.agrees(stream, edit)) {
      this.stop();
      return;
    }
    setTimeout(() => {
      if (this.stream === stream) this.stop();
    }, JOIN_MS);
  }

  /** The cursor is elsewhere while the text is the same, or the document is out of sight. */
  moved(place: Place | undefined): void {
    const { stream } = this;
    if (!stream) return;
    const isTyping = place && place.uri === stream.place.uri && place.version !== stream.place.version;
    if (!isTyping && !(place && isSamePlace(place, stream.place))) this.stop();
  }

  /** Ends what is being made, for good. */
  stop(): void {
    this.refresher.clear();
    this.stream?.stop();
    this.stream = undefined;
    this.host.streaming(false);
  }

  /** `silently`: whoever asked waits for the whole, and an update would make the editor forget that it asked. */
  private begin(place: Place, invoked: boolean, silently: boolean): Stream<Item> {
    // In the same document the server ends the one before itself, or lets this one join it.
    if (this.stream && this.stream.place.uri !== place.uri) this.stream.stop();
    this.refresher.clear();
    this.host.streaming(true);
    const stream: Stream<Item> = new Stream(place, invoked, this.host.ask, () => {
      if (this.stream === stream && !silently) this.refresher.ask();
    });
    this.stream = stream;
    void stream.whole.then(() => {
      if (this.stream === stream) this.host.streaming(false);
    });
    return stream;
  }

  private agrees(stream: Stream<Item>, edit: Edit): boolean {
    const { line, character } = stream.place;
    if (edit.line !== line || edit.character !== character) return false;
    const [item] = stream.items;
    // Before anything is known of the text only the server can tell.
    return item === undefined ? edit.replaced === 0 : this.host.begins(item, edit.text);
  }

  /** The editor does not wait for the stream any more: after a key the next request may join it, else it is over. */
  private unwanted(stream: Stream<Item>): void {
    setTimeout(() => {
      if (this.stream !== stream) return;
      if (this.host.version(stream.place.uri) === stream.place.version) this.stop();
    }, ORDER_MS);
  }
}
