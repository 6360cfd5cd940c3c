"""What the control API takes and gives: request schemas in, JSON values out.

Requests are checked strictly (no coercion, no unknown members). Responses are the
dataclasses of ``mtpd.views``, written member by member in the order of declaration.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtpd.api.problem import FieldProblem, Problem
from mtpd.views import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mtpd.views import Json

__all__ = [
    "Body",
    "DecisionQuery",
    "EventQuery",
    "ExplainQuery",
    "HistoryQuery",
    "InvalidRequestError",
    "LimitQuery",
    "LoadBody",
    "LogQuery",
    "MeasurementQuery",
    "Name",
    "NoQuery",
    "ProbeBody",
    "Query",
    "ReloadBody",
    "ReportQuery",
    "SwitchBody",
    "TuneBody",
    "UnloadBody",
    "dump",
    "dump_piecewise",
    "listed",
    "parse_body",
    "parse_query",
    "refused",
]

MAX_DEPTH = 64
MAX_LIMIT = 1000
MAX_TAIL = 10_000

Name = Annotated[str, Field(min_length=1, max_length=256)]
Depth = Annotated[int, Field(ge=0, le=MAX_DEPTH)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
RowId = Annotated[int, Field(ge=1, lt=2**63)]
M = TypeVar("M", bound=BaseModel)


class InvalidRequestError(Exception):
    """A body or query that its schema refuses; carries the finished problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Body(BaseModel):
    """Base of the request bodies."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SwitchBody(Body):
    """Serve this model; without a depth, at the depth at which it is served now.

    Attributes:
        model: Name or alias.
        depth: Draft depth, which holds until the model is tuned; null or absent: the one at
            which it is served now.
        force: Cut running requests instead of draining them, and serve it even if it does not
            fit.
        measured: Go back from the depth that an operator set to the measured choice.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen", "depth": 2}]})

    model: Name
    depth: Depth | None = None
    force: bool = False
    measured: bool = False


class LoadBody(Body):
    """Start this model's engine at its chosen depth.

    Attributes:
        model: Name or alias.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen"}]})

    model: Name


class ReloadBody(Body):
    """Read the configuration again; there is nothing to say."""


class UnloadBody(Body):
    """Stop this model's engine, or every engine.

    Attributes:
        model: Name or alias; null or absent: every engine.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen"}, {}]})

    model: Name | None = None


class TuneBody(Body):
    """Measure the arms of a pool or model, and apply what the measurements choose.

    Attributes:
        subject: A pool, or a model's name or alias.
        method: model-based measures what decides, sweep measures every depth.
        depths: Only these may be measured, and the best of them is served.
        workloads: Only these; else all that are configured.
        prompts: Per workload.
        repetitions: Of each prompt.
        max_tokens: Generated per repetition.
        max_starts: Engine starts at most, over all models.
        max_cells: Arms times prompts at most, over all models.
        max_minutes: Minutes at most, over all models.
        max_joules: Joules at most, over all models; needs a card whose power can be read.
        apply: Serve what was chosen; else nothing is changed.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"subject": "default", "method": "sweep", "depths": [0, 1, 2]}]
        }
    )

    subject: Name
    method: Literal["model-based", "sweep"] = "model-based"
    depths: Annotated[tuple[Depth, ...], Field(min_length=1, max_length=MAX_DEPTH + 1)] | None = (
        None
    )
    workloads: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] | None = None
    prompts: Annotated[int, Field(ge=1, le=100)] | None = None
    repetitions: Annotated[int, Field(ge=1, le=100)] | None = None
    max_tokens: Annotated[int, Field(ge=2, le=65536)] | None = None
    max_starts: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_cells: Annotated[int, Field(ge=1, le=100000)] | None = None
    max_minutes: Annotated[float, Field(gt=0, le=100000)] | None = None
    max_joules: Annotated[float, Field(gt=0)] | None = None
    apply: bool = True


class ProbeBody(Body):
    """Measure the acceptance of each draft position in one short run.

    Attributes:
        model: Name or alias.
        depth: Draft positions.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen", "depth": 2}]})

    model: Name
    depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] = 2


