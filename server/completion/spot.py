"""A cursor between two texts, and how one such spot is reached from another by typing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from server.completion.boundaries.boundary import CursorText
from server.context.prompt import TextBefore

# What an editor adds or takes by itself right of the cursor while one types.
_CLOSERS = re.compile(r"[)\]}>\"'`]+")


@dataclass(frozen=True)
class Spot:
    """Where a text is generated, and what stands around it; all with `\\n` line ends.

    cursor: the windows for boundaries. before: the window for the prompt. single_line: no more than the
    cursor's line is offered, whatever the syntax would allow.
    """

    uri: str
    path: str
    cursor: CursorText
    before: TextBefore
    single_line: bool = False

    @property
    def offset(self) -> int:
        """Characters of the document before the cursor."""
        return self.before.skipped + len(self.before.text)

    def typed_until(self, later: Spot) -> str | None:
        """What was typed at this spot to get to `later`; None when anything else differs."""
        length = later.offset - self.offset
        if length < 0 or length > len(later.before.text) or self.cursor.language != later.cursor.language:
            return None
        if not _is_same_after(self.cursor.after, later.cursor.after):
            return None
        edge = len(later.before.text) - length
        shared = min(edge, len(self.before.text))
        if shared == 0 and self.offset > 0:
            return None  # the windows do not meet: nothing is known
        if later.before.text[edge - shared : edge] != self.before.text[len(self.before.text) - shared :]:
            return None
        return later.before.text[edge:]

    def with_accepted(self, text: str) -> Spot:
        """The spot behind `text`, had it been inserted here."""
        cursor = replace(self.cursor, before=self.cursor.before + text)
        before = replace(self.before, text=self.before.text + text)
        return replace(self, cursor=cursor, before=before, single_line=False)


def _is_same_after(earlier: str, later: str) -> bool:
    if earlier == later:
        return True
    longer, shorter = (later, earlier) if len(later) > len(earlier) else (earlier, later)
    return longer.endswith(shorter) and _CLOSERS.fullmatch(longer[: len(longer) - len(shorter)]) is not None
