// What is told to the server of a completion's fate: that it is shown, and how much of it was accepted word by word.
import { type Edit, type Place, placeAfter, withoutClosedPair } from "./stream";

/** The command of an item, run by the editor when all of it was accepted. */
export const ACCEPTED = "dflash.accepted";

export interface Listener<Item> {
  shown(item: Item): void;
  /** The first `units` (UTF-16) of the item as it was shown at first are accepted by now. */
  partlyAccepted(item: Item, units: number): void;
}

interface Shown<Item> {
  readonly item: Item;
  readonly uri: string;
  line: number;
  character: number;
  /** What of its text is not in the document yet. */
  rest: string;
  /** UTF-16 units of it that are. */
  taken: number;
}

/**
 * The editor tells nobody of a partial acceptance, so it is read off the edits: keys insert one character of what is
 * shown, or a pair of brackets; accepting a word or a line inserts more. Of a whole acceptance the item's own command tells.
 */
export class Acceptance<Item> {
  private current: Shown<Item> | undefined;

  constructor(private readonly listener: Listener<Item>) {}

  /** The editor was given the item, whose text is `text`, to show at a place. */
  show(place: Place, item: Item, text: string): void {
    const { current } = this;
    const isSame =
      current?.uri === place.uri &&
      current.line === place.line &&
      current.character === place.character &&
      (text.startsWith(current.rest) || current.rest.startsWith(text));
    if (current && isSame) {
      if (text.length > current.rest.length) current.rest = text;
      return;
    }
    this.current = {
      item,
      uri: place.uri,
      line: place.line,
      character: place.character,
      rest: text,
      taken: 0,
    };
    this.listener.shown(item);
  }

  edited(uri: string, edits: readonly Edit[]): void {
    const { current } = this;
    if (current?.uri !== uri || edits.length === 0) return;
    const [edit] = edits;
    const isAtCursor = edit?.line === current.line && edit.character === current.character;
    const text = edit && withoutClosedPair(edit.text);
    if (edits.length > 1 || !isAtCursor || !text || !current.rest.startsWith(text)) {
      this.current = undefined;
      return;
    }
    const { line, character } = placeAfter(current, text);
    current.line = line;
    current.character = character;
    current.rest = current.rest.slice(text.length);
    current.taken += text.length;
    if (text.length > 1 && current.rest) this.listener.partlyAccepted(current.item, current.taken);
  }
}
