"""Which depth of a model to run, and (from ``tuner.pools``) which model of a pool.

Covers the incumbent's right to stay, the rule for equivalent arms, and the refusal of arms
that are not proven to be in device memory, or their place behind those that are where
layers on the CPU are accepted. The words are in ``tuner.wording``; when to switch
a running engine is ``tuner.policy``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.belief import Belief, believe, slow_arms, suspect_arms
from tuner.compare import Incomparable
from tuner.cost import CostFit, fit_cost
from tuner.points import step_points
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
)
from tuner.wording import (
    Rival,
    Why,
    accepted,
    belief_of,
    evidence_of,
    listed,
    misfits,
    place_of,
    refusals,
    sentence,
    traps,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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
    accept_offload: bool = False,
) -> Decision:
    """Choose among the depths of one profile by all that was told.

    As ``choose_depth``, with what all starts and short steps together say of the speeds and
    of arms that do not fit or are suspect (``tuner.belief``).

    Args:
        history: Of one profile.
        incumbent: The arm that runs now, if any.
        subject: What the decision is about; by default the profile.
        memory_bytes: Device memory per arm, where known for all arms in the running.
        deepest: Deepest depth that is predicted to fit, or None if there is no prediction.
        row_cost: Known for this card and stack, or None.
        accept_offload: Whether arms that do not fit may be chosen.
    """
    belief = believe(history, row_cost=row_cost)
    suspects = map(str, suspect_arms(history, row_cost))
    decision = choose_depth(
        summarise(history.observations, history.starts),
        incumbent,
        subject=subject,
        memory_bytes=memory_bytes,
        belief=None if isinstance(belief, Unknown) else belief,
        slow={one.arm: one.reason for one in slow_arms(history, row_cost)},
        predicted=deepest is not None,
        accept_offload=accept_offload,
    )
    return replace(decision, evidence=(*decision.evidence, *suspects))


def choose_depth(
    summaries: Sequence[ArmSummary],
    incumbent: Arm | None = None,
    *,
    subject: str | None = None,
    memory_bytes: Mapping[Arm, int] | None = None,
    belief: Belief | None = None,
    slow: Mapping[Arm, str] | None = None,
    predicted: bool = True,
    accept_offload: bool = False,
) -> Decision:
    """Choose among the depths of one profile.

    The incumbent stays unless a comparable arm is proven to beat it (more than 2 % faster
    and the interval clear of 1). Otherwise the fastest arm wins, except that one which
    needs less memory is preferred if the chance that it gives away more than 2 % is at most
    ``EQUIVALENT``. Among arms that cannot be compared the least memory wins, by default the
    smallest depth.

    With ``accept_offload`` an arm with layers outside device memory may be chosen, but only
    where it is proven to beat every arm in device memory that it can be compared with.

    Args:
        summaries: Rows of one profile; their order plays no role.
        incumbent: The arm that runs now, if any.
        subject: What the decision is about; by default the profile.
        memory_bytes: Device memory per arm, where known for all arms in the running.
        belief: What all starts together say of the speeds; None: each arm by itself.
        slow: Why the step times of an arm say that it does not fit.
        predicted: Whether memory was predicted; otherwise a lone start is said to be one.
        accept_offload: Whether arms that do not fit may be chosen.
    """
    rows = sorted(summaries, key=lambda row: depth_order(row.arm))
    if len({row.arm.profile for row in rows}) > 1:
        msg = "choose_depth compares the depths of one profile"
        raise ValueError(msg)
    about = subject or next((row.arm.profile for row in rows), "no arm")
    misfit = _misfits(rows, slow or {})
    outside = misfit if accept_offload else {}
    refused = _refused(rows, misfit, outside)
    eligible = [row for row in rows if row.arm not in refused]
    evidence = tuple(
        evidence_of(row, refused.get(row.arm) or accepted(outside.get(row.arm))) for row in rows
    )
    if not eligible:
        why_not = listed(refusals(refused)) or "nothing was measured"
        return Decision(
            act=Act.REJECT,
            subject=about,
            arm=None,
            previous=incumbent,
            reason=f"no depth of {about} can be chosen: {why_not}",
            evidence=evidence,
        )
    field = _Field(eligible, belief, memory_bytes or {}, outside.keys())
    chosen, why = field.pick(incumbent)
    rivals = [field.rival(row, chosen) for row in eligible if row != chosen]
    inside = [row for row in eligible if row.arm not in outside]
    cost = cost_of(inside)
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
            place=place_of(chosen) if chosen.arm in outside else None,
            restless=belief is not None and belief.restless,
        ),
        evidence=(
            *evidence,
            *(belief_of(belief, known) if belief is not None and known else ()),
            *misfits(inside, cost),
            *traps(rivals),
            *(() if predicted or len(rows) > 1 or chosen.arm in outside else (_ALONE,)),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """The arms that may be chosen, and what is known of their speeds."""

    rows: Sequence[ArmSummary]
    belief: Belief | None
    memory: Mapping[Arm, int]
    outside: Collection[Arm] = ()
    """Arms that do not lie wholly in device memory."""

    def pick(self, incumbent: Arm | None) -> tuple[ArmSummary, Why]:
        """The chosen row, and what decided."""
        for row in self.rows:
            if row.arm == incumbent and not self._beaten(row) and not self._not_better(row):
                return row, Why(kept=True)
        winners = [self._winner(group) for group in self._comparable()]
        return min(winners, key=lambda pair: self._memory(pair[0]))

    def rival(self, row: ArmSummary, chosen: ArmSummary) -> Rival:
        """An arm beside the chosen one, with what decides and what the table says."""
        return Rival(
            row=row,
            verdict=self.verdict(chosen, row),
            medians=None if chosen.tps is None or not row.tps else chosen.tps / row.tps,
            joined=self.speed(row) is not None and self.speed(chosen) is not None,
            place=place_of(row) if row.arm in self.outside else None,
        )

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
        """Depths within the counts that were not measured: speed of ``chosen`` over theirs."""
        belief = self.belief
        if belief is None or self.speed(chosen) is None:
            return ()
        seen = {row.arm.depth for row in self.rows} | {arm.depth for arm in refused}
        return tuple(
            (depth, belief.ratio(chosen.arm.depth, depth).mid)
            for depth in range(belief.counted + 1)
            if depth not in seen
        )

    def _beaten(self, row: ArmSummary) -> bool:
        verdicts = [self.verdict(other, row) for other in self.rows if other != row]
        return any(isinstance(v, SpeedComparison) and v.faster for v in verdicts)

    def _not_better(self, row: ArmSummary) -> list[ArmSummary]:
        """Arms in device memory that an arm outside of it is not proven to beat."""
        if row.arm not in self.outside:
            return []
        verdicts = [(o, self.verdict(row, o)) for o in self.rows if o.arm not in self.outside]
        return [o for o, v in verdicts if isinstance(v, SpeedComparison) and not v.faster]

    def _comparable(self) -> list[list[ArmSummary]]:
        """Groups of rows that none is proven to beat, comparable with their shallowest one."""
        groups: list[list[ArmSummary]] = []
        for row in [row for row in self.rows if not self._beaten(row)] or self.rows:
            for group in groups:
                if isinstance(self.verdict(row, group[0]), SpeedComparison):
                    group.append(row)
                    break
            else:
                groups.append([row])
        return groups

    def _winner(self, group: Sequence[ArmSummary]) -> tuple[ArmSummary, Why]:
        """The fastest row, or an equivalent one that needs less memory.

        One that does not lie wholly in device memory gives way to those that do, unless it
        is proven to beat them all.
        """
        top = self._fastest(group)
        if instead := self._not_better(top):
            top = self._fastest(instead)
        peers = [row for row in group if (row.arm in self.outside) == (top.arm in self.outside)]
        equal = [
            row
            for row in peers
            if self._gives_away(row, top) <= EQUIVALENT and not self._not_better(row)
        ]
        frugal = min([top, *equal], key=self._memory)
        return frugal, Why(frugal=frugal != top, inside=bool(instead))

    def _fastest(self, rows: Sequence[ArmSummary]) -> ArmSummary:
        """Ahead of the most others, pair by pair: a mean may be that of other prompts."""

        def key(row: ArmSummary) -> tuple[int, float, tuple[str, int, str, float]]:
            verdicts = [self.verdict(row, other) for other in rows if other != row]
            ahead = sum(isinstance(v, SpeedComparison) and v.ratio > 1 for v in verdicts)
            return ahead, row.tps or 0.0, depth_order(row.arm)

        return max(rows, key=key)

    def _gives_away(self, row: ArmSummary, top: ArmSummary) -> float:
        """Chance that ``top`` is more than the tie ratio faster."""
        verdict = self.verdict(top, row)
        return 1.0 if isinstance(verdict, Incomparable) else verdict.p_faster

    def _memory(self, row: ArmSummary) -> tuple[bool, int, tuple[str, int, str, float]]:
        known = all(one.arm in self.memory for one in self.rows)
        need = self.memory[row.arm] if known else 0
        return row.arm in self.outside, need, depth_order(row.arm)


def _misfits(rows: Sequence[ArmSummary], slow: Mapping[Arm, str]) -> dict[Arm, str]:
    """How arms miss device memory; deeper than a slow one nothing fits, whatever the log says."""
    depth = min((arm.depth for arm in slow), default=None)
    out: dict[Arm, str] = {}
    for row in rows:
        why = slow.get(row.arm) or does_not_fit(row.residency)
        deeper = depth is not None and row.arm.depth > depth
        if why is None and deeper and rejection(row) is None:
            why = f"does not fit (depth {depth} already does not)"
        if why is not None:
            out[row.arm] = why
    return out


def _refused(
    rows: Sequence[ArmSummary], misfit: Mapping[Arm, str], outside: Mapping[Arm, str]
) -> dict[Arm, str]:
    """Why arms must not be chosen; those ``outside`` device memory are not refused for that."""
    out: dict[Arm, str] = {}
    for row in rows:
        if row.arm in outside:
            why = rejection(row, accept_offload=True)
        else:
            why = misfit.get(row.arm) or rejection(row)
        if why is not None:
            out[row.arm] = why
    return out


def rejection(row: ArmSummary, *, accept_offload: bool = False) -> str | None:
    """Why an arm must not be chosen, or None; "does not fit" is never "does not pay"."""
    misfit = does_not_fit(row.residency)
    if misfit is not None and not accept_offload:
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


def cost_of(rows: Sequence[ArmSummary], *, cut: bool = False) -> CostFit | Unknown:
    """Row cost fitted to the step times of ``tuner.points.step_points``."""
    return fit_cost(step_points(rows, cut=cut))


def _act(arm: Arm, incumbent: Arm | None) -> Act:
    if incumbent is None:
        return Act.CHOOSE
    return Act.KEEP if arm == incumbent else Act.SWITCH
