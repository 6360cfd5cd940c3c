"""Which starts take every layer with the engine's fit off, and which leave it to the engine."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.config.model import Fit
from mtpd.control.residency import Residencies
from mtpd.control.shapes import DeviceBudget, MemoryPlanner
from mtpd.engine.launch import LaunchPlanner
from mtpd.engine.residency import out_of_memory
from mtpd.gpu.base import Device
from mtpd.gpu.card import Card
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.proxy.seats import Seating
from mtpd.store.db import Database
from mtpd.store.ledger import Ledger
from mtpd.store.samples import Measurements
from mtpd.types import UnixEndpoint
from mtpd.units import MIB, DeviceKey, EngineId
from tests.fakes.big_model import write_27b
from tests.fakes.clock import FakeClock
from tests.fakes.telemetry import Panel
from tests.unit.control.big import big
from tests.unit.control.made import BINARY, config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.store.ledger import LedgerRow

KEY = DeviceKey("0000:03:00.0")


class Rig:
    """A 27B model on a card of 16 368 MiB; at depth 1 it needs 15 080 MiB at most."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.panel, clock = Panel(), FakeClock()
        model = write_27b(folder / "b2.gguf")
        os.truncate(model, 15 * 2**30)  # sparse: its header must not promise more than there is
        self.profile = big(model=str(model), fit=Fit.AUTO)
        settings = config(self.profile)
        planner = LaunchPlanner(
            config=settings,
            binary=BINARY,
            device=KEY,
            device_present=True,
            sockets=folder,
            home=folder,
            driver=None,
            power_cap_w=150.0,
            new_token=lambda: "0" * 32,
            free_port=lambda: 4711,
        )
        card = Card(
            device=Device(key=KEY, vendor="amd"),
            power_cap_w=150.0,
            provider=LayeredProvider((HostProvider(),)),
        )
        self.ledger = Ledger(db=db, clock=clock, boot_id="b")
        self.digest = planner.fingerprint(self.profile).digest
        self.made = Residencies(
            config=settings,
            planner=planner,
            memory=MemoryPlanner(
                config=settings,
                binary=BINARY,
                budget=DeviceBudget.of(card, settings, read=self.panel.reading),
                alone=lambda: True,
                log_of=lambda name: folder / name,
            ),
            seating=Seating(settings, device_for=lambda _: KEY),
            measurements=Measurements(db=db, clock=clock),
            card=card,
            sampler=self.panel,  # type: ignore[arg-type]  # the keeper asks for no more
            clock=clock,
        )

    def takes_all_layers(self, depth: int) -> bool:
        argv = list(self.made.plan(self.profile.arm(depth)).command.argv)
        return "--fit" in argv and argv[argv.index("--fit") + 1] == "off"

    async def ran_out(self, depth: int, *, room_mib: int | None) -> LedgerRow:
        name = EngineId("e1")
        await self.ledger.intend(
            name,
            profile="big",
            device=KEY,
            arm=self.profile.arm(depth),
            argv_digest="a",
            endpoint=UnixEndpoint("/x.sock"),
            fingerprint=self.digest,
        )
        room = None if room_mib is None else room_mib * MIB
        await self.ledger.judged(name, out_of_memory("too little", room_bytes=room))
        (row,) = await self.ledger.judged_arms()
        return row


@asynccontextmanager
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with await Database.open(folder / "state.sqlite3", FakeClock()) as db:
        yield Rig(db, folder)


async def test_a_depth_that_is_certain_to_fit_takes_all_layers_and_a_deeper_one_asks_the_engine(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        assert not r.takes_all_layers(1), "nothing was read yet"
        await r.made.restore(r.ledger)
        assert [r.takes_all_layers(depth) for depth in (0, 1, 5)] == [True, True, False]
        assert r.made.plan(r.profile.arm(1)).memory_bytes == pytest.approx(15_080 * MIB, rel=0.01)


async def test_what_other_programs_took_since_the_forecast_is_not_there(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.made.restore(r.ledger)
        r.panel.vram_mib = 1_300
        await r.panel.fresh()
        assert [r.takes_all_layers(depth) for depth in (0, 1)] == [True, False]
        r.panel.vram_mib = None
        await r.panel.fresh()
        assert r.takes_all_layers(1), "the forecast's figure stands"


async def test_an_arm_that_ran_out_of_memory_is_not_taken_for_certain_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        row = await r.ran_out(1, room_mib=16_357)
        assert (row.residency, row.residency_reason) == ("evicted", "too little")
        await r.panel.fresh()
        await r.made.restore(r.ledger)
        assert [r.takes_all_layers(depth) for depth in (0, 1)] == [True, False]
        assert r.made.instead(r.profile, r.profile.arm(1)) is not None


@pytest.mark.parametrize(("room_mib", "out"), [(16_000, False), (16_300, True), (None, True)])
async def test_a_misfit_of_an_earlier_life_counts_unless_the_card_has_more_room_now(
    tmp_path: Path, room_mib: int | None, *, out: bool
) -> None:
    async with rig(tmp_path) as r:
        row = await r.ran_out(1, room_mib=room_mib)
        assert row.room_bytes == (None if room_mib is None else room_mib * MIB)
        await r.made.restore(r.ledger)
        await r.panel.fresh()
        assert (r.made.instead(r.profile, r.profile.arm(1)) is not None) == out
