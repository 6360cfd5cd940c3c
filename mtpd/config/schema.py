"""What may be written in the TOML files: tables, keys, types, ranges, defaults.

Nothing here leaves ``mtpd.config``; the rest of the program sees
``mtpd.config.model``. Rules that concern several keys are in ``mtpd.config.checks``.
What a key means stands under ``Attributes`` of its table, and nowhere else:
``mtpd.config.reference`` reads it there for docs/configuration.md and the manual. A sentence
that begins with ``Unset:`` says what holds where a key has no default.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field

from mtpd.config.schema_models import (
    CandidateTable,
    DrafterTable,
    EngineTimeoutsTable,
    FiltersTable,
    LaunchTable,
    ModelTable,
    QualityTable,
)
from mtpd.config.schema_server import (
    BudgetTable,
    EngineTable,
    GroupTable,
    LimitsTable,
    PoolTable,
    ServerTable,
    TimeoutsTable,
    TuningTable,
)
from mtpd.config.schema_words import Table, Text

__all__ = [
    "BudgetTable",
    "CandidateTable",
    "DrafterTable",
    "EngineTable",
    "EngineTimeoutsTable",
    "FiltersTable",
    "GroupTable",
    "HardwareTable",
    "LaunchTable",
    "LimitsTable",
    "MessageTable",
    "ModelTable",
    "PoolTable",
    "PromptTable",
    "QualityTable",
    "RootTable",
    "ServerTable",
    "Table",
    "TimeoutsTable",
    "TuningTable",
    "WorkloadTable",
    "keys_at",
]


class HardwareTable(Table):
    """``profiles/hardware/NAME.toml``.

    Attributes:
        description: One line.
        isa: Instruction set as the driver names it, e.g. `"gfx906"`.
        vram_mib: Device memory.
        power_cap_w: The cap under which the facts were measured. Unset: none is declared.
        gate_edge_c: A measurement starts only at or below this edge temperature. Unset: 44.
        gate: `absolute`: the edge is at or below `gate_edge_c`, three samples in a row. `relative`,
            for a card without a fan of its own: the edge is within 2 °C of its lowest of the last
            two minutes and changes by less than 0.2 °C in 10 s. Results of the two are not
            comparable.
        row_cost: c of t(k) = t0 (1 + c k): what a draft token adds to a step. For forecasts, and
            what a search on the card takes for likely until its own measurements say more. Unset:
            unknown.
        row_cost_sd: Standard deviation of `row_cost`: how far another card, build or model may be
            from it.
        row_cost_source: The cells that `row_cost` was fitted to; required with it. Unset: none.
        drafting_note: A sentence for forecasts. Unset: none.
        model_defaults: Values for all models on this card, from `context` to `device`.
    """

    description: Text
    isa: Text
    vram_mib: int = Field(ge=1, le=16_777_216)
    power_cap_w: float | None = Field(default=None, gt=0.0)
    gate_edge_c: float | None = Field(default=None, gt=0.0, lt=150.0)
    gate: Literal["absolute", "relative"] = "absolute"
    row_cost: float | None = Field(default=None, gt=0.0, lt=100.0)
    row_cost_sd: float = Field(default=0.1, gt=0.0, lt=100.0)
    row_cost_source: Text | None = None
    drafting_note: Text | None = None
    model_defaults: LaunchTable = Field(default_factory=LaunchTable)


class MessageTable(Table):
    """One turn of a chat prompt.

    Attributes:
        role: Who speaks.
        content: What is said.
    """

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(min_length=1)]


class PromptTable(Table):
    """``[[prompts]]`` of a workload.

    Attributes:
        path: Which endpoint is asked.
        messages: Turns of a chat; the last one is the user's.
        prompt: Text to continue, with `/completion`. Unset: a chat has none.
    """

    path: Literal["/v1/chat/completions", "/completion"]
    messages: list[MessageTable] = Field(default_factory=list)
    prompt: Annotated[str, Field(min_length=1)] | None = None


class WorkloadTable(Table):
    """``profiles/workloads/NAME.toml``.

    Attributes:
        description: One line.
        max_tokens: Tokens generated per prompt.
        prompts: The requests, in their order.
    """

    description: Text
    max_tokens: int = Field(ge=1, le=65_536)
    prompts: list[PromptTable] = Field(min_length=1)


class RootTable(Table):
    """``mtpd.toml``, with the model profiles mounted under ``models``.

    Attributes:
        server: Where clients are answered, and what they may do.
        engine: What is started, and how patiently.
        budget: The card.
        tuning: What the daemon may do by itself.
        pools: Models among which mtpd may choose.
        groups: Which engines may run together.
        models: The models, or single keys of their profiles.
    """

    server: ServerTable = Field(default_factory=ServerTable)
    engine: EngineTable = Field(default_factory=EngineTable)
    budget: BudgetTable = Field(default_factory=BudgetTable)
    tuning: TuningTable = Field(default_factory=TuningTable)
    pools: dict[str, PoolTable] = Field(default_factory=dict)
    groups: dict[str, GroupTable] = Field(default_factory=dict)
    models: dict[str, ModelTable] = Field(default_factory=dict)


def keys_at(table: type[Table], path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that may stand in the table at a path; empty where any key may."""
    current: Any = table
    for part in path:
        if isinstance(current, type) and issubclass(current, Table):
            field = current.model_fields.get(str(part))
            current = _inner(field.annotation) if field is not None else None
        elif get_origin(current) in {dict, list}:
            current = _inner(get_args(current)[-1])
        else:
            return ()
    if isinstance(current, type) and issubclass(current, Table):
        return tuple(current.model_fields)
    return ()


def _inner(annotation: Any) -> Any:
    """The annotation without ``| None`` and without ``Annotated``."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        options = [option for option in get_args(annotation) if option is not type(None)]
        return _inner(options[0])
    return annotation
