"""Which part of a drafted block is the target's own text."""

from __future__ import annotations

from torch import Tensor


def longest_right_prefix(block: Tensor, chosen: Tensor) -> Tensor:
    """How many drafted tokens the target confirms.

    block: [N, w], the anchor and w - 1 drafted tokens; chosen: [N, w], the target's own token after each row.
    Row k's choice is valid only if the rows before it held the target's own tokens, so a drafted token counts as long
    as it and every one before it equal the choice of the row before: [N], 0 to w - 1. The choice after the last right
    one is the target's own as well: the bonus token.
    """
    return (block[:, 1:] == chosen[:, :-1]).long().cumprod(dim=1).sum(dim=1)
