"""Problem details (RFC 9457): what every refused request is answered with.

Pure: builds values. The middleware in ``mtpd.api.errors`` decides when.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from mtpd.errors import (
    BinaryError,
    CalibrationError,
    ConfigError,
    ConflictError,
    EngineError,
    InvalidError,
    MtpdError,
    NotFoundError,
    StateError,
    StoreError,
    UnknownNameError,
    UnreachableError,
    UpstreamError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.views import Json

__all__ = [
    "CONTENT_TYPE",
    "FieldProblem",
    "Problem",
    "described",
    "from_error",
    "from_status",
    "unexpected",
]

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:mtpd:problem:"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One value of a body or query that cannot be used.

    Attributes:
        path: Where it is, e.g. ``depths.1``; empty for the whole body.
        message: What is wrong with it.
    """

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A refusal that a person can act on.

    Attributes:
        slug: Last part of the ``type`` URN; stable, for programs.
        status: HTTP status.
        title: The kind of problem; the same for every problem of this type.
        detail: This occurrence, in one sentence.
        hint: What to do next, or None.
        errors: One entry per unusable value.
    """

    slug: str
    status: int
    title: str
    detail: str
    hint: str | None = None
    errors: tuple[FieldProblem, ...] = ()

    def body(self) -> dict[str, Json]:
        """The members of ``application/problem+json``, in a stable order."""
        members: dict[str, Json] = {
            "type": TYPE_PREFIX + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "hint": self.hint,
        }
        if self.errors:
            members["errors"] = [{"path": e.path, "message": e.message} for e in self.errors]
        return members


# First match wins, so a class stands before its bases.
_KINDS: Sequence[tuple[type[MtpdError], str, int, str]] = (
    (NotFoundError, "not-found", 404, "No such thing"),
    (ConflictError, "conflict", 409, "The present state forbids this"),
    (UnknownNameError, "unknown-name", 400, "No such name"),
    (InvalidError, "invalid-request", 422, "The request cannot be carried out"),
    (ConfigError, "configuration", 422, "The configuration has errors"),
    (BinaryError, "engine-binary", 503, "No usable engine"),
    (EngineError, "engine", 502, "The engine did not start or died"),
    (UpstreamError, "upstream", 502, "The engine gave an unusable answer"),
    (UnreachableError, "unreachable", 503, "The daemon does not answer"),
    (CalibrationError, "calibration", 409, "The calibration ended without a choice"),
    (StateError, "state", 500, "The state directory cannot be used"),
    (StoreError, "store", 500, "The database cannot be used"),
    (MtpdError, "refused", 409, "The request was refused"),
)


def from_error(error: MtpdError) -> Problem:
    """The problem that tells an error's sentence and hint."""
    slug, status, title = next(
        (slug, status, title) for kind, slug, status, title in _KINDS if isinstance(error, kind)
    )
    lines = error.problems if isinstance(error, ConfigError) else ()
    return Problem(
        slug=slug,
        status=status,
        title=title,
        detail=str(error),
        hint=error.hint,
        errors=tuple(FieldProblem("", line) for line in lines),
    )


def from_status(status: int, detail: str, *, hint: str | None = None) -> Problem:
    """The problem for a refusal that HTTP itself has a name for, e.g. 405."""
    phrase = HTTPStatus(status).phrase
    return Problem(
        slug=phrase.lower().replace(" ", "-"), status=status, title=phrase, detail=detail, hint=hint
    )


def unexpected() -> Problem:
    """The problem for a fault of the daemon; says nothing of its insides."""
    return Problem(
        slug="internal",
        status=500,
        title="A fault of the daemon",
        detail="The daemon met an error that it did not expect while answering this request.",
        hint="The daemon's log has the traceback; please report it.",
    )


def described(error: MtpdError | None) -> dict[str, Json]:
    """What is stored of an operation's failure; None is a defect of the daemon."""
    return (unexpected() if error is None else from_error(error)).body()
