"""What a ledger says of arms that fit, and what follows from it for a choice."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from mtpd.config.data import bundled_model
from mtpd.config.model import Group, Offload
from mtpd.control.residency import Residencies
from mtpd.control.shapes import DeviceBudget, MemoryPlanner
from mtpd.engine.launch import LaunchPlanner
from mtpd.gpu.card import Card
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.proxy.seats import Seating
from mtpd.store.db import Database
from mtpd.store.ledger import Ledger
from mtpd.store.samples import Measurements
from mtpd.types import UnixEndpoint, Verdict
from mtpd.units import HOST, MIB, DeviceKey, EngineId
from tests.fakes.clock import FakeClock
from tests.fakes.values import observation
from tests.unit.control.made import BINARY, config, profile
from tuner.types import Evicted, Host, Resident, Spilled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.config.model import Profile
    from tuner.types import Arm, Residency

MODEL = profile("alpha", model=str(bundled_model("tiny-chained.gguf")))


class Rig:
    """A ledger and what is made of it."""

    def __init__(self, db: Database, folder: Path, which: Profile = MODEL) -> None:
        self.clock, self.folder = FakeClock(), folder
        self.ledger = Ledger(db=db, clock=self.clock, boot_id="b")
        self.measurements = Measurements(db=db, clock=self.clock)
        self.profile = which
        settings = config(which)
        self.planner = LaunchPlanner(
            config=settings,
            binary=BINARY,
            device=HOST,
            device_present=True,
            sockets=folder,
            home=folder,
            driver=None,
            power_cap_w=None,
            new_token=lambda: "0" * 32,
            free_port=lambda: 4711,
        )
        provider = LayeredProvider((HostProvider(),))
        (device,) = provider.devices()
        card = Card(device=device, power_cap_w=None, provider=provider)
        self.made = Residencies(
            config=settings,
            planner=self.planner,
            memory=MemoryPlanner(
                config=settings,
                binary=BINARY,
                budget=DeviceBudget.of(card, settings, read=lambda: provider.read(HOST)),
                alone=lambda: True,
                log_of=lambda name: folder / name,
            ),
            seating=Seating(settings, device_for=lambda _: HOST),
            measurements=self.measurements,
            card=card,
            sampler=None,  # type: ignore[arg-type]  # without a card nobody asks it
            clock=self.clock,
        )
        self.starts = 0

    @property
    def digest(self) -> str:
        return self.planner.fingerprint(self.profile).digest

    async def started(
        self,
        depth: int,
        residency: Residency,
        *,
        digest: str = "",
        device: DeviceKey = HOST,
        taken_bytes: int | None = None,
    ) -> None:
        self.starts += 1
        name = EngineId(f"e{self.starts}")
        await self.ledger.intend(
            name,
            profile="alpha",
            device=device,
            arm=self.profile.arm(depth),
            argv_digest="a",
            endpoint=UnixEndpoint("/x.sock"),
            fingerprint=digest or self.digest,
        )
        verdict = Verdict(
            residency=residency,
            reason="1 layer of the model runs on the CPU",
            taken_bytes=taken_bytes,
        )
        await self.ledger.judged(name, verdict)


@asynccontextmanager
async def rig(folder: Path, which: Profile = MODEL) -> AsyncIterator[Rig]:
    async with await Database.open(folder / "state.sqlite3", FakeClock()) as db:
        yield Rig(db, folder, which)


@pytest.mark.parametrize("residency", [Evicted(1), Spilled(5)])
async def test_an_arm_that_did_not_fit_in_an_earlier_life_is_replaced_by_one_that_did(
    tmp_path: Path, residency: Residency
) -> None:
    async with rig(tmp_path) as r:
        await r.started(1, Resident())
        await r.started(3, residency)
        await r.made.restore(r.ledger)
        found = r.made.instead(MODEL, MODEL.arm(3))
        assert found is not None
        arm, reason = found
        assert arm == MODEL.arm(1)
        assert "depth 3 does not fit (1 layer of the model runs on the CPU): depth 1" in reason
        assert r.made.instead(MODEL, MODEL.arm(2)) is None


async def test_another_fingerprint_knows_nothing_of_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.started(3, Evicted(1), digest="of another binary")
        await r.made.restore(r.ledger)
        assert r.made.instead(MODEL, MODEL.arm(3)) is None


async def test_what_earlier_lives_measured_holds_for_its_fingerprint_depth_and_device(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        await r.started(1, Host(), taken_bytes=10 * MIB)
        await r.started(1, Host(), taken_bytes=20 * MIB)
        await r.started(1, Host())
        await r.started(2, Host(), taken_bytes=30 * MIB, device=DeviceKey("0000:03:00.0"))
        await r.started(3, Host(), taken_bytes=40 * MIB, digest="of another binary")
        await r.made.restore(r.ledger)
        assert [r.made.needs.of(r.digest, MODEL.arm(depth)) for depth in range(4)] == [
            None,
            20 * MIB,
            None,
            None,
        ]


async def test_where_offload_is_accepted_nothing_is_replaced(tmp_path: Path) -> None:
    accepts = replace(MODEL, offload=Offload.ACCEPT)
    async with rig(tmp_path, accepts) as r:
        await r.started(3, Evicted(1))
        await r.made.restore(r.ledger)
        assert r.made.instead(accepts, accepts.arm(3)) is None


async def test_a_model_that_fits_at_no_depth_and_one_whose_file_is_gone_are_left_to_their_start(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        await r.started(0, Evicted(1))
        await r.started(2, Evicted(1))
        await r.made.restore(r.ledger)
        assert r.made.instead(MODEL, MODEL.arm(2)) is None
        gone = replace(MODEL, model="/nonexistent.gguf")
        assert r.made.instead(gone, MODEL.arm(2)) is None


async def test_a_machine_without_a_card_has_no_account_and_plans_no_memory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        assert r.made.keeper is None
        assert r.made.plan(MODEL.arm(0)).memory_bytes is None


async def test_the_record_of_an_arm_is_its_own_median_under_its_own_fingerprint(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        plan = r.made.plan(MODEL.arm(2))
        assert await r.made.record(plan) is None
        for number, (depth, tokens, residency) in enumerate(
            [
                (2, 100, Resident()),
                (2, 120, Resident()),
                (2, 500, Resident()),
                (2, 10, Evicted(1)),
                (1, 900, Resident()),
            ]
        ):
            one = observation(
                arm=MODEL.arm(depth),
                repetition=number,
                fingerprint=plan.fingerprint,
                tokens=tokens,
                decode_s=2.0,
                residency=residency,
            )
            await r.measurements.add(one, acceptance_source="metrics")
        assert await r.made.record(plan) == pytest.approx(60.0)


class Forecast:
    """A prediction that a test sets; stands in for the planner of memory."""

    def __init__(self, *, certain: bool) -> None:
        self._certain = certain

    def most_bytes(self, arm: Arm) -> int:
        assert arm.profile == "alpha"
        return 8 * MIB

    def certain(self, arm: Arm) -> bool:
        assert arm.profile == "alpha"
        return self._certain


@pytest.mark.parametrize(
    ("certain", "room_mib", "off"),
    [(True, 4096, True), (True, None, True), (True, 100, False), (False, 4096, False)],
)
async def test_what_is_certain_to_fit_is_not_left_to_the_engines_fit(
    tmp_path: Path,
    certain: bool,  # noqa: FBT001 - a column of the table
    room_mib: int | None,
    off: bool,  # noqa: FBT001 - a column of the table
) -> None:
    async with rig(tmp_path) as made:
        room = None if room_mib is None else room_mib * MIB
        made.made.keeper = SimpleNamespace(room_bytes=room, profiles=frozenset())  # type: ignore[assignment]
        made.made._memory = Forecast(certain=certain)  # type: ignore[assignment]
        plan = made.made.plan(MODEL.arm(0))
        assert plan.memory_bytes == 8 * MIB
        assert (("--fit", "off") in pairwise(plan.command.argv)) is off


async def test_room_is_what_would_be_there_without_those_that_may_go(tmp_path: Path) -> None:
    held = {"alpha": 1_000 * MIB, "stays": 300 * MIB, "goes": 200 * MIB, "shares": 50 * MIB}
    groups = {
        name: Group(name=name, members=(name,), exclusive=False, persistent=name == "stays")
        for name in ("stays", "goes")
    }
    async with rig(tmp_path) as made:
        residencies = made.made
        residencies._seating = Seating(
            replace(config(MODEL), groups=groups), device_for=lambda _: HOST
        )
        assert residencies._room_bytes("alpha") is None, "there is no card"
        residencies.keeper = SimpleNamespace(  # type: ignore[assignment]  # what is asked of it
            room_bytes=8_000 * MIB, profiles=held.keys(), held=held.get
        )
        assert residencies._room_bytes("alpha") == 7_700 * MIB
        assert residencies._free_bytes("alpha") == 7_500 * MIB, "its own place is its own"
        assert residencies._room_bytes("stays") == 8_000 * MIB
        assert residencies._free_bytes("goes") == 6_650 * MIB
