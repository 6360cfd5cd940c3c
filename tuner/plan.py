"""What a history of measurements means for a search: what is missing, out, or worth a start.

Covers the values that a design takes and returns, retries, budgets and the eliminations
that any strategy shares. Strategies are in ``tuner.design``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from tuner.select import does_not_fit, rejection
from tuner.summary import ArmSummary, not_usable, summarise
from tuner.types import depth_order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tuner.types import Arm, Budget, Observation, ShortStep, Start

__all__ = [
    "ATTEMPTS",
    "Ask",
    "Cell",
    "Elimination",
    "History",
    "Rejected",
    "State",
    "Stop",
    "Task",
    "WorkloadPlan",
]

_NOTHING: Final[Mapping[Arm, str]] = MappingProxyType({})

ATTEMPTS = 2
"""Engine starts of one arm before its missing cells are given up."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One repetition of one prompt."""

    workload: str
    prompt: int
    repetition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """A workload and how many of its prompts are used (indices 0..prompts-1)."""

    name: str
    prompts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that was told so far.

    Attributes:
        observations: Every repetition, excluded ones too.
        starts: Every engine start; needed where a start measured nothing.
        short_steps: Steps timed alone; they show the row cost within one start.
        spent_s: Wall seconds spent, for ``Budget.max_seconds``.
        spent_j: Joules spent, for ``Budget.max_joules``; None where they cannot be read.
    """

    observations: tuple[Observation, ...] = ()
    starts: tuple[Start, ...] = ()
    short_steps: tuple[ShortStep, ...] = ()
    spent_s: float = 0.0
    spent_j: float | None = 0.0

    def tell(self, *observations: Observation) -> History:
        """History with more observations."""
        return replace(self, observations=self.observations + observations)

    def started(self, *starts: Start) -> History:
        """History with more engine starts."""
        return replace(self, starts=self.starts + starts)

    def stepped(self, *steps: ShortStep) -> History:
        """History with more short steps."""
        return replace(self, short_steps=self.short_steps + steps)

    def only(self, arms: Collection[Arm]) -> History:
        """What was told of these arms; what was spent stays."""
        return replace(
            self,
            observations=tuple(o for o in self.observations if o.arm in arms),
            starts=tuple(s for s in self.starts if s.arm in arms),
            short_steps=tuple(s for s in self.short_steps if s.arm in arms),
        )


class Elimination(enum.StrEnum):
    """Why an arm is out."""

    DOES_NOT_FIT = "does not fit"
    DOES_NOT_PAY = "does not pay"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An arm that is out, with one clause that says why."""

    arm: Arm
    verdict: Elimination
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Start this arm once and run these cells on it, in this order.

    Attributes:
        arm: What to start.
        cells: At least one; repetitions of a prompt follow each other.
        reason: One clause that says why this arm comes next.
        short_steps: Wanted per number of rows, 0 to the arm's depth; 0 asks for none.
    """

    arm: Arm
    cells: tuple[Cell, ...]
    reason: str
    short_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Nothing more to measure.

    Attributes:
        reason: One sentence.
        rejected: Arms that are out, shallow to deep.
    """

    reason: str
    rejected: tuple[Rejected, ...]


class Task(Protocol):
    """What every strategy is given."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Depths of one profile."""
        ...

    @property
    def workloads(self) -> tuple[WorkloadPlan, ...]:
        """What to run."""
        ...

    @property
    def repetitions(self) -> int:
        """Repetitions of every prompt."""
        ...

    @property
    def budget(self) -> Budget:
        """Limits."""
        ...


