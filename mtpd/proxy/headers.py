"""Which headers cross the daemon, in either direction: two short allow-lists; pure.

An allow-list, because what must not pass is longer than what must: hop-by-hop headers,
cookies, the client's credentials and addresses (Authorization, X-Api-Key,
X-Forwarded-*), and X-Conversation-Id, with which llama-server would keep generating
for a client that has left and let anybody read the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_json", "served_by", "to_client", "to_engine"]

_TO_ENGINE = ("Accept", "Content-Type")
_TO_CLIENT = (
    *("Content-Type", "Content-Length", "Cache-Control", "Retry-After"),
    "Content-Encoding",  # other programs compress what nobody wants compressed
)

WHY_LENGTH = 500
"""Characters of a reason that a header shows: all headers share a client's limit of 8 KiB."""


def served_by(profile: str, why: str) -> dict[str, str]:
    """Who answers a request and why, on one line of ASCII; no reason, no header for it."""
    told = {"X-Mtpd-Profile": profile}
    if why:
        line = " ".join(why.split()).encode("ascii", "replace").decode()
        told["X-Mtpd-Why"] = line[:WHY_LENGTH]
    return told


def to_engine(headers: Mapping[str, str], *, length: int | None = None) -> dict[str, str]:
    """What the engine gets of a client's headers (a case-insensitive mapping).

    Args:
        headers: The client's.
        length: Of the body in bytes; None where it is not known or there is none.
    """
    kept = {name: headers[name] for name in _TO_ENGINE if name in headers}
    if length:
        kept["Content-Length"] = str(length)
    # The bytes are relayed as they are, so they must not be compressed for us.
    return kept | {"Accept-Encoding": "identity"}


def to_client(headers: Mapping[str, str]) -> dict[str, str]:
    """What the client gets of the engine's headers, whose names are in lower case."""
    return {name: headers[name.lower()] for name in _TO_CLIENT if name.lower() in headers}


def is_json(content_type: str) -> bool:
    """Whether a Content-Type is application/json, with UTF-8 or no charset."""
    kind, _, parameters = content_type.partition(";")
    if kind.strip().lower() != "application/json":
        return False
    named = [p.partition("=") for p in parameters.split(";")]
    charsets = [value.strip(' "').lower() for name, _, value in named if _is(name, "charset")]
    return all(charset in {"utf-8", "utf8"} for charset in charsets)


def _is(name: str, expected: str) -> bool:
    return name.strip().lower() == expected
