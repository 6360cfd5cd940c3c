"""Tokens per step at every depth, from the position counts of one depth, with their errors.

At temperature 0 a model writes the same text at every depth, so the counts of the deepest depth
hold those of all shallower ones; from one text the errors of two depths largely cancel
(0.45 % for depth 2 over 1 from 3 prompts of 4 workloads, against 0.63 % where each depth
counts for itself; 400 simulated machines). Beyond the counts the last ratio of conditional
acceptances continues, and ``SLACK`` bounds it. A drafter that finds a draft at some steps only
(n-grams) earns at the rate of these, which is measured. Knows no step times (``tuner.steps``).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.acceptance import (
    TRUSTED_FULL_DRAFTS,
    PositionCounts,
    counts_of,
    distinct_texts,
    expected_tokens,
    full_draft_ratio,
    phi_for,
    pool_counts,
)
from tuner.drafts import OCCASIONAL, draft_rate, per_decode_step
from tuner.summary import decode_steps, not_usable
from tuner.throughput import optimistic
from tuner.types import Unknown, depth_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tuner.types import Arm, Observation

__all__ = ["Texts", "texts_of"]

_LEAST_RATIO = 0.7
"""Least factor by which a conditional acceptance is expected to fall per position."""

_BEYOND = 0.45
"""Deviation of a continued log E as a share of its distance to the bound that ``SLACK`` sets:
0.38 to 0.53 one position beyond, 0.31 to 0.52 two (400 simulated machines)."""

_LEAST_BEYOND = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Position counts per workload at one depth.

    Attributes:
        counts: By workload, ordered by name; all of one depth >= 1, with steps.
        phi: Over-dispersion of the counts.
        rates: Share of the decode steps that had a draft, by workload; 1 where it is not named.
            It is taken to be the same at every depth.
    """

    counts: tuple[tuple[str, PositionCounts], ...]
    phi: float
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Depth of the counts."""
        return self.counts[0][1].depth

    def expected(self, depth: int) -> dict[str, float]:
        """Tokens per step by workload; beyond the counts a continuation."""
        return {name: self._per_step(name, _continued(c, depth)[0]) for name, c in self.counts}

    def _per_step(self, name: str, alphas: tuple[float, ...]) -> float:
        """Tokens per decode step: what drafts earn comes at the share of steps that have one."""
        return 1 + self.rates.get(name, 1.0) * (expected_tokens(alphas) - 1)

    def log_mean(self, depth: int, weights: Mapping[str, float]) -> float:
        """Logarithm of the weighted mean over workloads of the tokens per step."""
        return math.log(_mean(self.expected(depth), weights))

    def log_bound(self, depth: int, weights: Mapping[str, float]) -> float:
        """The same if every further position were as good as ``SLACK`` allows."""
        best = {name: self._per_step(name, _continued(c, depth)[1]) for name, c in self.counts}
        return math.log(_mean(best, weights))

    def covariance(
        self, deepest: int, weights: Mapping[str, float]
    ) -> tuple[tuple[float, ...], ...]:
        """Of ``log_mean`` between depth 0..deepest.

        Depths beyond the counts share the error of the last counted one, and among them
        that of the continuation.
        """
        size = deepest + 1
        out = [[0.0] * size for _ in range(size)]
        totals = [_mean(self.expected(depth), weights) for depth in range(size)]
        whole = sum(weights[name] for name, _ in self.counts)
        for name, counts in self.counts:
            share = weights[name] / whole
            steps = round(counts.steps / self.rates.get(name, 1.0))
            sums = _mean_covariance(per_decode_step(counts, steps), min(deepest, counts.depth))
            for i, j in itertools.product(range(size), repeat=2):
                a, b = min(i, counts.depth), min(j, counts.depth)
                # beyond the counts the relative error is that of the last counted depth
                grown = totals[i] / totals[a] * totals[j] / totals[b]
                out[i][j] += self.phi * share**2 * sums[a][b] * grown / (totals[i] * totals[j])
        beyond = [self._beyond(depth, weights) for depth in range(size)]
        return tuple(
            tuple(out[i][j] + beyond[i] * beyond[j] for j in range(size)) for i in range(size)
        )

    def _beyond(self, depth: int, weights: Mapping[str, float]) -> float:
        if depth <= self.depth:
            return 0.0
        far = self.log_bound(depth, weights) - self.log_mean(depth, weights)
        return max(_BEYOND * far, _LEAST_BEYOND)


def texts_of(observations: Iterable[Observation]) -> Texts | Unknown:
    """The counts of the deepest arm whose counts can be trusted in every workload.

    Of one profile. Counts of an arm that does not fit count too: its text is the same.
    """
    usable = [o for o in observations if not_usable(o) is None]
    arms = sorted({o.arm for o in usable if o.arm.depth}, key=depth_order, reverse=True)
    for arm in arms:
        if (found := _trusted(arm, usable)) is not None:
            return found
    return Unknown("no depth was measured with position counts that can be trusted")


def _trusted(arm: Arm, usable: Sequence[Observation]) -> Texts | None:
    mine = [o for o in usable if o.arm == arm]
    out: list[tuple[str, PositionCounts]] = []
    rates: dict[str, float] = {}
    for workload in sorted({o.workload for o in mine}):
        counts = pool_counts(o for o in mine if o.workload == workload)
        if isinstance(counts, Unknown) or not counts.steps:
            return None
        drafted = counts.steps * counts.depth - counts.cut
        if full_draft_ratio(drafted, counts.steps, counts.depth) < TRUSTED_FULL_DRAFTS:
            return None
        if arm.drafter in OCCASIONAL:
            texts = distinct_texts(o for o in mine if o.workload == workload)
            steps = [decode_steps(o) for o in texts]
            if None in steps or sum(filter(None, steps)) < counts.steps:
                return None
            rates[workload] = draft_rate(counts.steps, sum(filter(None, steps)))
        out.append((workload, counts))
    each = [c for o in mine if isinstance(c := counts_of(o), PositionCounts)]
    return Texts(counts=tuple(out), phi=max(1.0, phi_for(each)), rates=rates)


def _mean(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    whole = math.fsum(weights[name] for name in values)
    return math.fsum(weights[name] * value for name, value in values.items()) / whole


def _mean_covariance(counts: PositionCounts, deepest: int) -> list[list[float]]:
    """Covariance of the tokens per step between depth 0..deepest, from the same steps.

    With S_i the share of steps that accepted position i, Cov(S_i, S_j) is
    (S_max(i,j) - S_i S_j) / V (TUNER.md 3.1).
    """
    share = [n / counts.steps for n in counts.accepted]
    out = [[0.0] * (deepest + 1) for _ in range(deepest + 1)]
    for i, j in itertools.product(range(1, deepest + 1), repeat=2):
        cross = sum(share[max(a, b)] - share[a] * share[b] for a in range(i) for b in range(j))
        out[i][j] = cross / counts.steps
    return out


def _continued(counts: PositionCounts, depth: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Conditional acceptances at ``depth``: likely, and the best that ``SLACK`` allows."""
    chain = (counts.steps, *counts.accepted)
    known = [now / before if before else 0.0 for before, now in itertools.pairwise(chain)][:depth]
    last = known[-1] if known else 1.0
    before = known[-2] if len(known) > 1 else 1.0
    ratio = min(max(last / before if before else 1.0, _LEAST_RATIO), 1.0)
    likely = list(known)
    while len(likely) < depth:
        likely.append(likely[-1] * ratio)
    return tuple(likely), optimistic(known, depth)
