"""The door of the TCP listener: which tokens count, and who is told of what was refused.

Covers the metrics, the log and the shape of a refusal. Whether to refuse is decided in
``mtpd.api.auth``.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from mtpd.api.bearer import CHALLENGE, look
from mtpd.api.errors import openai_response, problem_response
from mtpd.api.problem import from_error, unexpected
from mtpd.api.schema import InvalidRequestError
from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mtpd.api.bearer import Shown
    from mtpd.api.problem import Problem
    from mtpd.clock import Clock
    from mtpd.store.token_file import Tokens

__all__ = ["Change", "Gate", "refusal"]

BURST = 5
"""Refusals of a caller that are logged in one window; all are counted."""
WINDOW_S = 60.0
CALLERS = 64
"""Callers whose refusals are told apart."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Window:
    """Refusals of one caller."""

    since: float | None = None
    seen: int = 0


@dataclass(slots=True)
class Change:
    """What came of a change.

    Attributes:
        status: Of the answer; None where the caller had left before it.
        problem: The slug of the problem that it was told, or None.
        operation: Id of the operation that it started, or None.
    """

    status: int | None = None
    problem: str | None = None
    operation: str | None = None

    def answered(self, response: web.StreamResponse) -> web.StreamResponse:
        """Note the answer, and hand it on."""
        self.status = response.status
        before, _, operation = response.headers.get("Location", "").rpartition("/operations/")
        self.operation = operation if before else None
        return response


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
        self._windows: dict[str, _Window] = {}

    def shown(self, secrets: tuple[str, ...]) -> Shown:
        """What the tokens say of a request that holds these."""
        return look(self._tokens.all(), secrets, remote=self._remote, now=self._clock.utc())

    def refused(self, request: web.Request, problem: Problem, actor: str | None) -> None:
        """Count a refusal, and log it unless many of the same caller were logged just now.

        Neither the path nor the query is logged: somebody may have put a token there.
        """
        self._count(problem.slug)
        now, suppressed = self._clock.now(), 0
        window = self._window(actor or f"from {request.remote}")
        if window.since is None or now - window.since >= WINDOW_S:
            suppressed = max(0, window.seen - BURST)
            window.since, window.seen = now, 0
        window.seen += 1
        if window.seen <= BURST:
            log.warning(
                "auth.refused",
                problem=problem.slug,
                status=problem.status,
                actor=actor,
                method=request.method,
                route=_route(request),
                peer=request.remote or None,
                suppressed=suppressed,
            )

    @asynccontextmanager
    async def changing(self, request: web.Request, actor: str) -> AsyncIterator[Change]:
        """Log what comes of a request of somebody who may change something.

        The query is not logged, nor a path that nothing answers at.
        """
        change = Change()
        try:
            yield change
        except BaseException as error:
            change.status, change.problem = _verdict(error)
            raise
        finally:
            log.info(
                "auth.change",
                actor=actor,
                method=request.method,
                path="none" if request.match_info.route.resource is None else request.path,
                status=change.status,
                problem=change.problem,
                operation=change.operation,
            )

    def _window(self, caller: str) -> _Window:
        """Of one caller, so that nobody's refusals hide those of others; of the many, one."""
        if caller not in self._windows and len(self._windows) >= CALLERS:
            caller = "others"
        return self._windows.setdefault(caller, _Window())


def _verdict(error: BaseException) -> tuple[int | None, str | None]:
    """Status and problem that the caller is going to be told; None where it gets no answer."""
    match error:
        case InvalidRequestError():
            return error.problem.status, error.problem.slug
        case web.HTTPException():
            return error.status, None
        case MtpdError():
            problem = from_error(error)
            return problem.status, problem.slug
        case Exception():
            return HTTPStatus.INTERNAL_SERVER_ERROR, unexpected().slug
        case _:
            return None, None


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
