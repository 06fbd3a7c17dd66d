"""Quantiles of times, as the benches report them."""

from __future__ import annotations

from collections.abc import Sequence


def p50_p95(times: Sequence[float]) -> dict[str, float]:
    """Milliseconds at the 50th and 95th percentile, and the number of times; zeros for none."""
    ordered = sorted(times)
    if not ordered:
        return {"count": 0, "p50": 0.0, "p95": 0.0}
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "p50": round(ordered[round(0.5 * last)], 2),
        "p95": round(ordered[round(0.95 * last)], 2),
    }
