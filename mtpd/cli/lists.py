"""The plain lists: models, operations, measurements, decisions, configuration, events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from mtpd.cli.cells import (
    NONE,
    arm_label,
    cell,
    clock_text,
    finished,
    grid,
    line,
    number,
    size,
    state,
    table,
)
from mtpd.cli.memory import memory_cells
from mtpd.cli.render import decision_sentence, headed, progress_text
from mtpd.cli.short_ids import short_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from mtpd.views import (
        ConfigValueView,
        DecisionView,
        Json,
        MeasurementView,
        ModelView,
        OperationView,
    )

__all__ = [
    "config_table",
    "decision_table",
    "event_line",
    "measurement_table",
    "model_table",
    "operation_grid",
    "operation_list",
    "outcome",
]


def model_table(models: Sequence[ModelView]) -> RenderableType:
    """The configured models, what they need and what was chosen for them."""
    made = table("models", dense=True)
    made.add_column("model", overflow="fold")
    made.add_column("state")
    for head in ("size", "context\n/slots"):
        made.add_column(head, justify="right")
    made.add_column("drafter")
    for head in ("ppl", "depth", "tok/s", "MiB"):
        made.add_column(head, justify="right")
    made.add_column("fits")
    for model in models:
        made.add_row(
            cell(model.id + "".join(f"\n= {alias}" for alias in model.aliases)),
            state(model.state),
            cell(size(model.size_bytes)),
            cell(f"{'?' if model.context is None else model.context}/{model.slots}"),
            cell(model.drafter if model.max_depth == 0 else f"{model.drafter} ≤{model.max_depth}"),
            cell(number(None if model.quality is None else model.quality.perplexity, 4)),
            *_choice(model),
        )
    return finished(
        made, "no model is configured: add [models.NAME] to mtpd.toml, then mtpctl reload"
    )


def _choice(model: ModelView) -> list[Text]:
    if model.choice is None:
        return [cell(NONE)] * 4
    arm = model.choice.arm
    speed = next((row.decode_tps for row in model.depths if row.arm == arm), None)
    mark = "" if model.choice.measured else " set" if model.choice.pinned else "?"
    needs = next((one for one in model.memory.depths if one.depth == arm.depth), None)
    return [cell(f"{arm.depth}{mark}"), cell(number(speed, 1)), *memory_cells(needs)]


def operation_list(operations: Sequence[OperationView]) -> Group:
    """Operations with what came of them, each by as much of its id as the commands need."""
    lines: list[RenderableType] = []
    for one in operations:
        created = clock_text(one.created_at)
        head = Text.assemble(
            (short_id(one.id), "bold"), f"  {one.kind}  ", state(one.state), f"  {created}"
        )
        lines += [head, Padding(cell(outcome(one)), (0, 0, 0, 4))]
    return Group(
        *lines or [cell("no operation was started yet, e.g. by mtpctl tune or mtpctl load")]
    )


def operation_grid(one: OperationView) -> Group:
    """One operation in full."""
    made = grid()
    given = {name: value for name, value in one.params.items() if value is not None}
    asked = ", ".join(f"{name}={json.dumps(value)}" for name, value in given.items())
    line(made, "operation", f"{one.id}: {one.kind}")
    line(made, "asked", asked or NONE)
    line(made, "by", one.actor or NONE)
    line(made, "state", state(one.state))
    line(made, "progress", progress_text(one))
    line(made, "created", clock_text(one.created_at))
    line(made, "started", NONE if one.started_at is None else clock_text(one.started_at))
    line(made, "ended", NONE if one.ended_at is None else clock_text(one.ended_at))
    if one.ended_at is not None:
        line(made, "outcome", outcome(one))
    return Group(made)


def outcome(one: OperationView) -> str:
    """What came of an operation, or how far it is."""
    if one.error is not None:
        return str(one.error.get("detail", "failed"))
    if one.result is None:
        return progress_text(one)
    return _result(one.result)


def _result(result: Mapping[str, Json]) -> str:
    lost = result.get("prompt_cache")
    return _came(result) if lost is None else f"{_came(result)} ({lost})"


def _came(result: Mapping[str, Json]) -> str:
    match result:
        case {"decisions": [*_, {"reason": str() as reason}]}:
            return reason
        case {
            "engine": {"profile": name, "state": now, "arm": {"depth": depth}},
            "choice": {"pinned": True, "measured_arm": {"depth": measured}},
        }:
            back = f"mtpctl switch {name} --measured goes back to the measured depth {measured}"
            return f"{name} is {now} at depth {depth}, set by an operator; {back}"
        case {"engine": {"profile": name, "state": now, "arm": {"depth": depth}}}:
            return f"{name} is {now} at depth {depth}"
        case {"reason": str() as reason, "changes": dict()}:
            return reason
        case {"engines": list() as engines}:
            return _still_running(engines)
        case _:
            return "done"


def _still_running(engines: list[Json]) -> str:
    names = [
        str(one.get("profile"))
        for one in engines
        if isinstance(one, dict) and one.get("state") != "stopped"
    ]
    return f"still running: {', '.join(names)}" if names else "no engine runs"


def measurement_table(measurements: Sequence[MeasurementView]) -> RenderableType:
    """Stored repetitions, one line each."""
    made = table("measurements", dense=True)
    made.add_column("id", justify="right")
    made.add_column("arm", overflow="fold")
    made.add_column("workload", overflow="fold")
    for head in ("rep", "tok", "tok/s", "accepted"):
        made.add_column(head, justify="right")
    for head in ("text", "residency"):
        made.add_column(head)
    made.add_column("excluded", overflow="fold")
    for one in measurements:
        made.add_row(
            cell(str(one.id)),
            cell(arm_label(one.arm)),
            cell(one.workload),
            cell(f"{one.prompt}.{one.repetition}"),
            cell(str(one.tokens)),
            cell(f"{one.decode_tps:.1f}"),
            cell(NONE if one.drafted is None else f"{one.accepted}/{one.drafted}"),
            cell(one.digest[:6]),
            state(one.residency),
            cell(one.excluded or ""),
        )
    return finished(
        made, "no such repetition is stored: mtpctl tune MODEL or mtpctl sweep MODEL takes some"
    )


def decision_table(decisions: Sequence[DecisionView]) -> RenderableType:
    """Decisions with their sentences."""
    made = table("decisions")
    made.add_column("id", justify="right")
    made.add_column("when")
    made.add_column("act")
    made.add_column("arm", overflow="fold")
    made.add_column("reason", overflow="fold")
    for one in decisions:
        result = f"\n→ {one.outcome}" if one.outcome else ""
        made.add_row(
            cell(str(one.id)),
            cell(clock_text(one.at)),
            cell(one.act),
            cell(one.subject if one.arm is None else arm_label(one.arm)),
            cell(decision_sentence(one) + result),
        )
    return finished(made, "no decision was taken yet: mtpctl tune MODEL measures and takes one")


def config_table(values: Sequence[ConfigValueView]) -> RenderableType:
    """Configuration values with their origins."""
    made = table("configuration")
    for head in ("key", "value", "origin"):
        made.add_column(head, overflow="fold")
    for one in values:
        made.add_row(cell(one.key), cell(json.dumps(one.value)), cell(one.origin))
    return finished(made, "no value is configured")


def event_line(kind: str, data: Json) -> str:
    """One event as one line; an event that this version does not know is shown as JSON."""
    if not isinstance(data, dict):
        return f"{kind}  {json.dumps(data)}"
    event = data.get("event")
    if not isinstance(event, dict):
        return f"{'':14}  {kind}  {json.dumps(data, ensure_ascii=False)}"
    shown = _summary(event)
    return f"{clock_text(str(data.get('at')))}  {kind}  {shown}"


def _summary(event: dict[str, Json]) -> str:
    match event:
        case {"decision": {"id": number, "act": act, "subject": subject, "reason": reason}}:
            return f"{number}: {headed(str(act), str(subject), str(reason))}"
        case {"operation": {"id": name, "kind": kind, "state": now, "progress": {"note": note}}}:
            return f"{name}: {kind} {now} {note}".rstrip()
        case {"measurement": dict() as taken}:
            return _measured(taken)
        case _:
            return _engine_summary(event)


def _measured(taken: dict[str, Json]) -> str:
    match taken:
        case {
            "arm": {"profile": name, "depth": depth},
            "workload": workload,
            "decode_tps": float() as speed,
        }:
            return f"{name}@{depth} {workload}: {speed:.1f} tok/s"
        case _:
            return json.dumps(taken)


def _engine_summary(event: dict[str, Json]) -> str:
    match event:
        case {"arm": arm, "residency": {"state": now, "reason": reason}}:
            return f"{arm} {now}: {reason}"
        case {"arm": arm, "old": old, "new": new, "reason": reason}:
            return f"{arm} {old} → {new}: {reason}"
        case {"request_id": name, "profile": profile, "outcome": result, "status": status}:
            return f"{name} {profile} {result} {status}"
        case _:
            return " ".join(f"{name}={value}" for name, value in event.items())
