"""Other ways to find a depth, measured by the same bench as the search of ``tuner.design``.

Covers the sweep of note 002, successive halving, LUCB and track-and-stop (top two), as the
design study ran them. Each is a design: what to
start next follows from the history alone. They heed an eviction that the log shows; of
acceptance and row costs they know nothing, all depths are alike to them.
"""

from __future__ import annotations

import functools
import math
import operator
import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from tests.bench.tuner.fleet import CELL_S, DEEPEST, RUN_SD, START_SD, WORKLOADS, arm
from tuner.plan import Ask, Cell, History, Stop
from tuner.types import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tuner.design import Design
    from tuner.replay import Bench

__all__ = [
    "MOST_PULLS",
    "PULL_SD",
    "Exhaustive",
    "Halving",
    "Lucb",
    "Played",
    "Rival",
    "TrackAndStop",
    "highest_mean",
    "play",
]

PULL_SD: Final = math.sqrt(RUN_SD**2 / len(WORKLOADS) + START_SD**2)
"""Noise of the log of one pull's tokens per second: a repetition of each workload, one start."""

MOST_PULLS: Final = 60
"""Pulls after which LUCB and track-and-stop take the highest mean."""

_DEPTHS: Final = tuple(range(DEEPEST + 1))
_DONE: Final = Stop(reason="the best depth is told apart from the others", rejected=())


class Rival(Protocol):
    """A design that also says what it would choose."""

    def ask(self, history: History) -> Ask | Stop:
        """Next arm to start, or the end; pure."""
        ...

    def choice(self, history: History) -> int:
        """The depth that it ends with."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A search that came to its end: what was told, engine starts, simulated seconds."""

    history: History
    restarts: int
    seconds: float


def play(design: Design, bench: Bench, *, keeps: bool = False) -> Played:
    """Ask and tell until the design stops.

    Args:
        design: The strategy.
        bench: What answers it.
        keeps: An ask for the arm that runs goes on with its engine: no start is counted.
            The bench starts it anew all the same, which gives it a fresh offset for nothing.
    """
    known, restarts, seconds = History(), 0, 0.0
    while isinstance(answer := design.ask(known), Ask):
        told = bench.run(answer, known)
        kept = keeps and bool(known.starts) and known.starts[-1].arm == answer.arm
        restarts += not kept
        seconds += CELL_S * len(told.observations) if kept else told.seconds
        known = known.started(told.start).tell(*told.observations)
    return Played(history=known, restarts=restarts, seconds=seconds)


@dataclass(frozen=True, slots=True)
class _Pull:
    """One start: its depth and mean tokens per second, None if it does not fit."""

    depth: int
    tps: float | None


def _pulls(history: History) -> list[_Pull]:
    speeds: dict[str, list[float]] = {}
    for seen in history.observations:
        speeds.setdefault(seen.start_id, []).append(seen.decode_tps)
    return [
        _Pull(
            start.arm.depth,
            statistics.fmean(speeds[start.start_id]) if passes(start.residency) else None,
        )
        for start in history.starts
    ]


def highest_mean(
    history: History, *, of_prompt: Callable[[Sequence[float]], float] = statistics.fmean
) -> int:
    """Depth with the highest tokens per second, mean over all prompts.

    ``of_prompt`` makes one number of the repetitions of a prompt; note 002 takes the median.
    """
    speeds: dict[int, dict[tuple[str, int], list[float]]] = {}
    for seen in history.observations:
        prompts = speeds.setdefault(seen.arm.depth, {})
        prompts.setdefault((seen.workload, seen.prompt), []).append(seen.decode_tps)
    means = {
        depth: statistics.fmean(of_prompt(tps) for tps in prompts.values())
        for depth, prompts in speeds.items()
    }
    return max(means, key=lambda depth: means[depth])


