"""What is counted and logged of refusals: all of them, and few."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from mtpd.api.gate import BURST, CALLERS, WINDOW_S, Gate, refusal
from mtpd.api.problem import Problem
from mtpd.store.token_file import TokenFile, Tokens
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = Problem(slug="token-unknown", status=401, title="t", detail="d.", hint="h.")
MISDIRECTED = Problem(slug="misdirected", status=421, title="t", detail="d.")


def test_a_flood_is_counted_and_told_in_two_lines_a_minute(tmp_path: Path) -> None:
    clock, counted = FakeClock(), list[str]()
    tokens = Tokens(TokenFile(tmp_path, clock), tuple)
    gate = Gate(tokens=tokens, remote=False, clock=clock, count=counted.append)
    request = make_mocked_request("GET", "/v1/models?token=canary", headers={"X": "canary"})
    with capture_logs() as logs:
        for _ in range(100):
            gate.refused(request, UNKNOWN, None)
        clock.advance(WINDOW_S)
        gate.refused(request, MISDIRECTED, None)
    assert counted == ["token-unknown"] * 100 + ["misdirected"]
    assert [line["suppressed"] for line in logs] == [0] * BURST + [100 - BURST]
    assert (logs[-1]["problem"], logs[-1]["actor"]) == ("misdirected", None)
    assert "canary" not in str(logs)


def test_callers_are_told_apart_up_to_a_bound(tmp_path: Path) -> None:
    clock = FakeClock()
    tokens = Tokens(TokenFile(tmp_path, clock), tuple)
    gate = Gate(tokens=tokens, remote=False, clock=clock, count=lambda _slug: None)
    request = make_mocked_request("GET", "/v1/models")
    with capture_logs() as logs:
        for number in range(CALLERS + 100):
            gate.refused(request, UNKNOWN, f"token t{number}")
    assert len(logs) == CALLERS + BURST


def test_what_is_not_about_tokens_has_the_shape_that_the_plane_knows() -> None:
    problem = refusal(MISDIRECTED, data_plane=False)
    assert (problem.status, problem.content_type) == (421, "application/problem+json")
    response = refusal(MISDIRECTED, data_plane=True)
    assert (response.status, response.content_type) == (421, "application/json")
    assert json.loads(response.text or "")["error"] == {
        "message": "d.",
        "type": "invalid_request_error",
        "code": "misdirected",
        "param": None,
    }
    assert "WWW-Authenticate" not in {*problem.headers, *response.headers}
