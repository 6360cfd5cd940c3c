"""The last hours: what the card, the queue and the engines did; the one writer of that.

Fed by the sampler's readings, the requests that finish, and the engines' own counters. Kept
in memory only, and within bounds: at most ``SERIES`` series of 68 KiB each.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING, Final, NamedTuple

from mtpd.clock import rfc3339
from mtpd.events import RequestFinished
from mtpd.history_views import UNITS, DeviceLimitsView, HistoryView, MissingView, SeriesView
from mtpd.series import Series, grid
from mtpd.suspend import lasted_s
from mtpd.types import Absent, NotApplicable, Value
from tuner.power import token_j

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from mtpd.clock import Clock
    from mtpd.engine.prom import SpecCounters
    from mtpd.events import Event
    from mtpd.gpu.sampler import Sample, Sampler
    from mtpd.proxy.open_requests import OpenRequests
    from mtpd.series import Bin
    from mtpd.types import Reading
    from mtpd.views import QueueView

__all__ = ["POSITIONS", "SERIES", "History"]

DEVICE: Final = (
    "power_w",
    "power_cap_w",
    "edge_c",
    "junction_c",
    "vram_used_bytes",
    "gtt_used_bytes",
    "busy_percent",
)
"""Fields of a reading that are kept."""

POSITIONS: Final = 16
"""Draft positions that are kept; nobody drafts deeper to any purpose."""

SERIES: Final = len(UNITS) - 1 + POSITIONS

FEWEST_TOKENS: Final = 16
"""Shorter replies measure the first step after a prompt more than anything else."""

_NOTHING_YET: Final = {
    "decode_tps": f"no reply of {FEWEST_TOKENS} tokens or more has ended yet",
    "prompt_tps": "no prompt was processed yet",
    "stream_tps": "nothing was looked at twice yet",
    "joules_per_token": "no reply has ended yet during which the card's power was read",
    "acceptance": "no request has ended yet whose engine counts its drafts by position",
}
"""Why there is nothing, where no reading says it."""


class _Key(NamedTuple):
    metric: str
    position: int | None = None


class History:
    """Remembers.

    Args:
        sampler: Reads the device.
        queue: Who waits and who runs.
        requests: How much the open streams have passed on.
        limits: Lines to draw beside the device's series.
        clock: Source of time.
    """

    def __init__(
        self,
        *,
        sampler: Sampler,
        queue: Callable[[], QueueView],
        requests: OpenRequests,
        limits: DeviceLimitsView,
        clock: Clock,
    ) -> None:
        self._sampler, self._queue, self._requests = sampler, queue, requests
        self._limits, self._clock = limits, clock
        self._series: dict[_Key, Series] = {}
        self._missing: dict[str, str] = {}
        self._vram_total: int | None = None
        self._passed: tuple[float, int] | None = None
        self._slept = clock.slept()

    async def run(self) -> None:
        """Take every reading of the sampler, for ever."""
        async for sample in self._sampler.subscribe():
            self.sampled(sample)

    # What happens -------------------------------------------------------------------

    def sampled(self, sample: Sample) -> None:
        """A reading of the device was taken: the moment to look at the queue as well."""
        slept = self._clock.slept()
        if lasted_s(self._slept, slept):
            self._slept, self._passed = slept, None
        for name in DEVICE:
            self._read(name, sample.at_s + slept, getattr(sample.reading, name))
        total = sample.reading.vram_total_bytes
        if isinstance(total, Value):
            self._vram_total = total.value
        queue, now_s = self._queue(), self._clock.now()
        self._add("requests_in_flight", now_s + slept, queue.in_flight)
        self._add("requests_waiting", now_s + slept, queue.waiting)
        passed, before = self._requests.passed, self._passed
        if before is not None and now_s > before[0]:
            passed_s = now_s - before[0]
            self._add("stream_tps", now_s + slept, (passed - before[1]) / passed_s, passed_s)
        self._passed = (now_s, passed)

    def observe(self, event: Event) -> None:
        """An event of the bus; requests that have finished say how fast they were."""
        if not isinstance(event, RequestFinished) or event.suspended_s:
            return
        now_s, tokens, decode_s = self._now(), event.generated, event.decode_s
        if event.prompt_tokens is not None and event.prompt_s:
            read = event.prompt_tokens - (event.cached_tokens or 0)
            if read > 0:
                self._add("prompt_tps", now_s, read / event.prompt_s, event.prompt_s)
        if tokens is None or not decode_s or tokens < FEWEST_TOKENS:
            return
        self._add("decode_tps", now_s, tokens / decode_s, decode_s)
        if event.alone:  # else the card worked for others, too
            ended_s = self._clock.now()
            around = self._sampler.around(ended_s - decode_s, ended_s)
            joules = token_j(around.power_mean_w, decode_s=decode_s, tokens=tokens)
            if joules is not None:
                self._add("joules_per_token", now_s, joules, tokens)

    def counted(self, moved: SpecCounters) -> None:
        """An engine's counters have moved by a request: what was accepted of its drafts.

        Each position counts where all before it were accepted, the first where there was a
        draft.
        """
        now_s, before = self._now(), moved.drafts
        for position, accepted in enumerate((moved.per_position or ())[:POSITIONS], 1):
            if before <= 0:
                return
            self._add("acceptance", now_s, accepted / before, before, position)
            before = accepted

    # What is shown ------------------------------------------------------------------

    def view(
        self, metrics: AbstractSet[str] | None, *, since_s: float, step_s: float
    ) -> HistoryView:
        """What was seen since some seconds ago.

        Args:
            metrics: Which; None for all.
            since_s: How far back.
            step_s: Wanted length of a step; may become longer.
        """
        now_s, now = self._now(), self._clock.utc()
        wanted = grid(now_s, since_s=since_s, step_s=step_s)
        names = set(UNITS) if metrics is None else metrics
        device = self._limits.device
        return HistoryView(
            at=rfc3339(now),
            begin=rfc3339(now - dt.timedelta(seconds=now_s - wanted.begin_s)),
            step_s=wanted.step_s,
            count=wanted.count,
            limits=(self._shown_limits(),),
            series=tuple(
                _series_view(key, self._series[key].read(wanted), device)
                for key in sorted(self._series, key=_rank)
                if key.metric in names
            ),
            missing=tuple(
                MissingView(metric=name, device=device if name in DEVICE else None, reason=reason)
                for name, reason in self._reasons()
                if name in names
            ),
        )

    def _now(self) -> float:
        """Seconds on an axis that does not stand still while the machine sleeps: a gap is one."""
        return self._clock.now() + self._clock.slept()

    def _reasons(self) -> list[tuple[str, str]]:
        """Every metric of which nothing was seen, and why."""
        seen = {key.metric for key in self._series}
        return [
            (name, self._missing.get(name) or _NOTHING_YET.get(name, "nothing was read yet"))
            for name in UNITS
            if name not in seen
        ]

    def _shown_limits(self) -> DeviceLimitsView:
        return dataclasses.replace(self._limits, vram_total_bytes=self._vram_total)

    def _read(self, name: str, at_s: float, reading: Reading[float]) -> None:
        match reading:
            case Value(value=value):
                self._add(name, at_s, value)
            case Absent(reason=reason) | NotApplicable(reason=reason):
                self._missing[name] = reason

    def _add(
        self,
        metric: str,
        at_s: float,
        value: float,
        weight: float = 1.0,
        position: int | None = None,
    ) -> None:
        key = _Key(metric, position)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series()
        series.add(at_s, value, weight)


def _rank(key: _Key) -> tuple[int, int]:
    return list(UNITS).index(key.metric), key.position or 0


def _series_view(key: _Key, bins: Sequence[Bin | None], device: str) -> SeriesView:
    return SeriesView(
        metric=key.metric,
        unit=UNITS[key.metric],
        device=device if key.metric in DEVICE else None,
        position=key.position,
        mean=tuple(None if one is None else _short(one.mean) for one in bins),
        low=tuple(None if one is None else _short(one.low) for one in bins),
        high=tuple(None if one is None else _short(one.high) for one in bins),
    )


def _short(value: float) -> float:
    """Seven digits, which is more than any sensor has; bytes are whole ones."""
    return float(f"{value:.7g}")
