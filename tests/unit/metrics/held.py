"""A daemon with one engine, as a scrape sees it."""

from __future__ import annotations

from typing import Any

from mtpd.metrics.registry import Metrics
from mtpd.metrics.standing import Snapshot
from mtpd.views import (
    ArmView,
    ChoiceView,
    EngineView,
    GateView,
    QueueView,
    ResidencyView,
    StatusView,
)
from tests.fakes.clock import FakeClock
from tests.fakes.values import operation_view

ARM = ArmView(profile="tiny", drafter="mtp", depth=2, p_min=0.0)
ENGINE = EngineView(
    id="engine-1",
    device="host",
    profile="tiny",
    state="ready",
    arm=ARM,
    residency=ResidencyView(
        state="host", layers=None, spilled_bytes=None, reason="no device", evidence=()
    ),
    pid=42,
    endpoint=None,
    since="2026-11-29T12:00:00.000Z",
    starts=3,
    failure=None,
    log_tail=(),
)
STATUS = StatusView(
    version="0.1.0",
    pid=1,
    started_at="2026-11-29T12:00:00.000Z",
    uptime_s=12.5,
    listen="127.0.0.1:8080",
    control_socket="/run/mtpd/control.sock",
    mode="observe",
    engine_binary="embedded",
    hardware=None,
    engines=(ENGINE,),
    memory=(),
    queue=QueueView(waiting=3, limit=64, timeout_s=120.0, in_flight=2),
    gates=(GateView(name="cooling", state="not_applicable", reason="no GPU"),),
    choices=(ChoiceView(subject="tiny", arm=ARM, reason="", decision_id=1, measured=True),),
    last_decision=None,
    operation=operation_view(state="running"),
)

WHERE = {"device": "host", "profile": "tiny"}


def snapshot(status: StatusView = STATUS, **changes: Any) -> Snapshot:
    """A scrape of a daemon without a card."""
    given: dict[str, Any] = {
        "devices": (),
        "energy_j": {},
        "budget_bytes": {},
        "database_degraded": False,
        "readers_dropped": 0,
    }
    return Snapshot(status=status, **(given | changes))


def metrics(shown: Snapshot | None = None, clock: FakeClock | None = None) -> Metrics:
    """A registry over one snapshot."""
    found = Metrics(now=(clock or FakeClock()).now)
    found.text(shown or snapshot())
    return found


def value(found: Metrics, name: str, **labels: str) -> float | None:
    """One sample, or None where there is none."""
    return found.registry.get_sample_value(name, labels)
