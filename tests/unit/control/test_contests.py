"""The members of a pool side by side, by what a real journal has of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtpd.bus import Bus
from mtpd.config.live import LiveConfig
from mtpd.config.model import Pool
from mtpd.control.choices import Choices
from mtpd.control.contests import EVERY_S, Contests
from mtpd.control.deciding import SWEEP, DepthInputs, decide
from mtpd.control.memory import forecast
from mtpd.control.recorded import encode_inputs
from mtpd.control.recorder import StoreRecorder
from mtpd.errors import BinaryError
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from mtpd.types import NotApplicable
from tests.fakes.clock import FakeClock
from tests.unit.control.made import config, profile
from tests.unit.tuner.machine import WORKLOADS, Machine, arm
from tuner.plan import History
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.config.model import Profile
    from mtpd.control.contests import Contest
    from mtpd.control.memory import MemoryForecast
    from mtpd.views import Json
    from tuner.types import Arm

HOME, OTHER = profile("m"), profile("other")
POOL = Pool(name="both", members=("m", "other"))


@dataclass(slots=True)
class Rig:
    """Contests over a store; ``misfits`` do not fit, ``broken`` have no fingerprint."""

    contests: Contests
    choices: Choices
    clock: FakeClock
    recorder: StoreRecorder
    measurements: Measurements
    misfits: set[Arm] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    async def measured(self, name: str, *depths: int, tps: float) -> None:
        """A sweep of a model is in the journal; nothing is chosen by it."""
        machine = Machine(raw_tps=tps, fingerprint=f"today's {name}")
        taken = machine.sweep(*depths, profile=name)
        views = []
        for one in taken:
            view = await self.measurements.get(
                await self.measurements.add(one, acceptance_source="metrics")
            )
            assert view is not None
            views.append(view)
        inputs = DepthInputs(
            subject=name,
            method=SWEEP,
            applied=False,
            history=History(observations=taken, spent_s=60.0),
            arms=tuple(dict.fromkeys(one.arm for one in taken)),
            workloads=WORKLOADS,
            repetitions=3,
        )
        told = encode_inputs(inputs) | {"verdicts": {}}
        await self.recorder.decide(decide(inputs), measurements=views, inputs=told)

    async def look(self, running: Arm, home: Profile = HOME) -> Contest:
        """The pool as it is now, not as it was some seconds ago."""
        self.clock.advance(EVERY_S)
        (found,) = await self.contests.of(home, running)
        return found


@asynccontextmanager
async def rig(folder: Path) -> AsyncIterator[Rig]:
    clock = FakeClock()
    held = LiveConfig(config(HOME, OTHER, pools=(POOL,)))
    async with await Database.open(folder / "mtpd.sqlite3", clock) as db:
        measurements, journal = Measurements(db=db, clock=clock), Journal(db=db, clock=clock)

        async def described(_profile: str, _digest: str) -> dict[str, Json] | None:
            return None

        async def memory(one: Profile) -> MemoryForecast:
            shape, card = Unknown("no such file"), NotApplicable("no card")
            return forecast(one, shape, card, margin_bytes=None)

        def digest(one: Profile) -> str:
            if one.name in made.broken:
                raise BinaryError("there is no such file")
            return f"today's {one.name}"

        recorder = StoreRecorder(
            measurements=measurements,
            journal=journal,
            bus=Bus(boot="b", clock=clock),
            describe=described,
        )
        choices = Choices(held)
        contests = Contests(
            config=held,
            choices=choices,
            digest=digest,
            memory=memory,
            misfit=lambda _profile, which: which if which in made.misfits else None,
            journal=journal,
            recorder=recorder,
            clock=clock,
        )
        made = Rig(contests, choices, clock, recorder, measurements)
        yield made


async def test_the_faster_member_is_named_at_the_depth_that_its_measurements_name(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        await r.measured("m", 0, 2, tps=32.4)
        assert (await r.look(arm(2))).unmeasured == (OTHER.initial_arm(),)
        await r.measured("other", 0, 2, tps=64.8)
        found = await r.look(arm(2))
        assert found.named is not None
        assert found.named.arm == arm(2, "other")
        assert found.unmeasured == ()
        assert {one.arm.profile for one in found.measurements} == {"m", "other"}


async def test_a_depth_that_an_operator_set_stands_for_the_model_if_it_was_measured(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        await r.measured("m", 0, 2, tps=32.4)
        await r.measured("other", 0, 2, tps=64.8)
        r.choices.pin(arm(0, "other"), reason="set", decision_id=None)
        named = (await r.look(arm(0))).named
        assert named is not None
        assert named.arm == arm(0, "other")
        r.choices.pin(arm(1, "other"), reason="set", decision_id=None)
        found = await r.look(arm(0))
        assert found.named is None
        assert [one.arm.profile for one in found.inputs.members] == ["m"]


async def test_a_member_that_does_not_fit_or_cannot_be_started_is_left_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.measured("m", 0, 2, tps=32.4)
        await r.measured("other", 0, 2, tps=64.8)
        r.misfits.add(arm(2, "other"))
        found = await r.look(arm(2))
        assert (found.named, found.unmeasured) == (None, ())
        r.misfits.clear()
        r.broken.add("other")
        found = await r.look(arm(2))
        assert (found.named, found.unmeasured) == (None, ())


async def test_a_look_holds_for_some_seconds_and_for_this_profile_only(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.measured("m", 0, 2, tps=32.4)
        before = await r.look(arm(2))
        await r.measured("other", 0, 2, tps=64.8)
        r.clock.advance(EVERY_S / 2)
        assert await r.contests.of(HOME, arm(2)) == (before,)
        (other,) = await r.contests.of(replace(HOME, context=2048), arm(2))
        assert other.named is not None
        assert (await r.look(arm(2))).named is not None