@dataclass(frozen=True, slots=True)
class State:
    """What a history means for a task."""

    budget: Budget
    attempts: dict[Arm, int]
    missing: dict[Arm, tuple[Cell, ...]]
    open: tuple[Arm, ...]
    """Arms worth a start: cells missing, not out, attempts left; shallow to deep."""
    measured: tuple[ArmSummary, ...]
    """Rows that may be chosen."""
    out: tuple[Rejected, ...]
    cells: int
    spent_s: float
    spent_j: float | None

    @classmethod
    def of(
        cls,
        task: Task,
        history: History,
        *,
        deepest: int | None = None,
        slow: Mapping[Arm, str] = _NOTHING,
        accept_offload: bool = False,
    ) -> State:
        """Sort the arms of ``task`` by what ``history`` says of them.

        Args:
            task: What is searched.
            history: All that was told.
            deepest: Deepest depth that is predicted to fit, or None.
            slow: Why the step times of an arm say that it does not fit.
            accept_offload: Whether an arm that does not fit is measured like any other.
        """
        arms = sorted(set(task.arms), key=depth_order)
        seen = [o for o in history.observations if o.arm in arms]
        starts = [s for s in history.starts if s.arm in arms]
        rows = {row.arm: row for row in summarise(seen, starts)}
        ids = {(o.arm, o.start_id) for o in seen} | {(s.arm, s.start_id) for s in starts}
        attempts: dict[Arm, int] = {}
        for arm, _ in ids:
            attempts[arm] = attempts.get(arm, 0) + 1
        missing = {arm: _missing(arm, task.workloads, task.repetitions, seen) for arm in arms}
        out = [] if accept_offload else _misfits(arms, rows, deepest, slow)
        barred = {r.arm for r in out}
        wanted = [arm for arm in arms if missing[arm] and arm not in barred]
        given_up = [arm for arm in wanted if attempts.get(arm, 0) >= ATTEMPTS]
        return cls(
            budget=task.budget,
            attempts=attempts,
            missing=missing,
            open=tuple(arm for arm in wanted if arm not in given_up),
            measured=tuple(
                row
                for row in rows.values()
                if rejection(row, accept_offload=accept_offload) is None and row.arm not in barred
            ),
            out=tuple(sorted([*out, *(_given_up(arm, rows) for arm in given_up)], key=_by_depth)),
            cells=len({(o.arm, o.workload, o.prompt) for o in seen}),
            spent_s=history.spent_s,
            spent_j=history.spent_j,
        )

    def ask(self, arm: Arm, reason: str, *, short_steps: int = 0) -> Ask | Stop:
        """Ask for the missing cells of an arm, if the budget allows it."""
        cells = self.missing[arm]
        budget = self.budget
        prompts = len({(c.workload, c.prompt) for c in cells})
        if sum(self.attempts.values()) >= budget.max_restarts:
            return self.stop(f"{_budget(budget.max_restarts, 'engine start')} is spent", ())
        if budget.max_cells is not None and self.cells + prompts > budget.max_cells:
            left = max(budget.max_cells - self.cells, 0)
            whole = _budget(budget.max_cells, "cell")
            return self.stop(f"{whole} leaves {left} of the {prompts} that {arm} needs", ())
        if budget.max_seconds is not None and self.spent_s >= budget.max_seconds:
            return self.stop(f"the budget of {budget.max_seconds:g} s is spent", ())
        if budget.max_joules is not None and self.spent_j is None:
            return self.stop("the energy cannot be read, so a budget in joules cannot be kept", ())
        if budget.max_joules is not None and (self.spent_j or 0.0) >= budget.max_joules:
            return self.stop(f"the budget of {budget.max_joules:g} J is spent", ())
        return Ask(
            arm=arm, cells=cells, reason=f"depth {arm.depth} {reason}", short_steps=short_steps
        )

    def stop(self, reason: str, unpromising: Sequence[Rejected]) -> Stop:
        """Stop; arms that are neither measured nor out for a reason were not reached."""
        known = {r.arm for r in (*self.out, *unpromising)}
        left = [
            Rejected(arm=arm, verdict=Elimination.NOT_MEASURED, reason="was not reached")
            for arm in self.open
            if arm not in known
        ]
        return Stop(
            reason=reason, rejected=tuple(sorted([*self.out, *unpromising, *left], key=_by_depth))
        )


def _budget(most: int, noun: str) -> str:
    return f"the budget of {most} {noun}{'' if most == 1 else 's'}"


def _by_depth(one: Rejected) -> tuple[str, int, str, float]:
    return depth_order(one.arm)


def _missing(
    arm: Arm,
    workloads: Sequence[WorkloadPlan],
    repetitions: int,
    observations: Sequence[Observation],
) -> tuple[Cell, ...]:
    done = {
        Cell(workload=o.workload, prompt=o.prompt, repetition=o.repetition)
        for o in observations
        if o.arm == arm and not_usable(o) is None
    }
    wanted = [
        Cell(workload=plan.name, prompt=prompt, repetition=repetition)
        for plan in workloads
        for prompt in range(plan.prompts)
        for repetition in range(repetitions)
    ]
    return tuple(cell for cell in wanted if cell not in done)


def _misfits(
    arms: Sequence[Arm],
    rows: Mapping[Arm, ArmSummary],
    deepest: int | None,
    slow: Mapping[Arm, str],
) -> list[Rejected]:
    """Arms that do not fit: seen, deeper than one that was seen, or predicted.

    A deeper arm that was measured resident stands by itself, unless a shallower one is too
    slow to be resident: then what the log says has been wrong already.
    """
    out: list[Rejected] = []
    evicted: Arm | None = None
    trusted = True
    for arm in arms:
        row = rows.get(arm)
        seen = slow.get(arm) if row is None else does_not_fit(row.residency) or slow.get(arm)
        if seen is not None:
            evicted = evicted or arm
            trusted = trusted and arm not in slow
            why = seen
        elif trusted and row is not None and row.tps is not None:
            continue
        elif evicted is not None:
            why = f"does not fit (depth {evicted.depth} already does not)"
        elif deepest is not None and arm.depth > deepest:
            why = f"does not fit (predicted: at most depth {deepest} does)"
        else:
            continue
        out.append(Rejected(arm=arm, verdict=Elimination.DOES_NOT_FIT, reason=why))
    return out


def _given_up(arm: Arm, rows: dict[Arm, ArmSummary]) -> Rejected:
    why = rejection(rows[arm]) or f"still lacks cells after {ATTEMPTS} starts"
    return Rejected(arm=arm, verdict=Elimination.NOT_MEASURED, reason=why)
