"""What Prometheus scrapes: counters of what happened, gauges of how things stand.

The counters follow events; the gauges are read from a snapshot at each scrape. Every label
value comes from a closed set, from the configuration or from the hardware, never from a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from mtpd.engine import prom
from mtpd.events import (
    DecisionMade,
    EngineTransition,
    MeasurementTaken,
    RequestFinished,
)
from mtpd.metrics.catalogue import BUCKETS, METRICS, Kind, family_name
from mtpd.metrics.standing import MAX_PROFILES, Standing
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.engine.prom import SpecCounters
    from mtpd.events import Event
    from mtpd.metrics.standing import Snapshot
    from mtpd.views import MeasurementView

__all__ = ["CONTENT_TYPE", "HEADERS", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEADERS: Final = {"Content-Type": CONTENT_TYPE}

_STARTING = frozenset({"spawning", "loading", "probing"})
_NOT_STARTED = frozenset({"failed", "backoff", "wedged", "vram_unrecovered", "gpu_failed"})
_GIVEN_UP = frozenset({"failed", "stopped", "ready"})
"""Where no start follows by itself."""


class Metrics:
    """The daemon's metrics, in a registry of their own.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        # A start time beside each counter would double the series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._now = now
        self._shown: Snapshot | None = None
        self._profiles: set[str] = set()
        self._spawned_s: dict[str, float] = {}
        self._broken: dict[str, str] = {}
        self._drafts: dict[str, tuple[str, SpecCounters]] = {}
        self._counters = {
            spec.name: Counter(family_name(spec), spec.says, spec.labels, registry=self.registry)
            for spec in METRICS.values()
            if spec.kind is Kind.COUNTER and spec.name in _COUNTED
        }
        self._histograms = {
            spec.name: Histogram(
                spec.name,
                spec.says,
                spec.labels,
                buckets=BUCKETS[spec.name],
                registry=self.registry,
            )
            for spec in METRICS.values()
            if spec.kind is Kind.HISTOGRAM
        }
        self.registry.register(Standing(lambda: self._shown))
        ProcessCollector(namespace="mtpd", registry=self.registry)

    def observe(self, event: Event) -> None:
        """Count an event of the bus; most kinds count nothing."""
        match event:
            case RequestFinished():
                self._request(event)
            case EngineTransition():
                self._moved(event)
            case MeasurementTaken(measurement=taken):
                self._measured(taken)
            case DecisionMade(decision=made):
                self._count("mtpd_decisions_total", 1, made.act)
            case _:
                pass

    def switched(self, outcome: str, duration_s: float) -> None:
        """Count a switch: ``done``, ``failed`` or ``cancelled``, and how long it took."""
        self._count("mtpd_switches_total", 1, outcome)
        self._observe("mtpd_switch_duration_seconds", duration_s)

    def lagged(self, seconds: float) -> None:
        """Count how late the loop was at one moment."""
        self._observe("mtpd_loop_lag_seconds", seconds)

    def refused(self, problem: str) -> None:
        """Count a request that was not let through, by the slug of its problem."""
        self._count("mtpd_http_refusals_total", 1, problem)

    def drafted(self, profile: str, engine_id: str, now: SpecCounters) -> None:
        """Count what an engine's own counters of speculation have moved by.

        The first reading of an engine start counts as a whole: it began at 0.
        """
        last = self._drafts.get(profile)
        self._drafts[profile] = (engine_id, now)
        moved = now if last is None or last[0] != engine_id else prom.delta(last[1], now)
        if isinstance(moved, Absent):
            return
        name = self._profile(profile)
        self._count("mtpd_draft_steps_total", moved.drafts, name)
        for position, accepted in enumerate(moved.per_position or (), 1):
            self._count("mtpd_position_accepted_tokens_total", accepted, name, str(position))

    def text(self, snapshot: Snapshot) -> bytes:
        """Everything in the text format, of type ``CONTENT_TYPE``, with how things stand."""
        self._shown = snapshot
        return generate_latest(self.registry)

    def _request(self, event: RequestFinished) -> None:
        profile = self._profile(event.profile)
        self._count("mtpd_requests_total", 1, profile, event.outcome)
        if event.refused is not None:
            self._count("mtpd_requests_refused_total", 1, profile, event.refused)
        self._observe("mtpd_request_duration_seconds", event.duration_s, event.outcome)
        if event.waited_s is not None:
            self._observe("mtpd_queue_wait_seconds", event.waited_s)
        for name, count in (
            ("mtpd_prompt_tokens_total", event.prompt_tokens),
            ("mtpd_cached_prompt_tokens_total", event.cached_tokens),
            ("mtpd_generated_tokens_total", event.completion_tokens),
            ("mtpd_drafted_tokens_total", event.drafted),
            ("mtpd_accepted_tokens_total", event.accepted),
        ):
            self._count(name, count, profile)
        timed = event.generated is not None and event.decode_s is not None
        if timed and not event.suspended_s:
            self._count("mtpd_timed_tokens_total", event.generated, profile)
            self._count("mtpd_decode_seconds_total", event.decode_s, profile)

    def _moved(self, event: EngineTransition) -> None:
        profile = self._profile(event.profile)
        if event.new == "spawning":
            self._spawned_s[profile] = self._now()
            if (failure := self._broken.pop(profile, None)) is not None:
                self._count("mtpd_engine_restarts_total", 1, profile, failure)
        if event.failure is not None:
            self._count("mtpd_engine_failures_total", 1, profile, event.failure)
            self._broken[profile] = event.failure
        if event.old in _STARTING and event.new == "ready":
            self._count("mtpd_engine_starts_total", 1, profile, "ready")
            if (began_s := self._spawned_s.pop(profile, None)) is not None:
                self._observe("mtpd_engine_start_duration_seconds", self._now() - began_s)
        elif event.old in _STARTING and event.new in _NOT_STARTED:
            self._count("mtpd_engine_starts_total", 1, profile, "failed")
        if event.new in _GIVEN_UP:
            self._broken.pop(profile, None)

    def _measured(self, taken: MeasurementView) -> None:
        profile = self._profile(taken.arm.profile)
        excluded = "no" if taken.excluded is None else "yes"
        self._count("mtpd_measurements_total", 1, profile, excluded)
        for position, accepted in enumerate(taken.accepted_per_position or (), 1):
            self._count("mtpd_measured_accepted_tokens_total", accepted, profile, str(position))

    def _count(self, name: str, by: float | None, *labels: str) -> None:
        """Unknown is not zero: a series that nobody reports does not exist."""
        if by is not None:
            counter = self._counters[name]
            (counter.labels(*labels) if labels else counter).inc(by)

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        histogram = self._histograms[name]
        (histogram.labels(*labels) if labels else histogram).observe(seconds)

    def _profile(self, name: str) -> str:
        if name not in self._profiles and len(self._profiles) >= MAX_PROFILES:
            return "other"
        self._profiles.add(name)
        return name


_COUNTED: Final = frozenset(
    f"mtpd_{name}_total"
    for name in (
        *("requests", "requests_refused", "http_refusals"),
        *("prompt_tokens", "cached_prompt_tokens", "generated_tokens"),
        *("drafted_tokens", "accepted_tokens", "timed_tokens"),
        *("decode_seconds", "draft_steps", "position_accepted_tokens"),
        *("engine_starts", "engine_failures", "engine_restarts", "switches"),
        *("decisions", "measurements", "measured_accepted_tokens"),
    )
)
"""Counters that follow events; the others are read with the gauges."""
