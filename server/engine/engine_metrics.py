"""Acceptance and load of a shared engine, read from its /metrics: SGLang's and vLLM's names.

SGLang offers them with --enable-metrics, vLLM always. Names read in SGLang 0.5.23
(`observability/metrics_collector.py`) and vLLM's `v1/spec_decode/metrics.py` and `v1/metrics/loggers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

ACCEPT_LENGTH = "sglang:spec_accept_length"
DRAFTS = "vllm:spec_decode_num_drafts"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
RUNNING = ("sglang:num_running_reqs", "vllm:num_requests_running")
WAITING = ("sglang:num_queue_reqs", "vllm:num_requests_waiting")
GENERATED = ("sglang:generation_tokens", "vllm:generation_tokens")


@dataclass(frozen=True)
class EngineLoad:
    """Of all that use the engine. acceptance_length: 0.0 when nothing was drafted. tokens: generated since it began."""

    acceptance_length: float = 0.0
    running: int = 0
    waiting: int = 0
    tokens: int = 0


class MetricsReader:
    """Reads one engine's metrics again and again: counters count from its start, and now is what matters."""

    def __init__(self) -> None:
        self._drafts = 0.0
        self._accepted = 0.0

    def read(self, text: str) -> EngineLoad | None:
        """What the text says; None when it is not the metrics of an engine that we know."""
        sums = _sums(text)
        if not any(name in sums for name in (*RUNNING, *GENERATED, ACCEPT_LENGTH, DRAFTS)):
            return None
        return EngineLoad(
            acceptance_length=self._acceptance_length(sums),
            running=int(sum(sums.get(name, 0.0) for name in RUNNING)),
            waiting=int(sum(sums.get(name, 0.0) for name in WAITING)),
            tokens=int(sum(sums.get(name, 0.0) for name in GENERATED)),
        )

    def _acceptance_length(self, sums: dict[str, float]) -> float:
        if ACCEPT_LENGTH in sums:
            return round(sums[ACCEPT_LENGTH], 2)
        drafts, accepted = sums.get(DRAFTS, 0.0), sums.get(ACCEPTED, 0.0)
        since = drafts - self._drafts, accepted - self._accepted
        # A counter that went back is another engine's, begun anew.
        new_drafts, new_accepted = since if since[0] > 0 and since[1] >= 0 else (drafts, accepted)
        self._drafts, self._accepted = drafts, accepted
        # The bonus token counts.
        return round(1 + new_accepted / new_drafts, 2) if new_drafts else 0.0


def _sums(text: str) -> dict[str, float]:
    """Each name's samples summed over ranks and labels; of SGLang's acceptance length the mean."""
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removesuffix("_total")
                sums[name] = sums.get(name, 0.0) + sample.value
                counts[name] = counts.get(name, 0) + 1
    except ValueError:
        return {}
    if ACCEPT_LENGTH in sums:
        sums[ACCEPT_LENGTH] /= counts[ACCEPT_LENGTH]
    return sums
