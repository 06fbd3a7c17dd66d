// Which completion is shown: at most one stream at a time, and what each key, move and answer means for it.
import { Refresher } from "./refresher";
import { type Ask, type Edit, isSamePlace, type Place, Stream, type Texts } from "./stream";

/**
 * A stream of which nothing is known yet goes on so long after a key: the editor asks again 50 ms later, and the server
 * lets that request join a text that the key agrees with. When it does not agree the server ends it itself.
 */
const JOIN_MS = 250;
/** The editor cancels a request before or after it tells of the change that made it do so. */
const ORDER_MS = 15;
/** Most texts are whole soon after their first piece: only of one that is not then is the editor told that it grows. */
const GROWS_AFTER_MS = 20;

/** What the editor and the server do for us. */
export interface Host<Item> {
  readonly ask: Ask<Item>;
  readonly texts: Texts<Item>;
  /** Makes the editor ask us again and show the answer in the place of what it shows. */
  refresh(): Promise<void>;
  /** Whether a completion is being made. */
  busy(on: boolean): void;
  /** Whether what is shown goes on growing, so that Escape must end it. Told behind the text, which it would delay. */
  growing(on: boolean): void;
  /** The document's version now. */
  version(uri: string): number | undefined;
}

export class Completions<Item> {
  private stream: Stream<Item> | undefined;
  /** The stream whose end the next alternative waits for: an update would make the editor forget that it asked. */
  private awaited: Stream<Item> | undefined;
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
    const cycles = invoked && before !== undefined && !before.invoked && before.items.length > 0;
    if (cycles && !before.complete) {
      // What is shown may be all of it before that is known: an alternative takes its place only when it is.
      this.awaited = before;
      this.refresher.clear();
      await before.whole;
      if (this.awaited === before) this.awaited = undefined;
      if (this.stream !== before || !isSamePlace(before.place, place)) return [];
    }
    let stream =
      before && !cycles && !isUsedUp(before, invoked) ? before : this.begin(place, invoked, cycles);
    if (stream.items.length > 0) return this.give(stream);
    const listening = cancelled(() => this.unwanted(place));
    await (cycles ? stream.whole : stream.text());
    if (this.stream === stream && isSamePlace(stream.place, place) && isUsedUp(stream, false)) {
      stream = this.begin(place, invoked, false);
      await stream.text();
    }
    listening.dispose();
    this.refresher.shown();
    return isSamePlace(stream.place, place) ? this.give(stream) : [];
  }

  /** The document, which now has this version, was edited. */
  edited(uri: string, version: number, edits: readonly Edit[]): void {
    const { stream } = this;
    if (!stream || stream.place.uri !== uri || edits.length === 0) return;
    this.refresher.clear();
    const [edit] = edits;
    if (edit && edits.length === 1 && stream.type(edit, version)) return;
    const { line, character } = stream.place;
    const mayAgree = edits.length === 1 && !stream.isKnown && edit?.replaced === 0;
    if (mayAgree && edit?.line === line && edit.character === character) {
      setTimeout(() => {
        if (this.stream === stream) this.stop();
      }, JOIN_MS);
    } else {
      this.stop();
    }
  }

  /** The cursor is there, while the text is the same, or nowhere in sight. */
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
    this.settled();
  }

  private give(stream: Stream<Item>): readonly Item[] {
    setTimeout(() => {
      if (this.stream === stream && !stream.complete && stream.items.length > 0) this.host.growing(true);
    }, GROWS_AFTER_MS);
    return stream.items;
  }

  private settled(): void {
    this.host.busy(false);
    this.host.growing(false);
  }

  /** `silently`: whoever asked waits for the whole, and an update would make the editor forget that it asked. */
  private begin(place: Place, invoked: boolean, silently: boolean): Stream<Item> {
    // In the same document the server ends the one before itself, or lets this one join it.
    if (this.stream && this.stream.place.uri !== place.uri) this.stream.stop();
    this.refresher.clear();
    this.host.busy(true);
    const stream: Stream<Item> = new Stream(place, invoked, this.host.ask, this.host.texts, () => {
      if (this.stream === stream && this.awaited !== stream && !silently) this.refresher.ask();
    });
    this.stream = stream;
    void stream.whole.then(() => {
      if (this.stream === stream) this.settled();
    });
    return stream;
  }

  /** The editor does not wait for an answer any more: after a key it will ask again, else it is over. */
  private unwanted(place: Place): void {
    setTimeout(() => {
      const isHere = this.stream !== undefined && isSamePlace(this.stream.place, place);
      if (isHere && this.host.version(place.uri) === place.version) this.stop();
    }, ORDER_MS);
  }
}

/** Whether a stream has nothing more to give, where another request may have: behind its text, or asked for by hand. */
function isUsedUp<Item>(stream: Stream<Item>, invoked: boolean): boolean {
  return stream.complete && stream.items.length === 0 && (stream.isTyped || invoked);
}
