"""Metrics: names, bounded labels, unknown is no zero."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mtpd.events import (
    DaemonStarted,
    DecisionMade,
    EngineTransition,
    MeasurementTaken,
    RequestFinished,
)
from mtpd.metrics import MAX_PROFILES, Metrics
from mtpd.views import (
    ArmView,
    ChoiceView,
    EngineView,
    GateView,
    QueueView,
    ResidencyView,
    StatusView,
)
from tests.fakes import views
from tests.fakes.values import decision_view, measurement_view, operation_view

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
REQUEST = RequestFinished(
    request_id="r-1",
    profile="tiny",
    depth=2,
    path="/v1/chat/completions",
    outcome="complete",
    status=200,
    duration_s=0.3,
    prompt_tokens=10,
    completion_tokens=96,
    drafted=80,
    accepted=56,
)


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def _metrics(status: StatusView | None = STATUS) -> Metrics:
    return Metrics(snapshot=lambda: status)


def test_the_gauges_show_the_status_at_each_scrape() -> None:
    status: list[StatusView | None] = [None]
    metrics = Metrics(snapshot=lambda: status[0], dropped_readers=lambda: 4)
    assert _value(metrics, "mtpd_requests_waiting") is None
    status[0] = STATUS

    assert _value(metrics, "mtpd_requests_waiting") == 3
    assert _value(metrics, "mtpd_requests_waiting_limit") == 64
    assert _value(metrics, "mtpd_requests_in_flight") == 2
    assert _value(metrics, "mtpd_uptime_seconds") == 12.5
    assert _value(metrics, "mtpd_event_readers_dropped_total") == 4
    where = {"device": "host", "profile": "tiny"}
    assert _value(metrics, "mtpd_engine_state", **where, state="ready") == 1
    assert _value(metrics, "mtpd_engine_residency", **where, residency="host") == 1
    assert _value(metrics, "mtpd_engine_draft_depth", **where) == 2
    assert _value(metrics, "mtpd_gate_state", gate="cooling", state="not_applicable") == 1
    assert _value(metrics, "mtpd_operation_state", kind="tune", state="running") == 1
    assert _value(metrics, "mtpd_chosen_draft_depth", subject="tiny") == 2
    info = {"version": "0.1.0", "mode": "observe", "hardware": ""}
    assert _value(metrics, "mtpd_info", **info) == 1


def test_an_engine_without_an_arm_has_no_depth() -> None:
    metrics = _metrics(replace(STATUS, engines=(replace(ENGINE, arm=None),), operation=None))
    assert _value(metrics, "mtpd_engine_draft_depth", device="host", profile="tiny") is None
    assert _value(metrics, "mtpd_operation_state", kind="tune", state="running") is None


def test_a_request_counts_itself_its_tokens_and_its_drafts() -> None:
    metrics = _metrics()
    metrics.observe(REQUEST)
    metrics.observe(REQUEST)

    assert _value(metrics, "mtpd_requests_total", profile="tiny", outcome="complete") == 2
    assert _value(metrics, "mtpd_tokens_total", profile="tiny", kind="prompt") == 20
    assert _value(metrics, "mtpd_tokens_total", profile="tiny", kind="completion") == 192
    assert _value(metrics, "mtpd_draft_tokens_total", profile="tiny", kind="drafted") == 160
    assert _value(metrics, "mtpd_draft_tokens_total", profile="tiny", kind="accepted") == 112
    assert _value(metrics, "mtpd_request_duration_seconds_count", outcome="complete") == 2


def test_unknown_tokens_make_no_series() -> None:
    metrics = _metrics()
    metrics.observe(replace(REQUEST, completion_tokens=None, drafted=None))
    assert _value(metrics, "mtpd_tokens_total", profile="tiny", kind="completion") is None
    assert _value(metrics, "mtpd_draft_tokens_total", profile="tiny", kind="drafted") is None
    assert _value(metrics, "mtpd_tokens_total", profile="tiny", kind="prompt") == 10


def test_measurements_count_accepted_tokens_by_position() -> None:
    metrics = _metrics()
    metrics.observe(MeasurementTaken(measurement=measurement_view()))
    metrics.observe(
        MeasurementTaken(
            measurement=measurement_view(accepted_per_position=None, excluded="text differs")
        )
    )
    assert _value(metrics, "mtpd_measurements_total", profile="tiny", excluded="no") == 1
    assert _value(metrics, "mtpd_measurements_total", profile="tiny", excluded="yes") == 1
    name = "mtpd_draft_accepted_tokens_total"
    assert _value(metrics, name, profile="tiny", position="0") == 34
    assert _value(metrics, name, profile="tiny", position="1") == 22
    assert _value(metrics, name, profile="tiny", position="2") is None


def test_decisions_are_counted_by_act() -> None:
    metrics = _metrics()
    metrics.observe(DecisionMade(decision=decision_view(act="keep")))
    assert _value(metrics, "mtpd_decisions_total", act="keep") == 1


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("probing", "ready", "ready"),
        ("loading", "failed", "failed"),
        ("spawning", "backoff", "failed"),
        ("loading", "probing", None),
        ("ready", "failed", None),
        ("draining", "ready", None),
    ],
)
def test_an_engine_start_counts_once_when_it_succeeds_or_fails(
    old: str, new: str, outcome: str | None
) -> None:
    metrics = _metrics()
    metrics.observe(
        EngineTransition(engine_id="e", profile="tiny", arm="tiny@2", old=old, new=new, reason="")
    )
    counts = {
        one: _value(metrics, "mtpd_engine_starts_total", profile="tiny", outcome=one)
        for one in ("ready", "failed")
    }
    assert counts == {one: 1 if one == outcome else None for one in ("ready", "failed")}


def test_switches_are_counted_and_timed() -> None:
    metrics = _metrics()
    metrics.switched("done", 0.3)
    metrics.switched("failed", 70.0)
    assert _value(metrics, "mtpd_switches_total", outcome="done") == 1
    assert _value(metrics, "mtpd_switch_duration_seconds_bucket", le="0.5") == 1
    assert _value(metrics, "mtpd_switch_duration_seconds_count") == 2


def test_profiles_beyond_the_bound_are_counted_together() -> None:
    metrics = _metrics()
    for number in range(MAX_PROFILES + 10):
        metrics.observe(replace(REQUEST, profile=f"p{number}"))
    assert _value(metrics, "mtpd_requests_total", profile="other", outcome="complete") == 10
    assert _value(metrics, "mtpd_requests_total", profile="p0", outcome="complete") == 1


def test_the_text_parses_and_every_name_is_ours_with_a_unit() -> None:
    metrics = _metrics()
    for event in (
        DaemonStarted(version="1"),
        REQUEST,
        DecisionMade(decision=decision_view()),
        MeasurementTaken(measurement=measurement_view()),
    ):
        metrics.observe(event)
    metrics.switched("done", 0.1)
    text = metrics.text().decode()
    families = list(text_string_to_metric_families(text))

    assert len(families) > 15
    for family in families:
        assert family.name.startswith("mtpd_")
        assert family.documentation
        assert not re.search(r"(_ms|_mib|_minutes)$", family.name)
        assert len(family.samples) < 60


def test_live_traffic_is_shown_per_class_of_the_arm_that_served_last() -> None:
    metrics = _metrics(replace(STATUS, live=(views.live(),)))
    where = {"profile": views.QWEN, "class": "long/code/greedy", "depth": "2"}
    assert _value(metrics, "mtpd_live_requests", **where) == 180.5
    assert _value(metrics, "mtpd_live_decode_tokens_per_second", **where) == 44.9
    assert _value(metrics, "mtpd_live_acceptance", **where, position="0") == 0.93
    assert _value(metrics, "mtpd_live_acceptance", **where, position="1") == 0.71
    before = where | {"depth": "0"}
    assert _value(metrics, "mtpd_live_requests", **before) is None
    name = "mtpd_live_excluded_requests_total"
    assert _value(metrics, name, profile=views.QWEN, reason="cancelled") == 7
    wish = {"profile": views.QWEN, "act": "measure", "depth": "2"}
    assert _value(metrics, "mtpd_live_next", **wish) == 1


def test_a_speed_that_is_not_known_makes_no_series() -> None:
    live = views.live()
    (first, _) = live.classes
    (arm,) = first.arms
    blind = replace(first, arms=(replace(arm, decode_tps=None),))
    shown = replace(live, classes=(blind,), next=None)
    metrics = _metrics(replace(STATUS, live=(shown,)))
    where = {"profile": views.QWEN, "class": first.name, "depth": "0"}
    assert _value(metrics, "mtpd_live_requests", **where) == 180.5
    assert _value(metrics, "mtpd_live_decode_tokens_per_second", **where) is None


def test_a_request_that_is_turned_away_is_counted_by_reason() -> None:
    metrics = _metrics()
    metrics.observe(REQUEST)
    metrics.observe(replace(REQUEST, outcome="rejected", status=429, refused="caller"))
    name = "mtpd_requests_refused_total"
    assert _value(metrics, name, profile="tiny", reason="caller") == 1
    assert _value(metrics, name, profile="tiny", reason="full") is None
