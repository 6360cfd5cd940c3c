"""Read the ``timings`` object of a response or of the last event of a stream.

Absent from /v1/messages and from streams that were cut off. Acceptance per position is
in no response; it comes from ``/metrics``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mtpd.types import Absent

__all__ = ["Timings", "from_response"]

_MAX_COUNT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What one request cost.

    Attributes:
        prompt_n: Prompt tokens computed, cached ones not counted.
        predicted_n: Tokens generated.
        predicted_ms: Milliseconds of generation; the first token belongs to the prompt.
        cache_n: Prompt tokens taken from the cache.
        draft_n: Tokens drafted; None where nothing was drafted (depth 0).
        draft_n_accepted: Draft tokens accepted; None exactly when draft_n is.
    """

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int
    draft_n: int | None = None
    draft_n_accepted: int | None = None

    @property
    def decode_tps(self) -> float | None:
        """Tokens per second as the engine computes it; None for less than two tokens."""
        if self.predicted_n < 2 or self.predicted_ms <= 0:  # noqa: PLR2004 - one token has no interval
            return None
        return (self.predicted_n - 1) / self.predicted_ms * 1000


def from_response(body: Mapping[str, object]) -> Timings | Absent:
    """The timings of a response body, or why there are none; never raises."""
    raw = body.get("timings")
    if not isinstance(raw, Mapping):
        return Absent("the response carries no timings")
    counts = {name: _count(raw.get(name)) for name in ("prompt_n", "predicted_n")}
    times = {name: _ms(raw.get(name)) for name in ("prompt_ms", "predicted_ms")}
    bad = [name for name, value in {**counts, **times}.items() if value is None]
    if bad:
        return Absent(f"the response's timings lack {', '.join(bad)}")
    drafted, accepted = _count(raw.get("draft_n")), _count(raw.get("draft_n_accepted"))
    if drafted is None or accepted is None:
        drafted = accepted = None
    return Timings(
        prompt_n=counts["prompt_n"] or 0,
        prompt_ms=times["prompt_ms"] or 0.0,
        predicted_n=counts["predicted_n"] or 0,
        predicted_ms=times["predicted_ms"] or 0.0,
        cache_n=_count(raw.get("cache_n")) or 0,
        draft_n=drafted,
        draft_n_accepted=accepted,
    )


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
        return None
    return value


def _ms(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _MAX_COUNT or not math.isfinite(value):
        return None
    return float(value)