class Query(BaseModel):
    """Base of the query strings; their values arrive as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Query):
    """No parameters."""


class LimitQuery(Query):
    """At most this many, newest first.

    Attributes:
        limit: Rows at most.
    """

    limit: Limit = 50


class MeasurementQuery(Query):
    """Which stored repetitions to list; ``id`` may be given several times.

    Attributes:
        model: Name or alias.
        depth: Draft depth.
        workload: Name of a workload.
        operation: The operation that took them.
        id: Numbers of stored repetitions.
        limit: Rows at most.
    """

    model: Name | None = None
    depth: Depth | None = None
    workload: Name | None = None
    operation: Name | None = None
    id: tuple[RowId, ...] | None = None
    limit: Limit = 200


class DecisionQuery(LimitQuery):
    """Which decisions to list.

    Attributes:
        subject: A pool or a model; without it all.
        limit: Rows at most.
    """

    subject: Name | None = None


class ExplainQuery(Query):
    """A decision by number, else the latest of a subject, else the latest of all.

    Attributes:
        id: Number of the decision.
        subject: A pool or a model.
    """

    id: RowId | None = None
    subject: Name | None = None


class ReportQuery(Query):
    """Of one pool or model, or of all models.

    Attributes:
        subject: A pool or a model; without it all models.
    """

    subject: Name | None = None


class EventQuery(Query):
    """Which events to send: types or their first parts, separated by commas.

    ``after`` does what the ``Last-Event-ID`` header does, for clients that cannot set it.

    Attributes:
        types: E.g. ``decision,engine.transition``; without it all.
        after: ``BOOT-SEQ``, or 0 for all that are kept.
    """

    types: Annotated[str, Field(max_length=1024)] | None = None
    after: Annotated[str, Field(max_length=128)] | None = None


class HistoryQuery(Query):
    """Which metrics, how far back, and in what steps.

    Attributes:
        metrics: E.g. ``power_w,edge_c``; without it all.
        since_s: Seconds back from now.
        step_s: Seconds of a step; it may become longer.
    """

    metrics: Annotated[str, Field(max_length=1024)] | None = None
    since_s: Annotated[float, Field(ge=10, le=86400)] = 3600
    step_s: Annotated[float, Field(ge=1, le=86400)] = 10


class LogQuery(Query):
    """Which log lines, by model or by source, and by what they are evidence of.

    Without ``after`` the last ``tail`` lines, with it those that came after that place.

    Attributes:
        model: Name or alias: the lines of its engine.
        source: Only the daemon's own lines, or only the engines'.
        about: Only lines that are evidence, of these kinds, separated by commas.
        tail: Lines at most.
        follow: Answer with a stream of server-sent events that goes on.
        after: ``BOOT-SEQ``, or 0 for all that are kept.
    """

    model: Name | None = None
    source: Literal["daemon", "engines"] | None = None
    about: Annotated[str, Field(max_length=1024)] | None = None
    tail: Annotated[int, Field(ge=0, le=MAX_TAIL)] = 200
    follow: bool = False
    after: Annotated[str, Field(max_length=128)] | None = None


def parse_body(raw: bytes, schema: type[M]) -> M:
    """Check a body; an empty one counts as ``{}``.

    Raises:
        InvalidRequestError: with every problem and its place.
    """
    try:
        return schema.model_validate_json(raw or b"{}")
    except ValidationError as error:
        raise InvalidRequestError(_problem(error, "body", 422)) from None


def parse_query(values: Mapping[str, list[str]], schema: type[M]) -> M:
    """Check a query string; only parameters that are tuples may be given several times.

    Raises:
        InvalidRequestError: with every problem and its place.
    """
    many = {name for name, field in schema.model_fields.items() if "tuple" in str(field.annotation)}
    repeated = [name for name, given in values.items() if len(given) > 1 and name not in many]
    if repeated:
        errors = tuple(FieldProblem(name, "may be given only once") for name in repeated)
        raise InvalidRequestError(_invalid("query", 400, errors))
    try:
        return schema.model_validate(
            {name: given if name in many else given[0] for name, given in values.items()}
        )
    except ValidationError as error:
        raise InvalidRequestError(_problem(error, "query", 400)) from None


def listed(path: str, text: str, known: Sequence[str]) -> frozenset[str]:
    """The names in a parameter that holds several, separated by commas.

    Raises:
        InvalidRequestError: One of them is not known.
    """
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    if strange := sorted(names - set(known)):
        raise refused(path, f"there is no {strange[0][:80]!r}; there are {', '.join(known)}")
    return names


def refused(path: str, message: str) -> InvalidRequestError:
    """A query of which one parameter cannot be used."""
    return InvalidRequestError(_invalid("query", 400, (FieldProblem(path, message),)))


def dump(value: object) -> str:
    """A view as one line of JSON text."""
    return _text(encode(value))


def dump_piecewise(value: object) -> str:
    """The same text, for a thread: one call for a megabyte would stop every other thread."""
    encoded = encode(value)
    if not isinstance(encoded, dict):
        return _text(encoded)
    return "{" + ", ".join(f"{_text(key)}: {_pieces(held)}" for key, held in encoded.items()) + "}"


def _pieces(value: Json) -> str:
    return "[" + ", ".join(map(_text, value)) + "]" if isinstance(value, list) else _text(value)


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _problem(error: ValidationError, where: str, status: int) -> Problem:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return Problem(
            slug="invalid-json",
            status=400,
            title="The body is not JSON",
            detail=details[0]["msg"],
        )
    errors = tuple(
        FieldProblem(".".join(str(part) for part in item["loc"]), item["msg"]) for item in details
    )
    return _invalid(where, status, errors)


def _invalid(where: str, status: int, errors: tuple[FieldProblem, ...]) -> Problem:
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(
        slug=f"invalid-{where}",
        status=status,
        title=f"The {where} does not fit its schema",
        detail=f"{first.path or where}: {first.message}{more}",
        hint="docs/http_api.md lists what each request takes.",
        errors=errors,
    )
