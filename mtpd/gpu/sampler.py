"""Reads a device again and again: seldom when idle, often while something is measured.

One loop per device, through the telemetry thread. The newest readings are kept in a ring;
a measurement opens a window, which has a reading exactly at both of its edges. Changes of
state, power cap and throttling are told as events, single readings are not. After a suspend of
the machine it begins anew: what was read before says nothing of the card that woke up.
"""

from __future__ import annotations

import statistics
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio
from anyio import from_thread

from mtpd import suspend
from mtpd.events import DeviceCapChanged, DeviceStateChanged, DeviceThrottled
from mtpd.gpu.base import SLOW_FIELDS, absent_everywhere, no_cap
from mtpd.gpu.energy import EnergyCount
from mtpd.gpu.window import Around, Window, around, power_sample
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST
from tuner.power import Throttle, cap_held
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from mtpd.clock import Clock
    from mtpd.events import Event
    from mtpd.gpu.base import GpuReading, PowerCap
    from mtpd.gpu.layered import FieldSources, LayeredProvider
    from mtpd.gpu.worker import TelemetryThread
    from mtpd.types import ProcessMemory, Reading
    from mtpd.units import DeviceKey
    from tuner.power import CapHeld

__all__ = ["IDLE_S", "MEASURING_S", "SERVING_S", "DeviceState", "Sample", "Sampler"]

IDLE_S: Final = 5.0
SERVING_S: Final = 1.0
MEASURING_S: Final = 0.1
"""Seconds between two readings. At 2 Hz an integrated energy was 8 % off, at 10 Hz 1.4 %."""

RING: Final = 1200
"""Readings kept: 20 minutes of serving, two of measuring; about 2 MB."""

OBSERVED_S: Final = 900.0
"""How far back a busy window may lie that shows whether the cap holds."""

