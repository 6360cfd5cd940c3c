"""Reads the draft acceptance of one finished request from the sources that exist.

In this order of trust: the deltas of ``/metrics`` counters (they count cancelled
requests too and carry positions), the response's ``timings`` (totals only), the log's
lines (rounded rates). Only what a source identifies is filled in: totals at depth 2 and
deeper say nothing about positions (docs: facts of llama-server, section 2). Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.engine.facts import AcceptancePerPosition, DraftAcceptance
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.engine.facts import Fact
    from mtpd.engine.prom import SpecCounters
    from mtpd.engine.timings import Timings

__all__ = ["AcceptanceReading", "Source", "read_acceptance"]


class Source(enum.StrEnum):
    """Who answered."""

    METRICS = "metrics"
    TIMINGS = "timings"
    LOG = "log"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceReading:
    """Draft counters of one request; None is unknown.

    Attributes:
        steps: Verification steps that had a draft.
        drafted: Tokens drafted.
        accepted: Draft tokens accepted.
        per_position: Steps in which position i was accepted, and all before it.
        source: Who answered.
    """

    steps: int | None
    drafted: int | None
    accepted: int | None
    per_position: tuple[int, ...] | None
    source: Source


def read_acceptance(
    depth: int,
    *,
    counters: SpecCounters | Absent,
    timings: Timings | Absent,
    facts: Sequence[Fact] = (),
) -> AcceptanceReading:
    """Combine what one request left behind.

    Args:
        depth: Draft depth of the engine; at 0 nothing is drafted, and that is known.
        counters: Difference of the ``/metrics`` counters around the request.
        timings: The response's timings.
        facts: Facts of the log lines that the request printed.
    """
    if depth == 0:
        return AcceptanceReading(
            steps=0, drafted=0, accepted=0, per_position=(), source=Source.NONE
        )
    if not isinstance(counters, Absent):
        return AcceptanceReading(
            steps=counters.drafts,
            drafted=counters.drafted,
            accepted=counters.accepted,
            per_position=_identified(depth, counters.accepted, counters.per_position),
            source=Source.METRICS,
        )
    logged = _from_log(facts)
    if not isinstance(timings, Absent) and timings.draft_n is not None:
        accepted = timings.draft_n_accepted
        # The first token comes with the prompt: N - 1 = steps + accepted while every
        # step has a draft, which holds at p_min 0 up to the last step of a request.
        steps = None if accepted is None else timings.predicted_n - 1 - accepted
        positions = None if accepted is None else _identified(depth, accepted, None)
        if positions is None and logged is not None:
            positions = logged.per_position
        return AcceptanceReading(
            steps=steps,
            drafted=timings.draft_n,
            accepted=accepted,
            per_position=positions,
            source=Source.TIMINGS,
        )
    return logged or AcceptanceReading(
        steps=None, drafted=None, accepted=None, per_position=None, source=Source.NONE
    )


def _identified(
    depth: int, accepted: int, positions: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Positions as counted; at depth 1 the total is the first position."""
    if positions is not None:
        return positions
    return (accepted,) if depth == 1 else None


def _from_log(facts: Sequence[Fact]) -> AcceptanceReading | None:
    totals = next((f for f in reversed(facts) if isinstance(f, DraftAcceptance)), None)
    if totals is None:
        return None
    rates = totals.per_position or next(
        (f.rates for f in reversed(facts) if isinstance(f, AcceptancePerPosition)), None
    )
    steps = _steps_of(totals)
    return AcceptanceReading(
        steps=steps,
        drafted=totals.drafted,
        accepted=totals.accepted,
        per_position=None
        if rates is None or steps is None
        else tuple(round(rate * steps) for rate in rates),
        source=Source.LOG,
    )


def _steps_of(totals: DraftAcceptance) -> int | None:
    """Mean length is 1 + accepted / steps; without an accepted token it says nothing."""
    if totals.mean_len is None or totals.mean_len <= 1 or totals.accepted == 0:
        return None
    return round(totals.accepted / (totals.mean_len - 1))
