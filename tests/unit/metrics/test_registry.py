"""Counters: what happened; bounded labels, unknown is no zero."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mtpd.engine.prom import SpecCounters
from mtpd.events import (
    DaemonStarted,
    DecisionMade,
    EngineTransition,
    MeasurementTaken,
    RequestFinished,
)
from mtpd.metrics.catalogue import METRICS, family_name
from mtpd.metrics.standing import MAX_PROFILES
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision_view, measurement_view
from tests.unit.metrics.held import metrics, snapshot, value

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
    generated=95,
    decode_s=1.5,
    cached_tokens=4,
    waited_s=0.02,
)


def moved(old: str, new: str, failure: str | None = None) -> EngineTransition:
    return EngineTransition(
        engine_id="e", profile="tiny", arm="tiny@2", old=old, new=new, reason="", failure=failure
    )


def test_a_request_that_was_slept_through_is_no_rate() -> None:
    found = metrics()
    found.observe(replace(REQUEST, suspended_s=28_800.0))
    assert value(found, "mtpd_requests_total", profile="tiny", outcome="complete") == 1
    for name in ("timed_tokens", "decode_seconds"):
        assert value(found, f"mtpd_{name}_total", profile="tiny") is None


def test_a_request_counts_itself_its_tokens_and_its_drafts() -> None:
    found = metrics()
    found.observe(REQUEST)
    found.observe(REQUEST)

    assert value(found, "mtpd_requests_total", profile="tiny", outcome="complete") == 2
    for name, count in (
        ("mtpd_prompt_tokens_total", 20),
        ("mtpd_cached_prompt_tokens_total", 8),
        ("mtpd_generated_tokens_total", 192),
        ("mtpd_drafted_tokens_total", 160),
        ("mtpd_accepted_tokens_total", 112),
        ("mtpd_timed_tokens_total", 190),
        ("mtpd_decode_seconds_total", 3.0),
    ):
        assert value(found, name, profile="tiny") == count
    assert value(found, "mtpd_request_duration_seconds_count", outcome="complete") == 2
    assert value(found, "mtpd_queue_wait_seconds_count") == 2
    assert value(found, "mtpd_queue_wait_seconds_bucket", le="0.01") == 0
    assert value(found, "mtpd_queue_wait_seconds_bucket", le="0.05") == 2


def test_unknown_tokens_and_times_make_no_series() -> None:
    found = metrics()
    found.observe(
        replace(REQUEST, completion_tokens=None, drafted=None, decode_s=None, waited_s=None)
    )
    for name in ("generated_tokens", "drafted_tokens", "timed_tokens", "decode_seconds"):
        assert value(found, f"mtpd_{name}_total", profile="tiny") is None
    assert value(found, "mtpd_prompt_tokens_total", profile="tiny") == 10
    assert value(found, "mtpd_queue_wait_seconds_count") == 0


def test_the_engines_own_counters_give_acceptance_by_position() -> None:
    found = metrics()
    first = SpecCounters(drafts=10, drafted=20, accepted=15, per_position=(9, 6))
    found.drafted("tiny", "start-1", first)
    found.drafted("tiny", "start-1", first)  # nothing moved
    more = SpecCounters(drafts=20, drafted=40, accepted=30, per_position=(18, 12))
    found.drafted("tiny", "start-1", more)
    found.drafted("old", "start-2", replace(first, per_position=None))
    name = "mtpd_position_accepted_tokens_total"
    assert value(found, "mtpd_draft_steps_total", profile="tiny") == 20
    assert value(found, name, profile="tiny", position="1") == 18
    assert value(found, name, profile="tiny", position="2") == 12
    assert value(found, "mtpd_draft_steps_total", profile="old") == 10
    assert value(found, name, profile="old", position="1") is None


def test_another_start_counts_from_its_own_beginning() -> None:
    found = metrics()
    counters = SpecCounters(drafts=10, drafted=20, accepted=15, per_position=(9, 6))
    found.drafted("tiny", "start-1", counters)
    found.drafted("tiny", "start-2", counters)
    assert value(found, "mtpd_draft_steps_total", profile="tiny") == 20
    found.drafted("tiny", "start-2", replace(counters, drafts=3))  # it went back: not believed
    assert value(found, "mtpd_draft_steps_total", profile="tiny") == 20


def test_measurements_count_accepted_tokens_by_position() -> None:
    found = metrics()
    found.observe(MeasurementTaken(measurement=measurement_view()))
    found.observe(
        MeasurementTaken(
            measurement=measurement_view(accepted_per_position=None, excluded="text differs")
        )
    )
    assert value(found, "mtpd_measurements_total", profile="tiny", excluded="no") == 1
    assert value(found, "mtpd_measurements_total", profile="tiny", excluded="yes") == 1
    name = "mtpd_measured_accepted_tokens_total"
    assert value(found, name, profile="tiny", position="1") == 34
    assert value(found, name, profile="tiny", position="2") == 22
    assert value(found, name, profile="tiny", position="3") is None


def test_decisions_are_counted_by_act() -> None:
    found = metrics()
    found.observe(DecisionMade(decision=decision_view(act="keep")))
    assert value(found, "mtpd_decisions_total", act="keep") == 1


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("probing", "ready", "ready"),
        ("loading", "failed", "failed"),
        ("spawning", "backoff", "failed"),
        ("loading", "probing", None),
        ("ready", "failed", None),
        ("stopping", "releasing", None),
    ],
)
def test_an_engine_start_counts_once_when_it_succeeds_or_fails(
    old: str, new: str, outcome: str | None
) -> None:
    found = metrics()
    found.observe(moved(old, new))
    counts = {
        one: value(found, "mtpd_engine_starts_total", profile="tiny", outcome=one)
        for one in ("ready", "failed")
    }
    assert counts == {one: 1 if one == outcome else None for one in ("ready", "failed")}


def test_a_start_is_timed_from_its_spawn_to_its_being_ready() -> None:
    clock = FakeClock()
    found = metrics(clock=clock)
    found.observe(moved("stopped", "spawning"))
    clock.advance(7.0)
    found.observe(moved("spawning", "loading"))
    found.observe(moved("probing", "ready"))
    found.observe(moved("probing", "ready"))  # without a spawn there is no time
    assert value(found, "mtpd_engine_start_duration_seconds_count") == 1
    assert value(found, "mtpd_engine_start_duration_seconds_sum") == 7.0


def test_failures_and_the_restarts_after_them_are_counted_by_class() -> None:
    found = metrics()
    for event in (
        moved("ready", "releasing", "crash"),
        moved("releasing", "backoff"),
        moved("backoff", "spawning"),
        moved("loading", "ready"),
        moved("ready", "stopping"),
        moved("stopping", "stopped"),
        moved("stopped", "spawning"),  # ordered: nothing had failed
    ):
        found.observe(event)
    assert value(found, "mtpd_engine_failures_total", profile="tiny", failure="crash") == 1
    assert value(found, "mtpd_engine_restarts_total", profile="tiny", failure="crash") == 1


def test_a_start_that_was_ordered_after_giving_up_is_no_restart() -> None:
    found = metrics()
    for event in (
        moved("loading", "releasing", "config"),
        moved("releasing", "failed"),
        moved("failed", "spawning"),
    ):
        found.observe(event)
    assert value(found, "mtpd_engine_failures_total", profile="tiny", failure="config") == 1
    assert value(found, "mtpd_engine_restarts_total", profile="tiny", failure="config") is None


def test_switches_are_counted_and_timed() -> None:
    found = metrics()
    found.switched("done", 0.3)
    found.switched("failed", 70.0)
    assert value(found, "mtpd_switches_total", outcome="done") == 1
    assert value(found, "mtpd_switch_duration_seconds_bucket", le="0.5") == 1
    assert value(found, "mtpd_switch_duration_seconds_count") == 2


def test_profiles_beyond_the_bound_are_counted_together() -> None:
    found = metrics()
    for number in range(MAX_PROFILES + 10):
        found.observe(replace(REQUEST, profile=f"p{number}"))
    assert value(found, "mtpd_requests_total", profile="other", outcome="complete") == 10
    assert value(found, "mtpd_requests_total", profile="p0", outcome="complete") == 1


def test_a_request_that_is_turned_away_is_counted_by_reason() -> None:
    found = metrics()
    found.observe(REQUEST)
    found.observe(replace(REQUEST, outcome="rejected", status=429, refused="caller"))
    found.refused("token-unknown")
    name = "mtpd_requests_refused_total"
    assert value(found, name, profile="tiny", reason="caller") == 1
    assert value(found, name, profile="tiny", reason="full") is None
    assert value(found, "mtpd_http_refusals_total", problem="token-unknown") == 1


def test_the_text_parses_and_holds_nothing_that_the_catalogue_does_not() -> None:
    found = metrics()
    for event in (
        DaemonStarted(version="1"),
        REQUEST,
        DecisionMade(decision=decision_view()),
        MeasurementTaken(measurement=measurement_view()),
    ):
        found.observe(event)
    found.switched("done", 0.1)
    families = list(text_string_to_metric_families(found.text(snapshot()).decode()))

    known = {one: spec for spec in METRICS.values() for one in (spec.name, family_name(spec))}
    assert len(families) > 25
    for family in families:
        spec = known[family.name]
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(spec.labels)
        assert len(family.samples) < 60
