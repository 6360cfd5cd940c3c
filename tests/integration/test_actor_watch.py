"""A serving engine is watched: its card, its memory, its speed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.control.waking import Waking
from mtpd.engine.client import EngineClient
from mtpd.errors import UpstreamError
from mtpd.events import MemoryCreeps, ResidencyJudged
from mtpd.supervise.keeper import CardKeeper
from mtpd.supervise.probe import EngineProbe
from mtpd.supervise.pulse import Pulse
from mtpd.types import EngineKey
from mtpd.units import MIB, DeviceKey
from tests.fakes.clock import FakeClock
from tests.fakes.supervision import Stage, scripted, until
from tests.fakes.telemetry import Panel, Seen, holding

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.engine.memory_look import MemoryLook
    from mtpd.types import LaunchPlan
    from mtpd.units import EngineId

pytestmark = pytest.mark.slow
CARD = EngineKey(DeviceKey("0000:03:00.0"), "tiny")
DEVICE: dict[str, Any] = {"device": {"name": "ROCm0"}}


class Ticking(Panel):
    """A panel whose samples come fast, each half a minute later than the one before.

    Attributes:
        followed: Samples so far.
        step_mib: By how much memory in use grows with every sample.
    """

    def __init__(self) -> None:
        super().__init__()
        self.followed = self.step_mib = 0

    async def following(self) -> Seen:
        await anyio.sleep(0.01)
        self.clock.advance(30.0)
        self.followed += 1
        if self.vram_mib is not None:
            self.vram_mib += self.step_mib
        return await self.fresh()

    async def more(self, looks: int = 8) -> None:
        """Wait until that many more looks were taken."""
        wanted = self.followed + looks
        await until(lambda: self.followed >= wanted)


@dataclass
class Loading:
    """A keeper on whose panel the engine's memory appears when it is first looked at.

    Attributes:
        mib: What the engine takes; None where the card has no counters.
    """

    panel: Ticking
    kept: CardKeeper
    mib: int | None

    async def admit(self, engine_id: EngineId, plan: LaunchPlan) -> MemoryLook:
        self.panel.vram_mib = None if self.mib is None else 11
        return await self.kept.admit(engine_id, plan)

    def withdrawn(self, engine_id: EngineId) -> None:
        self.kept.withdrawn(engine_id)

    async def look(self, engine_id: EngineId, pid: int) -> MemoryLook:
        if self.mib is not None:
            self.panel.vram_mib = 11 + self.mib
            self.panel.clients = [holding(pid, self.mib)]
        return await self.kept.look(engine_id, pid)

    async def free_now(self) -> int | None:
        return None

    def took(self, engine_id: EngineId) -> int | None:
        return self.kept.took(engine_id)

    async def following(self, engine_id: EngineId, pid: int) -> MemoryLook:
        return await self.kept.following(engine_id, pid)

    async def released(
        self, engine_id: EngineId, pid: int, before: MemoryLook | None, *, reset: bool
    ) -> None:
        del engine_id, pid, before, reset


async def no_pids(_engine: EngineId) -> tuple[int, ...]:
    return ()


class Scene:
    """One actor on a card."""

    def __init__(self, directory: Path, mib: int | None, **changes: Any) -> None:
        self.directory, self.panel = directory, Ticking()
        kept = CardKeeper(self.panel, clock=self.panel.clock, sleep=self.panel.sleep, pids=no_pids)
        card = Loading(self.panel, kept, mib)
        self.stage = Stage(directory, probe=EngineProbe(), card=card, **changes)

    def plan(self, **knobs: Any) -> LaunchPlan:
        return replace(scripted(self.directory, **{**DEVICE, **knobs}), key=CARD)

    def judged(self) -> list[str]:
        events = self.stage.events
        return [e.residency.state for e in events if isinstance(e, ResidencyJudged)]


@pytest.fixture
async def printed(tmp_path: Path) -> int:
    """MiB of device buffers that the scripted engine prints, as a verdict quotes them."""
    scene = Scene(tmp_path, 100)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        view = await actor.settled()
        says = next(e.says for e in view.residency.evidence if "the log lists" in e.says)
        return int(says.split()[3])


async def test_an_engine_whose_memory_is_there_is_resident_and_one_that_lacks_some_is_spilled(
    tmp_path: Path, printed: int
) -> None:
    for measured, state in ((printed + 54, "resident"), (printed - 900, "spilled")):
        scene = Scene(tmp_path, measured)
        async with scene.stage.running() as actor:
            actor.start(scene.plan())
            view = await actor.settled()
            assert (view.state, view.residency.state) == ("ready", state)


async def test_memory_that_is_lost_while_it_serves_is_told_once(
    tmp_path: Path, printed: int
) -> None:
    scene = Scene(tmp_path, printed + 54)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        view = await actor.settled()
        assert view.pid is not None
        revision = actor.revision
        scene.panel.clients = [holding(view.pid, printed - 1000)]
        await until(lambda: scene.judged() == ["resident", "spilled"])
        assert await actor.wait_change(revision) > revision
        assert (actor.verdict.label, actor.view().state) == ("spilled", "ready")
        await until(lambda: ("judged", scene.stage.first, "spilled") in scene.stage.ledger.notes)
        await scene.panel.more()
        assert scene.judged() == ["resident", "spilled"]


async def test_one_look_that_shows_less_is_no_spill(tmp_path: Path, printed: int) -> None:
    scene = Scene(tmp_path, printed + 54)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        view = await actor.settled()
        assert view.pid is not None
        whole = scene.panel.clients
        for _ in range(3):
            scene.panel.clients = [holding(view.pid, 100)]
            await scene.panel.more(1)
            scene.panel.clients = whole
            await scene.panel.more(2)
        assert scene.judged() == ["resident"]


async def test_memory_that_creeps_is_told_once(tmp_path: Path, printed: int) -> None:
    scene = Scene(tmp_path, printed + 54)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        await actor.settled()
        scene.panel.clients, scene.panel.step_mib = None, 8

        def told() -> list[MemoryCreeps]:
            return [e for e in scene.stage.events if isinstance(e, MemoryCreeps)]

        await until(lambda: bool(told()))
        await scene.panel.more(30)
        (creep,) = told()
        assert creep.grown_bytes >= 64 * MIB
        assert creep.arm == "tiny@0"
        assert actor.view().state == "ready"


async def test_an_engine_that_answers_errors_after_a_lost_card_is_killed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None)
    async with scene.stage.running() as actor:
        plan = scene.plan(lose_card_at_token=20)
        actor.start(plan)
        await actor.settled()
        async with EngineClient(plan.endpoint) as client:
            with pytest.raises(UpstreamError, match="ErrorDeviceLost"):
                await client.complete("/completion", {"prompt": "x", "n_predict": 64}, timeout_s=9)
        await until(lambda: "backoff" in scene.stage.states())
        failure = actor.view().failure
        assert failure is not None
        assert failure.failure == "device_lost"


class Nights:
    """Suspends that a test decides on."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.waking = Waking(clock=self.clock, publish=lambda _event: None)
        self.watched = anyio.Event()

    async def woken(self, after: int) -> int:
        if after >= 0:
            self.watched.set()
        return await self.waking.woken(after)

    async def end(self) -> None:
        await self.watched.wait()
        self.clock.suspend(28_800.0)
        self.waking.look()


