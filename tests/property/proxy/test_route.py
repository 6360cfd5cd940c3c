"""Routing is total over any bytes and never invents a profile."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.proxy.route import BadBody, Meaning, Names, PoolMeaning, Routed, UnknownModel, route

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
NAMES = Names(
    profiles={"a": "a", "b": "b", "alias": "a"},
    pools={"default": lambda: PoolMeaning(Meaning("b"))},
    serving=lambda: "a",
)


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


TAGS = ("safe", "code", "a:b")
MEMBERS = st.dictionaries(st.sampled_from("xyz"), st.sets(st.sampled_from(TAGS)), min_size=1)


@given(MEMBERS, st.sampled_from(["auto", "pool"]), st.lists(st.sampled_from([*TAGS, "nope"])))
def test_tags_lead_to_a_member_that_has_them_all_or_to_what_is_known(
    members: dict[str, set[str]], pool: str, asked: list[str]
) -> None:
    def among(tags: frozenset[str]) -> Meaning | None:
        return next((Meaning(name) for name, own in members.items() if tags <= own), None)

    known = tuple(sorted({tag for own in members.values() for tag in own}))
    meant = PoolMeaning(Meaning(next(iter(members))), known, among)
    names = Names(profiles={"x": "x", "other": "other"}, pools={"pool": lambda: meant})
    match names.meaning(f"{pool}:{','.join(asked)}"):
        case Meaning(profile):
            assert set(asked) <= members[profile]
        case UnknownModel(pool=told, tags=tags, known_tags=there):
            assert (told, set(tags), there) == (pool, set(asked), known)
            assert not any(set(asked) <= own for own in members.values())
