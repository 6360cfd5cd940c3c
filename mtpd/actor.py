"""On whose behalf the running task acts: what an audit trail names.

A context variable, because who asked belongs to a request as its time does: it reaches
what the request starts without a parameter on every method between.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["acting_as", "actor"]

_ACTOR: ContextVar[str | None] = ContextVar("mtpd.actor", default=None)


def actor() -> str | None:
    """Who asked for what happens now, e.g. ``token ops``; None where the daemon acts by itself."""
    return _ACTOR.get()


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Act on somebody's behalf while the block runs."""
    token = _ACTOR.set(name)
    try:
        yield
    finally:
        _ACTOR.reset(token)
