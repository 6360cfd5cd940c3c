"""llama-swap's keys that have no effect here, each with its reason.

A key that is in none of these tables and is not translated is told as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MODEL_KEYS", "OWN_KEYS", "TOP_KEYS", "is_empty"]

_NOWHERE = "has no effect here"
_LIST = "is not shown in /v1/models yet"

OWN_KEYS = frozenset(
    {"globalTTL", "includeAliasesInList", "healthCheckTimeout", "unloadTimeout", "hooks"}
)
"""Keys of the file that settings of mtpd stand for; see ``mtpd.compat.swap_own``."""

TOP_KEYS: Mapping[str, tuple[Kind, str]] = {
    "peers": (Kind.NOT_HONOURED, "requests are not passed to other machines"),
    "profiles": (Kind.NOT_HONOURED, "there are no sets of models to start together"),
    "selectors": (Kind.NOT_HONOURED, "a model is asked for by its name; see [pools.NAME]"),
    "mcpProviders": (Kind.NOT_HONOURED, "no tools are served"),
    "upstream": (Kind.NOT_HONOURED, "every path below /upstream loads its model"),
    "compat": (Kind.NOT_HONOURED, "websockets are not relayed"),
    "logLevel": (Kind.NOTE, f"{_NOWHERE}; see mtpd serve --log-level"),
    "logTimeFormat": (Kind.NOTE, _NOWHERE),
    "logToStdout": (Kind.NOTE, _NOWHERE),
    "logRequests": (Kind.NOTE, _NOWHERE),
    "metricsMaxInMemory": (Kind.NOTE, f"{_NOWHERE}; measurements are kept in the database"),
    "captureBuffer": (Kind.NOTE, f"{_NOWHERE}; no request is kept"),
    "performance": (Kind.NOTE, f"{_NOWHERE}; the card is always watched"),
    "store": (Kind.NOTE, _NOWHERE),
    "ui": (Kind.NOTE, _NOWHERE),
}
"""Keys of the file."""

MODEL_KEYS: Mapping[str, tuple[Kind, str]] = {
    "capabilities": (Kind.NOT_HONOURED, _LIST),
}
"""Keys of a model."""


def is_empty(value: object) -> bool:
    """Whether a value asks for nothing: what such a key means where it is left out."""
    return value is None or value is False or value in (0, "", [], {})
