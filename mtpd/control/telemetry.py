"""All that watches one device: its thread, its sampler, its gates, and how it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.calibrate import Calibrator
from mtpd.control.gates import Gates
from mtpd.gpu.host import HostProvider
from mtpd.gpu.rapl import PackageEnergy
from mtpd.gpu.sampler import Sampler
from mtpd.gpu.views import host_view, view
from mtpd.gpu.worker import TelemetryThread
from mtpd.history_views import DeviceLimitsView
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.clock import Clock
    from mtpd.config.model import HardwareProfile, Workload
    from mtpd.events import Event
    from mtpd.gpu.card import Card
    from mtpd.gpu.views import DeviceView, HostView
    from mtpd.types import Reading

__all__ = ["Telemetry"]


class Telemetry:
    """The device that engines run on, watched.

    Args:
        card: The device.
        hardware: What it is declared to be, or None.
        clock: Dates the readings.
        publish: Takes the events.
        serving: Whether an engine runs.
        machine: Where ``sys`` and ``proc`` of the machine lie.

    Attributes:
        sampler: Reads it.
        gates: Conditions of measuring on it.
    """

    def __init__(
        self,
        *,
        card: Card,
        hardware: HardwareProfile | None,
        clock: Clock,
        publish: Callable[[Event], object],
        serving: Callable[[], bool],
        machine: Path = Path("/"),
    ) -> None:
        self._card = card
        self._clock = clock
        self._thread = TelemetryThread()
        self._memory, self._energy = HostProvider(machine), PackageEnergy(machine)
        self._wanted_w = None if hardware is None else hardware.power_cap_w
        self.sampler = Sampler(
            provider=card.provider,
            device=card.key,
            thread=self._thread,
            clock=clock,
            publish=publish,
            serving=serving,
            wanted_cap_w=self._wanted_w,
            junction_limit_c=card.device.junction_limit_c,
        )
        self.gates = Gates(sampler=self.sampler, hardware=hardware, clock=clock)

    def calibrator(self, workloads: Callable[[], Mapping[str, Workload]]) -> Calibrator:
        """What measures on it: gated, with the card's state and energy where it has any."""
        return Calibrator(
            workloads=workloads,
            gate=self.gates.measuring,
            clock=self._clock,
            metered=self.sampler.measuring if self._card.is_gpu else None,
            around=self.sampler.around,
        )

    def cap_w(self) -> Reading[float]:
        """The power cap at the last reading."""
        latest = self.sampler.latest
        return latest if isinstance(latest, Absent) else latest.reading.power_cap_w

    async def devices(self) -> tuple[DeviceView, ...]:
        """Every device as the API shows it, with a fresh reading."""
        host = await self._thread.ask(self._host)
        shown = await view(
            self._card.device,
            self.sampler,
            sources=tuple(self._card.provider.name.split("+")),
            wanted_w=self._wanted_w,
            host=None if isinstance(host, Absent) else host,
        )
        return (shown,)

    def limits(self) -> DeviceLimitsView:
        """Lines to draw beside what was read of the device."""
        return DeviceLimitsView(
            device=self._card.key,
            declared_cap_w=self._wanted_w,
            gate_edge_c=self.gates.edge_limit_c if self._card.is_gpu else None,
            junction_limit_c=self._card.device.junction_limit_c,
            vram_total_bytes=None,
        )

    def _host(self) -> HostView:
        return host_view(self._memory.memory(), self._energy.read())

    def close(self) -> None:
        """End the thread, and give back what the sources hold open."""
        if self._thread.close():  # else a driver hangs, and would hang us, too
            self._card.provider.close()
