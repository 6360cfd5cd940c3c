"""How often the draft's guesses are kept, and what that earns per step.

Covers counts per draft position, posteriors of the conditional acceptances, expected
tokens per step with its error, and what aggregate counters alone can say. Does not
cover step times (``tuner.cost``) or forgetting of live data.

Vocabulary: a *step* is one verification by the model; position i is *accepted* in a step
when at least i draft tokens were kept; ``alpha_i`` is conditional, the share of steps
that kept i among those that kept i - 1. The engine's ``position`` counters are
unconditional.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.special import beta_quantile
from tuner.types import Arm, Interval, Observation, Unknown, depth_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "DEFAULT_PHI",
    "TRUSTED_FULL_DRAFTS",
    "BetaPosterior",
    "Identified",
    "PositionCounts",
    "acc_moments",
    "aggregate_identify",
    "alpha_intervals",
    "beta_posterior",
    "cond_from_counts",
    "counts_of",
    "distinct_texts",
    "e_hat",
    "expected_tokens",
    "full_draft_ratio",
    "log_ratio_e",
    "mean_len",
    "phi_for",
    "phi_hat",
    "pool_counts",
    "steps_from_timings",
    "survival",
    "synth_cond_from_rates",
    "synth_p",
    "true_tokens_per_step",
]

DEFAULT_PHI = 1.5
"""Over-dispersion assumed of text with changing regimes; nominal 95 % then covers 94-99 %."""

TRUSTED_FULL_DRAFTS = 0.98
"""Share of full drafts above which position counters are biased by at most 2 %."""

PHI_CLIP = (1.0, 10.0)
PHI_REQUESTS = 8
"""Requests from which the measured over-dispersion replaces the default."""

_BISECTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCounts:
    """Verification steps and how many of them accepted each draft position.

    Attributes:
        steps: Verification steps (V).
        accepted: n_i for i = 1..k; never increasing, never above ``steps``.
        cut: Draft tokens missing from full drafts, k * V - D: drafts cut short near the
            end of a reply or by p-min count as misses in ``accepted``, wrongly.
        offered: Of the steps that kept all before position i, those whose draft had it;
            None where no trace tells (``tuner.drafts``).
    """

    steps: int
    accepted: tuple[int, ...]
    cut: int = 0
    offered: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse counts that no engine can have produced."""
        chain = (self.steps, *self.accepted, 0)
        if any(now > before for before, now in itertools.pairwise(chain)):
            msg = f"counts must not increase along positions and must be >= 0, got {chain[:-1]}"
            raise ValueError(msg)
        if not 0 <= self.cut <= self.steps * len(self.accepted) - sum(self.accepted):
            msg = f"{self.cut} cut draft tokens do not fit {self.steps} steps of {self.accepted}"
            raise ValueError(msg)
        between = zip(chain[1:-1], self.reached, chain, strict=False)
        if len(self.reached) != self.depth or any(not n <= o <= b for n, o, b in between):
            msg = f"{self.offered} steps cannot have offered what {chain[:-1]} kept"
            raise ValueError(msg)

    @property
    def depth(self) -> int:
        """Number of positions."""
        return len(self.accepted)

    @property
    def reached(self) -> tuple[int, ...]:
        """Steps that judge each position; those that kept all before it where nothing traced."""
        chain = (self.steps, *self.accepted)
        return chain[:-1] if self.offered is None else self.offered

    def plus(self, other: PositionCounts) -> PositionCounts:
        """Counts of both; the depths must be equal."""
        if self.depth != other.depth:
            msg = f"counts of depth {self.depth} and {other.depth} do not add up"
            raise ValueError(msg)
        known = self.offered is not None and other.offered is not None
        return PositionCounts(
            steps=self.steps + other.steps,
            accepted=_sums(self.accepted, other.accepted),
            cut=self.cut + other.cut,
            offered=_sums(self.reached, other.reached) if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BetaPosterior:
    """Posterior of one conditional acceptance.

    Attributes:
        alpha: First parameter.
        beta: Second parameter.
        interval: Equal-tailed credible interval around the mean.
    """

    alpha: float
    beta: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """What the aggregate counters say about the positions.

    Attributes:
        rate: Accepted draft tokens per step.
        expected: Tokens per step; identified at every depth.
        first_low: Sharp lower bound of alpha_1.
        first_high: Sharp upper bound of alpha_1.
        geometric: The one acceptance that would explain ``rate`` if all positions were
            equal: a model, never evidence.
        conditionals: The conditional acceptances; Unknown for depth > 1.
    """

    rate: float
    expected: float
    first_low: float
    first_high: float
    geometric: float
    conditionals: tuple[float, ...] | Unknown


def survival(cond: Sequence[float]) -> tuple[float, ...]:
    """Probability that at least i draft tokens are accepted, from conditional acceptances."""
    chain = 1.0
    out: list[float] = []
    for alpha in cond:
        chain *= alpha
        out.append(chain)
    return tuple(out)


def expected_tokens(cond: Sequence[float]) -> float:
    """Tokens per verification step: 1 + a1 + a1*a2 + ..."""
    return 1.0 + sum(survival(cond))


def cond_from_counts(counts: PositionCounts) -> tuple[float | Unknown, ...]:
    """Conditional acceptances; Unknown where no step ever reached the position."""
    return tuple(
        now / before if before else Unknown(f"no step reached position {place}")
        for place, (before, now) in enumerate(
            zip(counts.reached, counts.accepted, strict=True), start=1
        )
    )


def beta_posterior(
    counts: PositionCounts,
    *,
    prior: tuple[float, float] = (1.0, 1.0),
    phi: float = DEFAULT_PHI,
    level: float = 0.95,
) -> tuple[BetaPosterior, ...]:
    """Posterior of every conditional acceptance; ``phi`` divides the effective counts.

    Cut drafts widen the upper end only. Of the ``cut`` missing draft tokens at most
    cut / (k - i + 1) concern position i, because a draft that ends before i lacks all
    later positions too; so many misses at i may be none. Where a trace tells what each
    draft offered, the cut takes no part.
    """
    out: list[BetaPosterior] = []
    cut = counts.cut if counts.offered is None else 0
    for place, (before, now) in enumerate(zip(counts.reached, counts.accepted, strict=True)):
        missed = before - now
        excused = min(float(missed), cut / (counts.depth - place))
        first, second = prior[0] + now / phi, prior[1] + missed / phi
        low = beta_quantile((1 - level) / 2, first, second)
        high = beta_quantile((1 + level) / 2, first, prior[1] + (missed - excused) / phi)
        interval = Interval(low=low, mid=first / (first + second), high=high, level=level)
        out.append(BetaPosterior(alpha=first, beta=second, interval=interval))
    return tuple(out)


def alpha_intervals(
    counts: PositionCounts, *, phi: float = DEFAULT_PHI, level: float = 0.95
) -> tuple[Interval, ...]:
    """Credible interval of alpha_1, alpha_2, ...; mid is the posterior mean.

    At fixed rates and fixed ``phi`` more steps never widen an interval.
    """
    return tuple(post.interval for post in beta_posterior(counts, phi=phi, level=level))


def acc_moments(counts: PositionCounts, upto: int | None = None) -> tuple[float, float]:
    """Mean and variance per step of min(accepted, upto)."""
    rates = [n / counts.steps for n in counts.accepted[:upto]]
    mean = sum(rates)
    square = sum((2 * i + 1) * rate for i, rate in enumerate(rates))
    return mean, square - mean * mean


def e_hat(
    counts: PositionCounts, upto: int | None = None, *, phi: float = DEFAULT_PHI
) -> tuple[float, float]:
    """Tokens per step at depth ``upto`` (default: the measured depth) and its standard error."""
    mean, variance = acc_moments(counts, upto)
    return 1 + mean, math.sqrt(phi * max(variance, 0.0) / counts.steps)


def log_ratio_e(
    counts: PositionCounts, k1: int, k2: int, *, phi: float = DEFAULT_PHI
) -> tuple[float, float]:
    """Logarithm of E(k2)/E(k1) and its standard error; paired, both come from the same steps."""
    mean1, var1 = acc_moments(counts, k1)
    mean2, var2 = acc_moments(counts, k2)
    rates = [n / counts.steps for n in counts.accepted]
    cross = sum(rates[max(i, j)] for i in range(k1) for j in range(k2))
    covariance = cross - mean1 * mean2
    e1, e2 = 1 + mean1, 1 + mean2
    relative = var1 / e1**2 + var2 / e2**2 - 2 * covariance / (e1 * e2)
    return math.log(e2 / e1), math.sqrt(max(phi / counts.steps * relative, 0.0))


def steps_from_timings(predicted_n: int, draft_n_accepted: int) -> int:
    """Decode steps, drafting or plain; the first token comes free with the prompt."""
    return predicted_n - 1 - draft_n_accepted


def mean_len(draft_n_accepted: int, steps: int) -> float:
    """What the engine's log calls mean len; ignores steps without a draft."""
    return 1 + draft_n_accepted / steps


def true_tokens_per_step(predicted_n: int, draft_n_accepted: int) -> float:
    """Tokens per decode step; right for any p-min, n-min and truncation."""
    return (predicted_n - 1) / steps_from_timings(predicted_n, draft_n_accepted)


def full_draft_ratio(draft_n: int, steps: int, depth: int) -> float:
    """Drafted tokens over those of full drafts; see ``TRUSTED_FULL_DRAFTS``."""
    return draft_n / (steps * depth)


def phi_hat(requests: Iterable[tuple[int, int, int]]) -> float:
    """Over-dispersion of accepted tokens per step over requests (V, A, sum of squares).

    Unclipped; ``phi_for`` gives the value to use. Needs two requests that differ.
    """
    rows = list(requests)
    steps = sum(v for v, _, _ in rows)
    mean = sum(a for _, a, _ in rows) / steps
    variance = sum(q for _, _, q in rows) / steps - mean * mean
    return sum((a - mean * v) ** 2 / (v * variance) for v, a, _ in rows) / (len(rows) - 1)


def phi_for(requests: Sequence[PositionCounts]) -> float:
    """Over-dispersion to use: measured from at least 8 requests, else the default."""
    rows = [
        (c.steps, sum(c.accepted), sum((2 * i + 1) * n for i, n in enumerate(c.accepted)))
        for c in requests
        if c.steps
    ]
    steps, total = sum(v for v, _, _ in rows), sum(a for _, a, _ in rows)
    if len(rows) < PHI_REQUESTS or sum(q for _, _, q in rows) * steps == total * total:
        return DEFAULT_PHI
    return min(max(phi_hat(rows), PHI_CLIP[0]), PHI_CLIP[1])


def aggregate_identify(depth: int, steps: int, accepted: int) -> Identified:
    """What accepted tokens and steps alone say; at depth > 1 the positions stay unknown."""
    rate = accepted / steps
    return Identified(
        rate=rate,
        expected=1 + rate,
        first_low=rate / depth,
        first_high=min(1.0, rate),
        geometric=_geometric(rate, depth),
        conditionals=(rate,) if depth == 1 else Unknown("the build counts no positions"),
    )


def synth_p(mean_length: float, depth: int) -> float:
    """The acceptance that ``--spec-synth-len`` uses: sum of p^i, i = 1..depth, is L - 1."""
    return _geometric(mean_length - 1, depth)


def synth_cond_from_rates(rates: Sequence[float]) -> tuple[float, ...]:
    """Conditional acceptances of ``--spec-synth-rates``, which are unconditional and > 0."""
    return tuple(now / before for before, now in itertools.pairwise((1.0, *rates)))


def distinct_texts(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """One usable observation per arm, prompt and text, in a canonical order.

    Repeating a temperature-0 prompt repeats its text: counting it again would narrow
    an interval without knowing more.
    """
    ordered = sorted(
        (o for o in observations if o.excluded is None),
        key=lambda o: (
            depth_order(o.arm),
            o.workload,
            o.prompt,
            o.digest,
            o.start_id,
            o.repetition,
            repr(o),
        ),
    )
    seen: dict[tuple[Arm, str, int, str], Observation] = {}
    for one in ordered:
        seen.setdefault((one.arm, one.workload, one.prompt, one.digest), one)
    return tuple(seen.values())


def counts_of(one: Observation) -> PositionCounts | Unknown:
    """Counts of one observation, or why it has none that can be used.

    Positions that the engine did not label (it clamps the depth to the heads that a
    model has) count as never accepted.
    """
    depth = one.arm.depth
    if depth == 0:
        return PositionCounts(steps=0, accepted=())
    if one.steps is None or one.drafted is None:
        missing = "verification steps" if one.steps is None else "drafted tokens"
        return Unknown(f"the build does not count {missing}")
    accepted = one.accepted_per_position
    if accepted is None and depth == 1 and one.accepted is not None:
        accepted = (one.accepted,)
    if accepted is None:
        return Unknown("the build does not count positions")
    if len(accepted) > depth:
        return Unknown(f"{len(accepted)} positions were counted at depth {depth}")
    full = accepted + (0,) * (depth - len(accepted))
    cut = len(full) * one.steps - one.drafted
    try:
        return PositionCounts(
            steps=one.steps, accepted=full, cut=cut, offered=one.offered_per_position
        )
    except ValueError as error:
        return Unknown(f"the counters contradict each other: {error}")


def pool_counts(observations: Iterable[Observation]) -> PositionCounts | Unknown:
    """Counts of all distinct texts of one arm; Unknown if any of them has none."""
    total: PositionCounts | None = None
    for one in distinct_texts(observations):
        counts = counts_of(one)
        if isinstance(counts, Unknown):
            return counts
        total = counts if total is None else total.plus(counts)
    return Unknown("nothing was measured") if total is None else total


def _sums(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _geometric(total: float, depth: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(survival([middle] * depth)) < total:
            low = middle
        else:
            high = middle
    return (low + high) / 2
