"""What the last edit of a document was: typed, deleted, or an undo of what came before it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from server.documents.common_prefix import common_prefix
from server.documents.document import LineEdit, Place

EditKind = Literal["insertion", "replacement", "deletion", "undo"]
REMEMBERED = 16  # edits that an undo is looked for in


@dataclass(frozen=True)
class Edit:
    """One edit: what it took away and put in, and the place behind it."""

    kind: EditKind
    removed: str
    inserted: str
    end: Place


class EditHistory:
    """The last edits of one document."""

    def __init__(self) -> None:
        self._edits: deque[Edit] = deque(maxlen=REMEMBERED)

    @property
    def last(self) -> Edit | None:
        return self._edits[-1] if self._edits else None

    def note(self, edit: LineEdit) -> None:
        old, new = "".join(edit.removed), "".join(edit.added)
        begin = common_prefix(old, new)
        end = min(common_prefix(old[::-1], new[::-1]), min(len(old), len(new)) - begin)
        removed, inserted = old[begin : len(old) - end], new[begin : len(new) - end]
        if not removed and not inserted:
            return
        before = new[: len(new) - end]
        # What the texts differ in may be told in two ways, and only the editor knows where the cursor is.
        place = edit.end or Place(edit.first + before.count("\n"), len(before) - (before.rfind("\n") + 1))
        self._edits.append(Edit(self._kind(removed, inserted), removed, inserted, place))

    def _kind(self, removed: str, inserted: str) -> EditKind:
        # What goes or comes back as it came or went, in one piece longer than a key, was neither deleted nor typed.
        in_one_piece = max(len(inserted), len(removed)) > 1
        if in_one_piece and any(each.removed == inserted and each.inserted == removed for each in self._edits):
            return "undo"
        if not inserted:
            return "deletion"
        return "replacement" if removed else "insertion"
