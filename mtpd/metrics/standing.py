"""How things stand, read from the daemon's status at each scrape. No state of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.registry import Collector

from mtpd.metrics.devices import collect_device
from mtpd.metrics.families import Families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from mtpd.gpu.views import DeviceView
    from mtpd.live_views import LiveProfileView
    from mtpd.types import Reading
    from mtpd.views import ArmMemoryView, EngineView, StatusView

__all__ = ["MAX_PROFILES", "Snapshot", "Standing"]

MAX_PROFILES: Final = 64
"""Label values for models; those beyond are counted together as ``other``, or left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one scrape shows.

    Attributes:
        status: The daemon.
        devices: Every device.
        energy_j: Joules that each drew since it is watched, by device.
        budget_bytes: Device memory that engines may take, by device.
        database_degraded: Whether what is measured is not kept on the disk now.
        readers_dropped: Readers of the event stream that were too slow.
    """

    status: StatusView
    devices: tuple[DeviceView, ...]
    energy_j: Mapping[str, Reading[float]]
    budget_bytes: Mapping[str, int | None]
    database_degraded: bool
    readers_dropped: int


class Standing(Collector):
    """Gauges over the newest snapshot; nothing before the first."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> tuple[Metric, ...]:
        """Nothing in advance: there may be no snapshot yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family after another."""
        now = self._snapshot()
        if now is None:
            return
        found = Families()
        _daemon(found, now)
        _queue(found, now.status)
        memory = {(one.arm.profile, one.arm.depth): one for one in now.status.memory}
        for engine in now.status.engines:
            key = None if engine.arm is None else (engine.arm.profile, engine.arm.depth)
            _engine(found, engine, None if key is None else memory.get(key))
        _tuning(found, now.status)
        for live in now.status.live[:MAX_PROFILES]:
            _live(found, live)
        for device in now.devices:
            collect_device(
                found,
                device,
                energy=now.energy_j.get(device.device),
                budget_bytes=now.budget_bytes.get(device.device),
            )
        yield from found


def _daemon(found: Families, now: Snapshot) -> None:
    status = now.status
    found.info("mtpd_build_info", status.version, status.engine_binary)
    if status.hardware is not None:
        found.info("mtpd_hardware_info", status.hardware)
    found.state("mtpd_tuning_mode", status.mode)
    found.say("mtpd_database_degraded", yes=now.database_degraded)
    if status.config is not None:
        found.say("mtpd_config_invalid", yes=status.config.invalid_since is not None)
    found.add("mtpd_models_unusable", len(status.unusable))
    if status.operation is not None:
        found.add("mtpd_operation_running", 1, status.operation.kind, status.operation.state)
    found.add("mtpd_event_readers_dropped_total", now.readers_dropped)


def _queue(found: Families, status: StatusView) -> None:
    found.add("mtpd_requests_waiting", status.queue.waiting)
    found.add("mtpd_requests_waiting_limit", status.queue.limit)
    found.add("mtpd_requests_in_flight", status.queue.in_flight)
    found.add("mtpd_requests_quarantined", len(status.quarantine))


def _engine(found: Families, engine: EngineView, memory: ArmMemoryView | None) -> None:
    key = (engine.device, engine.profile)
    found.state("mtpd_engine_state", engine.state, *key)
    found.state("mtpd_engine_residency", engine.residency.state, *key)
    found.add("mtpd_engine_evicted_layers", engine.residency.layers, *key)
    found.add("mtpd_engine_spilled_bytes", engine.residency.spilled_bytes, *key)
    found.add("mtpd_engine_draft_depth", None if engine.arm is None else engine.arm.depth, *key)
    breaker_open = engine.failure is not None and engine.failure.breaker_open
    found.say("mtpd_engine_breaker_open", *key, yes=breaker_open)
    if memory is None:
        return
    if memory.held is not None:
        found.add("mtpd_engine_memory_held_bytes", memory.held.count_bytes, *key)
    if memory.memory.predicted is not None:
        predicted_bytes = memory.memory.predicted.total_bytes
        found.add("mtpd_engine_memory_predicted_bytes", predicted_bytes, *key)


def _tuning(found: Families, status: StatusView) -> None:
    for gate in status.gates:
        found.state("mtpd_gate_state", gate.state, gate.name)
    for choice in status.choices:
        found.add("mtpd_chosen_draft_depth", choice.arm.depth, choice.subject)
        found.say("mtpd_choice_measured", choice.subject, yes=choice.measured)
        found.say("mtpd_choice_pinned", choice.subject, yes=choice.pinned)


def _live(found: Families, live: LiveProfileView) -> None:
    """Live traffic of the arms that served last; classes and positions are closed sets."""
    if live.calibration_id is not None:
        found.say("mtpd_tuning_stale", live.profile, yes=bool(live.stale))
    for one in live.classes:
        for arm in one.arms[-1:]:
            key = (live.profile, one.name, str(arm.arm.depth))
            found.add("mtpd_live_requests", arm.requests, *key)
            found.add("mtpd_live_decode_tokens_per_second", arm.decode_tps, *key)
            for position, alpha in enumerate(arm.alphas, 1):
                found.add("mtpd_live_acceptance_ratio", alpha.mid, *key, str(position))
    for reason, count in live.excluded.items():
        found.add("mtpd_live_excluded_requests_total", count, live.profile, reason)
    if live.next is not None:
        found.add("mtpd_live_next", 1, live.profile, live.next.act, str(live.next.arm.depth))
