"""One finished live request as the tuner sees it, and whether it may count.

A request that was cut, slowed by a throttled card or that repeated itself says nothing about
ordinary ones: it is left out and counted by reason. What the engine did not report stays
None; ``usable`` says what can be identified from the rest (facts/llama_server.md section 5).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.acceptance import TRUSTED_FULL_DRAFTS, full_draft_ratio, steps_from_timings
from tuner.drafts import OCCASIONAL
from tuner.types import Arm, Unknown

if TYPE_CHECKING:
    from tuner.classes import WorkloadClass

__all__ = ["Exclusion", "Request", "Usable", "is_degenerate", "usable"]

DEGENERATE_SHARE: Final = 0.998
"""Share of accepted draft tokens from which a text is suspected to repeat itself."""

STEP_RANGE_S: Final = (1e-6, 1e4)
"""Seconds that a decode step can take at all; outside, the time was not measured."""

DEGENERATE_LOG_CHANCE: Final = math.log(1e-4)
"""Log probability of such a run under the class's own acceptance, below which it does."""


class Exclusion(enum.StrEnum):
    """Why a request does not count."""

    CANCELLED = "cancelled"
    SUSPENDED = "suspended"
    TRUNCATED = "truncated"
    THROTTLED = "throttled"
    DEGENERATE = "degenerate"
    UNCOUNTED = "uncounted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One finished request.

    Attributes:
        arm: What served it.
        klass: Its class.
        tokens: Tokens generated (N, ``predicted_n``).
        decode_s: Seconds of generation (``predicted_ms`` / 1000).
        accepted: Accepted draft tokens (A); None where not reported; 0 at depth 0.
        drafted: Drafted tokens (D), or None.
        steps: Verification steps (V), or None.
        per_position: n_i, steps in which position i was accepted, or None.
        context_tokens: Tokens in the KV cache at the end, or None.
        alone: Whether no other request was decoded meanwhile; else its time is not a
            step's time.
        cancelled: Whether the client went away.
        truncated: Whether the engine dropped a part of the context.
        throttled: Whether the card was throttled meanwhile.
        suspended: Whether the machine slept meanwhile, or the engine was not asked since.
        repeated: Whether the text is known to repeat itself.
    """

    arm: Arm
    klass: WorkloadClass
    tokens: int
    decode_s: float
    accepted: int | None
    drafted: int | None = None
    steps: int | None = None
    per_position: tuple[int, ...] | None = None
    context_tokens: int | None = None
    alone: bool = True
    cancelled: bool = False
    truncated: bool = False
    throttled: bool = False
    suspended: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What a request identifies.

    Attributes:
        decode_steps: Steps with and without a draft, N - 1 - A: every decode step yields one
            token more than it accepts.
        accepted: Accepted draft tokens.
        drafted: Drafted tokens, or None.
        reached: Steps that got to each position; empty at depth 0.
        hits: Steps that accepted each position; empty at depth 0.
        unidentified: Why ``reached`` and ``hits`` are empty at depth > 0, or None.
    """

    decode_steps: int
    accepted: int
    drafted: int | None = None
    reached: tuple[int, ...] = ()
    hits: tuple[int, ...] = ()
    unidentified: Unknown | None = None

    @property
    def tokens_per_step(self) -> float:
        """Tokens per decode step, (N - 1) / (N - 1 - A): right for any p-min."""
        return 1 + self.accepted / self.decode_steps


def usable(one: Request) -> Usable | Exclusion:
    """What the request identifies, or why it does not count.

    Whether the text repeats itself is also judged from its acceptance: ``is_degenerate``.
    """
    for flag, why in (
        (one.suspended, Exclusion.SUSPENDED),
        (one.cancelled, Exclusion.CANCELLED),
        (one.truncated, Exclusion.TRUNCATED),
        (one.throttled, Exclusion.THROTTLED),
        (one.repeated, Exclusion.DEGENERATE),
    ):
        if flag:
            return why
    if one.accepted is None:
        return Exclusion.UNCOUNTED
    steps = steps_from_timings(one.tokens, one.accepted)
    low, high = STEP_RANGE_S
    if steps <= 0 or one.accepted < 0 or not low * steps <= one.decode_s <= high * steps:
        return Exclusion.UNCOUNTED
    if one.arm.depth == 0:
        return Usable(decode_steps=steps, accepted=0)
    positions = _positions(one, steps)
    reached, hits = ((), ()) if isinstance(positions, Unknown) else positions
    return Usable(
        decode_steps=steps,
        accepted=one.accepted,
        drafted=one.drafted,
        reached=reached,
        hits=hits,
        unidentified=positions if isinstance(positions, Unknown) else None,
    )


def is_degenerate(seen: Usable, full_chance: float) -> bool:
    """Whether nearly all was accepted although the class's own text makes that incredible.

    Args:
        seen: What the request showed.
        full_chance: Probability that one step of this class accepts a whole draft.
    """
    if not seen.drafted or seen.accepted < DEGENERATE_SHARE * seen.drafted:
        return False
    return seen.decode_steps * math.log(full_chance) < DEGENERATE_LOG_CHANCE


def _positions(
    one: Request, decode_steps: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | Unknown:
    """Steps that reached and steps that accepted each position, if they can be trusted.

    Drafts cut near the end of a reply or by p-min count as misses, wrongly: below the full
    draft ratio of .98 the positions are left alone and only the total counts.
    """
    depth, steps, hits = one.arm.depth, one.steps, one.per_position
    if hits is None and depth == 1 and one.accepted is not None:
        hits = (one.accepted,)
    if not hits:
        return Unknown("the positions were not counted")
    if steps is None:
        if one.arm.p_min:
            return Unknown("with p-min, steps without a draft are not told apart")
        steps = decode_steps
    chain = (steps, *hits)
    if len(hits) > depth or any(b > a for a, b in zip(chain, hits, strict=False)) or hits[-1] < 0:
        return Unknown("the counters contradict each other")
    if not steps or one.drafted is None:
        what = "how many tokens were drafted is not known" if steps else "no step had a draft"
        return Unknown(what)
    ratio = full_draft_ratio(one.drafted, steps, len(hits))
    if ratio < TRUSTED_FULL_DRAFTS:
        return Unknown(f"only {ratio:.0%} of the drafts were full")
    # What a step earns counts: those that found nothing to draft accepted nothing.
    first = max(decode_steps, steps) if one.arm.drafter in OCCASIONAL else steps
    return (first, *hits[:-1]), hits
