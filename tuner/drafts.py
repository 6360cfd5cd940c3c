"""Drafts that were cut short, and what can still be said of the positions.

A draft ends early at the end of a reply, where the engine cuts it to what is left, and where
p-min stops it, because the head is not sure. The position counters count either as a miss.
Covers when counters can be trusted all the same, and the exact answer where the length of
every draft is known: the engine prints it per step if ``LLAMA_TRACE`` is set. From
aggregate counters alone nothing is said here (``tuner.acceptance.aggregate_identify``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.acceptance import (
    TRUSTED_FULL_DRAFTS,
    PositionCounts,
    full_draft_ratio,
    steps_from_timings,
)
from tuner.types import Drafter, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "OCCASIONAL",
    "DraftStep",
    "TracedCounts",
    "draft_n_all_rejected",
    "draft_rate",
    "first_draft_len",
    "per_decode_step",
    "plain_steps",
    "traced",
    "trusted",
]


OCCASIONAL: Final = frozenset({Drafter.NGRAM})
"""Drafters that draft at some steps only: n-grams need a place in the text that came before. The
steps at which they did are what the engine counts, the others are plain. A head or a model
drafts at every step but the last ones of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """One verification step as the engine traces it.

    Attributes:
        drafted: Draft tokens that were verified; at least 1, a step without is not traced.
        accepted: How many of them were kept.
    """

    drafted: int
    accepted: int

    def __post_init__(self) -> None:
        """Refuse a step that no engine can have made."""
        if not 0 <= self.accepted <= self.drafted or self.drafted == 0:
            msg = f"{self.accepted} of {self.drafted} draft tokens cannot have been accepted"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCounts:
    """Steps that reached each position with a draft token to offer, and those that kept it.

    Attributes:
        steps: Traced steps.
        offered: Steps whose draft had position i, and that had kept all before it.
        kept: Steps that kept position i, too.
        accepted: Draft tokens kept over all steps.
    """

    steps: int
    offered: tuple[int, ...]
    kept: tuple[int, ...]
    accepted: int

    @property
    def alphas(self) -> tuple[float | Unknown, ...]:
        """Conditional acceptance per position; Unknown where no draft came that far."""
        return tuple(
            k / n if n else Unknown(f"no draft reached position {place}")
            for place, (n, k) in enumerate(zip(self.offered, self.kept, strict=True), start=1)
        )

    @property
    def tokens_per_step(self) -> float | Unknown:
        """Tokens per traced step; steps without a draft are not among them."""
        return 1 + self.accepted / self.steps if self.steps else Unknown("no step was traced")


def traced(depth: int, steps: Iterable[DraftStep]) -> TracedCounts:
    """Counts per position of steps whose draft lengths are known.

    The conditional acceptance is then identified whatever cut the drafts: position i is
    judged only by the steps that offered it. Behind p-min these are the positions that the
    head was sure of, so the figures hold at this p-min and at no other.

    Args:
        depth: Draft depth; a longer draft is an error.
        steps: Traced steps, in any order.

    Raises:
        ValueError: If a draft is longer than ``depth``.
    """
    offered, kept = [0] * depth, [0] * depth
    count = accepted = 0
    for one in steps:
        if one.drafted > depth:
            msg = f"a draft of {one.drafted} tokens was traced at depth {depth}"
            raise ValueError(msg)
        count += 1
        accepted += one.accepted
        for place in range(min(one.accepted + 1, one.drafted)):
            offered[place] += 1
            kept[place] += place < one.accepted
    return TracedCounts(steps=count, offered=tuple(offered), kept=tuple(kept), accepted=accepted)


def plain_steps(predicted_n: int, draft_n_accepted: int, verification_steps: int) -> int:
    """Decode steps that had no draft."""
    return steps_from_timings(predicted_n, draft_n_accepted) - verification_steps


def draft_rate(drafts: int, decode_steps: int) -> float:
    """Share of the decode steps that had a draft, measured.

    Args:
        drafts: Steps with a draft, as the engine counts them.
        decode_steps: All steps, (N - 1 - A) of a reply of N tokens; at least 1.

    Raises:
        ValueError: There was no step, or more drafts than steps.
    """
    if decode_steps < 1 or not 0 <= drafts <= decode_steps:
        msg = f"{drafts} of {decode_steps} steps cannot have had a draft"
        raise ValueError(msg)
    return drafts / decode_steps


def per_decode_step(counts: PositionCounts, decode_steps: int) -> PositionCounts:
    """The counts over all decode steps: one without a draft accepted nothing.

    The first acceptance is then that of a draft times the rate of drafts, the others are as they
    were, and 1 + a1 + a1*a2 + ... are tokens per decode step, which step times go with.
    """
    steps = max(decode_steps, counts.steps)
    return PositionCounts(steps=steps, accepted=counts.accepted, cut=counts.cut)


def first_draft_len(n_predict: int, depth: int) -> int:
    """Length of the first draft of a reply limited to ``n_predict`` tokens."""
    return max(0, min(depth, n_predict - 2))


def draft_n_all_rejected(n_predict: int, depth: int) -> int:
    """Tokens drafted over a reply of ``n_predict`` tokens when none is ever accepted."""
    return sum(min(depth, left - 1) for left in range(1, n_predict))


def trusted(counts: PositionCounts) -> PositionCounts | Unknown:
    """The counts if at most 2 % of the draft tokens are missing, else why not.

    Tokens per step are known all the same: (N - 1) / (N - 1 - A) of a reply of N tokens
    of which A were accepted draft tokens (``tuner.acceptance.true_tokens_per_step``).
    """
    if not counts.steps or not counts.depth:
        return Unknown("nothing was drafted")
    offered = counts.steps * counts.depth
    ratio = full_draft_ratio(offered - counts.cut, counts.steps, counts.depth)
    if ratio < TRUSTED_FULL_DRAFTS:
        return Unknown(
            f"only {ratio:.1%} of the draft tokens of full drafts were made, and position "
            f"counters need {TRUSTED_FULL_DRAFTS:.0%}"
        )
    return counts
