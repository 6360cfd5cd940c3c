"""One model's way from the cells to its speeds, taken again from what was told. Pure.

The search is a pure function of what it was told, so its questions and reasons follow from
the recorded history, start by start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.explanation_views import (
    AskView,
    CellView,
    CostView,
    DepthSpeedView,
    ModelChainView,
    OutView,
    StartView,
)
from mtpd.views import ArmView, EvidenceView, IntervalView
from tuner.belief import believe
from tuner.plan import Ask, History, Stop
from tuner.step_cost import context_cost
from tuner.summary import summarise
from tuner.types import Interval, Start, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mtpd.views import Json
    from tuner.belief import Belief
    from tuner.cost import RowCost
    from tuner.design import Design
    from tuner.summary import ArmSummary
    from tuner.types import Arm

__all__ = ["ModelStory", "model_chain"]

_AGAIN = re.compile(r"-again-\d+$")
"""How a calibration marks a start whose process was asked a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStory:
    """What is known of one model's measurement.

    Attributes:
        profile: The model.
        history: All that was told.
        searched: What the design was told, where that is not all.
        design: What asked for it, or None where that was not recorded or does not matter.
        memory_bytes: Predicted device memory per arm.
        verdicts: Residency of each start with its evidence, as it was recorded.
        note: What is missing and why, or where it is told.
        joined: Whether the speeds are told; a pool compares what the cells give.
        row_cost: Known beforehand for this card, or None.
    """

    profile: str
    history: History
    design: Design | None
    memory_bytes: Mapping[Arm, int]
    verdicts: Mapping[str, Json]
    note: str = ""
    joined: bool = True
    row_cost: RowCost | None = None
    searched: History | None = None


def model_chain(story: ModelStory) -> ModelChainView:
    """Every step of the argument about one model."""
    history = story.history
    rows = summarise(history.observations, history.starts)
    belief: Belief | Unknown = Unknown("it plays no role")
    if story.joined:
        deepest = max((row.arm.depth for row in rows), default=0)
        belief = believe(history, deepest=deepest, row_cost=story.row_cost)
    notes = [story.note] if story.note else []
    if story.joined and isinstance(belief, Unknown):
        notes.append(f"no speeds can be joined: {belief.reason}")
    asks, stop = _asked(story)
    return ModelChainView(
        profile=story.profile,
        asks=asks,
        stop=None if stop is None else stop.reason,
        starts=tuple(_start(one, story) for one in _starts(history)),
        cells=tuple(_cells(rows)),
        cost=None if isinstance(belief, Unknown) else _cost(belief, story),
        speeds=() if isinstance(belief, Unknown) else _speeds(belief, rows, story),
        out=None if stop is None else tuple(_out(stop)),
        note="; ".join(notes),
    )


def _starts(history: History) -> tuple[Start, ...]:
    """All starts; those that are known by their repetitions only are made up."""
    known = {start.start_id for start in history.starts}
    made: dict[str, Start] = {}
    for one in history.observations:
        if one.start_id not in known:
            made[one.start_id] = Start(arm=one.arm, start_id=one.start_id, residency=one.residency)
    return (*history.starts, *made.values())


def _asked(story: ModelStory) -> tuple[tuple[AskView, ...] | None, Stop | None]:
    """What the search asked before each start, and why it stopped."""
    design, history = story.design, story.searched or story.history
    if design is None:
        return None, None
    asks: list[AskView] = []
    for number, start in enumerate(history.starts, start=1):
        answer = design.ask(_before(history, number - 1))
        if not isinstance(answer, Ask) or answer.arm != start.arm:
            now = answer.reason if isinstance(answer, Stop) else f"ask for {answer.arm}"
            said = f"it was asked then; today the search would not: {now}"
            asks.append(_ask(number, start.arm, said, 0, 0))
            continue
        asks.append(_ask(number, answer.arm, answer.reason, len(answer.cells), answer.short_steps))
    last = design.ask(history)
    if isinstance(last, Ask):
        last = Stop(reason=f"it was ended before: {last.reason}", rejected=())
    return tuple(asks), last


def _ask(number: int, arm: Arm, reason: str, repetitions: int, short_steps: int) -> AskView:
    return AskView(
        number=number,
        arm=ArmView.of(arm),
        reason=reason,
        repetitions=repetitions,
        short_steps=short_steps,
    )


def _before(history: History, starts: int) -> History:
    """What had been told before the next start; the time it took is not known."""
    kept = history.starts[:starts]
    ids = {_AGAIN.sub("", start.start_id) for start in kept}
    return replace(
        history,
        starts=kept,
        observations=tuple(o for o in history.observations if o.start_id in ids),
        short_steps=tuple(s for s in history.short_steps if s.start_id in ids),
        spent_s=0.0,
    )


