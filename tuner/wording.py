"""The sentence and the evidence of a decision between depths.

Covers what is said of the chosen depth, of its rivals and of what they cost and earn. Only
words: the rule that chooses is in ``tuner.select``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.acceptance import PositionCounts
from tuner.candidates import residency_text
from tuner.compare import Incomparable
from tuner.points import step_points
from tuner.speed import TIE_RATIO, SpeedComparison
from tuner.types import Unknown, depth_order, passes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.belief import Belief
    from tuner.cost import CostFit
    from tuner.summary import ArmSummary
    from tuner.types import Arm

__all__ = [
    "Rival",
    "Why",
    "accepted",
    "belief_of",
    "evidence_of",
    "listed",
    "misfits",
    "place_of",
    "refusals",
    "sentence",
    "traps",
]

_MISFIT = 0.10
"""Residual of the cost fit from which it is worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """An arm that could have been chosen.

    Attributes:
        row: The arm.
        verdict: Of the chosen arm against the rival.
        medians: The chosen arm's measured mean over the rival's, which the table shows.
        joined: Whether the verdict rests on all starts together and not on the cells alone.
        place: Where it lies, if that is not wholly in device memory.
    """

    row: ArmSummary
    verdict: SpeedComparison | Incomparable
    medians: float | None = None
    joined: bool = False
    place: str | None = None

    @property
    def beaten(self) -> bool:
        """Whether it is proven to be slower than the chosen arm."""
        return isinstance(self.verdict, SpeedComparison) and self.verdict.faster

    @property
    def close(self) -> bool:
        """Whether the two are within the tie ratio."""
        verdict = self.verdict
        return (
            isinstance(verdict, SpeedComparison)
            and 1 / (1 + TIE_RATIO) <= verdict.ratio <= 1 + TIE_RATIO
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What decided between rivals that are not beaten.

    Attributes:
        kept: The chosen arm ran before and no arm is proven to beat it.
        frugal: It needs less memory than an arm that is not faster by more than the tie ratio.
        inside: It lies in device memory, and one that does not is not proven to beat it.
    """

    kept: bool = False
    frugal: bool = False
    inside: bool = False


def sentence(
    chosen: ArmSummary,
    rivals: Sequence[Rival],
    why: Why,
    *,
    row_cost: float | None,
    refused: Sequence[str],
    predicted: Sequence[tuple[int, float]],
    place: str | None = None,
    restless: bool = False,
) -> str:
    """The one sentence of a decision.

    Every ratio is the chosen arm's speed over the rival's.

    Args:
        chosen: The chosen arm.
        rivals: The others that may be chosen.
        why: What decided.
        row_cost: As a share of a step, None if unknown.
        refused: One clause per arm that must not be chosen.
        predicted: Depths that were not measured, with the chosen arm's speed over theirs;
            said where nothing else was measured.
        place: Where the chosen arm lies, if that is not wholly in device memory.
        restless: Whether the step times contradict each other; said where the table then
            contradicts the verdict.
    """
    open_ = [r for r in rivals if not r.beaten]
    parts: list[str] = []
    if beaten := [_named(r) for r in rivals if r.beaten]:
        parts.append(f"beats {listed(beaten)}")
    if ties := [_named(r) for r in open_ if r.close]:
        parts.append(f"ties with {listed(ties)}")
    parts += [
        _lead(r, r.verdict) for r in open_ if isinstance(r.verdict, SpeedComparison) and not r.close
    ]
    unknown = [_named(r) for r in open_ if isinstance(r.verdict, Incomparable)]
    if unknown:
        parts.append(f"cannot be compared with {listed(unknown)}")
    if open_:
        parts.append(_reason(why, incomparable=bool(unknown)))
    if not rivals:
        parts.append(_alone(predicted, refused))
    where = "" if place is None else f", {place},"
    head = f"{chosen.arm}: {tps_text(chosen)}{where} {listed(parts)}"
    tails = [listed(list(refused))] if refused else []
    if restless and any(_contradicted(r) for r in rivals):
        tails.append("the times contradict each other: was the machine busy?")
    return "; ".join([f"{head}{_economics(chosen, rivals, row_cost)}", *tails])


def _contradicted(rival: Rival) -> bool:
    verdict = rival.verdict
    return isinstance(verdict, SpeedComparison) and _at_odds(rival, verdict) is not None


def _alone(predicted: Sequence[tuple[int, float]], refused: Sequence[str]) -> str:
    if not predicted:
        return "is the only depth left"
    speeds = [f"{ratio:.2f}x over depth {depth}" for depth, ratio in predicted]
    which = "left" if refused else "measured"
    return f"is the only depth {which} (predicted: {listed(speeds)})"


def _reason(why: Why, *, incomparable: bool) -> str:
    if why.kept:
        return "stays as the incumbent"
    if incomparable:
        return "needs the least memory of these"
    if why.inside:
        return "lies wholly in device memory"
    return "needs less memory" if why.frugal else "is chosen for its mean"


def _lead(rival: Rival, verdict: SpeedComparison) -> str:
    """Of a rival that is apart by more than a tie, which is not proven."""
    ahead = verdict.ratio > 1
    gap = (verdict.ratio if ahead else 1 / verdict.ratio) - 1
    basis: list[str] = []
    if verdict.interval is not None:
        low, high = verdict.interval.low, verdict.interval.high
        basis.append(f"not proven: {low:.2f}x to {high:.2f}x")
    if (medians := _at_odds(rival, verdict)) is not None:
        basis.append(_contrary(rival, medians))
    doubts = [" ".join(basis)] if basis else []
    if rival.place is not None:
        doubts.append(f"it is {rival.place}")
    doubt = f" ({'; '.join(doubts)})" if doubts else ""
    return f"{'leads' if ahead else 'trails'} depth {rival.row.arm.depth} by {gap:.0%}{doubt}"


def _at_odds(rival: Rival, verdict: SpeedComparison) -> float | None:
    """What the table's medians say, where that is not within the interval that decides.

    Noise and outliers do that: the mean of the medians, which the evidence shows, then
    contradicts the verdict, and the sentence has to say so.
    """
    medians, interval = rival.medians, verdict.interval
    if medians is None or f"{medians:.2f}" == f"{verdict.ratio:.2f}":
        return None
    if interval is None:
        return medians if (medians > 1) != (verdict.ratio > 1) else None
    return None if interval.low <= medians <= interval.high else medians


def _contrary(rival: Rival, medians: float) -> str:
    basis = "all starts together" if rival.joined else "the prompts that both answered"
    return f"by {basis}; the table's medians say {medians:.2f}x"


def _economics(chosen: ArmSummary, rivals: Sequence[Rival], row_cost: float | None) -> str:
    speculative = [r.row for r in rivals if r.row.arm.depth]
    row = chosen
    if chosen.arm.depth == 0:
        if not speculative:
            return ""
        row = max(speculative, key=lambda one: (one.tps or 0.0, depth_order(one.arm)))
    parts: list[str] = []
    if row_cost is not None:
        parts.append(f"a verification row costs {row_cost:.2f} of a step here")
    if row.expected is not None:
        parts.append(f"{_alphas(row)} {row.expected:.2f} tokens per step")
    text = f": {', '.join(parts)}" if parts else ""
    if chosen.arm.depth or any(isinstance(r.verdict, Incomparable) for r in rivals):
        return text
    pays = all(r.beaten for r in rivals)
    return f"{text} - speculation {'does not pay' if pays else 'earns nothing measurable'} here"


def _alphas(row: ArmSummary) -> str:
    """Subject and verb of what the drafts earn."""
    names = [f"alpha{i} {a.mid:.2f}" for i, a in row.shown_alphas]
    if not names:
        return f"depth {row.arm.depth} earns"
    return f"{listed(names)} {'earns' if len(names) == 1 else 'earn'}"


def _named(rival: Rival) -> str:
    verdict = rival.verdict
    if isinstance(verdict, Incomparable):
        return f"depth {rival.row.arm.depth} (other {verdict.trap.value})"
    parts = [f"{verdict.ratio:.2f}x"]
    if (medians := _at_odds(rival, verdict)) is not None:
        parts.append(f" {_contrary(rival, medians)}")
    if rival.place is not None:
        parts.append(f", {rival.place}")
    return f"depth {rival.row.arm.depth} ({''.join(parts)})"


def refusals(refused: Mapping[Arm, str]) -> list[str]:
    """One clause per arm that must not be chosen."""
    return [f"depth {arm.depth} {why}" for arm, why in refused.items()]


def tps_text(row: ArmSummary) -> str:
    """Measured tokens per second."""
    value = row.tps or 0.0
    return f"{value:.0f} tok/s" if value >= 100 else f"{value:.1f} tok/s"  # noqa: PLR2004 - digits shown


def place_of(row: ArmSummary) -> str:
    """Where an arm lies that is not wholly in device memory."""
    if passes(row.residency):
        return "partly on the CPU by its step times"
    return residency_text(row.residency)


def accepted(misfit: str | None) -> str | None:
    """What is said of an arm that may be chosen although it does not fit."""
    return None if misfit is None else f"accepted although it {misfit}"


def evidence_of(row: ArmSummary, remark: str | None) -> str:
    """What was measured on an arm, in one line; first why it is refused, or a remark."""
    parts = [] if remark is None else [remark]
    if row.tps is not None and row.spread is not None:
        parts.append(
            f"{tps_text(row)} over {_count(len(row.cells), 'prompt')}, spread {row.spread:.0%}"
        )
    if row.expected is not None:
        parts.append(f"{row.expected:.2f} tokens per step")
    if row.draft_rate is not None:
        parts.append(f"a draft at {row.draft_rate:.0%} of the steps")
    parts += [f"alpha{i} {a.mid:.3f} [{a.low:.3f}, {a.high:.3f}]" for i, a in row.shown_alphas]
    if row.arm.depth and isinstance(row.counts, PositionCounts):
        parts += [one.reason for one in (row.trusted,) if isinstance(one, Unknown)]
    if row.outliers:
        parts.append(f"{_count(row.outliers, 'outlier')} kept")
    parts += [f"{x.count} left out: {x.reason}" for x in row.excluded]
    return f"{row.arm}: {', '.join(parts)}"


def belief_of(belief: Belief, rows: Sequence[ArmSummary]) -> list[str]:
    """What all starts together say of the depths that may be chosen."""
    starts = _count(belief.starts, "start")
    steps = f" and {belief.short_steps} short steps" if belief.short_steps else ""
    speeds = [
        f"depth {row.arm.depth} {t.mid:.1f} [{t.low:.1f}, {t.high:.1f}]"
        for row in rows
        for t in (belief.tps(row.arm.depth),)
    ]
    cost = belief.row_cost()
    lines = [
        f"{starts}{steps} together, tok/s: {', '.join(speeds)}",
        f"a verification row costs {cost.mid:.2f} [{cost.low:.2f}, {cost.high:.2f}] of a step",
    ]
    if cost.high < 0:
        lines.append("no row costs less than nothing: something slowed the shallow steps")
    if belief.scatter > 1:
        lines.append(
            f"the step times scatter {belief.scatter:.1f} times as much as repetitions of a "
            "prompt do, as on a busy machine: the intervals are wider for it"
        )
    if belief.contradicted:
        lines.append(
            f"{belief.contradicted} short steps left out: they contradict the steady ones, "
            "as they do on a busy machine"
        )
    return lines


def misfits(rows: Sequence[ArmSummary], cost: CostFit | Unknown) -> list[str]:
    """Depths that do not lie on the line of the row cost."""
    if isinstance(cost, Unknown):
        return []
    depths = [point.depth for point in step_points(rows)]
    return [
        f"depth {depth} takes {residual:+.0%} per step against the fitted line: "
        "the row cost is not one number here, or the arm is not really resident"
        for depth, residual in zip(depths, cost.residuals, strict=True)
        if abs(residual) > _MISFIT
    ]


def traps(rivals: Sequence[Rival]) -> list[str]:
    """Why arms cannot be compared."""
    return [r.verdict.sentence for r in rivals if isinstance(r.verdict, Incomparable)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(items: Sequence[str]) -> str:
    """Items of a sentence."""
    if len(items) < 2:  # noqa: PLR2004 - one item needs no "and"
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
