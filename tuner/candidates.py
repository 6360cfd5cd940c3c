"""Models that a pool may serve: what is known of each, and what is asked of all.

Covers the hard requirements (rule R1), what counts as unmeasured (R4) and how a model is
written in sentences. Which one is chosen is ``tuner.pools``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.types import Arm, Evicted, Host, Interval, Residency, Resident, Spilled, Unknown, passes

if TYPE_CHECKING:
    from tuner.compare import Quality
    from tuner.summary import ArmSummary

__all__ = ["Candidate", "Objective", "Requirements", "numbers", "residency_text", "unfit"]

_CHAIN: Final = 2
"""Positions whose acceptance decides whether a depth is tuned: alpha_1 and alpha_2."""


_PLACES: Final[dict[type[Residency], str]] = {
    Resident: "fully resident",
    Host: "in host memory",
    Evicted: "partly on the CPU",
    Spilled: "spilled to the host",
    Unknown: "not proven to be resident",
}


class Objective(enum.StrEnum):
    """What a pool is for."""

    BALANCED = "balanced"
    SPEED = "speed"
    QUALITY = "quality"
    EFFICIENCY = "efficiency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model at its tuned depth.

    Attributes:
        arm: The tuned arm; its profile is the model's name.
        tps: Tokens per second, or None if unmeasured.
        residency: Verdict on the arm.
        quality: Measured perplexity, or None.
        memory_bytes: Device memory of the arm, or None.
        context_tokens: Tokens that one request can hold, or None if not known.
        tags: What the model offers.
        alphas: Conditional acceptance per position from elsewhere; None if not printed.
        summary: What ``tps`` rests on, or None for a figure from elsewhere.
        tokens_per_joule: Energy efficiency of the arm, or why it is not known.
    """

    arm: Arm
    tps: float | None
    residency: Residency
    quality: Quality | None = None
    memory_bytes: int | None = None
    context_tokens: int | None = None
    tags: frozenset[str] = frozenset()
    alphas: tuple[float, ...] | None = None
    summary: ArmSummary | None = None
    tokens_per_joule: float | Unknown = Unknown("its energy was not measured")  # noqa: RUF009 - frozen

    @classmethod
    def of(
        cls,
        summary: ArmSummary,
        *,
        quality: Quality | None = None,
        memory_bytes: int | None = None,
        context_tokens: int | None = None,
        tags: frozenset[str] = frozenset(),
    ) -> Candidate:
        """Candidate from a row of the depth table."""
        return cls(
            arm=summary.arm,
            tps=summary.tps,
            residency=summary.residency,
            quality=quality,
            memory_bytes=memory_bytes,
            context_tokens=context_tokens,
            tags=tags,
            alphas=_mids(summary.alphas),
            summary=summary,
            tokens_per_joule=summary.tokens_per_joule,
        )

    @property
    def name(self) -> str:
        """The profile's name."""
        return self.arm.profile

    @property
    def depth_is_given(self) -> bool:
        """Whether it drafts at a depth that no measured alpha_2 supports (R4)."""
        return self.arm.depth >= _CHAIN and len(self.alphas or ()) < _CHAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What every model of a pool has to meet (R1).

    Attributes:
        tags: Tags that it must have.
        accept_offload: Whether layers outside device memory are acceptable.
        floor_tps: Least acceptable tokens per second.
        least_context_tokens: Tokens that a request must be able to hold.
    """

    tags: frozenset[str] = frozenset()
    accept_offload: bool = False
    floor_tps: float = 0.0
    least_context_tokens: int = 0


def unfit(row: Candidate, asked: Requirements) -> str | None:
    """Which requirement a model misses (R1), or that it was never measured (R4)."""
    if missing := sorted(asked.tags - row.tags):
        return f"lacks the tag {missing[0]} (R1)"
    if not passes(row.residency) and not asked.accept_offload:
        return f"is {_refused(row.residency)} (R1)"
    if why := _short_context(row, asked.least_context_tokens):
        return f"{why} (R1)"
    if row.tps is None or row.tps <= 0:
        return "was not measured (R4)"
    if row.tps < asked.floor_tps:
        return f"is below {asked.floor_tps:g} tok/s (R1)"
    return None


def residency_text(residency: Residency) -> str:
    """Where a chosen model lies, for its sentence."""
    return _PLACES[type(residency)]


def numbers(row: Candidate) -> str:
    """Speed and perplexity, as far as they are known."""
    speed = "unmeasured" if row.tps is None else f"{row.tps:.1f} tok/s"
    return speed if row.quality is None else f"{speed}, perplexity {row.quality.value:g}"


def _refused(residency: Residency) -> str:
    if isinstance(residency, Unknown):
        return f"not proven to be resident: {residency.reason}"
    return f"{type(residency).__name__.lower()}, not resident"


def _short_context(row: Candidate, least: int) -> str | None:
    if not least:
        return None
    if row.context_tokens is None:
        return f"is not known to hold {least} tokens"
    return f"holds {row.context_tokens} of {least} tokens" if row.context_tokens < least else None


def _mids(alphas: tuple[Interval, ...] | Unknown) -> tuple[float, ...] | None:
    return None if isinstance(alphas, Unknown) else tuple(a.mid for a in alphas)
