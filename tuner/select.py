"""Which depth of a model to run, and (from ``tuner.pools``) which model of a pool.

Covers the incumbent's right to stay, the rule for equivalent arms, and the refusal of arms
that are not proven to be in device memory. The words are in ``tuner.wording``; when to switch
a running engine is ``tuner.policy``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.belief import Belief, believe, slow_arms
from tuner.compare import Incomparable
from tuner.cost import CostFit, StepPoint, fit_cost
from tuner.pools import Candidate, Objective, choose_model
from tuner.speed import SpeedComparison, compare_speeds, speed_interval
from tuner.summary import ArmSummary, summarise
from tuner.types import (
    Act,
    Arm,
    Decision,
    Evicted,
    Interval,
    Residency,
    Spilled,
    Unknown,
    depth_order,
    passes,
)
from tuner.wording import (
    Rival,
    Why,
    belief_of,
    evidence_of,
    listed,
    misfits,
    refusals,
    sentence,
    traps,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.cost import RowCost
    from tuner.plan import History

__all__ = [
    "EQUIVALENT",
    "ArmSummary",
    "Candidate",
    "Objective",
    "choose",
    "choose_depth",
    "choose_model",
    "cost_of",
    "does_not_fit",
    "rejection",
    "summarise",
]

EQUIVALENT = 0.05
"""Chance of giving away more than the tie ratio up to which less memory is preferred."""

_ALONE = (
    "nothing but the log says that this depth is in device memory: "
    "memory was not predicted and no second start confirms it"
)


def choose(
    history: History,
    incumbent: Arm | None = None,
    *,
    subject: str | None = None,
    memory_bytes: Mapping[Arm, int] | None = None,
    deepest: int | None = None,
    row_cost: RowCost | None = None,
) -> Decision:
    """Choose among the depths of one profile by all that was told.

    As ``choose_depth``, with what all starts and short steps together say of the speeds
    (``tuner.belief``), and without arms whose step times say that they do not fit.

    Args:
        history: Of one profile.
        incumbent: The arm that runs now, if any.
        subject: What the decision is about; by default the profile.
        memory_bytes: Device memory per arm, where known for all arms in the running.
        deepest: Deepest depth that is predicted to fit, or None if there is no prediction.
        row_cost: Known for this card and stack, or None.
    """
    belief = believe(history, row_cost=row_cost)
    return choose_depth(
        summarise(history.observations, history.starts),
        incumbent,
        subject=subject,
        memory_bytes=memory_bytes,
        belief=None if isinstance(belief, Unknown) else belief,
        slow={one.arm: one.reason for one in slow_arms(history, row_cost)},
        predicted=deepest is not None,
    )


def choose_depth(
    summaries: Sequence[ArmSummary],
    incumbent: Arm | None = None,
    *,
    subject: str | None = None,
    memory_bytes: Mapping[Arm, int] | None = None,
    belief: Belief | None = None,
    slow: Mapping[Arm, str] | None = None,
    predicted: bool = True,
) -> Decision:
    """Choose among the depths of one profile.

    The incumbent stays unless a comparable arm is proven to beat it (more than 2 % faster
    and the interval clear of 1). Otherwise the fastest arm wins, except that one which
    needs less memory is preferred if the chance that it gives away more than 2 % is at most
    ``EQUIVALENT``. Among arms that cannot be compared the least memory wins, by default the
    smallest depth.

    Args:
        summaries: Rows of one profile; their order plays no role.
        incumbent: The arm that runs now, if any.
        subject: What the decision is about; by default the profile.
        memory_bytes: Device memory per arm, where known for all arms in the running.
        belief: What all starts together say of the speeds; None: each arm by itself.
        slow: Why the step times of an arm say that it does not fit.
        predicted: Whether memory was predicted; otherwise a lone start is said to be one.
    """
    rows = sorted(summaries, key=lambda row: depth_order(row.arm))
    if len({row.arm.profile for row in rows}) > 1:
        msg = "choose_depth compares the depths of one profile"
        raise ValueError(msg)
    about = subject or next((row.arm.profile for row in rows), "no arm")
    refused = _refused(rows, slow or {})
    eligible = [row for row in rows if row.arm not in refused]
    evidence = tuple(evidence_of(row, refused.get(row.arm)) for row in rows)
    if not eligible:
        return Decision(
            act=Act.REJECT,
            subject=about,
            arm=None,
            previous=incumbent,
            reason=f"no depth of {about} can be chosen: "
            + (listed(refusals(refused)) or "nothing was measured"),
            evidence=evidence,
        )
    field = _Field(eligible, belief, memory_bytes or {})
    chosen, why = field.pick(incumbent)
    rivals = [Rival(row, field.verdict(row, chosen)) for row in eligible if row != chosen]
    cost = cost_of(eligible)
    known = [row for row in eligible if field.speed(row) is not None]
    return Decision(
        act=_act(chosen.arm, incumbent),
        subject=about,
        arm=chosen.arm,
        previous=incumbent,
        predicted=field.speed(chosen) or speed_interval(chosen),
        reason=sentence(
            chosen,
            rivals,
            why,
            row_cost=field.row_cost(cost),
            refused=refusals(refused),
            predicted=field.predicted(chosen, refused),
        ),
        evidence=(
            *evidence,
            *(belief_of(belief, known) if belief is not None and known else ()),
            *misfits(eligible, cost),
            *traps(rivals),
            *(() if predicted or len(rows) > 1 else (_ALONE,)),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """The arms that may be chosen, and what is known of their speeds."""

    rows: Sequence[ArmSummary]
    belief: Belief | None
    memory: Mapping[Arm, int]

    def pick(self, incumbent: Arm | None) -> tuple[ArmSummary, Why]:
        """The chosen row, and what decided."""
        for row in self.rows:
            if row.arm == incumbent and not self._beaten(row):
                return row, Why(kept=True, frugal=False)
        winners = [self._winner(group) for group in self._comparable()]
        return min(winners, key=lambda pair: self._memory(pair[0]))

    def verdict(self, a: ArmSummary, b: ArmSummary) -> SpeedComparison | Incomparable:
        """Of a against b; by all starts together where these cover both."""
        direct = compare_speeds(a, b)
        if isinstance(direct, Incomparable) or self.belief is None:
            return direct
        if self.speed(a) is None or self.speed(b) is None:
            return direct
        ratio = self.belief.ratio(a.arm.depth, b.arm.depth)
        return replace(direct, ratio=ratio.mid, interval=ratio)

    def speed(self, row: ArmSummary) -> Interval | None:
        """Tokens per second by all starts together; None where these do not cover it."""
        belief = self.belief
        covered = belief is not None and belief.covers(row.arm, row.fingerprint)
        return belief.tps(row.arm.depth) if belief is not None and covered else None

    def row_cost(self, cost: CostFit | Unknown) -> float | None:
        """Cost of a row as a share of a plain step; None where nothing measured it."""
        if self.belief is not None and (self.belief.short_steps or self.belief.starts > 1):
            return self.belief.row_cost().mid
        return cost.c if isinstance(cost, CostFit) else None

    def predicted(
        self, chosen: ArmSummary, refused: Mapping[Arm, str]
    ) -> tuple[tuple[int, float], ...]:
        """Depths within the counts that were not measured: speed over that of ``chosen``."""
        belief = self.belief
        if belief is None or self.speed(chosen) is None:
            return ()
        seen = {row.arm.depth for row in self.rows} | {arm.depth for arm in refused}
        return tuple(
            (depth, belief.ratio(depth, chosen.arm.depth).mid)
            for depth in range(belief.counted + 1)
            if depth not in seen
        )

    def _beaten(self, row: ArmSummary) -> bool:
        verdicts = [self.verdict(other, row) for other in self.rows if other != row]
        return any(isinstance(v, SpeedComparison) and v.faster for v in verdicts)

    def _comparable(self) -> list[list[ArmSummary]]:
        """Groups of rows; each row can be compared with the shallowest of its group."""
        groups: list[list[ArmSummary]] = []
        for row in self.rows:
            for group in groups:
                if isinstance(self.verdict(row, group[0]), SpeedComparison):
                    group.append(row)
                    break
            else:
                groups.append([row])
        return groups

    def _winner(self, group: Sequence[ArmSummary]) -> tuple[ArmSummary, Why]:
        """The fastest row, or an equivalent one that needs less memory."""
        top = max(group, key=lambda row: (self._mean(row), depth_order(row.arm)))
        equal = [row for row in group if self._gives_away(row, top) <= EQUIVALENT]
        frugal = min([top, *equal], key=self._memory)
        return frugal, Why(kept=False, frugal=frugal != top)

    def _mean(self, row: ArmSummary) -> float:
        speed = self.speed(row)
        return speed.mid if speed is not None else row.tps or 0.0

    def _gives_away(self, row: ArmSummary, top: ArmSummary) -> float:
        """Chance that ``top`` is more than the tie ratio faster."""
        verdict = self.verdict(top, row)
        return 1.0 if isinstance(verdict, Incomparable) else verdict.p_faster

    def _memory(self, row: ArmSummary) -> tuple[int, tuple[str, int, str, float]]:
        known = all(one.arm in self.memory for one in self.rows)
        return (self.memory[row.arm] if known else 0), depth_order(row.arm)


def _refused(rows: Sequence[ArmSummary], slow: Mapping[Arm, str]) -> dict[Arm, str]:
    """Why arms must not be chosen; deeper than a slow one nothing fits, whatever the log says."""
    depth = min((arm.depth for arm in slow), default=None)
    out: dict[Arm, str] = {}
    for row in rows:
        why = rejection(row) if row.arm not in slow else slow[row.arm]
        if why is None and depth is not None and row.arm.depth > depth:
            why = f"does not fit (depth {depth} already does not)"
        if why is not None:
            out[row.arm] = why
    return out


def rejection(row: ArmSummary) -> str | None:
    """Why an arm must not be chosen, or None; "does not fit" is never "does not pay"."""
    if (misfit := does_not_fit(row.residency)) is not None:
        return misfit
    if row.failure is not None:
        return f"did not start ({row.failure})"
    if isinstance(row.residency, Unknown):
        return f"is not proven to be resident ({row.residency.reason})"
    if row.tps is None:
        return "was not measured"
    return "was measured under several fingerprints" if row.fingerprint is None else None


def does_not_fit(residency: Residency) -> str | None:
    """How an arm misses device memory, or None; unknown is not a misfit."""
    match residency:
        case Evicted(layers=None):
            return "does not fit (layers run on the CPU)"
        case Evicted(layers=layers):
            return f"does not fit ({layers} layer{'' if layers == 1 else 's'} on the CPU)"
        case Spilled():
            return "does not fit (device memory spilled to the host)"
        case _:
            return None


def cost_of(rows: Sequence[ArmSummary]) -> CostFit | Unknown:
    """Row cost fitted to the step times of the resident rows of one profile."""
    points = [
        StepPoint(depth=row.arm.depth, step_s=row.step_s)
        for row in rows
        if row.step_s is not None and passes(row.residency)
    ]
    return fit_cost(points)


def _act(arm: Arm, incumbent: Arm | None) -> Act:
    if incumbent is None:
        return Act.CHOOSE
    return Act.KEEP if arm == incumbent else Act.SWITCH
