"""A lane of operations over a real store and bus, as a context for one test."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from mtpd.bus import Bus
from mtpd.events import Envelope, OperationChanged
from mtpd.operations import Operations
from mtpd.store.db import Database
from mtpd.store.operations_table import OperationRows
from mtpd.units import Seq
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.errors import MtpdError
    from mtpd.views import Json, OperationView


def describe(error: MtpdError | None) -> dict[str, Json]:
    """A problem in short."""
    if error is None:
        return {"type": "internal", "detail": "a fault of the daemon", "hint": None}
    return {"type": type(error).__name__, "detail": str(error), "hint": error.hint}


@dataclass(frozen=True, slots=True)
class Lane:
    """The lane with what it stands on."""

    operations: Operations
    bus: Bus
    rows: OperationRows
    db: Database

    async def told(self) -> list[OperationView]:
        """Every change that was published so far."""
        seen: list[OperationView] = []
        async with self.bus.subscribe(Seq(0)) as reader:
            while len(seen) < self.bus.seq:
                item = await anext(reader)
                assert isinstance(item, Envelope)
                assert isinstance(item.event, OperationChanged)
                seen.append(item.event.operation)
        return seen


@contextlib.asynccontextmanager
async def lane(path: Path, *, progress_every_s: float = 0.0) -> AsyncIterator[Lane]:
    """Run a lane while the block runs."""
    clock = FakeClock()
    async with await Database.open(path, clock) as db:
        rows = OperationRows(db=db)
        bus = Bus(boot="boot-1", clock=clock, keep=10_000)
        operations = Operations(
            rows=rows, bus=bus, clock=clock, describe=describe, progress_every_s=progress_every_s
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(operations.run)
            yield Lane(operations, bus, rows, db)
            tasks.cancel_scope.cancel()
