"""``GET /mtpd/v1/access``: what the caller may do, asked of the very rules that decide it.

A user interface shows with it what it can offer, before anybody is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from mtpd.actor import actor
from mtpd.api import handlers, schema
from mtpd.api.auth import Plane, Scope, may
from mtpd.api.row import query_of

if TYPE_CHECKING:
    from aiohttp import web

    from mtpd.api.backend import Backend
    from mtpd.api.problem import Problem

__all__ = ["AccessView", "AllowedView", "access"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedView:
    """Whether the caller may do something.

    Attributes:
        reason: Why not, or null.
        hint: What would change that, or null.
    """

    allowed: bool
    reason: str | None
    hint: str | None

    @classmethod
    def of(cls, problem: Problem | None) -> Self:
        """What a refusal says; None is no refusal."""
        if problem is None:
            return cls(allowed=True, reason=None, hint=None)
        return cls(allowed=False, reason=problem.detail, hint=problem.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessView:
    """What the caller may do beside reading, without which this is not answered.

    Attributes:
        actor: As which it is known, e.g. ``token ops``; null over TCP without a token.
        changes: Whether it may switch, load, unload and measure.
        inference: Whether it may use the data plane.
    """

    actor: str | None
    changes: AllowedView
    inference: AllowedView


async def access(_backend: Backend, request: web.Request) -> web.StreamResponse:
    """What the caller may do."""
    query_of(request, schema.NoQuery)
    return handlers.json_response(
        AccessView(
            actor=actor(),
            changes=AllowedView.of(may(request, Plane.CONTROL, Scope.WRITE)),
            inference=AllowedView.of(may(request, Plane.DATA, Scope.WRITE)),
        )
    )
