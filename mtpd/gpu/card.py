"""The device that engines run on, found once at the start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from mtpd.errors import DriverError
from mtpd.gpu.detect import detect
from mtpd.gpu.host import HostProvider, busy_now
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.worker import TelemetryThread
from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.gpu.base import Device
    from mtpd.types import EngineBinary
    from mtpd.units import DeviceKey

__all__ = ["Card", "find_card"]

log = structlog.get_logger()

FIND_S = 20.0
"""Importing a vendor's library takes half a second, waking a card some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The device that engines run on.

    Attributes:
        device: What it is.
        power_cap_w: Cap in force at the start, or None where none is known.
        provider: Reads it.
        busy: Says in one sentence why speeds measured now may not be comparable, or None.
    """

    device: Device
    power_cap_w: float | None
    provider: LayeredProvider
    busy: Callable[[], str | None] = lambda: None

    @property
    def key(self) -> DeviceKey:
        """Its PCI address, or "host"."""
        return self.device.key

    @property
    def is_gpu(self) -> bool:
        """Whether layers can go to it."""
        return self.device.vendor != "cpu"


async def find_card(
    engine: EngineBinary, *, root: Path = Path("/"), deadline_s: float = FIND_S
) -> Card:
    """The first GPU by address, else the host; a driver may block, so in a thread of its own.

    The embedded engine is a processor build: it runs on the host, whatever else is there.

    Args:
        engine: What will run.
        root: Where ``sys`` and ``proc`` lie.
        deadline_s: Longest that the search, and a first reading, may take.

    Raises:
        DriverError: A driver does not answer. Without its answer nobody can say whether
            engines would run on a card, so none is started.
    """
    if engine.kind == "embedded":
        return _host()
    thread = TelemetryThread(deadline_s=deadline_s)
    try:
        return await _found(thread, root)
    finally:
        thread.close()


async def _found(thread: TelemetryThread, root: Path) -> Card:
    found = await thread.ask(lambda: detect(root=root))
    if isinstance(found, Absent):
        msg = f"the graphics cards cannot be looked up: {found.reason}"
        raise DriverError(msg, hint="see the kernel log; a card that hangs needs a reset")
    for refusal in found.refused:
        log.info("gpu.source_refused", source=refusal.provider, reason=refusal.reason)
    first = found.devices[0]
    log.info("gpu.found", device=first.key, name=first.name, source=found.provider.name)
    if not found.has_gpu:
        return _host()
    reading = await thread.ask(lambda: found.provider.read(first.key))
    cap = reading if isinstance(reading, Absent) else reading.power_cap_w
    return Card(
        device=first,
        power_cap_w=cap.value if isinstance(cap, Value) else None,
        provider=found.provider,
    )


def _host() -> Card:
    provider = LayeredProvider((HostProvider(),))
    (device,) = provider.devices()
    return Card(device=device, power_cap_w=None, provider=provider, busy=busy_now)
