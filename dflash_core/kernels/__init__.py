"""Triton kernels of the CUDA round: few rows against all weights, few queries against a live cache.

Every kernel reads what changes from round to round (position, row count, addresses of the session's keys and values)
from device memory, so that one captured graph serves every session and every length. A row's result does not depend
on how many rows run beside it: sums run in one fixed order, so greedy text is the same at every width, bit for bit.
"""

MOST_ROWS = 16
"""Rows of one tensor-core tile, and so of a block; more rows are a library's work. Here, so that asking for it does not
need Triton."""