def _start(start: Start, story: ModelStory) -> StartView:
    found = story.verdicts.get(_AGAIN.sub("", start.start_id))
    verdict = found if isinstance(found, dict) else {}
    reason, lines = verdict.get("reason"), verdict.get("evidence")
    if reason is None and isinstance(start.residency, Unknown):
        reason = start.residency.reason
    return StartView(
        start_id=start.start_id,
        arm=ArmView.of(start.arm),
        residency=type(start.residency).__name__.lower(),
        reason=None if reason is None else str(reason),
        evidence=tuple(
            EvidenceView(line=str(one["line"]), says=str(one["says"]))
            for one in (lines if isinstance(lines, list) else [])
            if isinstance(one, dict)
        ),
        failure=start.failure,
        repetitions=sum(o.start_id == start.start_id for o in story.history.observations),
        short_steps=sum(s.start_id == start.start_id for s in story.history.short_steps),
    )


def _cells(rows: Sequence[ArmSummary]) -> list[CellView]:
    return [
        CellView(
            arm=ArmView.of(row.arm),
            workload=cell.workload,
            prompt=cell.prompt,
            repetitions=len(cell.all_tps),
            median_tps=cell.tps,
            outliers=cell.outliers,
            digest=cell.digest,
        )
        for row in rows
        for cell in row.cells
    ]


def _cost(belief: Belief, story: ModelStory) -> CostView | None:
    if not belief.deepest:
        return None
    known, fill = story.row_cost, context_cost(story.history.short_steps)
    doubtful = belief.scatter > 1 or belief.contradicted > 0
    depths = len({arm.depth for arm in belief.arms})
    if belief.short_steps:
        source = f"{belief.short_steps} single steps within {_count(belief.starts, 'start')}"
        source += f", and the step times of {depths} depths" if depths > 1 else ""
    elif depths > 1:
        source = f"the step times of {depths} depths"
    elif known is None:
        source = "assumed beforehand: one depth without single steps does not show it"
    else:
        source = f"{_assumed(known)} until measured"
        known = None
    if known is not None:
        source += f"; before them {_assumed(known)}"
    return CostView(
        row_cost=IntervalView.of(belief.row_cost()),
        source=source,
        measured=belief.short_steps > 0 or depths > 1,
        context_cost=None if doubtful or isinstance(fill, Unknown) else IntervalView.of(fill),
    )


def _assumed(known: RowCost) -> str:
    return f"{known.c:g} ± {known.sd:g} assumed from {known.source}"


def _speeds(
    belief: Belief, rows: Sequence[ArmSummary], story: ModelStory
) -> tuple[DepthSpeedView, ...]:
    measured = {row.arm.depth: row.tps for row in rows}
    needs = {arm.depth: size for arm, size in story.memory_bytes.items()}
    plain, row_cost = belief.step_s(0).mid, belief.row_cost().mid
    out: list[DepthSpeedView] = []
    for depth in range(belief.deepest + 1):
        step = belief.step_s(depth)
        before = _forecast(story, depth)
        out.append(
            DepthSpeedView(
                depth=depth,
                tokens_per_step=belief.expected[depth],
                step_ms=IntervalView.of(_milliseconds(step)),
                cost=step.mid / plain,
                tps=IntervalView.of(belief.tps(depth)),
                forecast_tps=None if before is None else IntervalView.of(before),
                measured_tps=measured.get(depth),
                misfit=step.mid / (plain * (1 + row_cost * depth)) - 1,
                memory_bytes=needs.get(depth),
            )
        )
    return tuple(out)


def _forecast(story: ModelStory, depth: int) -> Interval | None:
    """What all earlier starts predicted of a depth when it was started for the first time."""
    starts = story.history.starts
    first = next((i for i, start in enumerate(starts) if start.arm.depth == depth), None)
    if not first:
        return None
    belief = believe(_before(story.history, first), deepest=depth, row_cost=story.row_cost)
    return None if isinstance(belief, Unknown) else belief.tps(depth)


def _out(stop: Stop) -> list[OutView]:
    return [
        OutView(arm=ArmView.of(one.arm), verdict=one.verdict.value, reason=one.reason)
        for one in stop.rejected
    ]


def _milliseconds(seconds: Interval) -> Interval:
    return Interval(
        low=1000 * seconds.low,
        mid=1000 * seconds.mid,
        high=1000 * seconds.high,
        level=seconds.level,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