def _ask(depth: int, reason: str, *, prompts: int = 1, repetitions: int = 1) -> Ask:
    """All workloads; with one prompt each, as both studies ran them."""
    return Ask(
        arm=arm(depth),
        cells=tuple(
            Cell(workload=name, prompt=prompt, repetition=repetition)
            for name in WORKLOADS
            for prompt in range(prompts)
            for repetition in range(repetitions)
        ),
        reason=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaustive:
    """The sweep of note 002: every depth that fits, then the highest mean.

    Unlike ``tuner.design.Sweep`` it repeats nothing and has no budget, and so needs no
    summary of what was measured before the end.

    Attributes:
        prompts: Of every workload.
        repetitions: Of every prompt; their median counts.
    """

    prompts: int = 1
    repetitions: int = 3

    def ask(self, history: History) -> Ask | Stop:
        """Next depth, shallow to deep."""
        depth = len(history.starts)
        if depth > DEEPEST or not all(passes(start.residency) for start in history.starts):
            return Stop(reason="every depth that fits was measured", rejected=())
        reason = "is the next depth of the sweep"
        return _ask(depth, reason, prompts=self.prompts, repetitions=self.repetitions)

    def choice(self, history: History) -> int:
        """The highest mean over prompts."""
        return highest_mean(history, of_prompt=statistics.median)


@dataclass(frozen=True, slots=True)
class Halving:
    """Successive halving: every round has one repetition more and half of the depths.

    A round begins with the depth that runs. The means of a depth's rounds are weighted by
    their repetitions.
    """

    def ask(self, history: History) -> Ask | Stop:
        """Next depth of the round."""
        wanted, _ = self._rounds(iter(_pulls(history)))
        return (
            _DONE
            if wanted is None
            else _ask(wanted[0], "is next in this round", repetitions=wanted[1])
        )

    def choice(self, history: History) -> int:
        """The depth that is left."""
        return self._rounds(iter(_pulls(history)))[1][0]

    def _rounds(self, pulls: Iterator[_Pull]) -> tuple[tuple[int, int] | None, list[int]]:
        """What is wanted next (depth and repetitions), and the depths that are left."""
        left, means, running = list(_DEPTHS), dict[int, list[float]](), None
        repetitions = 1
        while len(left) > 1:
            for depth in sorted(left, key=functools.partial(operator.ne, running)):
                if depth not in left:
                    continue
                pull = next(pulls, None)
                if pull is None:
                    return (depth, repetitions), left
                running = depth
                if pull.tps is None:
                    left = [one for one in left if one < depth]
                else:
                    means.setdefault(depth, []).append(pull.tps)
            scores = {depth: _weighted(means[depth]) for depth in left}
            ranked = sorted(left, key=scores.__getitem__, reverse=True)
            left = ranked[: math.ceil(len(left) / 2)]
            repetitions += 1
        return None, left


def _weighted(rounds: Sequence[float]) -> float:
    return statistics.fmean(rounds, weights=range(1, len(rounds) + 1))


@dataclass(frozen=True, slots=True)
class _Means:
    """Mean log tokens per second and number of pulls of every depth that fits."""

    log_tps: dict[int, float] = field(default_factory=dict)
    count: dict[int, int] = field(default_factory=dict)
    deepest: int = DEEPEST

    @property
    def pulls(self) -> int:
        return sum(self.count.values())

    @property
    def best(self) -> int:
        return max(self.log_tps, key=self.log_tps.__getitem__)

    @property
    def others(self) -> list[int]:
        return [depth for depth in self.log_tps if depth != self.best]

    def told(self, pull: _Pull) -> _Means:
        if pull.tps is None:
            return replace(self, deepest=min(self.deepest, pull.depth - 1))
        count = self.count.get(pull.depth, 0)
        mean = (self.log_tps.get(pull.depth, 0.0) * count + math.log(pull.tps)) / (count + 1)
        return replace(
            self,
            log_tps={**self.log_tps, pull.depth: mean},
            count={**self.count, pull.depth: count + 1},
        )


def _bandit(
    pulls: Iterator[_Pull], pick: Callable[[_Means], tuple[int, ...]]
) -> tuple[int | None, _Means]:
    """The depth that is wanted next, None at the end, and what is known.

    Every depth is pulled once, then those that ``pick`` names, in turn; it names none when
    it has seen enough.
    """
    known, wanted = _Means(), _DEPTHS
    while wanted:
        for depth in wanted:
            if depth > known.deepest:
                continue
            pull = next(pulls, None)
            if pull is None:
                return depth, known
            known = known.told(pull)
        wanted = pick(known) if known.others and known.pulls < MOST_PULLS else ()
    return None, known


@dataclass(frozen=True, slots=True)
class Lucb:
    """LUCB: pull the best depth and its most promising rival until their bounds part.

    Attributes:
        delta: Chance of a wrong answer.
        eps: Difference in log tokens per second that does not matter.
    """

    delta: float = 0.01
    eps: float = 0.02

    def ask(self, history: History) -> Ask | Stop:
        """Next pull; every one is an engine start of its own."""
        wanted, _ = _bandit(iter(_pulls(history)), self._pair)
        return _DONE if wanted is None else _ask(wanted, "is not told apart yet")

    def choice(self, history: History) -> int:
        """The highest mean."""
        return _bandit(iter(_pulls(history)), self._pair)[1].best

    def _pair(self, known: _Means) -> tuple[int, ...]:
        best = known.best
        spread = math.log(1.25 * len(known.log_tps) * known.pulls**1.1 / self.delta)
        radius = {d: PULL_SD * math.sqrt(2 * spread / n) for d, n in known.count.items()}
        rival = max(known.others, key=lambda depth: known.log_tps[depth] + radius[depth])
        gap = known.log_tps[rival] + radius[rival] - (known.log_tps[best] - radius[best])
        return () if gap < self.eps else (best, rival)


@dataclass(frozen=True, slots=True)
class TrackAndStop:
    """Track-and-stop on the top two: pull the rarer of the best depth and its nearest rival.

    Stops when the likelihood ratio of the two is above the threshold of Garivier and
    Kaufmann, log((1 + log t) / delta).

    Attributes:
        delta: Chance of a wrong answer.
        eps: Difference in log tokens per second that does not matter.
    """

    delta: float = 0.01
    eps: float = 0.02

    def ask(self, history: History) -> Ask | Stop:
        """Next pull; every one is an engine start of its own."""
        wanted, _ = _bandit(iter(_pulls(history)), self._one)
        return _DONE if wanted is None else _ask(wanted, "is not told apart yet")

    def choice(self, history: History) -> int:
        """The highest mean."""
        return _bandit(iter(_pulls(history)), self._one)[1].best

    def _one(self, known: _Means) -> tuple[int, ...]:
        best, count = known.best, known.count

        def ratio(depth: int) -> float:
            weight = count[best] * count[depth] / (count[best] + count[depth])
            gap = known.log_tps[best] - known.log_tps[depth] + self.eps
            return weight * gap**2 / (2 * PULL_SD**2)

        rival = min(known.others, key=ratio)
        if ratio(rival) > math.log((1 + math.log(known.pulls)) / self.delta):
            return ()
        return (best,) if count[best] <= count[rival] else (rival,)
