"""Run a search or a policy over what was recorded or simulated.

Covers the loop that a daemon runs with real engines, without engines: a design asks, a bench
answers, and the decision that follows. Also policies, which see one moment after the other.
All is pure: equal inputs give equal decisions, so a recorded decision can be checked. Does
not simulate machines (tests/bench/tuner).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from tuner.design import ModelBased, Sweep
from tuner.plan import Ask, Cell, History, Stop
from tuner.select import choose
from tuner.types import Arm, Decision, Observation, ShortStep, Start, Unknown, passes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuner.design import Design

__all__ = [
    "Bench",
    "Policy",
    "Recording",
    "Replayed",
    "Told",
    "decisions",
    "first_difference",
    "replay",
]

_LIMIT = 100
"""Engine starts after which a design that does not stop is stopped."""

State = TypeVar("State")
Moment_contra = TypeVar("Moment_contra", contravariant=True)
Moment = TypeVar("Moment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one ask brought.

    Attributes:
        start: The engine start.
        observations: What was measured on it; empty where the start does not pass.
        short_steps: Steps timed alone on it.
        seconds: Wall time.
        joules: Energy, or None where it cannot be read.
    """

    start: Start
    observations: tuple[Observation, ...] = ()
    short_steps: tuple[ShortStep, ...] = ()
    seconds: float = 0.0
    joules: float | None = None


class Bench(Protocol):
    """What answers a design: a recording or a simulated machine."""

    def run(self, ask: Ask, history: History) -> Told:
        """Start the arm and measure the cells; pure, ``history`` is all that was told before."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A finished search.

    Attributes:
        history: All that was told.
        asks: What was asked, in order.
        stop: Why it ended.
        decision: What is chosen from it.
    """

    history: History
    asks: tuple[Ask, ...]
    stop: Stop
    decision: Decision

    @property
    def restarts(self) -> int:
        """Engine starts, the first one included."""
        return len(self.asks)

    @property
    def cells(self) -> int:
        """Repetitions that were measured."""
        return len(self.history.observations)


def replay(
    design: Design,
    bench: Bench,
    *,
    history: History | None = None,
    incumbent: Arm | None = None,
    memory_bytes: Mapping[Arm, int] | None = None,
    limit: int = _LIMIT,
) -> Replayed:
    """Let a design ask a bench until it stops, then choose among what was measured.

    Args:
        design: The strategy.
        bench: What answers it.
        history: What is known beforehand.
        incumbent: The arm that runs now, if any.
        memory_bytes: Device memory per arm, where predicted.
        limit: Engine starts after which the search ends anyhow.
    """
    known = history or History()
    asks: list[Ask] = []
    while True:
        answer = design.ask(known)
        if isinstance(answer, Ask) and len(asks) >= limit:
            answer = Stop(reason=f"the search did not stop within {limit} starts", rejected=())
        if isinstance(answer, Stop):
            decision = choose(
                known,
                incumbent,
                memory_bytes=memory_bytes,
                deepest=design.deepest if isinstance(design, ModelBased | Sweep) else None,
                row_cost=design.row_cost if isinstance(design, ModelBased) else None,
                accept_offload=isinstance(design, ModelBased | Sweep) and design.accept_offload,
            )
            return Replayed(history=known, asks=tuple(asks), stop=answer, decision=decision)
        asks.append(answer)
        told = bench.run(answer, known)
        known = known.started(told.start).tell(*told.observations).stepped(*told.short_steps)
        known = replace(
            known,
            spent_s=known.spent_s + told.seconds,
            spent_j=None
            if known.spent_j is None or told.joules is None
            else known.spent_j + told.joules,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Answers from what was measured before; every recorded start is told once.

    Attributes:
        history: The recording.
        accept_offload: Whether arms that do not fit were measured, too.
    """

    history: History
    accept_offload: bool = False

    def run(self, ask: Ask, history: History) -> Told:
        """The arm's next recorded start, or a failed one where nothing more was recorded."""
        told = {s.start_id for s in history.starts}
        for start in _starts(self.history, ask.arm):
            if start.start_id in told:
                continue
            measured = passes(start.residency) or self.accept_offload
            wanted = set(ask.cells) if measured else set[Cell]()
            return Told(
                start=start,
                observations=tuple(
                    o
                    for o in self.history.observations
                    if (o.arm, o.start_id) == (ask.arm, start.start_id) and _cell(o) in wanted
                ),
                short_steps=tuple(
                    s
                    for s in self.history.short_steps
                    if ask.short_steps and (s.arm, s.start_id) == (ask.arm, start.start_id)
                ),
            )
        missing = Start(
            arm=ask.arm,
            start_id=f"{ask.arm}, unrecorded {len(history.starts)}",
            residency=Unknown("it was not recorded"),
            failure="it was not recorded",
        )
        return Told(start=missing)


def _starts(history: History, arm: Arm) -> list[Start]:
    """Recorded starts of an arm in order; one known by its observations only is made up."""
    starts = {s.start_id: s for s in history.starts if s.arm == arm}
    for one in history.observations:
        if one.arm == arm and one.start_id not in starts:
            starts[one.start_id] = Start(arm=arm, start_id=one.start_id, residency=one.residency)
    return list(starts.values())


def _cell(one: Observation) -> Cell:
    return Cell(workload=one.workload, prompt=one.prompt, repetition=one.repetition)


class Policy(Protocol[State, Moment_contra]):
    """Decides moment by moment; its memory is the state that it returns."""

    def __call__(self, state: State, moment: Moment_contra, /) -> tuple[State, Decision]:
        """The next state and the decision; pure."""
        ...


def decisions(
    policy: Policy[State, Moment], state: State, moments: Iterable[Moment]
) -> tuple[Decision, ...]:
    """What a policy decides at each moment."""
    out: list[Decision] = []
    for moment in moments:
        state, decision = policy(state, moment)
        out.append(decision)
    return tuple(out)


def first_difference(
    policy: Policy[State, Moment],
    state: State,
    recorded: Iterable[tuple[Moment, Decision]],
) -> tuple[int, Decision] | None:
    """The first recorded decision that the policy does not repeat, or None.

    Returns:
        Its index and what the policy decides instead.
    """
    for index, (moment, before) in enumerate(recorded):
        state, now = policy(state, moment)
        if now != before:
            return index, now
    return None
