"""The device that engines run on, found once at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from anyio import to_thread

from mtpd.gpu.detect import detect
from mtpd.gpu.host import HostProvider, busy_now
from mtpd.types import Value
from mtpd.units import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.gpu.base import GpuProvider
    from mtpd.types import EngineBinary
    from mtpd.units import DeviceKey

__all__ = ["Card", "find_card"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The device that engines run on.

    Attributes:
        key: Its PCI address, or "host".
        is_gpu: Whether layers can go to it.
        power_cap_w: Cap in force at the start, or None where none is known.
        provider: Reads it.
        busy: Says in one sentence why speeds measured now may not be comparable, or None.
    """

    key: DeviceKey
    is_gpu: bool
    power_cap_w: float | None
    provider: GpuProvider
    busy: Callable[[], str | None] = lambda: None


async def find_card(engine: EngineBinary) -> Card:
    """The first GPU, else the host; drivers may block, so not on the loop.

    The embedded engine is a processor build: it runs on the host, whatever else is there.
    """
    if engine.kind == "embedded":
        return Card(
            key=HOST, is_gpu=False, power_cap_w=None, provider=HostProvider(), busy=busy_now
        )
    found = await to_thread.run_sync(detect)
    first = found.devices[0]
    reading = await to_thread.run_sync(found.provider.read, first.key)
    cap = reading.power_cap_w
    for refusal in found.refused:
        log.info("gpu.source_refused", source=refusal.provider, reason=refusal.reason)
    log.info("gpu.found", device=first.key, name=first.name, source=found.provider.name)
    return Card(
        key=first.key,
        is_gpu=found.has_gpu,
        power_cap_w=cap.value if isinstance(cap, Value) else None,
        provider=found.provider,
        busy=(lambda: None) if found.has_gpu else busy_now,
    )
