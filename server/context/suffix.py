"""When the suffix that a prompt shows may stay as it is, though the text below the cursor has changed a little."""

from __future__ import annotations

from server.documents.common_prefix import common_prefix

CHANGED = 0.1  # of the suffix; less is not worth the prefill of all that follows it


def keeps(shown: str, now: str) -> bool:
    """Whether a prompt may go on showing one suffix where the text is another by now.

    The next line with text must be the same: it says most of all where the completion ends. Of the rest a
    tenth may differ, counted between what both begin and what both end with.
    """
    if shown == now:
        return True
    if _next_line(shown) != _next_line(now):
        return False
    begin = common_prefix(shown, now)
    end = min(common_prefix(shown[::-1], now[::-1]), min(len(shown), len(now)) - begin)
    return max(len(shown), len(now)) - begin - end <= CHANGED * max(len(shown), len(now))


def _next_line(text: str) -> str:
    """The first line with text below the cursor's own."""
    below = text.partition("\n")[2]
    return next((line.strip() for line in below.split("\n") if line.strip()), "")
