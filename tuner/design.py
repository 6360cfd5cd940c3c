"""Which arm to start next and which cells to run on it: ask, measure, tell.

Covers the exhaustive sweep and the model-based search behind one interface. One engine
start per ask, because a depth is a start-up constant. All is pure: a design is a frozen
value, the history is what was told. "Does not fit" (memory) is kept apart from "does not
pay" (speed). Does not choose the arm to serve (``tuner.select``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tuner.belief import believe, slow_arms
from tuner.plan import (
    Ask,
    Cell,
    Elimination,
    History,
    Rejected,
    State,
    Stop,
    WorkloadPlan,
)
from tuner.select import does_not_fit
from tuner.speed import TIE_RATIO
from tuner.types import Arm, Budget, Host, Unknown, depth_order

if TYPE_CHECKING:
    from tuner.belief import Belief
    from tuner.cost import RowCost

__all__ = [
    "DOUBT",
    "FIRST_DEPTH",
    "SHORT_STEPS",
    "Ask",
    "Cell",
    "Design",
    "Elimination",
    "History",
    "ModelBased",
    "Rejected",
    "Stop",
    "Sweep",
    "WorkloadPlan",
]

FIRST_DEPTH = 2
"""Depth that the model-based search starts with, if it fits."""

DOUBT = 0.05
"""Chance of a better arm below which it is not worth an engine start."""

SHORT_STEPS = 32
"""Short steps per number of rows: some 15 s where an engine start takes 40 and its cells 280."""

_ALL = "every depth was measured"
_ALL_THAT_FIT = "every depth that fits was measured"


class Design(Protocol):
    """A strategy that asks for measurements."""

    def ask(self, history: History) -> Ask | Stop:
        """Next arm to start, or why there is none; pure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Measure every arm that fits, shallow to deep.

    Attributes:
        arms: Depths of one profile.
        workloads: What to run.
        repetitions: Of every prompt on the same start; they reduce timing noise only.
        budget: Limits; reaching one ends the sweep with what was measured.
        deepest: Deepest depth that is predicted to fit, or None if there is no prediction.
        accept_offload: Whether depths that do not fit are measured, too.
    """

    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadPlan, ...]
    repetitions: int = 3
    budget: Budget = field(default_factory=Budget)
    deepest: int | None = None
    accept_offload: bool = False

    def ask(self, history: History) -> Ask | Stop:
        """Next arm with missing cells."""
        state = State.of(self, history, deepest=self.deepest, accept_offload=self.accept_offload)
        for arm in state.open:
            return state.ask(arm, "is the next depth of the sweep")
        return state.stop(_ALL if self.accept_offload else _ALL_THAT_FIT, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBased:
    """Measure as few arms as what is known of acceptance and step times allows.

    Starts at depth 2 if it fits, with short steps that show the row cost; then measures the
    untried depth with the largest chance of being more than 2 % faster than the best measured
    one, while that chance exceeds ``DOUBT``. Where no prediction says what fits, a second,
    shallower start has to confirm that the first one was in device memory. Where depths that
    do not fit are accepted and one was seen, every depth is measured: what layers on the CPU
    cost is not predicted.

    Attributes:
        arms: Depths of one profile.
        workloads: What to run.
        repetitions: Of every prompt on the same start.
        budget: Limits.
        row_cost: Known for this card and stack, or None.
        deepest: Deepest depth that is predicted to fit, or None if there is no prediction.
        short_steps: Per row count of every start; 0 for none.
        accept_offload: Whether depths that do not fit may be chosen.
    """

    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadPlan, ...]
    repetitions: int = 3
    budget: Budget = field(default_factory=Budget)
    row_cost: RowCost | None = None
    deepest: int | None = None
    short_steps: int = SHORT_STEPS
    accept_offload: bool = False

    def ask(self, history: History) -> Ask | Stop:
        """Next arm by chance of beating the best one."""
        told = history.only(self.arms)
        slow = {one.arm: one.reason for one in slow_arms(told, self.row_cost)}
        state = State.of(
            self,
            told,
            deepest=self.deepest,
            slow=slow,
            accept_offload=self.accept_offload,
        )
        for arm in state.open:
            if arm in state.attempts:
                return self._start(state, arm, "lacks cells of its first start")
        if not state.measured:
            return self._first(state)
        if self.accept_offload and any(
            does_not_fit(row.residency) or row.arm in slow for row in state.measured
        ):
            return self._each(state)
        deepest = max(arm.depth for arm in self.arms)
        belief = believe(told, deepest=deepest, row_cost=self.row_cost)
        if isinstance(belief, Unknown):
            return self._unpredictable(state)
        known = [row.arm for row in state.measured if belief.covers(row.arm, row.fingerprint)]
        best = max(
            known or [row.arm for row in state.measured],
            key=lambda arm: (belief.log_tps[arm.depth], depth_order(arm)),
        )
        return self._witness(state, belief, best) or self._promising(state, belief, best)

    def _start(self, state: State, arm: Arm, reason: str) -> Ask | Stop:
        return state.ask(arm, reason, short_steps=self.short_steps if arm.depth else 0)

    def _first(self, state: State) -> Ask | Stop:
        shallow = [arm for arm in state.open if arm.depth <= FIRST_DEPTH]
        if shallow:
            return self._start(
                state,
                max(shallow, key=depth_order),
                f"is where the search starts (at most {FIRST_DEPTH})",
            )
        for arm in state.open:
            return self._start(state, arm, "is the shallowest depth left")
        return state.stop("no depth could be measured", ())

    def _each(self, state: State) -> Ask | Stop:
        for arm in state.open:
            return self._start(
                state, arm, "has to be measured: what layers on the CPU cost is not predicted"
            )
        return state.stop(_ALL, ())

    def _unpredictable(self, state: State) -> Ask | Stop:
        for arm in state.open:
            return self._start(
                state, arm, "gives the row cost and the acceptance that are not known yet"
            )
        return state.stop(_ALL_THAT_FIT, ())

    def _witness(self, state: State, belief: Belief, best: Arm) -> Ask | Stop | None:
        """A shallower start that can show an eviction which no log tells, where one is needed.

        What a log and a prediction of memory both say needs no witness, except at the edge
        of the prediction, where it is wrong first; nor does a start without a device.
        """
        depths = {row.arm.depth for row in state.measured if not isinstance(row.residency, Host)}
        if not depths:
            return None
        shallower = [arm for arm in state.open if arm.depth < min(depths)]
        if self.deepest is None:
            confirmed = len(depths) > 1 and min(depths) <= 1
        else:
            confirmed = min(depths) < max(self.deepest, FIRST_DEPTH)
        if confirmed or not shallower:
            return None
        arm = max(
            shallower, key=lambda one: (belief.p_beats(one.depth, best.depth), depth_order(one))
        )
        return self._start(
            state, arm, f"shows whether depth {min(depths)} is as fast as device memory allows"
        )

    def _promising(self, state: State, belief: Belief, best: Arm) -> Ask | Stop:
        if not state.open:
            return state.stop(_ALL_THAT_FIT, ())
        chances = {arm: belief.p_beats(arm.depth, best.depth) for arm in state.open}
        arm = max(chances, key=lambda one: (chances[one], depth_order(one)))
        if chances[arm] > DOUBT:
            why = f"beats {best} by {TIE_RATIO:.0%} with a chance of {chances[arm]:.0%}"
            return self._start(state, arm, why)
        reason = f"{best} is the best measured and no other has a chance above {DOUBT:.0%}"
        return state.stop(reason, [_does_not_pay(arm, belief, best) for arm in state.open])


def _does_not_pay(arm: Arm, belief: Belief, best: Arm) -> Rejected:
    top = belief.tps(best.depth).mid
    bound = math.exp(belief.bounds[arm.depth])
    if arm.depth > belief.counted and bound < top:
        why = f"reaches at most {bound:.1f} tok/s where {best} is expected at {top:.1f}"
    else:
        here = belief.tps(arm.depth).mid
        why = f"is expected at {here:.1f} tok/s where {best} is expected at {top:.1f}"
    return Rejected(arm=arm, verdict=Elimination.DOES_NOT_PAY, reason=f"{why}, does not pay")
