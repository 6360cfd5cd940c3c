"""How things stand: from the status of each scrape; what is not known has no sample."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtpd.engine_views import FailureView
from mtpd.metrics.catalogue import METRICS
from mtpd.metrics.registry import Metrics
from mtpd.metrics.standing import MAX_PROFILES
from mtpd.views import ArmMemoryView, ConfigFileView, ResidencyView
from tests.fakes import views
from tests.fakes.clock import FakeClock
from tests.unit.metrics.held import ARM, ENGINE, STATUS, WHERE, metrics, snapshot, value


def test_the_gauges_show_the_status_at_each_scrape() -> None:
    found = Metrics(now=FakeClock().now)
    assert value(found, "mtpd_requests_waiting") is None
    found.text(snapshot(readers_dropped=4))

    assert value(found, "mtpd_requests_waiting") == 3
    assert value(found, "mtpd_requests_waiting_limit") == 64
    assert value(found, "mtpd_requests_in_flight") == 2
    assert value(found, "mtpd_requests_quarantined") == 0
    assert value(found, "mtpd_event_readers_dropped_total") == 4
    assert value(found, "mtpd_engine_draft_depth", **WHERE) == 2
    assert value(found, "mtpd_engine_breaker_open", **WHERE) == 0
    assert value(found, "mtpd_operation_running", kind="tune", state="running") == 1
    assert value(found, "mtpd_chosen_draft_depth", subject="tiny") == 2
    assert value(found, "mtpd_choice_measured", subject="tiny") == 1
    assert value(found, "mtpd_choice_pinned", subject="tiny") == 0
    assert value(found, "mtpd_build_info", version="0.1.0", engine="embedded") == 1
    assert value(found, "mtpd_database_degraded") == 0


@pytest.mark.parametrize(
    ("name", "labels", "holds"),
    [
        ("mtpd_engine_state", WHERE, "ready"),
        ("mtpd_engine_residency", WHERE, "host"),
        ("mtpd_gate_state", {"gate": "cooling"}, "not_applicable"),
        ("mtpd_tuning_mode", {}, "observe"),
    ],
)
def test_a_state_set_has_every_state_and_one_that_holds(
    name: str, labels: dict[str, str], holds: str
) -> None:
    found, last = metrics(snapshot()), METRICS[name].labels[-1]
    shown = {word: value(found, name, **labels, **{last: word}) for word in METRICS[name].words}
    assert shown == {word: float(word == holds) for word in METRICS[name].words}
    assert len(shown) > 2


def test_a_state_that_the_catalogue_does_not_know_is_shown_all_the_same() -> None:
    found = metrics(snapshot(replace(STATUS, engines=(replace(ENGINE, state="dreaming"),))))
    assert value(found, "mtpd_engine_state", **WHERE, state="dreaming") == 1
    assert value(found, "mtpd_engine_state", **WHERE, state="ready") == 0


def test_what_is_unknown_of_an_engine_has_no_sample() -> None:
    bare = replace(ENGINE, arm=None)
    shown = snapshot(replace(STATUS, engines=(bare,), operation=None, config=None))
    found = metrics(shown)
    for name in (
        "mtpd_engine_draft_depth",
        "mtpd_engine_evicted_layers",
        "mtpd_engine_spilled_bytes",
        "mtpd_engine_memory_held_bytes",
        "mtpd_engine_memory_predicted_bytes",
    ):
        assert value(found, name, **WHERE) is None
    text = found.text(shown).decode()
    for absent in ("mtpd_operation_running", "mtpd_hardware_info", "mtpd_config_invalid"):
        assert absent not in text


def test_layers_and_bytes_beside_the_device_are_told_where_they_are_known() -> None:
    lies = ResidencyView(state="spilled", layers=3, spilled_bytes=512, reason="", evidence=())
    found = metrics(snapshot(replace(STATUS, engines=(replace(ENGINE, residency=lies),))))
    assert value(found, "mtpd_engine_evicted_layers", **WHERE) == 3
    assert value(found, "mtpd_engine_spilled_bytes", **WHERE) == 512
    assert value(found, "mtpd_engine_residency", **WHERE, residency="spilled") == 1


def test_memory_of_an_engine_is_what_it_holds_and_what_was_predicted() -> None:
    predicted = views.depth_memory(2)
    memory = ArmMemoryView(arm=ARM, memory=predicted, held=views.need())
    found = metrics(snapshot(replace(STATUS, memory=(memory,))))
    assert predicted.predicted is not None
    total_bytes = predicted.predicted.total_bytes
    assert value(found, "mtpd_engine_memory_held_bytes", **WHERE) == views.need().count_bytes
    assert value(found, "mtpd_engine_memory_predicted_bytes", **WHERE) == total_bytes
    blind = replace(memory, memory=replace(predicted, predicted=None), held=None)
    found = metrics(snapshot(replace(STATUS, memory=(blind,))))
    assert value(found, "mtpd_engine_memory_held_bytes", **WHERE) is None
    assert value(found, "mtpd_engine_memory_predicted_bytes", **WHERE) is None


@pytest.mark.parametrize("opened", [True, False])
def test_an_open_breaker_is_told_apart_from_another_failure(*, opened: bool) -> None:
    failure = FailureView(
        failure="crash",
        reason="",
        hint=None,
        exit_code=1,
        retry_in_s=None,
        breaker_open=opened,
    )
    engine = replace(ENGINE, state="failed", failure=failure)
    found = metrics(snapshot(replace(STATUS, engines=(engine,))))
    assert value(found, "mtpd_engine_breaker_open", **WHERE) == float(opened)


def test_a_database_and_a_file_that_are_in_trouble_are_told() -> None:
    bad = ConfigFileView(
        path="mtpd.toml",
        read_at="2026-11-29T11:00:00Z",
        watched=True,
        invalid_since="2026-11-29T12:00:00Z",
        problems=("mtpd.toml:1: [servr]: unknown",),
        needs_restart=(),
    )
    shown = replace(STATUS, config=bad, unusable=("gone: no file",))
    found = metrics(snapshot(shown, database_degraded=True))
    assert value(found, "mtpd_database_degraded") == 1
    assert value(found, "mtpd_config_invalid") == 1
    assert value(found, "mtpd_models_unusable") == 1
    good = metrics(snapshot(replace(shown, config=replace(bad, invalid_since=None))))
    assert value(good, "mtpd_config_invalid") == 0


def test_live_traffic_is_shown_per_class_of_the_arm_that_served_last() -> None:
    found = metrics(snapshot(replace(STATUS, live=(views.live(),))))
    where = {"profile": views.QWEN, "class": "long/code/greedy", "depth": "2"}
    assert value(found, "mtpd_live_requests", **where) == 180.5
    assert value(found, "mtpd_live_decode_tokens_per_second", **where) == 44.9
    assert value(found, "mtpd_live_acceptance_ratio", **where, position="1") == 0.93
    assert value(found, "mtpd_live_acceptance_ratio", **where, position="2") == 0.71
    before = where | {"depth": "0"}
    assert value(found, "mtpd_live_requests", **before) is None
    name = "mtpd_live_excluded_requests_total"
    assert value(found, name, profile=views.QWEN, reason="cancelled") == 7
    wish = {"profile": views.QWEN, "act": "measure", "depth": "2"}
    assert value(found, "mtpd_live_next", **wish) == 1


def test_models_beyond_the_bound_have_no_series_of_live_traffic() -> None:
    live = tuple(replace(views.live(), profile=f"m{n}") for n in range(MAX_PROFILES + 1))
    found = metrics(snapshot(replace(STATUS, live=live)))
    where = {"depth": "2", "act": "measure"}
    shown = [value(found, "mtpd_live_next", profile=one.profile, **where) for one in live]
    assert shown == [1.0] * MAX_PROFILES + [None]


def test_a_speed_that_is_not_known_makes_no_series() -> None:
    live = views.live()
    (first, _) = live.classes
    (arm,) = first.arms
    blind = replace(first, arms=(replace(arm, decode_tps=None),))
    found = metrics(snapshot(replace(STATUS, live=(replace(live, classes=(blind,), next=None),))))
    where = {"profile": views.QWEN, "class": first.name, "depth": "0"}
    assert value(found, "mtpd_live_requests", **where) == 180.5
    assert value(found, "mtpd_live_decode_tokens_per_second", **where) is None


@pytest.mark.parametrize(
    ("calibration_id", "stale", "shown"),
    [(7, ("the driver is another one",), 1.0), (7, (), 0.0), (None, (), None)],
)
def test_measurements_are_stale_fresh_or_never_made(
    calibration_id: int | None, stale: tuple[str, ...], shown: float | None
) -> None:
    live = replace(views.live(), calibration_id=calibration_id, stale=stale)
    found = metrics(snapshot(replace(STATUS, live=(live,))))
    assert value(found, "mtpd_tuning_stale", profile=views.QWEN) == shown