def sleeping(directory: Path, mib: int | None, nights: Nights, **changes: Any) -> Scene:
    pulse = Pulse(ask=EngineProbe().answers, woken=nights.woken)
    return Scene(directory, mib, pulse=pulse, **changes)


async def never(_plan: LaunchPlan) -> float | None:
    await anyio.sleep_forever()
    return None


@pytest.mark.parametrize("counters", [True, False])
async def test_a_healthy_engine_is_asked_and_judged_anew_after_a_suspend(
    tmp_path: Path,
    printed: int,
    counters: bool,  # noqa: FBT001
) -> None:
    nights = Nights()
    scene = sleeping(tmp_path, printed if counters else None, nights)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        before = await actor.settled()
        await scene.panel.more()
        assert len(scene.judged()) == 1
        await nights.end()
        await until(lambda: len(scene.judged()) == 2)
        await scene.panel.more()
        assert scene.judged()[0] == scene.judged()[1]
        after = actor.view()
        assert (after.state, after.pid, after.id) == ("ready", before.pid, before.id)


async def test_an_engine_that_answers_errors_since_a_suspend_is_started_anew(
    tmp_path: Path,
) -> None:
    nights = Nights()
    scene = sleeping(tmp_path, None, nights)
    async with scene.stage.running() as actor:
        actor.start(scene.plan(lose_card_at_token=8, say_lost=False))
        assert (await actor.settled()).state == "ready"
        await nights.end()
        await until(lambda: "backoff" in scene.stage.states())
        failure = actor.view().failure
        assert failure is not None
        assert failure.failure == "device_lost"
        assert failure.reason == "since the machine was suspended, the engine answers errors only"


