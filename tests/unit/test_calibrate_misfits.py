"""A calibration that asks for an arm of which an earlier start showed that it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.proxy.feasibility import MisfitError
from mtpd.types import Command, EngineKey, LaunchPlan, UnixEndpoint, Verdict
from mtpd.units import HOST
from tests.unit.calibrating import Told
from tests.unit.control.held import scripted
from tests.unit.control.made import arm
from tuner.select import rejection
from tuner.summary import summarise
from tuner.types import Evicted

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.calibrate import Started
    from tests.unit.control.held import ScriptedDevice
    from tuner.plan import History
    from tuner.types import Arm


class Knowing:
    """A hold that refuses one depth without a start."""

    def __init__(self, device: ScriptedDevice, depth: int) -> None:
        self.device, self.depth = device, depth

    async def start(self, which: Arm) -> Started:
        if which.depth == self.depth:
            plan = LaunchPlan(
                key=EngineKey(HOST, which.profile),
                arm=which,
                command=Command(argv=(), env={}),
                endpoint=UnixEndpoint("/nonexistent"),
                fingerprint="f",
            )
            verdict = Verdict(residency=Evicted(4), reason="4 layers run on the CPU")
            raise MisfitError(plan, verdict, known=True)
        return await self.device.start(which)


async def test_it_does_not_fit_instead_of_failing_and_is_not_started(tmp_path: Path) -> None:
    async with scripted(tmp_path) as device:
        history: History = await Told().run(Knowing(device, 2), arm(), arm(depth=2))
    assert [which.depth for which in device.starts] == [0]
    deep = [start for start in history.starts if start.arm.depth == 2]
    assert deep
    assert all(start.residency == Evicted(4) for start in deep)
    rows = {row.arm.depth: row for row in summarise(history.observations, history.starts)}
    assert rejection(rows[2]) == "does not fit (4 layers on the CPU)"
    assert len(deep) == 1
