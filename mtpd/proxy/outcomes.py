"""How a request or an order can end other than well."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mtpd.errors import ConflictError, MtpdError

__all__ = [
    "BodyLostError",
    "DrainTimeoutError",
    "NoStreamError",
    "RejectedError",
    "Renewal",
    "Renewed",
    "SlowEngineError",
    "UpstreamLostError",
]


_STATUS = {"removed": 404, "caller": 429, "model": 429, "poison": 422}


class RejectedError(MtpdError):
    """A request was turned away before it reached an engine.

    Attributes:
        status: HTTP status for the client.
        retry_after_s: When another attempt makes sense.
        kind: full, deadline, engine, closed, removed, caller (one of too many of a token),
            model (one of too many for a model) or poison (it has brought its engine down).
    """

    def __init__(self, message: str, *, kind: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.status = _STATUS.get(kind, 503)
        self.retry_after_s = retry_after_s
        self.kind = kind


class DrainTimeoutError(ConflictError):
    """Requests were still running when the patience for a change of engine ended."""


class UpstreamLostError(MtpdError):
    """The engine broke off before its response was whole.

    Attributes:
        status: HTTP status for a client that was sent nothing yet.
        code: For programs.
    """

    status = 502
    code = "upstream_lost"


class BodyLostError(MtpdError):
    """The client broke off before its body was whole, or it became too large."""


class SlowEngineError(UpstreamLostError):
    """The engine took longer than its configured timeouts; asking again would take as long."""

    status = 504
    code = "engine_timeout"


class NoStreamError(MtpdError):
    """An engine refused what was asked, after its client's stream had begun.

    Attributes:
        status: The engine's.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Renewed(enum.StrEnum):
    """What became of an engine that ran otherwise than is configured."""

    RESTARTED = "restarted"
    UNLOADED = "unloaded"
    WAITS = "waits"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Renewal:
    """An engine that ran otherwise than is configured, and what became of it.

    Attributes:
        why: Why it waits or failed; else what it was done for.
    """

    profile: str
    outcome: Renewed
    why: str