async def test_memory_that_a_suspend_took_is_no_proof_that_it_serves_as_before(
    tmp_path: Path, printed: int
) -> None:
    nights = Nights()
    scene = sleeping(tmp_path, printed, nights)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        await actor.settled()
        assert scene.judged() == ["resident"]
        scene.panel.vram_mib = 11
        scene.panel.clients = [holding(actor.view().pid or 0, 0)]
        await nights.end()
        await until(lambda: scene.judged()[1:] == ["spilled"])
        await scene.panel.more()
        assert len(scene.judged()) == 2


async def test_memory_that_is_back_a_moment_after_a_suspend_is_waited_for(
    tmp_path: Path, printed: int
) -> None:
    nights = Nights()
    # Who looks at all times does not: it would have to see less three times in a row.
    scene = sleeping(tmp_path, printed, nights, record=never)
    async with scene.stage.running() as actor:
        actor.start(scene.plan())
        await actor.settled()
        whole, total_mib = scene.panel.clients, scene.panel.vram_mib
        scene.panel.vram_mib = 11
        scene.panel.clients = [holding(actor.view().pid or 0, 0)]
        await nights.end()
        await scene.panel.more(2)
        assert scene.judged() == ["resident"]
        scene.panel.vram_mib, scene.panel.clients = total_mib, whole
        await until(lambda: scene.judged() == ["resident", "resident"])


async def test_a_line_that_only_quotes_a_lost_card_ends_no_engine_that_answers(
    tmp_path: Path,
) -> None:
    line = "0.1 W slot update: prompt: 'what does ErrorDeviceLost mean?'"
    scene = Scene(tmp_path, None)
    with capture_logs() as logs:
        async with scene.stage.running() as actor:
            actor.start(scene.plan(say_at_start=[line]))
            assert (await actor.settled()).state == "ready"
            await until(lambda: any(e["event"] == "engine.device_lost_denied" for e in logs))
            await scene.panel.more()
            assert scene.stage.states()[-1] == "ready"


async def test_a_gpu_runtime_that_found_no_card_is_a_failure_and_no_eviction(
    tmp_path: Path,
) -> None:
    line = "ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected"
    scene = Scene(tmp_path, 0)
    async with scene.stage.running() as actor:
        actor.start(scene.plan(say_at_start=[line], device=None))
        view = await actor.settled()
        assert view.state == "backoff"
        assert view.failure is not None
        assert view.failure.failure == "gpu_init"
        assert "no ROCm-capable device" in view.failure.reason
        assert scene.judged() == []


async def test_a_slow_engine_with_a_fused_kernel_off_is_evicted_by_its_signs(
    tmp_path: Path,
) -> None:
    off = "resolve_fused_ops: fused Gated Delta Net (chunked) not supported, set to disabled"

    async def record(plan: LaunchPlan) -> float:
        await anyio.lowlevel.checkpoint()
        assert plan.arm.depth == 0
        return 500.0

    scene = Scene(tmp_path, None, record=record)
    async with scene.stage.running() as actor:
        plan = scene.plan(say_while_loading=[off])
        actor.start(plan)
        view = await actor.settled()
        assert view.residency.state == "resident"
        assert view.residency.contradiction is not None
        async with EngineClient(plan.endpoint) as client:
            await client.complete("/completion", {"prompt": "x", "n_predict": 64}, timeout_s=9)
        await until(lambda: scene.judged()[-1:] == ["evicted"])
        assert actor.view().residency.confidence == "suspected"
