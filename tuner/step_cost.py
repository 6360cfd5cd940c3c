"""What a step takes by rows, draft tokens and context fill, fitted to measured step times.

    t = t0 + rows * v + drafted * d + context * g

A *row* is a draft token that the model verifies, a *draft token* one pass of the head; a
draft of depth k costs k of each, t(k) = t0 * (1 + c * k) with c = (v + d) / t0. Attention
reads the whole KV cache once per step, whatever the rows, so the context adds and does not
multiply; whether that holds here is tested, and the test is part of the result. Covers
the errors, the residuals and the lack-of-fit test. ``tuner.cost`` has the line through
one time per depth; neither knows acceptances (``tuner.economics``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.compare import median_of
from tuner.least_squares import LinearFit, least_squares
from tuner.special import f_upper_p, t_quantile, t_two_sided_p
from tuner.types import Interval, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tuner.types import Arm, ShortStep

__all__ = [
    "Estimate",
    "LackOfFit",
    "StepCost",
    "StepTime",
    "context_cost",
    "fit_steps",
    "short_step_costs",
]

_SIGNIFICANT = 0.05
_PER_TOKENS = 1000
_EXACT = 1e-20
"""Squared relative scatter below which times are no measurements but a formula's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The time of one step, or the mean of several equal ones.

    Attributes:
        rows: Draft tokens verified in the step.
        drafted: Draft tokens made for it; more than ``rows`` if the draft was cut after.
        context_tokens: Tokens in the KV cache before the step.
        step_s: Seconds.
        count: Steps that ``step_s`` is the mean of.
    """

    rows: int
    drafted: int
    context_tokens: int
    step_s: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A fitted value.

    Attributes:
        value: The value.
        se: Its standard error; None if as many parameters as times leave no residual.
        freedom: Degrees of freedom of ``se``.
    """

    value: float
    se: float | None
    freedom: int

    def interval(self, level: float = 0.95) -> Interval | Unknown:
        """Confidence interval; Unknown without a standard error."""
        if self.se is None:
            return Unknown("as many parameters as measured times leave no residual")
        half = t_quantile(level, self.freedom) * self.se
        return Interval(low=self.value - half, mid=self.value, high=self.value + half, level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class LackOfFit:
    """Whether the formula misses the times by more than their own scatter.

    Attributes:
        f: Mean square of the means about the formula over that of the repetitions.
        p: Probability of such an ``f`` if the formula were true.
    """

    f: float
    p: float

    @property
    def found(self) -> bool:
        """Whether the formula is refuted at 5 %."""
        return self.p < _SIGNIFICANT


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The fitted formula.

    Attributes:
        plain_s: Seconds of a step that verifies nothing, at an empty context; at the one
            context that was measured if ``token_s`` is Unknown. From short steps it
            contains the head's catch-up and is not the step of an engine at depth 0.
        depth_s: Seconds that one more depth adds: a row and a draft token.
        row_s: Seconds of one verification row, or why it is not told from the draft.
        draft_s: Seconds of one draft token, likewise.
        token_s: Seconds per token of context, or why that is not known.
        context_tokens: Mean context of the times.
        residuals: measured / fitted - 1, in the order of the times.
        lack: Lack-of-fit test, or why it cannot be made.
        interaction_s: Seconds per row and context token that the formula leaves out, or
            why they cannot be estimated.
        interaction_p: Probability of such a value if there is none; None if the value is
            Unknown or the times do not scatter at all.
        left_out: Times left out as outliers before the fit.
        fit: The parameters with their covariance, for ``step_s`` and ``relative``.
    """

    plain_s: Estimate
    depth_s: Estimate
    row_s: Estimate | Unknown
    draft_s: Estimate | Unknown
    token_s: Estimate | Unknown
    context_tokens: float
    residuals: tuple[float, ...]
    lack: LackOfFit | Unknown
    interaction_s: Estimate | Unknown
    interaction_p: float | None
    left_out: int
    fit: LinearFit

    @property
    def needs_interaction(self) -> bool | None:
        """Whether a row costs another time at another context; None if not known."""
        return None if self.interaction_p is None else self.interaction_p < _SIGNIFICANT

    def step_s(self, depth: int, context_tokens: float | None = None) -> Estimate | Unknown:
        """Seconds per step at a depth, T(j); ``context_tokens`` None: the mean measured."""
        context = self._context(context_tokens)
        return context if isinstance(context, Unknown) else self._at(depth, context)

    def relative(self, depth: int, context_tokens: float | None = None) -> Estimate | Unknown:
        """T(depth) / T(0), with the error of both (delta method)."""
        context = self._context(context_tokens)
        if isinstance(context, Unknown):
            return context
        plain = self._at(0, context).value
        ratio = self._at(depth, context).value / plain
        # d(deep / plain) = (d deep - ratio * d plain) / plain
        _, error = self.fit.combined(self._weights(1 - ratio, depth, context * (1 - ratio)))
        se = None if error is None else error / plain
        return Estimate(value=ratio, se=se, freedom=self.fit.freedom)

    def row_cost(self, context_tokens: float | None = None) -> Estimate | Unknown:
        """Share c of t(k) = t(0) * (1 + c * k) at a context."""
        one = self.relative(1, context_tokens)
        if isinstance(one, Unknown):
            return one
        return Estimate(value=one.value - 1, se=one.se, freedom=one.freedom)

    def _at(self, depth: int, context: float) -> Estimate:
        return _estimate(self.fit, self._weights(1.0, depth, context))

    def _context(self, wanted: float | None) -> float | Unknown:
        if isinstance(self.token_s, Unknown):
            same = wanted is None or wanted == self.context_tokens
            return 0.0 if same else self.token_s
        return self.context_tokens if wanted is None else wanted

    def _weights(self, plain: float, depth: float, context: float) -> list[float]:
        apart = [depth, depth] if isinstance(self.row_s, Estimate) else [depth]
        fill = [context] if isinstance(self.token_s, Estimate) else []
        return [plain, *apart, *fill]


def fit_steps(times: Sequence[StepTime], *, left_out: int = 0) -> StepCost | Unknown:
    """Fit the formula by least squares of relative errors.

    The scatter of a step time is taken as proportional to it. A verification row and a
    draft token are told apart only by times whose drafts were cut (``rows`` < ``drafted``);
    else only their sum is known.

    Args:
        times: At least as many as parameters; repetitions give the lack-of-fit test.
        left_out: Times already left out, for the record.

    Returns:
        The fit; Unknown if the times do not determine it or make no sense.
    """
    together = all(t.drafted == t.rows for t in times)
    one_context = len({t.context_tokens for t in times}) == 1

    def regressors(t: StepTime) -> list[float]:
        rows = [float(t.rows)] if together else [float(t.rows), float(t.drafted)]
        return [1.0, *rows, *([] if one_context else [float(t.context_tokens)])]

    fit = _fitted(times, regressors) if times else Unknown("no step was timed")
    if isinstance(fit, Unknown):
        return fit
    if fit.beta[0] <= 0:
        return Unknown("the fitted time of a plain step is not positive")
    untold: Estimate | Unknown = Unknown("no draft was cut, so only their sum shows")
    token: Estimate | Unknown = Unknown("all steps were timed at one context")
    size = len(fit.beta)
    interaction, chance = _interaction(times, regressors, one_context=one_context)
    return StepCost(
        plain_s=_estimate(fit, _axis(size, 0)),
        depth_s=_estimate(fit, _axis(size, *((1,) if together else (1, 2)))),
        row_s=untold if together else _estimate(fit, _axis(size, 1)),
        draft_s=untold if together else _estimate(fit, _axis(size, 2)),
        token_s=token if one_context else _estimate(fit, _axis(size, size - 1)),
        context_tokens=sum(t.context_tokens for t in times) / len(times),
        residuals=tuple(
            error / (t.step_s - error) for t, error in zip(times, fit.residuals, strict=True)
        ),
        lack=_lack(times, fit),
        interaction_s=interaction,
        interaction_p=chance,
        left_out=left_out,
        fit=fit,
    )


def short_step_costs(steps: Sequence[ShortStep]) -> StepCost | Unknown:
    """What a row and a draft token cost, from the short steps of one engine start.

    At depth k the engine drafts k tokens and then cuts, so a step with r rows shows
    T'(0) = t0 and T'(r) = t0 + r * v + k * d; an engine at depth j would take
    T(j) = t0 + j * (v + d), which is ``StepCost.step_s(j)``. With one time each for
    0, 1 and k rows this is ``tuner.cost.microprobe_cost``. What a step costs once because
    it drafts at all goes into ``draft_s`` here; only a steady step of the same start tells
    it apart (``tuner.steps``). A time that lies 3.5 robust
    deviations from the median of its rows is left out and counted.
    """
    if len({(s.arm, s.start_id, s.fingerprint) for s in steps}) > 1:
        return Unknown("short steps of several starts have no common plain step")
    kept: list[ShortStep] = []
    for rows in sorted({s.rows for s in steps}):
        group = [s for s in steps if s.rows == rows]
        odd = median_of([s.step_s for s in group]).outliers
        kept += [s for i, s in enumerate(group) if i not in odd]
    times = [
        StepTime(
            rows=s.rows,
            drafted=s.arm.depth if s.rows else 0,
            context_tokens=s.context_tokens,
            step_s=s.step_s,
        )
        for s in kept
    ]
    return fit_steps(times, left_out=len(steps) - len(kept))


def context_cost(steps: Iterable[ShortStep]) -> Interval | Unknown:
    """What 1000 tokens of context cost, as a share of a plain step, with a 95 % interval.

    From the short steps of the start that tells it best, because the fill grows from step to
    step within a start. The error of the plain step, a few per cent of the share, is left out.

    Args:
        steps: Of any starts of one profile, in any order.

    Returns:
        Unknown where no start shows a cost above its own error, or where the formula without
        an interaction of rows and context is refuted.
    """
    starts: dict[tuple[Arm, str, str], list[ShortStep]] = {}
    for one in steps:
        starts.setdefault((one.arm, one.start_id, one.fingerprint), []).append(one)
    found: list[Interval] = []
    for told in starts.values():
        cost = short_step_costs(told)
        if isinstance(cost, Unknown) or isinstance(cost.token_s, Unknown):
            continue
        each, plain_s = cost.token_s.interval(), cost.plain_s.value / _PER_TOKENS
        if isinstance(each, Unknown) or each.low <= 0 or cost.needs_interaction:
            continue
        low, mid, high = (value / plain_s for value in (each.low, each.mid, each.high))
        found.append(Interval(low=low, mid=mid, high=high, level=each.level))
    if not found:
        return Unknown("no start shows what the fill of the context costs")
    return min(found, key=lambda one: (one.high / one.low, one.mid))


def _fitted(
    times: Sequence[StepTime], regressors: Callable[[StepTime], list[float]]
) -> LinearFit | Unknown:
    rows = [regressors(t) for t in times]
    if len(times) < len(rows[0]):
        return Unknown(f"{len(rows[0])} parameters need as many step times, not {len(times)}")
    return least_squares(rows, [t.step_s for t in times], [_weight(t) for t in times])


def _weight(t: StepTime) -> float:
    return t.count / t.step_s**2


def _axis(size: int, *places: int) -> list[float]:
    return [float(i in places) for i in range(size)]


def _estimate(fit: LinearFit, weights: Sequence[float]) -> Estimate:
    value, error = fit.combined(weights)
    return Estimate(value=value, se=error, freedom=fit.freedom)


def _lack(times: Sequence[StepTime], fit: LinearFit) -> LackOfFit | Unknown:
    """F test of the formula against the scatter of equal steps."""
    groups: dict[tuple[int, int, int], list[StepTime]] = {}
    for t in times:
        groups.setdefault((t.rows, t.drafted, t.context_tokens), []).append(t)
    pure_freedom = len(times) - len(groups)
    freedom = fit.freedom - pure_freedom
    if not pure_freedom or not freedom:
        return Unknown("the test needs repeated steps and more kinds of steps than parameters")
    pure = 0.0
    for group in groups.values():
        total = sum(_weight(t) for t in group)
        mean = sum(_weight(t) * t.step_s for t in group) / total
        pure += sum(_weight(t) * (t.step_s - mean) ** 2 for t in group)
    if pure < _EXACT:
        return Unknown("the repeated steps do not scatter at all")
    f = max(fit.squares - pure, 0.0) / freedom / (pure / pure_freedom)
    return LackOfFit(f=f, p=f_upper_p(f, freedom, pure_freedom))


def _interaction(
    times: Sequence[StepTime],
    regressors: Callable[[StepTime], list[float]],
    *,
    one_context: bool,
) -> tuple[Estimate | Unknown, float | None]:
    """Cost of a row per context token beyond the formula, and how likely it is by chance."""
    if one_context:
        return Unknown("all steps were timed at one context"), None
    wider = _fitted(times, lambda t: [*regressors(t), float(t.rows * t.context_tokens)])
    if isinstance(wider, Unknown):
        return wider, None
    found = _estimate(wider, _axis(len(wider.beta), len(wider.beta) - 1))
    if found.se is None:
        return Unknown("as many parameters as measured times leave no residual"), None
    if wider.squares < _EXACT:
        return found, None
    return found, t_two_sided_p(found.value / found.se, found.freedom)
