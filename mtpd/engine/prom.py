"""Read llama-server's ``/metrics`` and the speculation counters in it.

The counters are cumulative since the engine started and move when a request ends, so
only differences between two readings of one engine start mean anything. They are the
only complete source of acceptance: cancelled requests count here and nowhere else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Labels", "Metrics", "SpecCounters", "delta", "parse", "spec_counters"]

Labels = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""

Metrics = dict[tuple[str, Labels], float]

_DRAFTS = "llamacpp:spec_decode_num_drafts_total"
_DRAFTED = "llamacpp:spec_decode_num_draft_tokens_total"
_ACCEPTED = "llamacpp:spec_decode_num_accepted_tokens_total"
_PER_POSITION = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*",
    re.ASCII,
)
_LABEL = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII
)
_ESCAPE = re.compile(r"\\(.)")
_UNESCAPED = {"n": "\n"}
_MAX_POSITIONS = 256
_MAX_EXACT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCounters:
    """What speculation did, in total or between two readings.

    Attributes:
        drafts: Verification steps.
        drafted: Tokens drafted.
        accepted: Draft tokens accepted.
        per_position: Steps in which draft position i was accepted, i from 0; None where
            this build does not say. Unconditional: position 1 needs position 0.
    """

    drafts: int
    drafted: int
    accepted: int
    per_position: tuple[int, ...] | None


def parse(text: str) -> Metrics:
    """Samples of a text in Prometheus' exposition format; lines that are none are skipped."""
    samples: Metrics = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line.strip())
        if match is None:
            continue
        labels, value = _labels(match["labels"]), _number(match["value"])
        if labels is not None and value is not None:
            samples[match["name"], labels] = value
    return samples


def _labels(text: str | None) -> Labels | None:
    """The labels, or None where the braces hold something else."""
    found: dict[str, str] = {}
    position, text = 0, (text or "").strip()
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        value = _ESCAPE.sub(lambda m: _UNESCAPED.get(m[1], m[1]), match["value"])
        found[match["name"]] = value
        position = match.end()
    return tuple(sorted(found.items()))


def _number(text: str) -> float | None:
    if "_" in text:  # float() takes "1_0", the format does not
        return None
    try:
        return float(text)
    except ValueError:
        return None


def spec_counters(text: str) -> SpecCounters | Absent:
    """The speculation counters of one reading, or why they cannot be had."""
    samples = parse(text)
    totals = [_count(samples, name) for name in (_DRAFTS, _DRAFTED, _ACCEPTED)]
    for total in totals:
        if isinstance(total, Absent):
            return total
    drafts, drafted, accepted = (total for total in totals if not isinstance(total, Absent))
    return SpecCounters(
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        per_position=_positions(samples),
    )


def _count(samples: Mapping[tuple[str, Labels], float], name: str) -> int | Absent:
    value = samples.get((name, ()))
    if value is None:
        return Absent(f"/metrics has no {name}: a build before speculation counters")
    if not _is_count(value):
        return Absent(f"/metrics gives {value} for {name}, which is no count")
    return int(value)


def _is_count(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= _MAX_EXACT and value == int(value)


def _positions(samples: Mapping[tuple[str, Labels], float]) -> tuple[int, ...] | None:
    """Counts of positions 0, 1, ... without a gap; None if there are none."""
    counts: list[int] = []
    for position in range(_MAX_POSITIONS):
        value = samples.get((_PER_POSITION, (("position", str(position)),)))
        if value is None or not _is_count(value):
            break
        counts.append(int(value))
    return tuple(counts) or None


def delta(before: SpecCounters, after: SpecCounters) -> SpecCounters | Absent:
    """What happened between two readings of the same engine start.

    Absent if a counter went back: the engine was restarted in between. Positions that
    were not listed before count from zero, because they appear with the first draft.
    """
    drafts = after.drafts - before.drafts
    drafted = after.drafted - before.drafted
    accepted = after.accepted - before.accepted
    if min(drafts, drafted, accepted) < 0:
        return Absent("the counters went back: the engine was restarted between two readings")
    positions = _position_delta(before, after)
    if positions is not None and any(count < 0 for count in positions):
        return Absent("the counters went back: the engine was restarted between two readings")
    return SpecCounters(drafts=drafts, drafted=drafted, accepted=accepted, per_position=positions)


def _position_delta(before: SpecCounters, after: SpecCounters) -> tuple[int, ...] | None:
    if after.per_position is None:
        return None
    if before.per_position is None and before.drafts > 0:
        return None
    old = before.per_position or ()
    width = max(len(old), len(after.per_position))
    return tuple(
        b - a for a, b in zip(_pad(old, width), _pad(after.per_position, width), strict=True)
    )


def _pad(counts: tuple[int, ...], width: int) -> tuple[int, ...]:
    return counts + (0,) * (width - len(counts))
