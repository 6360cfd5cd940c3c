"""What a request shows of tokens, and how it is told that it lacks one.

Pure, but for the hash over what was shown. Which token a request needs is decided in
``mtpd.api.auth``.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd import access
from mtpd.api.problem import Problem
from mtpd.clock import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from mtpd.access import Scope, Token

__all__ = ["CHALLENGE", "NOTHING_SHOWN", "Shown", "credentials", "look"]

CHALLENGE = 'Bearer realm="mtpd"'
"""No ``Basic``, although that is taken: a browser that asks for a password once sends it
ever after, also for pages of others."""

_MAX_SHOWN = 4
_MAX_LENGTH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the tokens say of a request.

    Attributes:
        required: Whether anybody needs one: some exist, or other machines reach the listener.
        token: The one that was shown and counts, or None.
        refusal: Why what was shown does not count; None where nothing was shown.
    """

    required: bool = False
    token: Token | None = None
    refusal: Problem | None = None

    def lacks(self, scope: Scope) -> Problem | None:
        """None where a token for this is not needed or was shown, else what to answer."""
        if not self.required:
            return None
        if self.token is None:
            return self.refusal or _MISSING
        if self.token.may(scope):
            return None
        has = ", ".join(sorted(self.token.scopes))
        return Problem(
            slug="token-scope",
            status=403,
            title="The token is not for this",
            detail=f"This needs the scope {scope}; the token {self.token.name!r} has {has}.",
            hint=f"A token for it: mtpd token add NAME --scope {scope}",
        )


NOTHING_SHOWN = Shown()
"""Of a request that nobody asks for a token."""

_MISSING = Problem(
    slug="token-missing",
    status=401,
    title="A token is needed",
    detail="The request shows no token.",
    hint="Send it as 'Authorization: Bearer TOKEN' or 'x-api-key: TOKEN'; "
    "mtpd token add NAME makes one.",
)
_UNKNOWN = Problem(
    slug="token-unknown",
    status=401,
    title="The token is not known",
    detail="The token that was sent is none of this daemon's, or it was revoked.",
    hint="mtpd token list shows the names; mtpd token add NAME makes a new one.",
)
_MISTYPED = Problem(
    slug="token-mistyped",
    status=401,
    title="The token is not whole",
    detail="The token that was sent has a wrong checksum: a part of it is missing or mistyped.",
    hint="Copy it as mtpd token add printed it.",
)


def credentials(authorization: Sequence[str], api_key: Sequence[str]) -> tuple[str, ...]:
    """The tokens that headers hold, as llama-swap takes them; never raises.

    Args:
        authorization: Every ``Authorization`` header: ``Bearer``, or ``Basic``, of which the
            password counts.
        api_key: Every ``x-api-key`` header, as Anthropic's clients send it.
    """
    found = (*filter(None, map(_secret, authorization)), *filter(None, map(str.strip, api_key)))
    return tuple(dict.fromkeys(one for one in found if len(one) <= _MAX_LENGTH))[:_MAX_SHOWN]


def _secret(header: str) -> str:
    scheme, _, value = header.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return value.strip()
        case "basic":
            return _password(value.strip())
        case _:
            return ""


def _password(encoded: str) -> str:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):  # ValueError: what is not ASCII, or no UTF-8 within
        return ""
    return text.partition(":")[2]


def look(tokens: Sequence[Token], shown: Sequence[str], *, remote: bool, now: datetime) -> Shown:
    """What the tokens say of a request.

    Args:
        tokens: Those that exist, also expired ones: a token that has ended opens nothing.
        shown: What the request holds (``credentials``).
        remote: Whether other machines reach the listener.
        now: For what expires.
    """
    if not tokens:
        return Shown(required=remote, refusal=_UNKNOWN if shown else None)
    refusals: list[Problem] = []
    for found, secret in _found(tokens, shown):
        if found is None:
            refusals.append(_MISTYPED if access.is_mistyped(secret) else _UNKNOWN)
        elif found.expired(now):
            refusals.append(_expired(found))
        else:
            return Shown(required=True, token=found)
    return Shown(required=True, refusal=refusals[0] if refusals else None)


def _found(tokens: Sequence[Token], shown: Sequence[str]) -> Iterator[tuple[Token | None, str]]:
    for secret in shown:
        yield access.find(tokens, secret), secret


def _expired(token: Token) -> Problem:
    ended = "" if token.expires is None else f" on {rfc3339(token.expires)}"
    return Problem(
        slug="token-expired",
        status=401,
        title="The token has expired",
        detail=f"The token {token.name!r} expired{ended}.",
        hint=f"mtpd token revoke {token.name}, then mtpd token add {token.name}, makes a new one.",
    )