_SLOW_S: Final = 1.0
_SLOW_KEPT_S: Final = 1.5
_IDLE_PERCENT: Final = 2.0
_IDLE_SAMPLES: Final = 3
_IDLE_KEPT: Final = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading and when it was taken.

    Attributes:
        at_s: Monotonic seconds of the daemon's clock.
        reading: What was read; in a fast one the slow fields are at most 1.5 s old.
    """

    at_s: float
    reading: GpuReading


@dataclass(frozen=True, slots=True)
class DeviceState:
    """Whether a device answers.

    Attributes:
        name: unseen, answering, silent, gone or stale.
        reason: What could not be read, or "".
    """

    name: str
    reason: str = ""


class Sampler:
    """Readings of one device.

    Args:
        provider: Source of readings; only asked in ``thread``.
        device: Which device of it.
        thread: Bounds every question.
        clock: Dates the readings.
        publish: Takes the events.
        serving: Whether an engine runs, so that a reading is wanted every second.
        wanted_cap_w: The power cap that is declared, for the event of a change.
        junction_limit_c: Critical temperature of the hottest spot, or None.
        sleep: Waits between two readings.
    """

    def __init__(
        self,
        *,
        provider: LayeredProvider,
        device: DeviceKey,
        thread: TelemetryThread,
        clock: Clock,
        publish: Callable[[Event], object],
        serving: Callable[[], bool] = lambda: True,
        wanted_cap_w: float | None = None,
        junction_limit_c: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.device = device
        self.state = DeviceState("unseen")
        self._provider = provider
        self._thread = thread
        self._clock = clock
        self._slept = clock.slept()
        self._publish = publish
        self._serving = serving
        self._wanted_cap_w = wanted_cap_w
        self._junction_limit_c = junction_limit_c
        self._sleep = sleep
        self._ring: deque[Sample] = deque(maxlen=RING)
        self._idle_w: deque[float] = deque(maxlen=_IDLE_KEPT)
        self._energy = EnergyCount()
        self._windows: set[Window] = set()
        self._slow: Sample | None = None
        self._cap_w: float | None = None
        self._hindered = Throttle.NONE
        self._taken = anyio.Event()
        self._wake = anyio.Event()

    @property
    def latest(self) -> Sample | Absent:
        """The newest reading; Absent before the first, and while the driver hangs."""
        if not self._ring:
            return Absent("nothing was read yet")
        if self.state.name == "stale":
            return Absent(self.state.reason)
        return self._ring[-1]

    @property
    def idle_w(self) -> Reading[float]:
        """What the card draws while it computes nothing: the median of such readings."""
        if len(self._idle_w) < _IDLE_SAMPLES:
            return Absent("the card was not yet seen idle")
        return Value(statistics.median(self._idle_w), "sampler")

    @property
    def energy_j(self) -> Reading[float]:
        """Joules that the card drew since it is watched."""
        return self._energy.joules

    @property
    def period_s(self) -> float:
        """Seconds until the next reading."""
        if self._windows and self.device != HOST:
            return MEASURING_S
        return SERVING_S if self._windows or self._serving() else IDLE_S

    async def run(self) -> None:
        """Take readings for ever."""
        while True:
            before = self._slow
            slow = before is None or self._clock.now() - before.at_s >= _SLOW_S
            await self._take(slow=slow)
            await self._pause()

    async def fresh(self) -> Sample:
        """Read now, whatever the loop does; a driver that hangs gives Absent everywhere."""
        return await self._take(slow=True)

    def read_from_thread(self) -> GpuReading:
        """Read now, for a caller in a worker thread of the event loop."""
        return from_thread.run(self.fresh).reading

    async def following(self) -> Sample:
        """Wait for the next reading."""
        await self._taken.wait()
        return self._ring[-1]

    async def subscribe(self) -> AsyncIterator[Sample]:
        """Every reading from now on; who is slow misses some, and nothing queues."""
        while True:
            yield await self.following()

    def hurry(self) -> None:
        """Take the next reading at once: something began."""
        self._wake.set()

    def window(self, begin_s: float, end_s: float) -> tuple[Sample, ...]:
        """The kept readings between two moments, oldest first."""
        return tuple(sample for sample in self._ring if begin_s <= sample.at_s <= end_s)

    def around(self, begin_s: float, end_s: float) -> Around:
        """What the readings between two moments say of the card."""
        kept = next(iter(self._windows), None)
        samples = (
            [one for one in kept.samples if begin_s <= one.at_s <= end_s]
            if kept is not None  # keeps more than the ring
            else [power_sample(one.at_s, one.reading) for one in self.window(begin_s, end_s)]
        )
        return around(
            samples,
            cap_w=self._cap_w,
            junction_limit_c=self._junction_limit_c,
            idle_w=idle.value if isinstance(idle := self.idle_w, Value) else None,
        )

    def cap_held(self) -> CapHeld | Unknown:
        """Whether the cap limited the card when it was last busy under it."""
        if self._cap_w is None:
            return Unknown("the power cap is not known")
        since_s = self._clock.now() - OBSERVED_S
        samples = [
            power_sample(one.at_s, one.reading)
            for one in self._ring
            if one.at_s >= since_s and _same(one.reading.power_cap_w, self._cap_w)
        ]
        return cap_held(samples, cap_w=self._cap_w)

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[Window]:
        """Read ten times a second while the block runs, and exactly at its edges.

        A block that ends by an exception has no last edge, so no energy.
        """
        first = await self._take(slow=True)
        window = Window(idle_w=self.idle_w)
        window.add(power_sample(first.at_s, first.reading))
        self._windows.add(window)
        self.hurry()
        try:
            yield window
            await self._take(slow=True)  # reaches the window like every other
            window.closed = True
        finally:
            self._windows.discard(window)

    async def processes(
        self, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """Who holds memory of the device."""
        return await self._thread.ask(lambda: self._provider.processes(self.device, pids=pids))

    async def power_cap(self) -> PowerCap:
        """The power limit and its range."""
        found = await self._thread.ask(lambda: self._provider.power_cap(self.device))
        return no_cap(found) if isinstance(found, Absent) else found

    async def explain(self) -> tuple[FieldSources, ...] | Absent:
        """Per field which source answers."""
        return await self._thread.ask(lambda: self._provider.explain(self.device))

    async def _take(self, *, slow: bool) -> Sample:
        found = await self._thread.ask(lambda: self._read(slow=slow))
        self._note_suspend()
        stale = isinstance(found, Absent)
        sample = (
            Sample(self._clock.now(), absent_everywhere(found.reason))
            if isinstance(found, Absent)
            else found
        )
        if slow and not stale:
            self._slow = sample
        elif not slow:
            sample = replace(sample, reading=self._with_slow(sample))
        self._keep(sample, stale=stale)
        return sample

    def _read(self, *, slow: bool) -> Sample:
        """In the thread; dated in the middle of the read."""
        began_s = self._clock.now()
        reading = self._provider.read(self.device, slow=slow)
        return Sample((began_s + self._clock.now()) / 2, reading)

    def _with_slow(self, sample: Sample) -> GpuReading:
        if self._slow is None or sample.at_s - self._slow.at_s > _SLOW_KEPT_S:
            return sample.reading
        kept = {name: getattr(self._slow.reading, name) for name in SLOW_FIELDS}
        return replace(sample.reading, **kept)

    def _keep(self, sample: Sample, *, stale: bool) -> None:
        self._ring.append(sample)
        power = power_sample(sample.at_s, sample.reading)
        self._energy.add(power)
        for window in self._windows:
            window.add(power)
        self._note_state(_state(sample.reading, stale=stale))
        self._note_changes(sample.reading)
        self._taken.set()
        self._taken = anyio.Event()

    def _note_suspend(self) -> None:
        """Forget the readings of before, whoever else has noticed it by now."""
        lasted_s = suspend.lasted_s(self._slept, slept := self._clock.slept())
        if not lasted_s:
            return
        self._slept, self._slow = slept, None
        self._ring.clear()
        self._energy.pause()
        for window in self._windows:
            window.spoil(suspend.sentence(lasted_s))

    def _note_state(self, state: DeviceState) -> None:
        if state.name != self.state.name:
            old = self.state.name
            self._publish(
                DeviceStateChanged(device=self.device, old=old, new=state.name, reason=state.reason)
            )
        self.state = state

    def _note_changes(self, reading: GpuReading) -> None:
        cap, throttle = reading.power_cap_w, reading.throttle
        if isinstance(cap, Value):
            self._note_cap(cap.value)
        if isinstance(throttle, Value):
            hindered = throttle.value & ~Throttle.POWER
            if hindered != self._hindered:
                reasons = tuple(str(bit.name).lower() for bit in hindered)
                self._publish(DeviceThrottled(device=self.device, reasons=reasons))
            self._hindered = hindered
        busy, watts = reading.busy_percent, reading.power_w
        if isinstance(busy, Value) and isinstance(watts, Value) and busy.value <= _IDLE_PERCENT:
            self._idle_w.append(watts.value)

    def _note_cap(self, cap_w: float) -> None:
        old_w, self._cap_w = self._cap_w, cap_w
        if old_w is not None and cap_w != old_w:
            self._publish(
                DeviceCapChanged(
                    device=self.device, old_w=old_w, new_w=cap_w, wanted_w=self._wanted_cap_w
                )
            )

    async def _pause(self) -> None:
        """Sleep for the period, or until something hurries the loop."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cut_short, tasks.cancel_scope)
            await self._sleep(self.period_s)
            tasks.cancel_scope.cancel()

    async def _cut_short(self, pause: anyio.CancelScope) -> None:
        await self._wake.wait()
        self._wake = anyio.Event()
        pause.cancel()


def _state(reading: GpuReading, *, stale: bool) -> DeviceState:
    sensors = (reading.edge_c, reading.power_w, reading.busy_percent)
    memory = (reading.vram_total_bytes, reading.vram_used_bytes)
    why = reading.edge_c.reason if isinstance(reading.edge_c, Absent) else ""
    if stale:
        return DeviceState("stale", why)
    if any(isinstance(one, Value | NotApplicable) for one in sensors):
        return DeviceState("answering")
    if any(isinstance(one, Value | NotApplicable) for one in memory):
        return DeviceState("silent", why)
    return DeviceState("gone", why)


def _same(reading: Reading[float], cap_w: float) -> bool:
    return isinstance(reading, Value) and reading.value == cap_w
