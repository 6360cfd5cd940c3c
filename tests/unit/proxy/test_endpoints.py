from __future__ import annotations

import pytest

from mtpd.proxy.endpoints import ENDPOINTS, FORMS, Dialect, endpoint_of
from mtpd.proxy.passing import Passed, open_to_all, split
from mtpd.proxy.route import Names

NAMES = Names(
    profiles={"a": "a", "team/a": "big", "team": "small", "x y": "spaced"}, serving=lambda: "a"
)


def test_no_path_is_listed_twice_and_llama_swaps_prefix_is_taken_off() -> None:
    paths = [endpoint.path for endpoint in (*ENDPOINTS, *FORMS)]
    assert len(paths) == len(set(paths))
    targets = {e.path: e.target for e in ENDPOINTS if e.path.startswith("/v/")}
    assert targets["/v/chat/completions"] == "/chat/completions"
    assert targets["/v/messages/count_tokens"] == "/v1/messages/count_tokens"
    assert not any(target.startswith("/v/") for target in targets.values())


def test_streams_of_messages_and_responses_tell_errors_by_name() -> None:
    named = {e.path for e in ENDPOINTS if e.dialect is Dialect.NAMED}
    assert {"/v1/messages", "/v1/responses", "/v/messages", "/v/responses"} <= named
    assert "/v1/chat/completions" not in named


@pytest.mark.parametrize(
    "path",
    [
        "/slots",
        "/slots/0",
        "/tools",
        "/cors-proxy",
        "/lora-adapters",
        "/models",
        "/v1/stream",
        "/v1/streams/lookup",
        "/v1/chat/completions/control",
        "/v1/systemone",
        "/predict",
        "/props",
        "/",
    ],
)
def test_what_shows_or_changes_what_belongs_to_others_is_not_relayed(path: str) -> None:
    assert endpoint_of(path) is None
    assert open_to_all("POST", path) is None
    assert open_to_all("DELETE", path) is None


@pytest.mark.parametrize(
    ("path", "profile", "target"),
    [
        ("/upstream/a/v1/chat/completions", "a", "/v1/chat/completions"),
        ("/upstream/a/", "a", "/"),
        ("/upstream/a", "a", ""),
        ("/upstream/team/a/health", "big", "/health"),
        ("/upstream/team/b/health", "small", "/b/health"),
        ("/upstream/team%2Fa/health", "big", "/health"),
        ("/upstream/x%20y/tokenize", "spaced", "/tokenize"),
        ("/upstream/auto/health", "a", "/health"),
        ("/upstream/a/..%2fslots", "a", "/..%2fslots"),
    ],
)
def test_the_longest_name_that_fits_is_the_model(path: str, profile: str, target: str) -> None:
    passed = split(path, NAMES)
    assert isinstance(passed, Passed)
    assert (passed.profile, passed.target) == (profile, target)


def test_a_path_without_a_known_name_says_what_it_took_for_one() -> None:
    assert split("/upstream/b%2Fc/health", NAMES) == NAMES.unknown("b/c")
    assert split("/upstream//health", NAMES) == NAMES.unknown("")


@pytest.mark.parametrize("target", ["/slots", "/health/../slots", "/%73lots", "/v1/../slots", "//"])
def test_a_path_in_disguise_is_not_open(target: str) -> None:
    assert open_to_all("GET", target) is None
    assert open_to_all("POST", target) is None


def test_reads_are_open_for_reading_only() -> None:
    assert open_to_all("GET", "/metrics") is not None
    assert open_to_all("PUT", "/metrics") is None
    assert open_to_all("GET", "/v1/chat/completions") is None
