from __future__ import annotations

import json
from typing import Any

import pytest

from mtpd.engine.timings import Timings, from_response
from mtpd.types import Absent
from tests.unit.engine import recorded


def body(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(recorded.text(f"logs/{name}.json"))
    return found


def last_timings(name: str) -> Timings | Absent:
    """Of the last event of a stream that carries any."""
    events = [
        json.loads(line.removeprefix("data: "))
        for line in recorded.lines(f"logs/{name}.sse")
        if line.startswith("data: {")
    ]
    found = [t for event in events if isinstance(t := from_response(event), Timings)]
    return found[-1] if found else Absent("none")


def test_the_timings_of_a_recorded_reply_are_read() -> None:
    assert from_response(body("b10434_completion_n2")) == Timings(
        prompt_n=11,
        prompt_ms=20.275,
        predicted_n=24,
        predicted_ms=161.185,
        cache_n=0,
        draft_n=38,
        draft_n_accepted=3,
    )


@pytest.mark.parametrize("build", ["b10434", "b11434"])
@pytest.mark.parametrize("kind", ["completion_n0", "completion_n2", "chat_n2"])
def test_the_speed_is_the_one_the_engine_computes(build: str, kind: str) -> None:
    reply = body(f"{build}_{kind}")
    found = from_response(reply)
    assert isinstance(found, Timings)
    assert found.decode_tps == pytest.approx(reply["timings"]["predicted_per_second"], rel=1e-3)


def test_depth_zero_drafts_nothing_and_that_is_not_zero() -> None:
    found = from_response(body("b11434_completion_n0"))
    assert isinstance(found, Timings)
    assert (found.draft_n, found.draft_n_accepted) == (None, None)


@pytest.mark.parametrize("build", ["b10434", "b11434"])
@pytest.mark.parametrize(
    "kind",
    ["chat_stream_n2", "chat_stream_usage_n2", "completion_stream_n2", "completion_stream_tpt_n2"],
)
def test_a_recorded_stream_ends_with_timings(build: str, kind: str) -> None:
    found = last_timings(f"{build}_{kind}")
    assert isinstance(found, Timings)
    assert found.predicted_n > 1
    assert found.draft_n


def test_a_stream_with_usage_took_its_prompt_from_the_cache() -> None:
    found = last_timings("b10434_chat_stream_usage_n2")
    assert isinstance(found, Timings)
    assert (found.cache_n, found.prompt_n) == (16, 4)


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"timings": None},
        {"timings": []},
        {"timings": {"predicted_n": 3}},
        {"timings": {"prompt_n": 1, "prompt_ms": 1, "predicted_n": -1, "predicted_ms": 1}},
        {"timings": {"prompt_n": True, "prompt_ms": 1, "predicted_n": 1, "predicted_ms": 1}},
        {"timings": {"prompt_n": 1, "prompt_ms": "1", "predicted_n": 1, "predicted_ms": 1}},
        {
            "timings": {
                "prompt_n": 1,
                "prompt_ms": 1,
                "predicted_n": 1,
                "predicted_ms": float("nan"),
            }
        },
    ],
)
def test_a_reply_without_usable_timings_is_absent_with_a_reason(reply: dict[str, object]) -> None:
    found = from_response(reply)
    assert isinstance(found, Absent)
    assert found.reason


def test_half_of_an_acceptance_is_no_acceptance() -> None:
    reply = body("b10434_completion_n2")
    del reply["timings"]["draft_n_accepted"]
    found = from_response(reply)
    assert isinstance(found, Timings)
    assert found.draft_n is None


@pytest.mark.parametrize(("tokens", "ms"), [(1, 5.0), (0, 0.0), (5, 0.0)])
def test_too_little_for_a_speed_has_none(tokens: int, ms: float) -> None:
    found = Timings(prompt_n=1, prompt_ms=1.0, predicted_n=tokens, predicted_ms=ms, cache_n=0)
    assert found.decode_tps is None
