"""Reads the draft acceptance of one finished request from the sources that exist.

In this order of trust: the deltas of ``/metrics`` counters (they count cancelled
requests too and carry positions), the response's ``timings`` (totals only), the log's
lines (rounded rates). Only what a source identifies is filled in: at depth 1 totals say
everything, because each step drafts one token; deeper they say nothing about positions
and bound the steps (docs: facts of llama-server, section 2). Pure.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.engine.facts import AcceptancePerPosition, DraftAcceptance
from mtpd.engine.traced import offered
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
        offered: Of the steps that kept all before position i, those whose draft had it.
        source: Who answered.
    """

    steps: int | None
    drafted: int | None
    accepted: int | None
    per_position: tuple[int, ...] | None
    source: Source
    offered: tuple[int, ...] | None = None


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
    read = _read(depth, counters, timings, facts)
    totals = (read.steps, read.drafted, read.accepted)
    return replace(read, offered=offered(facts, depth=depth, totals=totals))


def _read(
    depth: int,
    counters: SpecCounters | Absent,
    timings: Timings | Absent,
    facts: Sequence[Fact],
) -> AcceptanceReading:
    if depth == 0:
        return AcceptanceReading(
            steps=0, drafted=0, accepted=0, per_position=(), source=Source.NONE
        )
    if not isinstance(counters, Absent):
        positions = _identified(depth, counters.accepted, counters.per_position)
        logged = _from_log(depth, facts, most=None) if positions is None else None
        same = logged is not None and (logged.drafted, logged.accepted) == (
            counters.drafted,
            counters.accepted,
        )
        if logged is not None and same:
            positions = logged.per_position
        return AcceptanceReading(
            steps=counters.drafts,
            drafted=counters.drafted,
            accepted=counters.accepted,
            per_position=positions,
            source=Source.METRICS,
        )
    if isinstance(timings, Absent):
        return _from_log(depth, facts, most=None) or _NOTHING
    drafted, accepted = timings.draft_n, timings.draft_n_accepted
    # The first token comes with the prompt; of the other decode steps those that are cut
    # short by the limit or by p_min have no draft.
    most = timings.predicted_n - 1 - (accepted or 0)
    logged = _from_log(depth, facts, most=most)
    if drafted is None or accepted is None:
        return logged or _NOTHING
    fewest = _fewest(depth, drafted)
    steps = logged.steps if logged is not None else None
    if depth == 1 or fewest == most:
        steps = fewest
    return AcceptanceReading(
        steps=steps,
        drafted=drafted,
        accepted=accepted,
        per_position=_identified(depth, accepted, logged.per_position if logged else None),
        source=Source.TIMINGS,
    )


_NOTHING = AcceptanceReading(
    steps=None, drafted=None, accepted=None, per_position=None, source=Source.NONE
)


def _identified(
    depth: int, accepted: int, positions: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Positions as counted; at depth 1 the total is the first position."""
    return (accepted,) if depth == 1 else positions


def _from_log(depth: int, facts: Sequence[Fact], *, most: int | None) -> AcceptanceReading | None:
    totals = next((f for f in reversed(facts) if isinstance(f, DraftAcceptance)), None)
    if totals is None:
        return None
    rates = totals.per_position or next(
        (f.rates for f in reversed(facts) if isinstance(f, AcceptancePerPosition)), None
    )
    steps = _steps_of(depth, totals, rates, most)
    positions = None
    if rates is not None and steps is not None:
        positions = tuple(round(rate * steps) for rate in rates)
    return AcceptanceReading(
        steps=steps,
        drafted=totals.drafted,
        accepted=totals.accepted,
        per_position=_identified(depth, totals.accepted, positions),
        source=Source.LOG,
    )


def _steps_of(
    depth: int, totals: DraftAcceptance, rates: tuple[float, ...] | None, most: int | None
) -> int | None:
    """Steps with a draft, from rounded rates and bounds that are exact.

    A step accepts as many tokens as the rates add up to (three decimals), which is the
    mean length less one (two decimals); without an accepted token neither says anything.
    """
    fewest = _fewest(depth, totals.drafted)
    if depth == 1 or fewest == most:
        return fewest
    each = sum(rates) if rates else (totals.mean_len or 1.0) - 1
    if each <= 0 or totals.accepted == 0:
        return None
    steps = max(round(totals.accepted / each), fewest)
    return steps if most is None else min(steps, most)


def _fewest(depth: int, drafted: int) -> int:
    """Steps that this many drafted tokens need at least; at depth 1 exactly these."""
    return -(-drafted // depth)
