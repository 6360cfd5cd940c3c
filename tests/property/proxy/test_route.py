"""Routing is total over any bytes and never invents a profile."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.proxy.route import BadBody, Names, Routed, UnknownModel, route

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
NAMES = Names(profiles={"a": "a", "b": "b", "alias": "a"}, pools={"default": "b"}, serving="a")


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_any_bytes_have_an_outcome(raw: bytes) -> None:
    assert isinstance(route(raw, NAMES), Routed | UnknownModel | BadBody)


@settings(max_examples=300)
@given(JSON, JSON, st.sampled_from(["a", "alias", "auto", "default", "nope", None]))
def test_a_routed_request_goes_to_a_profile_that_exists(
    rest: object, stream: object, model: str | None
) -> None:
    raw = json.dumps({"model": model, "stream": stream, "rest": rest}).encode()
    match route(raw, NAMES):
        case Routed(profile, wants, body):
            assert profile in {"a", "b"}
            assert wants is (stream is True)
            assert body == raw
        case UnknownModel(name):
            assert name == model == "nope"
        case BadBody(param=param):
            assert param == "stream"
            assert stream is not None
