"""Looks at the whole daemon once, for one scrape; works also while the store does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.metrics.standing import Snapshot

if TYPE_CHECKING:
    from mtpd.bus import Bus
    from mtpd.control.queries import Queries
    from mtpd.control.shapes import MemoryPlanner
    from mtpd.gpu.sampler import Sampler
    from mtpd.store.db import Database

__all__ = ["look"]


async def look(
    control: Queries, sampler: Sampler, memory: MemoryPlanner, store: Database, bus: Bus
) -> Snapshot:
    """What one scrape shows.

    Args:
        control: Answers for the daemon and its devices.
        sampler: Counts the joules of the device.
        memory: Knows how much of it engines may take.
        store: The state database.
        bus: Counts the readers that were too slow.
    """
    return Snapshot(
        status=await control.standing(),
        devices=await control.gpu(),
        energy_j={sampler.device: sampler.energy_j},
        budget_bytes={sampler.device: memory.usable_bytes},
        database_degraded=store.degraded is not None,
        readers_dropped=bus.dropped,
    )
