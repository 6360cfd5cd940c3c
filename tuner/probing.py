"""A probe from one engine start: which cells it needs, and whether a depth pays.

Covers the search of ``mtpctl probe`` and its verdict where short steps show the row cost
within the start. Where they cannot be had, a second start at depth 0 shows it
(``tuner.probe``). A probe measures less than a sweep, so it never chooses what is served.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tuner.belief import believe
from tuner.design import SHORT_STEPS, Sweep
from tuner.plan import Ask, History, Stop, WorkloadPlan
from tuner.probe import probe_decision
from tuner.select import rejection
from tuner.summary import summarise
from tuner.types import Act, Arm, Budget, Decision, Interval, Unknown

if TYPE_CHECKING:
    from tuner.belief import Belief
    from tuner.summary import ArmSummary

__all__ = ["ENOUGH_STEPS", "Probe", "probed"]

ENOUGH_STEPS = 3
"""Plain steps timed alone on a start from which its row cost counts as shown."""

_HEAD = (
    "depth 0 is predicted from plain steps of an engine that holds the draft head, "
    "which are a little slower than without one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Measure one depth; depth 0 by a start of its own only if short steps were not had.

    Attributes:
        arms: Depth 0 and the probed depth of one profile.
        workloads: What to run.
        repetitions: Of every prompt on the same start.
        budget: Limits.
        deepest: Deepest depth that is predicted to fit, or None if there is no prediction.
        short_steps: Per row count of the start.
    """

    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadPlan, ...]
    repetitions: int = 3
    budget: Budget = field(default_factory=Budget)
    deepest: int | None = None
    short_steps: int = SHORT_STEPS

    def ask(self, history: History) -> Ask | Stop:
        """The probed depth, then depth 0 if its plain step is not known yet."""
        deep = max(self.arms, key=lambda arm: arm.depth)
        answer = self._sweep((deep,)).ask(history)
        if isinstance(answer, Ask):
            return replace(
                answer, reason=f"depth {deep.depth} is probed", short_steps=self.short_steps
            )
        if answer.rejected:
            return answer
        if _shown(history, deep) is not None:
            return replace(answer, reason="single steps of one start show what a row costs")
        second = self._sweep(self.arms).ask(history)
        if isinstance(second, Ask):
            return replace(second, reason="depth 0 shows what single steps did not: the row cost")
        return second

    def _sweep(self, arms: tuple[Arm, ...]) -> Sweep:
        return Sweep(
            arms=arms,
            workloads=self.workloads,
            repetitions=self.repetitions,
            budget=self.budget,
            deepest=self.deepest,
        )


def probed(history: History, *, subject: str) -> Decision:
    """Say whether the deepest measured depth pays against every shallower one.

    Args:
        history: What a probe of one profile was told.
        subject: The profile.
    """
    rows = summarise(history.observations, history.starts)
    deep = max(rows, key=lambda row: row.arm.depth, default=None)
    if deep is None or len(rows) > 1 or rejection(deep) is not None:
        return probe_decision(rows, subject=subject)
    belief = _shown(history, deep.arm)
    if belief is None:
        return probe_decision(rows, subject=subject)
    return _verdict(belief, deep, subject)


def _shown(history: History, deep: Arm) -> Belief | None:
    """What one start shows of all depths; None where a second one is needed.

    That is where too few plain steps were timed alone or contradict the steady ones, or where
    the positions were not counted or cannot be trusted.
    """
    found = Counter(
        step.start_id for step in history.short_steps if step.arm == deep and step.rows == 0
    )
    if max(found.values(), default=0) < ENOUGH_STEPS:
        return None
    belief = believe(history, deepest=deep.depth)
    if isinstance(belief, Unknown) or belief.restless:
        return None
    return belief


def _verdict(belief: Belief, deep: ArmSummary, subject: str) -> Decision:
    depth = deep.arm.depth
    against = max(range(depth), key=lambda one: belief.log_tps[one])
    gain, plain, row = belief.ratio(depth, against), belief.ratio(depth, 0), belief.row_cost()
    cost = belief.step_s(depth).mid / belief.step_s(0).mid
    verdict = "too close to call"
    if gain.low > 1 or gain.high < 1:
        verdict = "yes" if gain.low > 1 else "no"
    return Decision(
        act=Act.MEASURE,
        subject=subject,
        arm=deep.arm,
        predicted=belief.tps(depth),
        reason=(
            f"depth {depth} pays: {verdict} ({gain.mid - 1:+.1%} against depth {against}, "
            f"{gain.low - 1:+.1%} to {gain.high - 1:+.1%}): {_earned(deep)}; "
            f"a verification row costs {_interval(row)} of a step here; "
            f"{belief.expected[depth]:.2f} tokens for {cost:.2f} plain steps, "
            f"{_interval(plain)} times the speed of depth 0"
        ),
        evidence=(
            *(
                f"depth {one}: {belief.tps(one).mid:.1f} tok/s "
                f"({belief.tps(one).low:.1f} to {belief.tps(one).high:.1f}), "
                f"{belief.expected[one]:.2f} tokens per step, "
                + ("measured" if one == depth else "predicted")
                for one in range(depth + 1)
            ),
            f"row cost from one start: its cells and {belief.short_steps} single steps",
            _HEAD,
        ),
    )


def _earned(deep: ArmSummary) -> str:
    return ", ".join(f"alpha{i} {_interval(a)}" for i, a in deep.shown_alphas)


def _interval(value: Interval) -> str:
    return f"{value.mid:.2f} ({value.low:.2f} to {value.high:.2f})"
