"""What headers show, and what the tokens say of it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.access import RANDOM_BYTES, Scope, Token, digest_of, secret_from
from mtpd.api.bearer import credentials, look

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SECRET = secret_from(bytes(range(RANDOM_BYTES)))
OLD = secret_from(bytes(RANDOM_BYTES))
TOKENS = (
    Token(name="laptop", digest=digest_of(SECRET), scopes=frozenset({Scope.INFER})),
    Token(
        name="old",
        digest=digest_of(OLD),
        scopes=frozenset({Scope.ADMIN}),
        expires=NOW - timedelta(days=1),
    ),
)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("authorization", "api_key", "found"),
    [
        ((), (), ()),
        (("Bearer t",), (), ("t",)),
        (("bearer   t ",), (), ("t",)),
        (("BEARER t",), ("t",), ("t",)),
        ((), ("t",), ("t",)),
        (("Bearer a",), ("b",), ("a", "b")),
        (("Bearer a", "Bearer b"), (), ("a", "b")),
        ((basic("user:t"),), (), ("t",)),
        ((basic(":t:u"),), (), ("t:u",)),
        ((basic("t"),), (), ()),
        (("Basic ???",), (), ()),
        (("Basic é",), (), ()),
        (("Basic /w==",), (), ()),
        (("Digest t",), (), ()),
        (("t",), (), ()),
        (("Bearer",), ("",), ()),
        (("Bearer " + "x" * 513,), (), ()),
        (tuple(f"Bearer {n}" for n in range(9)), (), ("0", "1", "2", "3")),
    ],
)
def test_what_headers_show(
    authorization: tuple[str, ...], api_key: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert credentials(authorization, api_key) == found


def refused(*shown: str, scope: Scope = Scope.INFER) -> str | None:
    problem = look(TOKENS, shown, remote=False, now=NOW).lacks(scope)
    return None if problem is None else f"{problem.status} {problem.slug}"


def test_what_the_tokens_say() -> None:
    assert refused(SECRET) is None
    assert refused("wrong", SECRET) is None
    assert refused(SECRET, scope=Scope.READ) == "403 token-scope"
    assert refused(SECRET, scope=Scope.ADMIN) == "403 token-scope"
    assert refused() == "401 token-missing"
    assert refused("sk-1") == "401 token-unknown"
    assert refused(SECRET[:-1]) == "401 token-mistyped"
    assert refused(OLD) == "401 token-expired"
    assert refused(OLD, scope=Scope.ADMIN) == "401 token-expired"


def test_without_tokens_everything_is_open_unless_other_machines_ask() -> None:
    for shown in ((), ("sk-anything",)):
        assert look((), shown, remote=False, now=NOW).lacks(Scope.INFER) is None
    missing = look((), (), remote=True, now=NOW).lacks(Scope.INFER)
    unknown = look((), ("sk-anything",), remote=True, now=NOW).lacks(Scope.INFER)
    assert missing is not None
    assert unknown is not None
    assert (missing.slug, unknown.slug) == ("token-missing", "token-unknown")


def test_a_token_that_has_ended_still_closes_the_door() -> None:
    assert look(TOKENS[1:], (), remote=False, now=NOW).lacks(Scope.INFER) is not None


def test_no_refusal_repeats_what_was_shown() -> None:
    for shown in ("canary-4711", f"{SECRET}x", OLD):
        problem = look(TOKENS, (shown,), remote=False, now=NOW).lacks(Scope.ADMIN)
        assert shown not in str(problem)


@given(
    st.lists(st.text(max_size=80), max_size=6),
    st.lists(st.text(max_size=80), max_size=6),
    st.sampled_from(Scope),
)
def test_random_headers_never_raise_and_never_pass(
    authorization: list[str], api_key: list[str], scope: Scope
) -> None:
    shown = credentials(authorization, api_key)
    assert look(TOKENS, shown, remote=False, now=NOW).lacks(scope) is not None


@given(st.text(max_size=60), st.integers(0, len(SECRET)))
def test_nothing_but_the_whole_token_passes(more: str, cut: int) -> None:
    near = (SECRET[:cut] + more).strip()
    header = f"Bearer {near}"
    shown = credentials((header, basic(f"u:{near}")), (near,))
    verdict = look(TOKENS, shown, remote=False, now=NOW).lacks(Scope.INFER)
    assert (verdict is None) == (near == SECRET)
