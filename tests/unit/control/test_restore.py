"""After a start: which choices of the journal still hold, over a real database and files."""

from __future__ import annotations

import itertools
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from mtpd.bus import Bus
from mtpd.config.data import bundled_model
from mtpd.config.model import Pool
from mtpd.control.choices import Choice, Choices
from mtpd.control.deciding import Member, PoolInputs
from mtpd.control.pooling import Field
from mtpd.control.recorded import encode_inputs
from mtpd.control.recorder import StoreRecorder
from mtpd.control.restore import restore
from mtpd.engine.launch import LaunchPlanner
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from mtpd.units import DeviceKey
from tests.fakes.clock import FakeClock
from tests.fakes.values import decision
from tests.unit.control.made import BINARY, arm, config, observation, profile
from tuner.plan import History
from tuner.pools import Objective
from tuner.types import Act, Start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.config.model import Config
    from mtpd.types import EngineBinary
    from tuner.types import Arm


async def undescribed(_profile: str, _digest: str) -> None:
    return None


PAIR = Pool(name="both", members=("alpha", "beta"))


@dataclass(frozen=True, slots=True)
class Kept:
    """What survives a daemon: the database and the model files."""

    folder: Path
    db: Database

    @property
    def journal(self) -> Journal:
        return Journal(db=self.db, clock=FakeClock())

    def model(self, name: str) -> Path:
        return self.folder / f"{name}.gguf"

    def config(self, **changes: int) -> Config:
        models = [
            profile(name, model=str(self.model(name)), **changes) for name in ("alpha", "beta")
        ]
        return config(*models, pools=(PAIR,))

    def planner(self, settings: Config, binary: EngineBinary = BINARY) -> LaunchPlanner:
        return LaunchPlanner(
            config=settings,
            binary=binary,
            device=DeviceKey("host"),
            device_present=False,
            sockets=self.folder,
            home=self.folder,
            driver=None,
            power_cap_w=None,
            new_token=lambda: "token",
            free_port=lambda: 1,
        )

    async def decided(
        self,
        which: Arm,
        *,
        subject: str | None = None,
        act: Act = Act.CHOOSE,
        measured: tuple[str, ...] | None = None,
        binary: EngineBinary = BINARY,
    ) -> int:
        """Journal a decision that rests on a cell of each named model, as it is now."""
        settings = self.config()
        planner, store = self.planner(settings, binary), Measurements(db=self.db, clock=FakeClock())
        cells = [
            await store.add(
                observation(
                    arm(name), fingerprint=planner.fingerprint(settings.profiles[name]).digest
                ),
                acceptance_source="none",
            )
            for name in (measured if measured is not None else (which.profile,))
        ]
        view = await self.journal.append(
            decision(act=act, subject=subject or which.profile, arm=which), measurement_ids=cells
        )
        return view.id

    async def restored(
        self, settings: Config | None = None, binary: EngineBinary = BINARY
    ) -> Choices:
        settings = settings or self.config()
        choices = Choices(config=settings)
        recorder = StoreRecorder(
            measurements=Measurements(db=self.db, clock=FakeClock()),
            journal=self.journal,
            bus=Bus(boot="b", clock=FakeClock()),
            describe=undescribed,
        )
        await restore(settings, choices, recorder, self.planner(settings, binary))
        return choices


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[Kept]:
    for name, bundled in (("alpha", "tiny-chained.gguf"), ("beta", "tiny-unchained.gguf")):
        shutil.copy(bundled_model(bundled), folder / f"{name}.gguf")
    async with await Database.open(folder / "state.sqlite3", FakeClock()) as db:
        yield Kept(folder, db)


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


async def test_the_newest_choice_of_a_model_holds_again(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 1))
        newest = await old.decided(arm("alpha", 2), act=Act.KEEP)
        choices = await old.restored()
    assert choices.measured("alpha") == arm("alpha", 2)
    assert choices.views()[1].decision_id == newest
    assert choices.measured("beta") is None


async def test_a_choice_dies_with_its_model_file(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 2))
        await old.decided(arm("beta", 1))
        touch(old.model("alpha"))
        choices = await old.restored()
    assert choices.measured("alpha") is None
    assert choices.measured("beta") == arm("beta", 1)


async def test_a_choice_dies_with_its_engine_and_comes_back_with_it(tmp_path: Path) -> None:
    other = replace(BINARY, digest="0" * 64)
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 2))
        assert (await old.restored(binary=other)).measured("alpha") is None
        await old.decided(arm("alpha", 3), binary=other)
        assert (await old.restored(binary=other)).measured("alpha") == arm("alpha", 3)
        assert (await old.restored()).measured("alpha") == arm("alpha", 2)


async def test_a_choice_dies_with_the_context_but_not_with_the_deepest_depth(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 2))
        assert (await old.restored(old.config(context=2048))).measured("alpha") is None
        assert (await old.restored(old.config(max_depth=5))).measured("alpha") == arm("alpha", 2)


