"""The engine's counters in Prometheus text, names `dflash_*`."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

STATES = ("loading", "ready", "degraded", "failed")
# A round takes a few milliseconds on a large GPU and up to a second on a busy CPU.
ROUND_SECONDS = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)

# The time stamps double the number of series and say nothing here.
disable_created_metrics()


class Metrics:
    """Counters of one app, in a registry of its own so that two apps in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "dflash_requests", "Completions that ended, by finish", ["finish"], registry=self.registry
        )
        self.rounds = Counter("dflash_rounds", "Rounds that ran", registry=self.registry)
        self.tokens = Counter("dflash_tokens", "Tokens committed", registry=self.registry)
        self.drafted = Counter("dflash_drafted_tokens", "Tokens drafted", registry=self.registry)
        self.accepted = Counter(
            "dflash_accepted_tokens", "Drafted tokens that the target accepted", registry=self.registry
        )
        self.prefill = Counter("dflash_prefill_tokens", "Prompt tokens that were computed", registry=self.registry)
        self.reused = Counter("dflash_reused_tokens", "Prompt tokens taken from a session", registry=self.registry)
        self.running = Gauge("dflash_running_requests", "Completions queued or running", registry=self.registry)
        self.round_seconds = Histogram(
            "dflash_round_seconds", "Time of a round", buckets=ROUND_SECONDS, registry=self.registry
        )
        self.state = Gauge("dflash_engine_state", "1 for the state the engine is in", ["state"], registry=self.registry)
        self.set_state("loading")

    def set_state(self, state: str) -> None:
        """Mark the one state the engine is in."""
        for name in STATES:
            self.state.labels(name).set(float(name == state))

    def count_round(self, *, tokens: int, drafted: int, accepted: int, seconds: float) -> None:
        """Count one round, also one whose text nobody waits for any more."""
        self.rounds.inc()
        self.tokens.inc(tokens)
        self.drafted.inc(drafted)
        self.accepted.inc(accepted)
        self.round_seconds.observe(seconds)

    def text(self) -> bytes:
        """The Prometheus exposition of now."""
        return generate_latest(self.registry)
