"""What a token looks like and what is kept of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd import access
from mtpd.access import RANDOM_BYTES, Scope, Token, digest_of, is_mistyped, is_name, parse_expiry

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RANDOM = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


def token(secret: str, name: str = "t", *scopes: Scope) -> Token:
    return Token(name=name, digest=digest_of(secret), scopes=frozenset(scopes or (Scope.INFER,)))


@given(RANDOM)
def test_a_token_has_one_length_and_is_whole(random: bytes) -> None:
    secret = access.secret_from(random)
    assert len(secret) == 54
    assert secret.startswith("mtpd_")
    assert secret.removeprefix("mtpd_").isalnum()
    assert not is_mistyped(secret)


@given(st.lists(RANDOM, unique=True, min_size=2, max_size=5))
def test_no_two_are_the_same(randoms: Sequence[bytes]) -> None:
    assert len({access.secret_from(one) for one in randoms}) == len(randoms)


@given(RANDOM, st.integers(0, 48), st.sampled_from("0189AZaz"))
def test_one_wrong_character_is_noticed(random: bytes, place: int, sign: str) -> None:
    secret = access.secret_from(random)
    at = len("mtpd_") + place
    changed = secret[:at] + sign + secret[at + 1 :]
    assert is_mistyped(changed) == (changed != secret)


def test_what_does_not_begin_as_ours_is_not_mistyped() -> None:
    assert not is_mistyped("sk-1234")
    assert is_mistyped("mtpd_1234")


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=4), st.text(max_size=8))
def test_a_token_is_found_exactly_by_itself(secrets: Sequence[str], asked: str) -> None:
    tokens = [token(one, str(number)) for number, one in enumerate(secrets)]
    found = access.find(tokens, asked)
    assert (None if found is None else secrets[int(found.name)]) == (
        asked if asked in secrets else None
    )


def test_every_token_is_compared_whichever_it_is() -> None:
    tokens = iter([token("first", "1"), token("second", "2"), token("third", "3")])
    found = access.find(tokens, "first")
    assert found is not None
    assert found.name == "1"
    assert next(tokens, None) is None


@given(st.text())
def test_any_text_has_a_digest(text: str) -> None:
    assert len(digest_of(text)) == 64


def test_admin_is_for_everything_and_the_others_for_themselves() -> None:
    for scope in Scope:
        assert token("x", "t", Scope.ADMIN).may(scope)
        assert [one for one in Scope if token("x", "t", scope).may(one)] == (
            [*Scope] if scope is Scope.ADMIN else [scope]
        )


def test_a_token_ends_at_its_time() -> None:
    ends = Token(name="t", digest="", scopes=frozenset(), expires=NOW)
    assert ends.expired(NOW)
    assert not ends.expired(NOW - timedelta(seconds=1))
    assert not token("x").expired(NOW)


def test_nothing_of_a_token_is_in_what_is_kept() -> None:
    secret = access.secret_from(bytes(RANDOM_BYTES))
    assert secret[5:12] not in repr(token(secret))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("12h", NOW + timedelta(hours=12)),
        ("30d", NOW + timedelta(days=30)),
        ("8w", NOW + timedelta(weeks=8)),
        ("2027-01-31", datetime(2027, 1, 31, tzinfo=UTC)),
        ("2026-11-30T13:00:00+01:00", None),
        ("2026-11-30T12:00:01Z", NOW + timedelta(seconds=1)),
        ("0d", None),
        ("-1d", None),
        ("2020-01-01", None),
        ("soon", None),
        ("", None),
    ],
)
def test_when_a_token_ends(text: str, moment: datetime | None) -> None:
    if moment is not None:
        assert parse_expiry(text, NOW) == moment
        return
    with pytest.raises(ValueError, match=r"is neither a span|is not in the future"):
        parse_expiry(text, NOW)


@given(st.text(max_size=12))
def test_an_end_is_in_the_future_or_refused(text: str) -> None:
    try:
        assert parse_expiry(text, NOW) > NOW
    except ValueError as error:
        assert str(error)  # noqa: PT017 - the sentence is what is shown


@pytest.mark.parametrize(
    ("name", "valid"),
    [("laptop", True), ("ci.runner-2_x", True), ("9", True), ("x" * 64, True), ("x" * 65, False),
     ("", False), (".x", False), ("a b", False), ("apiKeys[0]", False), ("a\n", False)],
)  # fmt: skip
def test_a_name(name: str, *, valid: bool) -> None:
    assert is_name(name) is valid