async def test_a_depth_that_is_no_longer_allowed_is_void(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 3))
        assert (await old.restored(old.config(max_depth=2))).measured("alpha") is None


async def test_findings_and_orders_are_no_choices(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 2), act=Act.MEASURE)
        await old.decided(arm("alpha", 3), act=Act.SWITCH, measured=())
        await old.decided(arm("alpha", 1), act=Act.REJECT)
        choices = await old.restored()
    assert choices.measured("alpha") is None


async def test_a_model_without_its_file_is_told_and_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 2))
        await old.decided(arm("beta", 2))
        old.model("alpha").unlink()
        with capture_logs() as lines:
            choices = await old.restored()
    assert choices.measured("alpha") is None
    assert choices.measured("beta") == arm("beta", 2)
    (warning,) = [line for line in lines if line["event"] == "model.unavailable"]
    assert warning["model"] == "alpha"
    assert warning["hint"]


async def test_a_pool_stands_again_for_the_member_that_was_chosen(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("beta", 2))
        await old.decided(arm("beta", 2), subject="both", measured=("alpha", "beta"))
        choices = await old.restored()
    assert choices.measured("both") == arm("beta", 2)
    assert choices.pools() == {"both": "beta"}


async def test_the_newest_of_several_choices_of_a_pool_holds(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        for which in (arm("alpha", 1), arm("beta", 2), arm("alpha", 3)):
            await old.decided(which, subject="both", measured=("alpha", "beta"))
        assert (await old.restored()).measured("both") == arm("alpha", 3)


async def test_a_pools_choice_dies_with_the_file_of_the_chosen_member(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        await old.decided(arm("alpha", 1), subject="both", measured=("alpha", "beta"))
        await old.decided(arm("beta", 2), subject="both", measured=("alpha", "beta"))
        touch(old.model("beta"))
        choices = await old.restored()
    assert choices.measured("both") is None
    assert choices.pools() == {"both": "alpha"}


async def test_a_pools_older_choice_of_a_member_that_is_another_now_stays_void(
    tmp_path: Path,
) -> None:
    """Alpha of the newest choice is as it was under this engine; beta of the older is not."""
    other = replace(BINARY, digest="0" * 64)
    async with kept(tmp_path) as old:
        await old.decided(arm("beta", 2), subject="both", measured=("alpha", "beta"))
        touch(old.model("beta"))
        await old.decided(arm("alpha", 1), subject="both", measured=("alpha", "beta"), binary=other)
        choices = await old.restored()
    assert choices.measured("both") is None


async def test_members_with_one_and_the_same_fingerprint_are_told_apart(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        shutil.copy2(old.model("alpha"), old.model("beta"))
        settings = old.config()
        prints = [
            old.planner(settings).fingerprint(settings.profiles[name]).digest
            for name in ("alpha", "beta")
        ]
        assert prints[0] == prints[1]
        for name, depth in itertools.product(("alpha", "beta"), (1, 2)):
            await old.decided(arm(name, depth), subject="both", measured=("alpha", "beta"))
        assert (await old.restored()).measured("both") == arm("beta", 2)


async def test_a_pool_without_any_choice_is_left_as_it_is(tmp_path: Path) -> None:
    async with kept(tmp_path) as old:
        choices = await old.restored()
    assert choices.measured("both") is None
    assert choices.pools() == {"both": "alpha"}


async def test_tags_choose_by_the_members_that_are_as_they_were_measured(tmp_path: Path) -> None:
    async with kept(tmp_path) as survives:
        models = [
            profile(name, model=str(survives.model(name)), tags=(f"of-{name}",))
            for name in ("alpha", "beta")
        ]
        settings = config(*models, pools=(PAIR,))
        planner = survives.planner(settings)
        store = Measurements(db=survives.db, clock=FakeClock())
        told = [
            observation(arm(one.name), fingerprint=planner.fingerprint(one).digest)
            for one in models
        ]
        cells = [await store.add(one, acceptance_source="none") for one in told]
        members = tuple(
            Member(
                arm=one.arm,
                history=History(
                    observations=(one,),
                    starts=(Start(arm=one.arm, start_id=one.start_id, residency=one.residency),),
                ),
            )
            for one in told
        )
        inputs = PoolInputs(
            subject="both", method="sweep", applied=True, objective=Objective.SPEED, members=members
        )
        await survives.journal.append(
            decision(act=Act.CHOOSE, subject="both", arm=arm("alpha")),
            measurement_ids=cells,
            inputs=encode_inputs(inputs),
        )

        async def asked_for_beta() -> Choice:
            choices = await survives.restored(settings)
            found = choices.among(Field.of(PAIR, settings), frozenset({"of-beta"}))
            assert found is not None
            assert found.arm == arm("beta")
            return found

        found = await asked_for_beta()
        assert (found.measured, found.reason.split(" (")[0]) == (True, "R2 speed: beta@0")
        os.utime(survives.model("beta"), ns=(1, 1))
        found = await asked_for_beta()
        assert not found.measured
        assert found.reason.startswith("the members of both were not compared yet: its first one")
