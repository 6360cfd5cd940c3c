"""What each strategy does on a simulated machine, and what its choice gives away."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.bench.tuner.fleet import DEEPEST, Machine, arm, plans
from tests.bench.tuner.rivals import (
    Exhaustive,
    Halving,
    Lucb,
    Rival,
    TrackAndStop,
    play,
)
from tuner.design import SHORT_STEPS, ModelBased, Sweep
from tuner.replay import replay
from tuner.types import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.design import Design

__all__ = ["STRATEGIES", "Outcome"]

_ARMS: Final = tuple(arm(depth) for depth in range(DEEPEST + 1))
_ENOUGH: Final = Budget(max_restarts=2 * len(_ARMS))
_PROMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """One strategy on one machine.

    Attributes:
        depth: What it chose.
        regret: Share of the best depth's true tokens per second that it gives away.
        evicted: Whether the choice does not fit into device memory.
        restarts: Engine starts.
        cells: Repetitions measured.
        seconds: Simulated wall time.
    """

    depth: int
    regret: float
    evicted: bool
    restarts: int = 0
    cells: int = 0
    seconds: float = 0.0


def _outcome(
    one: Machine, depth: int, *, restarts: int = 0, cells: int = 0, seconds: float = 0.0
) -> Outcome:
    best = max(one.tps(each) for each in range(DEEPEST + 1))
    return Outcome(
        depth=depth,
        regret=1 - one.tps(depth) / best,
        evicted=depth > one.ceiling,
        restarts=restarts,
        cells=cells,
        seconds=seconds,
    )


def _static(one: Machine, *, depth: int) -> Outcome:
    return _outcome(one, depth)


def _sweep_decided(one: Machine) -> Outcome:
    """The same measurements as a sweep with three prompts, but the program decides."""
    return _decided(
        one,
        Sweep(arms=_ARMS, workloads=plans(_PROMPTS), repetitions=1, budget=_ENOUGH),
    )


def _rival(one: Machine, *, rival: Rival, keeps: bool = False, blind: bool = False) -> Outcome:
    """A rival's search and its choice; ``blind`` measures what does not fit, too."""
    done = play(rival, replace(one, logs_read=False) if blind else one, keeps=keeps)
    return _outcome(
        one,
        rival.choice(done.history),
        restarts=done.restarts,
        cells=len(done.history.observations),
        seconds=done.seconds,
    )


def _search(
    one: Machine, *, fits: bool = True, overrated: int = 0, short_steps: int = SHORT_STEPS
) -> Outcome:
    """The search as the program runs it.

    ``fits`` tells it how deep memory allows, ``overrated`` by how much that is too deep.
    """
    deepest = min(one.ceiling + overrated, DEEPEST) if fits else None
    return _decided(
        one,
        ModelBased(
            arms=_ARMS,
            workloads=plans(_PROMPTS),
            repetitions=1,
            budget=_ENOUGH,
            deepest=deepest,
            short_steps=short_steps,
        ),
    )


def _decided(one: Machine, design: Design) -> Outcome:
    """A design whose measurements the program decides on."""
    done = replay(design, one)
    return _outcome(
        one,
        done.decision.arm.depth if done.decision.arm else 0,
        restarts=done.restarts,
        cells=done.cells,
        seconds=done.history.spent_s,
    )


STRATEGIES: Final[Mapping[str, Callable[[Machine], Outcome]]] = {
    "static 2": functools.partial(_static, depth=2),
    "static 3": functools.partial(_static, depth=3),
    "note 002 sweep": functools.partial(_rival, rival=Exhaustive(), blind=True),
    "sweep, stops at eviction": functools.partial(_rival, rival=Exhaustive()),
    "sweep, 3 prompts": functools.partial(
        _rival, rival=Exhaustive(prompts=_PROMPTS, repetitions=1)
    ),
    "sweep, 3 prompts, our choice": _sweep_decided,
    "successive halving": functools.partial(_rival, rival=Halving(), keeps=True),
    "LUCB": functools.partial(_rival, rival=Lucb()),
    "track and stop": functools.partial(_rival, rival=TrackAndStop()),
    "search, no short steps, memory unknown": functools.partial(_search, fits=False, short_steps=0),
    "search, no short steps": functools.partial(_search, short_steps=0),
    "search, memory overrated by 1": functools.partial(_search, overrated=1),
    "search, memory unknown": functools.partial(_search, fits=False),
    "search": _search,
}
"""By name; ``search`` without more words has short steps and knows what fits."""
