"""Access tokens: what one looks like, what is kept of it, what it may do. Pure.

Not covered: where they are kept (``mtpd.store.token_file``), and which request needs
which scope (``mtpd.api.auth``).
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "RANDOM_BYTES",
    "Scope",
    "Token",
    "digest_of",
    "find",
    "is_mistyped",
    "is_name",
    "parse_expiry",
    "secret_from",
]

RANDOM_BYTES = 32
"""How much chance a token holds: 256 bits, which nobody guesses."""

_PREFIX = "mtpd_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY_DIGITS = 43  # 62**43 > 256**32
_CHECK_DIGITS = 6  # 62**6 > 2**32
_SECRET = re.compile(rf"{_PREFIX}([0-9A-Za-z]{{{_BODY_DIGITS}}})([0-9A-Za-z]{{{_CHECK_DIGITS}}})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SPAN = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class Scope(enum.StrEnum):
    """What a token is for."""

    INFER = "infer"
    """The data plane: inference, and the list of models."""
    READ = "read"
    """What of the control plane changes nothing: status, measurements, logs, /metrics."""
    ADMIN = "admin"
    """Everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; the token itself is not.

    Attributes:
        name: What logs, operations and limits call its holder.
        digest: SHA-256 of the token in hexadecimal. No slow hash: who steals the digest of
            256 random bits cannot try them all, and each request pays for the hash.
        scopes: What it may do.
        created: When it was made; None where nobody wrote that down.
        expires: From when on it is refused; None for never.
        last4: Its last characters, to tell two apart by; empty where it was not made by us.
    """

    name: str
    digest: str
    scopes: frozenset[Scope]
    created: datetime | None = None
    expires: datetime | None = None
    last4: str = ""

    def may(self, scope: Scope) -> bool:
        """Whether it is for this, too."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires is not None and now >= self.expires


def secret_from(random: bytes) -> str:
    """A new token: a prefix for scanners, the random bytes, and a checksum, in base 62.

    Args:
        random: ``RANDOM_BYTES`` bytes that nobody knows.
    """
    body = _base62(int.from_bytes(random), _BODY_DIGITS)
    return f"{_PREFIX}{body}{_checksum(body)}"


def is_mistyped(secret: str) -> bool:
    """Whether this begins as a token of ours and is not a whole one."""
    if not secret.startswith(_PREFIX):
        return False
    match = _SECRET.fullmatch(secret)
    return match is None or _checksum(match[1]) != match[2]


def digest_of(secret: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find(tokens: Iterable[Token], secret: str) -> Token | None:
    """The token that this is, in a time that tells nothing of any other; None if it is none."""
    digest, found = digest_of(secret), None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def is_name(text: str) -> bool:
    """Whether a token may be called so: letters, digits and ``. _ -``, at most 64."""
    return _NAME.fullmatch(text) is not None


def parse_expiry(text: str, now: datetime) -> datetime:
    """When a token ends: after ``12h``, ``30d`` or ``8w``, or at an ISO 8601 date or time.

    A time without a zone is UTC.

    Raises:
        ValueError: It is neither, or it is not in the future; the sentence says which.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now + int(span[1]) * _UNITS[span[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        msg = f"{text!r} is neither a span such as 12h, 30d or 8w nor a date such as 2030-01-31"
        raise ValueError(msg) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    if moment <= now:
        msg = f"{text} is not in the future"
        raise ValueError(msg)
    return moment


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_DIGITS)


def _base62(number: int, digits: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text.rjust(digits, _ALPHABET[0])
