from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtpd.proxy.route import BadBody, Meaning, Names, PoolMeaning, Routed, UnknownModel, route

if TYPE_CHECKING:
    from collections.abc import Callable

TWO = {"tiny-chained": "tiny-chained", "tiny-unchained": "tiny-unchained", "fast": "tiny-chained"}


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_name_and_an_alias_lead_to_their_profile() -> None:
    names = Names(profiles=TWO)
    for name in ("tiny-chained", "fast"):
        raw = body(model=name, stream=True)
        assert route(raw, names) == Routed("tiny-chained", stream=True, body=raw)


def test_the_body_is_passed_on_as_it_came() -> None:
    raw = b'{ "model" :\t"fast", "x": 1e30, "\\u0000": [] }\r\n'
    routed = route(raw, Names(profiles=TWO))
    assert isinstance(routed, Routed)
    assert routed.body is raw


def test_only_the_name_is_another_where_the_engine_has_one_of_its_own() -> None:
    names = Names(profiles=TWO, upstream={"tiny-chained": "vendor/tiny"})
    routed = route(b'{"x": [ 1.0 ],  "model" :"fast"}', names)
    assert isinstance(routed, Routed)
    assert routed.body == b'{"x": [ 1.0 ],  "model" :"vendor/tiny"}'
    other = body(model="tiny-unchained")
    assert route(other, names) == Routed("tiny-unchained", stream=False, body=other)


def test_a_pool_and_auto_lead_to_what_is_chosen_now() -> None:
    names = Names(
        profiles=TWO,
        pools={
            "default": lambda: PoolMeaning(Meaning("tiny-unchained")),
            "code": lambda: PoolMeaning(Meaning("tiny-chained")),
        },
    )
    assert route(body(model="code"), names) == Routed(
        "tiny-chained", stream=False, body=body(model="code")
    )
    assert route(body(model="auto"), names) == Routed(
        "tiny-unchained", stream=False, body=body(model="auto")
    )


def test_a_profile_that_is_named_like_a_pool_wins() -> None:
    names = Names(profiles=TWO, pools={"fast": lambda: PoolMeaning(Meaning("tiny-unchained"))})
    assert names.resolve("fast") == "tiny-chained"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (Names(profiles={"a": "a", "b": "a"}), "a"),
        (
            Names(
                profiles=TWO,
                pools={"default": lambda: PoolMeaning(Meaning("tiny-unchained"))},
                serving=lambda: "x",
            ),
            "tiny-unchained",
        ),
        (
            Names(
                profiles=TWO,
                pools={"p": lambda: PoolMeaning(Meaning("tiny-chained"))},
                serving=lambda: "x",
            ),
            "tiny-chained",
        ),
        (Names(profiles=TWO, serving=lambda: "tiny-unchained"), "tiny-unchained"),
        (Names(profiles=TWO), None),
    ],
)
def test_a_request_without_a_model_gets_the_default(names: Names, expected: str | None) -> None:
    assert (None if names.default is None else names.default.profile) == expected
    for raw in (body(prompt="x"), body(model=""), body(model=None)):
        match route(raw, names):
            case Routed(profile):
                assert profile == expected
            case UnknownModel(name):
                assert (name, expected) == ("", None)
            case BadBody():
                pytest.fail("a body without a model is not a bad body")


def test_an_unknown_model_comes_with_the_known_names_and_the_close_ones() -> None:
    outcome = route(
        body(model="Tiny-Chaned"),
        Names(profiles=TWO, pools={"default": lambda: PoolMeaning(Meaning("x"))}),
    )
    assert outcome == UnknownModel(
        "Tiny-Chaned",
        ("auto", "default", "fast", "tiny-chained", "tiny-unchained"),
        ("tiny-chained", "tiny-unchained"),
    )


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1, column 2"),
        (b'{"model": "\xff"}', "byte 11 is not UTF-8"),
        ('{"model": "x"}'.encode("utf-16"), "UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "too long"),
        (b"[]", "must be a JSON object"),
        (b'{"model": 3}', "'model' must be a string"),
        (b'{"model": "fast", "stream": "yes"}', "'stream' must be"),
    ],
)
def test_a_bad_body_is_told_in_one_sentence(raw: bytes, says: str) -> None:
    outcome = route(raw, Names(profiles=TWO))
    assert isinstance(outcome, BadBody)
    assert says in outcome.reason
    assert "\n" not in outcome.reason


def test_a_null_stream_is_no_stream() -> None:
    outcome = route(b'{"model": "fast", "stream": null}', Names(profiles=TWO))
    assert isinstance(outcome, Routed)
    assert outcome.stream is False


def tagged(*members: tuple[str, set[str]]) -> Callable[[], PoolMeaning]:
    def among(tags: frozenset[str]) -> Meaning | None:
        able = (Meaning(name, f"has {len(tags)}") for name, own in members if tags <= own)
        return next(able, None)

    known = tuple(sorted({tag for _, own in members for tag in own}))
    return lambda: PoolMeaning(Meaning(members[0][0], "first"), known, among)


MODELS = ("tiny-chained", {"safe", "a:b"}), ("tiny-unchained", {"safe", "uncensored"})
TAGGED = Names(profiles={**TWO, "default:own": "tiny-chained"}, pools={"default": tagged(*MODELS)})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", "tiny-chained"),
        ("auto:", "tiny-chained"),
        ("auto:safe", "tiny-chained"),
        ("auto:uncensored", "tiny-unchained"),
        ("auto: uncensored , safe,", "tiny-unchained"),
        ("default:uncensored", "tiny-unchained"),
        ("default:a:b", "tiny-chained"),
        ("default:own", "tiny-chained"),
    ],
)
def test_tags_behind_a_pool_leave_the_members_that_have_them(name: str, expected: str) -> None:
    found = route(body(model=name), TAGGED)
    assert isinstance(found, Routed)
    assert found.profile == expected


def test_the_longest_pool_name_is_the_pool() -> None:
    pools = {"a": tagged(("short", {"b", "c"})), "a:b": tagged(("long", {"c"}))}
    names = Names(profiles=TWO, pools=pools)
    assert (names.resolve("a:b:c"), names.resolve("a:b")) == ("long", "long")


@pytest.mark.parametrize("name", ["auto:fast", "default:safe,fast", "auto:a:b,uncensored"])
def test_tags_that_no_member_has_are_told_with_the_known_ones(name: str) -> None:
    found = route(body(model=name), TAGGED)
    assert isinstance(found, UnknownModel)
    assert found.pool == name.split(":", 1)[0]
    assert found.known_tags == ("a:b", "safe", "uncensored")


def test_a_tag_behind_a_model_is_an_unknown_name() -> None:
    found = TAGGED.meaning("fast:safe")
    assert isinstance(found, UnknownModel)
    assert (found.pool, found.name) == (None, "fast:safe")
