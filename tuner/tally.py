"""Decayed counts and step times of one arm in one class of live requests.

What is shown of live traffic: acceptance per position with intervals, tokens per step, time
per step with the context fill it was seen at. Only requests of the same class and arm decay
a tally; one that is not being fed keeps what was seen and when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tuner.acceptance import DEFAULT_PHI
from tuner.drift import StepWatch
from tuner.special import beta_quantile
from tuner.types import Arm, Interval, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.request import Request, Usable

__all__ = ["Tally"]

HALF_LIFE: Final = 200
"""Requests of the same class and arm after which one counts half."""

PRIOR_STEPS: Final = 150.0
"""Most steps that a calibration counts for beside live ones."""

_KEEP: Final = 0.5 ** (1 / HALF_LIFE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Decayed sums.

    Attributes:
        arm: What served the requests.
        at: Number of the last request, in the order of the live state.
        requests: Requests.
        steps: Decode steps, with or without a draft.
        accepted: Accepted draft tokens.
        reached: Steps that got to each position, where positions were identified.
        hits: Steps that accepted each position.
        timed: Requests whose step time is known.
        log_step: Sum of log seconds per step over ``timed`` requests.
        context: Sum of context tokens over the requests that told them.
        contexts: How many did.
        unidentified: Why the last request told no positions, or None.
        watch: Watches the step time.
    """

    arm: Arm
    at: int = 0
    requests: float = 0.0
    steps: float = 0.0
    accepted: float = 0.0
    reached: tuple[float, ...] = ()
    hits: tuple[float, ...] = ()
    timed: float = 0.0
    log_step: float = 0.0
    context: float = 0.0
    contexts: float = 0.0
    unidentified: str | None = None
    watch: StepWatch = field(default_factory=StepWatch)

    @classmethod
    def fresh(cls, arm: Arm, reference_s: float | None) -> Tally:
        """Nothing seen yet; the step time is watched against a calibrated one, if known."""
        return cls(arm=arm, watch=_watch(reference_s))

    def watched_anew(self, reference_s: float | None) -> Tally:
        """The same sums with a watch that learns again what is normal."""
        return replace(self, watch=_watch(reference_s))

    def push(self, one: Request, seen: Usable, at: int) -> Tally:
        """The tally after one more request."""
        step_s = one.decode_s / seen.decode_steps
        tells = one.context_tokens is not None
        return Tally(
            arm=self.arm,
            at=at,
            requests=self.requests * _KEEP + 1,
            steps=self.steps * _KEEP + seen.decode_steps,
            accepted=self.accepted * _KEEP + seen.accepted,
            reached=_added(self.reached, seen.reached),
            hits=_added(self.hits, seen.hits),
            timed=self.timed * _KEEP + one.alone,
            log_step=self.log_step * _KEEP + (math.log(step_s) if one.alone else 0.0),
            context=self.context * _KEEP + (one.context_tokens or 0),
            contexts=self.contexts * _KEEP + tells,
            unidentified=seen.unidentified.reason if seen.unidentified else None,
            watch=self.watch.push(step_s) if one.alone else self.watch,
        )

    @property
    def tokens_per_step(self) -> float | Unknown:
        """Tokens per decode step; identified by aggregate counters at any depth and p-min."""
        return 1 + self.accepted / self.steps if self.steps else Unknown("nothing was counted")

    @property
    def mean_log_step(self) -> float | Unknown:
        """Mean log seconds per step, of requests that were decoded alone."""
        return self.log_step / self.timed if self.timed else Unknown("no request ran alone")

    @property
    def context_tokens(self) -> float | Unknown:
        """Mean context fill that the step time was seen at."""
        return self.context / self.contexts if self.contexts else Unknown("no request told it")

    def acceptance(
        self, prior: Sequence[float], prior_steps: float, *, level: float = 0.95
    ) -> tuple[Interval, ...] | Unknown:
        """Credible interval of each conditional acceptance; mid is the posterior mean.

        The calibration enters as pseudo-counts, at most ``PRIOR_STEPS`` steps of them;
        ``DEFAULT_PHI`` divides all counts.

        Args:
            prior: Calibrated conditional acceptances, one per position.
            prior_steps: Verification steps they rest on.
            level: Coverage.
        """
        if not self.reached:
            return Unknown(self.unidentified or "nothing was drafted")
        out: list[Interval] = []
        pseudo = min(prior_steps, PRIOR_STEPS)
        for alpha, n, hits in zip(prior, self.reached, self.hits, strict=False):
            first = 1 + (pseudo * alpha + hits) / DEFAULT_PHI
            second = 1 + (pseudo * (1 - alpha) + n - hits) / DEFAULT_PHI
            pseudo *= alpha
            low, high = (
                beta_quantile(p, first, second) for p in ((1 - level) / 2, (1 + level) / 2)
            )
            out.append(Interval(low=low, mid=first / (first + second), high=high, level=level))
        return tuple(out)


def _watch(reference_s: float | None) -> StepWatch:
    return StepWatch(reference=None if reference_s is None else math.log(reference_s))


def _added(sums: tuple[float, ...], more: tuple[int, ...]) -> tuple[float, ...]:
    """Decayed sums with one request's counts; positions seen for the first time are new."""
    if not more:
        return tuple(s * _KEEP for s in sums)
    before = sums + (0.0,) * (len(more) - len(sums))
    return tuple(s * _KEEP + (more[i] if i < len(more) else 0) for i, s in enumerate(before))
