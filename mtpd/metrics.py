"""What Prometheus scrapes: counters of what happened, gauges of how things stand.

Covers names, labels and the text format. The gauges are read from the daemon's status at
each scrape; the counters follow events. Every label value comes from a closed set or
from the configuration, never from a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from mtpd.events import (
    DecisionMade,
    EngineTransition,
    MeasurementTaken,
    RequestFinished,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from mtpd.events import Event
    from mtpd.views import EngineView, StatusView

__all__ = ["CONTENT_TYPE", "HEADERS", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
HEADERS: Final = {"Content-Type": CONTENT_TYPE}

MAX_PROFILES: Final = 64
"""Label values for profiles; those beyond are counted together as ``other``."""

_SWITCH_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
_REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_STARTING = frozenset({"spawning", "loading", "probing"})
_NOT_STARTED = frozenset({"failed", "backoff", "wedged", "vram_unrecovered", "gpu_failed"})


class Metrics:
    """The daemon's metrics, in a registry of their own.

    Args:
        snapshot: The daemon's status, or None before it has one.
        dropped_readers: How many readers of the event stream were dropped.
    """

    def __init__(
        self,
        *,
        snapshot: Callable[[], StatusView | None],
        dropped_readers: Callable[[], int] = lambda: 0,
    ) -> None:
        self.registry = CollectorRegistry()
        self._profiles: set[str] = set()
        self._requests = self._counter(
            "requests", "Relayed requests that ended", "profile", "outcome"
        )
        self._refused = self._counter(
            "requests_refused", "Requests that were turned away", "profile", "reason"
        )
        self._request_s = Histogram(
            "mtpd_request_duration_seconds",
            "From a request's arrival to its end",
            ["outcome"],
            buckets=_REQUEST_S,
            registry=self.registry,
        )
        self._tokens = self._counter("tokens", "Tokens of relayed requests", "profile", "kind")
        self._draft_tokens = self._counter(
            "draft_tokens", "Draft tokens of relayed requests", "profile", "kind"
        )
        self._switches = self._counter("switches", "Switches to another arm that ended", "outcome")
        self._switch_s = Histogram(
            "mtpd_switch_duration_seconds",
            "From the order to switch to the engine being ready",
            buckets=_SWITCH_S,
            registry=self.registry,
        )
        self._decisions = self._counter("decisions", "Journalled decisions", "act")
        self._starts = self._counter(
            "engine_starts", "Engine starts that came to an end", "profile", "outcome"
        )
        self._measurements = self._counter(
            "measurements", "Stored repetitions", "profile", "excluded"
        )
        self._positions = self._counter(
            "draft_accepted_tokens",
            "Accepted draft tokens by draft position, from measurements",
            "profile",
            "position",
        )
        self._refusals = self._counter(
            "refused_requests", "Requests that were refused at the door", "problem"
        )
        self.registry.register(_Standing(snapshot, dropped_readers))
        ProcessCollector(namespace="mtpd", registry=self.registry)

    def observe(self, event: Event) -> None:
        """Count an event of the bus; most kinds count nothing."""
        match event:
            case RequestFinished():
                self._request(event)
            case EngineTransition(profile=profile, old=old, new=new) if old in _STARTING:
                if new == "ready":
                    self.engine_started(profile, "ready")
                elif new in _NOT_STARTED:
                    self.engine_started(profile, "failed")
            case MeasurementTaken(measurement=taken):
                profile = self._profile(taken.arm.profile)
                excluded = "no" if taken.excluded is None else "yes"
                self._measurements.labels(profile, excluded).inc()
                for position, accepted in enumerate(taken.accepted_per_position or ()):
                    self._positions.labels(profile, str(position)).inc(accepted)
            case DecisionMade(decision=made):
                self._decisions.labels(made.act).inc()
            case _:
                pass

    def engine_started(self, profile: str, outcome: str) -> None:
        """Count an engine start: ``ready`` or ``failed``."""
        self._starts.labels(self._profile(profile), outcome).inc()

    def switched(self, outcome: str, duration_s: float) -> None:
        """Count a switch: ``done``, ``failed`` or ``cancelled``, and how long it took."""
        self._switches.labels(outcome).inc()
        self._switch_s.observe(duration_s)

    def refused(self, problem: str) -> None:
        """Count a request that was not let through, by the slug of its problem."""
        self._refusals.labels(problem).inc()

    def text(self) -> bytes:
        """Everything in the text format, of type ``CONTENT_TYPE``."""
        return generate_latest(self.registry)

    def _request(self, event: RequestFinished) -> None:
        profile = self._profile(event.profile)
        self._requests.labels(profile, event.outcome).inc()
        if event.refused is not None:
            self._refused.labels(profile, event.refused).inc()
        self._request_s.labels(event.outcome).observe(event.duration_s)
        for counter, kind, count in (
            (self._tokens, "prompt", event.prompt_tokens),
            (self._tokens, "completion", event.completion_tokens),
            (self._draft_tokens, "drafted", event.drafted),
            (self._draft_tokens, "accepted", event.accepted),
        ):
            # Unknown is not zero: a series that nobody reports does not exist.
            if count is not None:
                counter.labels(profile, kind).inc(count)

    def _profile(self, name: str) -> str:
        if name not in self._profiles and len(self._profiles) >= MAX_PROFILES:
            return "other"
        self._profiles.add(name)
        return name

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"mtpd_{name}", says, labels, registry=self.registry)


class _Standing(Collector):
    """Gauges over the newest status."""

    def __init__(
        self, snapshot: Callable[[], StatusView | None], dropped_readers: Callable[[], int]
    ) -> None:
        self._snapshot = snapshot
        self._dropped_readers = dropped_readers

    def describe(self) -> tuple[Metric, ...]:
        """Nothing in advance: there may be no status yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family after another."""
        yield CounterMetricFamily(
            "mtpd_event_readers_dropped",
            "Readers of the event stream that were too slow",
            value=self._dropped_readers(),
        )
        status = self._snapshot()
        if status is None:
            return
        yield InfoMetricFamily(
            "mtpd",
            "The daemon",
            value={
                "version": status.version,
                "mode": status.mode,
                "hardware": status.hardware or "",
            },
        )
        yield GaugeMetricFamily(
            "mtpd_uptime_seconds", "Since the daemon started", value=status.uptime_s
        )
        yield from _queue(status)
        yield from _engines(status.engines)
        yield _gates(status)
        yield _operation(status)
        yield _choices(status)
        yield from _live(status)


def _queue(status: StatusView) -> Iterator[Metric]:
    queue = status.queue
    for name, says, value in (
        ("requests_waiting", "Requests that wait for an engine", queue.waiting),
        ("requests_waiting_limit", "Requests that may wait", queue.limit),
        ("requests_in_flight", "Requests that an engine works on", queue.in_flight),
    ):
        yield GaugeMetricFamily(f"mtpd_{name}", says, value=value)


def _engines(engines: tuple[EngineView, ...]) -> Iterator[Metric]:
    where = ["device", "profile"]
    state = GaugeMetricFamily(
        "mtpd_engine_state", "1 for the state an engine is in", labels=[*where, "state"]
    )
    residency = GaugeMetricFamily(
        "mtpd_engine_residency", "1 for where its model lies", labels=[*where, "residency"]
    )
    depth = GaugeMetricFamily(
        "mtpd_engine_draft_depth", "Draft depth it was started with", labels=where
    )
    for engine in engines:
        key = [engine.device, engine.profile]
        state.add_metric([*key, engine.state], 1)
        residency.add_metric([*key, engine.residency.state], 1)
        if engine.arm is not None:
            depth.add_metric(key, engine.arm.depth)
    yield from (state, residency, depth)


def _gates(status: StatusView) -> Metric:
    family = GaugeMetricFamily(
        "mtpd_gate_state", "1 for the state of a condition of measuring", labels=["gate", "state"]
    )
    for gate in status.gates:
        family.add_metric([gate.name, gate.state], 1)
    return family


def _operation(status: StatusView) -> Metric:
    family = GaugeMetricFamily(
        "mtpd_operation_state", "1 for the operation in the lane", labels=["kind", "state"]
    )
    if status.operation is not None:
        family.add_metric([status.operation.kind, status.operation.state], 1)
    return family


def _choices(status: StatusView) -> Metric:
    family = GaugeMetricFamily(
        "mtpd_chosen_draft_depth", "Depth chosen for a profile or pool", labels=["subject"]
    )
    for choice in status.choices:
        family.add_metric([choice.subject], choice.arm.depth)
    return family


def _live(status: StatusView) -> Iterator[Metric]:
    """Live traffic of the arms that served last; classes and positions are closed sets."""
    where = ["profile", "class", "depth"]
    requests = GaugeMetricFamily(
        "mtpd_live_requests", "Requests of a class, old ones counting less", labels=where
    )
    speed = GaugeMetricFamily(
        "mtpd_live_decode_tokens_per_second", "Of requests that were decoded alone", labels=where
    )
    alphas = GaugeMetricFamily(
        "mtpd_live_acceptance",
        "Conditional acceptance of a draft position",
        labels=[*where, "position"],
    )
    excluded = CounterMetricFamily(
        "mtpd_live_excluded_requests",
        "Requests that say nothing of the acceptance",
        labels=["profile", "reason"],
    )
    wish = GaugeMetricFamily(
        "mtpd_live_next", "1 for what would be done by itself", labels=["profile", "act", "depth"]
    )
    for live in status.live[:MAX_PROFILES]:
        for one in live.classes:
            for arm in one.arms[-1:]:
                key = [live.profile, one.name, str(arm.arm.depth)]
                requests.add_metric(key, arm.requests)
                if arm.decode_tps is not None:
                    speed.add_metric(key, arm.decode_tps)
                for position, alpha in enumerate(arm.alphas):
                    alphas.add_metric([*key, str(position)], alpha.mid)
        for reason, count in live.excluded.items():
            excluded.add_metric([live.profile, reason], count)
        if live.next is not None:
            wish.add_metric([live.profile, live.next.act, str(live.next.arm.depth)], 1)
    yield from (requests, speed, alphas, excluded, wish)
