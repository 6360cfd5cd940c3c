"""A relayed request as the tuner takes it. Pure.

Covers which requests say something of an engine's decoding, their class, and what the
engine's own counters add to the figures of the reply.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuner.classes import Kind, Sampling, WorkloadClass, band_of
from tuner.request import Request

if TYPE_CHECKING:
    from mtpd.engine.prom import SpecCounters
    from mtpd.events import RequestFinished
    from tuner.types import Arm

__all__ = ["GENERATES", "of_class", "to_request", "with_counters"]

GENERATES: Final = ("completion", "completions", "messages", "responses", "infill")
"""Last parts of the paths of endpoints that generate text."""

COUNTED: Final = frozenset({"complete", "client_gone"})
"""Outcomes that say something; one that was refused or lost was not decoded as usual."""


def to_request(
    finished: RequestFinished, arm: Arm, *, throttled: bool, suspended: bool = False
) -> Request | None:
    """The request, or None where it says nothing about decoding.

    Args:
        finished: What was relayed.
        arm: What served it.
        throttled: Whether the card was slowed meanwhile.
        suspended: Whether the machine was suspended meanwhile, or its engine is not known to
            have outlived that.
    """
    generates = finished.path.rstrip("/").rpartition("/")[2] in GENERATES
    if not finished.engine_id or not generates or finished.outcome not in COUNTED:
        return None
    drafted = finished.drafted if arm.depth else 0
    accepted = finished.accepted if arm.depth else 0
    tokens = finished.generated
    return Request(
        arm=arm,
        klass=of_class(finished),
        tokens=tokens or 0,
        decode_s=finished.decode_s or 0.0,
        accepted=accepted,
        drafted=drafted,
        context_tokens=_sum(
            finished.prompt_tokens, finished.completion_tokens if tokens is None else tokens
        ),
        alone=finished.alone,
        cancelled=finished.outcome == "client_gone",
        truncated=finished.truncated,
        throttled=throttled,
        suspended=suspended,
    )


def with_counters(one: Request, counted: SpecCounters, told: int | None = None) -> Request:
    """The request with the engine's counters, if they are of this request and no other.

    They are where they agree with the reply; a request that was cancelled in between moves
    them, and tells nobody. A reply without timings (``/v1/messages``) tells only how many tokens
    it has: where the engine worked on nothing else and counted just so many, all the figures are
    the counters'.

    Args:
        one: The request.
        counted: What the counters moved by since the one before.
        told: Tokens that the reply says it has, or None.
    """
    if one.tokens == 0 and one.alone and told and told == counted.generated:
        one = replace(
            one,
            tokens=told,
            decode_s=counted.decode_s or 0.0,
            drafted=counted.drafted,
            accepted=counted.accepted,
        )
    same = (counted.drafted, counted.accepted) == (one.drafted, one.accepted)
    if not same or not one.arm.depth:
        return one
    return replace(one, steps=counted.drafts, per_position=counted.per_position)


def of_class(finished: RequestFinished) -> WorkloadClass:
    """Its class; a prompt whose length is not known counts as short."""
    return WorkloadClass(
        band=band_of(finished.prompt_tokens or 0),
        kind=Kind(finished.kind),
        sampling=Sampling(finished.sampling),
        reasoning=finished.reasoning,
    )


def _sum(prompt: int | None, generated: int | None) -> int | None:
    return None if prompt is None or generated is None else prompt + generated
