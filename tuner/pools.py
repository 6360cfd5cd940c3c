"""Which model of a pool to serve: named rules over measured rows.

Covers the hard requirements (tags, residency, speed floor), comparable perplexities and the
objectives balanced, speed and quality. A row that lacks a number is never guessed. Does
not choose depths: a model comes with its tuned arm.

Rules, as named in the reasons:
    R0: perplexities are compared only over equal corpus, chunk count and context.
    R1: required tags, proven residency unless offload is accepted, speed floor.
    R2 balanced: of the rows not significantly worse than the best perplexity, the fastest.
    R3 quality: the lowest perplexity.
    R4 speed: the fastest.
    Tie: within 2 % tok/s (or an interval of the ratio that contains 1) the incumbent
    stays; without one the lower perplexity, then the least memory.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.compare import (
    Incomparable,
    Perplexity,
    PerplexityRun,
    PplComparison,
    Quality,
    comparable,
    compare_quality,
)
from tuner.speed import (
    SpeedComparison,
    assumed_interval,
    compare_speeds,
    ratio_text,
    speed_interval,
)
from tuner.types import Act, Arm, Decision, Interval, Residency, Unknown, depth_order, passes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.summary import ArmSummary

__all__ = ["Candidate", "Objective", "choose_model"]


class Objective(enum.StrEnum):
    """What a pool is for."""

    BALANCED = "balanced"
    SPEED = "speed"
    QUALITY = "quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model at its tuned depth.

    Attributes:
        arm: The tuned arm; its profile is the model's name.
        tps: Tokens per second, or None if unmeasured.
        residency: Verdict on the arm.
        quality: Measured perplexity, or None.
        memory_bytes: Device memory of the arm, or None.
        tags: What the model offers.
        summary: What ``tps`` rests on, or None for a figure from elsewhere.
    """

    arm: Arm
    tps: float | None
    residency: Residency
    quality: Quality | None = None
    memory_bytes: int | None = None
    tags: frozenset[str] = frozenset()
    summary: ArmSummary | None = None

    @classmethod
    def of(
        cls,
        summary: ArmSummary,
        *,
        quality: Quality | None = None,
        memory_bytes: int | None = None,
        tags: frozenset[str] = frozenset(),
    ) -> Candidate:
        """Candidate from a row of the depth table."""
        return cls(
            arm=summary.arm,
            tps=summary.tps,
            residency=summary.residency,
            quality=quality,
            memory_bytes=memory_bytes,
            tags=tags,
            summary=summary,
        )

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.arm.profile


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a rule left in the running."""

    rule: str
    chosen: Candidate
    clause: str


def choose_model(
    candidates: Sequence[Candidate],
    *,
    objective: Objective = Objective.BALANCED,
    incumbent: Arm | None = None,
    subject: str = "pool",
    require: frozenset[str] = frozenset(),
    accept_offload: bool = False,
    floor_tps: float = 0.0,
    rho: float = 0.0,
) -> Decision:
    """Choose a model by the rules of this module.

    Args:
        candidates: Measured models; their order plays no role.
        objective: What the pool is for.
        incumbent: The arm that serves now, if any; its profile counts.
        subject: Name of the pool.
        require: Tags that the model must have.
        accept_offload: Whether layers outside device memory are acceptable.
        floor_tps: Least acceptable tokens per second.
        rho: Correlation of the perplexities' errors, for rows without chunks; 0 is unpaired.
    """
    rows = sorted(candidates, key=lambda c: depth_order(c.arm))
    refused = {
        row.arm: why
        for row in rows
        if (why := _unfit(row, require, floor_tps, accept_offload=accept_offload)) is not None
    }
    able = [row for row in rows if row.arm not in refused]
    if objective is not Objective.SPEED:
        incomparable = _incomparable(able, objective, incumbent)
        refused |= incomparable
        able = [row for row in able if row.arm not in incomparable]
    outcome = _apply(able, objective, incumbent, rho) if able else None
    evidence = tuple(_evidence(row, refused.get(row.arm)) for row in rows)
    if outcome is None:
        return Decision(
            act=Act.REJECT,
            subject=subject,
            arm=None,
            previous=incumbent,
            reason=f"no model can be chosen for {subject}: "
            + (
                "; ".join(f"{arm.profile} {why}" for arm, why in refused.items()) or "none is given"
            ),
            evidence=evidence,
        )
    chosen = outcome.chosen
    act = Act.CHOOSE if incumbent is None else Act.SWITCH
    return Decision(
        act=Act.KEEP if chosen.arm == incumbent else act,
        subject=subject,
        arm=chosen.arm,
        previous=incumbent,
        predicted=_predicted(chosen),
        reason=f"{outcome.rule}: {chosen.arm} ({_numbers(chosen)}) {outcome.clause}",
        evidence=evidence,
    )


def _unfit(
    row: Candidate, require: frozenset[str], floor_tps: float, *, accept_offload: bool
) -> str | None:
    """R1, and what was never measured."""
    if missing := sorted(require - row.tags):
        return f"lacks the tag {missing[0]} (R1)"
    if not passes(row.residency) and not accept_offload:
        return f"is {_residency(row.residency)} (R1)"
    if row.tps is None or row.tps <= 0:
        return "was not measured"
    if row.tps < floor_tps:
        return f"is below {floor_tps:g} tok/s (R1)"
    return None


def _residency(residency: Residency) -> str:
    if isinstance(residency, Unknown):
        return f"not proven to be resident: {residency.reason}"
    return f"{type(residency).__name__.lower()}, not resident"


def _incomparable(
    rows: Sequence[Candidate], objective: Objective, incumbent: Arm | None
) -> dict[Arm, str]:
    """R0: rows whose perplexity does not belong to the largest comparable group.

    If no row has a perplexity, a balanced pool has only the speed to go by.
    """
    runs = Counter(row.quality.run for row in rows if row.quality is not None)
    if not runs and objective is Objective.BALANCED:
        return {}
    home = {row.quality.run for row in rows if row.quality and _is(row, incumbent)}

    def weight(run: PerplexityRun) -> tuple[int, bool, int, str]:
        return runs[run], run in home, run.chunks, repr(run)

    reference = max(runs, key=weight, default=None)
    out: dict[Arm, str] = {}
    for row in rows:
        if row.quality is None or reference is None:
            out[row.arm] = "has no measured perplexity (R0)"
        elif isinstance(verdict := comparable(reference, row.quality.run), Incomparable):
            out[row.arm] = f"has a perplexity that does not compare (R0): {verdict.sentence}"
    return out


def _apply(
    able: Sequence[Candidate], objective: Objective, incumbent: Arm | None, rho: float
) -> _Outcome:
    if objective is Objective.SPEED:
        return _fastest(able, "R4 speed", f"of {len(able)}", incumbent)
    measured = [(row, row.quality) for row in able if row.quality is not None]
    if not measured:
        return _fastest(able, "R2 balanced", "although no perplexity is measured", incumbent)
    best, lowest = min(measured, key=lambda one: (one[1].value, depth_order(one[0].arm)))
    good = [row for row, quality in measured if not _worse(quality, lowest, rho)]
    if objective is Objective.QUALITY:
        return _best_quality(best, good, incumbent)
    among = (
        f"of the {len(good)} whose perplexity is not significantly worse than the best "
        f"({lowest.value:g} of {best.name})"
    )
    return _fastest(good, "R2 balanced", among, incumbent)


def _best_quality(best: Candidate, good: Sequence[Candidate], incumbent: Arm | None) -> _Outcome:
    tied = [row for row in good if row is not best]
    for row in tied:
        if _is(row, incumbent):
            clause = f"stays as the incumbent: the lowest perplexity, {best.name}, ties with it"
            return _Outcome("R3 quality", row, clause)
    names = ", ".join(row.name for row in tied)
    clause = "has the lowest perplexity" + (f", a statistical tie with {names}" if tied else "")
    return _Outcome("R3 quality", best, clause)


def _fastest(rows: Sequence[Candidate], rule: str, among: str, incumbent: Arm | None) -> _Outcome:
    beaten = {b.arm for a, b in itertools.permutations(rows, 2) if _speed(a, b).faster}
    running = [row for row in rows if row.arm not in beaten] or list(rows)
    chosen = min(running, key=lambda row: _preference(row, running, incumbent))
    ties = [_named(row, chosen) for row in running if row is not chosen]
    slower = [_named(row, chosen) for row in rows if row.arm in beaten and row is not chosen]
    if not ties:
        clause = f"is the fastest {among}" + (f", before {', '.join(slower)}" if slower else "")
        return _Outcome(rule, chosen, clause)
    why = "needs the least memory"
    if _is(chosen, incumbent):
        why = "stays as the incumbent"
    elif _same_run(running):
        why = "has the lower perplexity"
    return _Outcome(rule, chosen, f"ties with {', '.join(ties)} as the fastest {among} and {why}")


def _preference(
    row: Candidate, running: Sequence[Candidate], incumbent: Arm | None
) -> tuple[bool, float, float, tuple[str, int, str, float]]:
    """Tie rule: the incumbent, the lower comparable perplexity, the least memory, the name."""
    value = row.quality.value if row.quality is not None and _same_run(running) else 0.0
    memory = math.inf if row.memory_bytes is None else float(row.memory_bytes)
    return not _is(row, incumbent), value, memory, depth_order(row.arm)


def _same_run(rows: Sequence[Candidate]) -> bool:
    """Whether perplexities can break the tie: all measured, comparable and not all equal."""
    values = {row.quality.value for row in rows if row.quality is not None}
    runs = {None if row.quality is None else row.quality.run for row in rows}
    return len(runs) == 1 and None not in runs and len(values) > 1


def _is(row: Candidate, incumbent: Arm | None) -> bool:
    return incumbent is not None and row.arm.profile == incumbent.profile


def _worse(quality: Quality, lowest: Quality, rho: float) -> bool:
    """Whether a perplexity is significantly worse than the lowest."""
    verdict = compare_quality(lowest, quality, rho=rho)
    return isinstance(verdict, PplComparison) and verdict.verdict is Perplexity.WORSE


def _speed(a: Candidate, b: Candidate) -> SpeedComparison:
    """Paired by prompt where both were measured here, else the bare figures."""
    if a.summary is not None and b.summary is not None:
        verdict = compare_speeds(a.summary, b.summary, own_texts=True)
        if isinstance(verdict, SpeedComparison):
            return verdict
    ratio = (a.tps or 0.0) / (b.tps or math.inf)
    return SpeedComparison(ratio=ratio, interval=None, cells=0, paired=False)


def _named(row: Candidate, chosen: Candidate) -> str:
    return f"{row.name} ({ratio_text(_speed(row, chosen))})"


def _predicted(row: Candidate) -> Interval | None:
    if row.summary is not None:
        return speed_interval(row.summary)
    return None if row.tps is None else assumed_interval(row.tps)


def _numbers(row: Candidate) -> str:
    speed = "unmeasured" if row.tps is None else f"{row.tps:.1f} tok/s"
    return speed if row.quality is None else f"{speed}, perplexity {row.quality.value:g}"


def _evidence(row: Candidate, refused: str | None) -> str:
    return f"{row.arm}: {_numbers(row)}" + ("" if refused is None else f", {refused}")
