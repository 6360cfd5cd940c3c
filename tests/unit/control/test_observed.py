from __future__ import annotations

from dataclasses import replace

import pytest

from mtpd.control.observed import of_class, to_request, with_counters
from mtpd.engine.prom import SpecCounters
from mtpd.events import RequestFinished
from tests.unit.tuner.machine import arm
from tuner.classes import Band, Kind, Sampling, WorkloadClass
from tuner.request import Exclusion, Usable, usable

FINISHED = RequestFinished(
    request_id="r",
    profile="m",
    depth=2,
    path="/v1/chat/completions",
    outcome="complete",
    status=200,
    duration_s=9.0,
    prompt_tokens=9000,
    completion_tokens=101,
    drafted=80,
    accepted=60,
    engine_id="e",
    generated=101,
    decode_s=2.0,
    kind="code",
    sampling="greedy",
    reasoning=True,
)
COUNTED = SpecCounters(drafts=40, drafted=80, accepted=60, per_position=(36, 24))


def test_a_reply_becomes_what_the_tuner_takes() -> None:
    one = to_request(FINISHED, arm(2), throttled=False)
    assert one is not None
    assert one.klass == WorkloadClass(
        band=Band.LONG, kind=Kind.CODE, sampling=Sampling.GREEDY, reasoning=True
    )
    assert (one.tokens, one.decode_s, one.context_tokens) == (101, 2.0, 9101)
    seen = usable(one)
    assert isinstance(seen, Usable)
    assert (seen.decode_steps, seen.accepted, seen.reached) == (40, 60, ())
    counted = usable(with_counters(one, COUNTED))
    assert isinstance(counted, Usable)
    assert (counted.reached, counted.hits) == ((40, 36), (36, 24))


@pytest.mark.parametrize("moved", [replace(COUNTED, drafted=82), replace(COUNTED, accepted=61)])
def test_counters_that_another_request_moved_are_left_alone(moved: SpecCounters) -> None:
    one = to_request(FINISHED, arm(2), throttled=False)
    assert one is not None
    assert with_counters(one, moved) == one


def test_at_depth_0_nothing_was_drafted_and_that_is_known() -> None:
    plain = replace(FINISHED, depth=0, drafted=None, accepted=None)
    one = to_request(plain, arm(0), throttled=False)
    assert one is not None
    assert usable(one) == Usable(decode_steps=100, accepted=0)
    assert with_counters(one, COUNTED) == one


@pytest.mark.parametrize(
    ("change", "throttled", "why"),
    [
        ({"outcome": "client_gone"}, False, Exclusion.CANCELLED),
        ({"truncated": True}, False, Exclusion.TRUNCATED),
        ({}, True, Exclusion.THROTTLED),
        ({"drafted": None, "accepted": None}, False, Exclusion.UNCOUNTED),
        ({"generated": None, "decode_s": None}, False, Exclusion.UNCOUNTED),
    ],
)
def test_what_does_not_count_says_why(
    change: dict[str, object],
    throttled: bool,  # noqa: FBT001
    why: Exclusion,
) -> None:
    finished = replace(FINISHED, **change)  # type: ignore[arg-type]
    one = to_request(finished, arm(2), throttled=throttled)
    assert one is not None
    assert usable(one) is why


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/v1/embeddings"},
        {"path": "/tokenize"},
        {"path": "/v1/messages/count_tokens"},
        {"path": "/v1/audio/transcriptions"},
        {"outcome": "rejected"},
        {"outcome": "upstream_lost"},
        {"outcome": "failed"},
        {"engine_id": ""},
    ],
)
def test_what_was_not_decoded_is_no_request_at_all(change: dict[str, str]) -> None:
    finished = replace(FINISHED, **change)  # type: ignore[arg-type]
    assert to_request(finished, arm(2), throttled=False) is None


@pytest.mark.parametrize(
    "path", ["/completion", "/v1/completions", "/v/messages", "/upstream/m/v1/responses"]
)
def test_every_way_to_generate_counts(path: str) -> None:
    assert to_request(replace(FINISHED, path=path), arm(2), throttled=False) is not None


def test_a_prompt_of_unknown_length_counts_as_short() -> None:
    assert of_class(replace(FINISHED, prompt_tokens=None)).band is Band.SHORT


MESSAGES = replace(
    FINISHED, path="/v1/messages", drafted=None, accepted=None, generated=None, decode_s=None
)
WHOLE = replace(COUNTED, generated=101, decode_s=2.0)


def test_a_reply_without_timings_is_known_by_the_counters_where_they_moved_by_just_it() -> None:
    one = to_request(MESSAGES, arm(2), throttled=False)
    assert one is not None
    assert usable(one) is Exclusion.UNCOUNTED
    with_timings = to_request(FINISHED, arm(2), throttled=False)
    assert with_timings is not None
    assert with_counters(one, WHOLE, 101) == with_counters(with_timings, WHOLE)


@pytest.mark.parametrize(
    ("counted", "told", "alone"),
    [(WHOLE, 100, True), (WHOLE, None, True), (COUNTED, 101, True), (WHOLE, 101, False)],
)
def test_counters_of_more_than_one_request_do_not_stand_in_for_timings(
    counted: SpecCounters,
    told: int | None,
    alone: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    one = to_request(replace(MESSAGES, alone=alone), arm(2), throttled=False)
    assert one is not None
    assert usable(with_counters(one, counted, told)) is Exclusion.UNCOUNTED


def test_at_depth_0_the_counters_tell_the_time_of_a_reply_without_timings() -> None:
    one = to_request(replace(MESSAGES, depth=0), arm(0), throttled=False)
    assert one is not None
    plain = SpecCounters(
        drafts=0, drafted=0, accepted=0, per_position=None, generated=101, decode_s=2.0
    )
    assert usable(with_counters(one, plain, 101)) == Usable(decode_steps=100, accepted=0)
