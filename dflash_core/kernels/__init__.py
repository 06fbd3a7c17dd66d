"""Triton kernels of the CUDA round: few rows against all weights, few queries against a live cache.

Every kernel reads what changes from round to round (position, row count, addresses of the session's keys and values)
from device memory, so that one captured graph serves every session and every length. A row's result does not depend
on how many rows run beside it: sums run in one fixed order, so greedy text is the same at every width, bit for bit.
"""
