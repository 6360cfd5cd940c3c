"""The door of the TCP listener: which tokens count, and who is told of what was refused.

Covers the metrics, the log and the shape of a refusal. Whether to refuse is decided in
``mtpd.api.auth``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog

from mtpd.api.bearer import CHALLENGE, look
from mtpd.api.errors import openai_response, problem_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from mtpd.api.bearer import Shown
    from mtpd.api.problem import Problem
    from mtpd.clock import Clock
    from mtpd.store.token_file import Tokens

__all__ = ["Gate", "refusal"]

BURST = 5
"""Refusals that are logged in one window; all are counted."""
WINDOW_S = 60.0

log = structlog.get_logger()


class Gate:
    """Asks the tokens, and keeps the trail of who was refused and who changed something.

    Args:
        tokens: Those that exist now.
        remote: Whether other machines reach the listener: then nobody passes without one.
        clock: Says what has expired, and spaces the log lines.
        count: Told of every refusal, by the problem's slug.
    """

    def __init__(
        self, *, tokens: Tokens, remote: bool, clock: Clock, count: Callable[[str], None]
    ) -> None:
        self._tokens, self._remote, self._clock, self._count = tokens, remote, clock, count
        self._since: float | None = None
        self._seen = 0

    def shown(self, secrets: tuple[str, ...]) -> Shown:
        """What the tokens say of a request that holds these."""
        return look(self._tokens.all(), secrets, remote=self._remote, now=self._clock.utc())

    def refused(self, request: web.Request, problem: Problem, token: str | None) -> None:
        """Count a refusal, and log it unless many were logged just now.

        Neither the path nor the query is logged: somebody may have put a token there.
        """
        self._count(problem.slug)
        now, suppressed = self._clock.now(), 0
        if self._since is None or now - self._since >= WINDOW_S:
            suppressed = max(0, self._seen - BURST)
            self._since, self._seen = now, 0
        self._seen += 1
        if self._seen <= BURST:
            log.warning(
                "auth.refused",
                problem=problem.slug,
                method=request.method,
                route=_route(request),
                peer=request.remote,
                token=token,
                suppressed=suppressed,
            )

    def changed(self, request: web.Request, actor: str) -> None:
        """Log that somebody was let through who may change something, and what.

        The query is not logged.
        """
        log.info("auth.change", actor=actor, method=request.method, path=request.path)


def refusal(problem: Problem, *, data_plane: bool) -> web.Response:
    """A refusal as a response; one about tokens names the way in (RFC 6750).

    Args:
        problem: Why.
        data_plane: Whether the client knows OpenAI's errors rather than problem documents.
    """
    challenge = _challenge(problem)
    headers = {} if challenge is None else {"WWW-Authenticate": challenge}
    if not data_plane:
        return problem_response(problem, headers=headers)
    if challenge is None:
        forbidden = problem.status == HTTPStatus.FORBIDDEN
        return openai_response(problem, kind="permission_error" if forbidden else None)
    unknown = problem.status == HTTPStatus.UNAUTHORIZED
    response = openai_response(
        problem,
        kind="authentication_error" if unknown else "permission_error",
        code="invalid_api_key" if unknown else "insufficient_scope",
    )
    response.headers.update(headers)
    return response


def _challenge(problem: Problem) -> str | None:
    match problem.slug:
        case "token-missing":
            return CHALLENGE
        case "token-scope":
            return f'{CHALLENGE}, error="insufficient_scope"'
        case "token-unknown" | "token-mistyped" | "token-expired":
            return f'{CHALLENGE}, error="invalid_token"'
        case _:
            return None


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical
