"""One operation from the hold to the decision: what serves afterwards, whatever happens.

The calibrator, the recorder, the database, the bus and the choices are the real ones; the
device is held by a script. The daemon as a whole is in tests/integration/test_daemon.py.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from structlog.testing import capture_logs

from mtpd.bus import Bus
from mtpd.calibrate import Calibrator
from mtpd.config.model import Offload, Pool
from mtpd.control.choices import Choices
from mtpd.control.limits import Limits
from mtpd.control.memory import Budget, Shape, forecast
from mtpd.control.memory_rows import ADVICE
from mtpd.control.plans import TuneRequest, probe_plan, tune_plan
from mtpd.control.recorder import StoreRecorder
from mtpd.control.tuning import Tuning
from mtpd.errors import CalibrationError, EngineError
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.operations_table import OperationRows
from mtpd.store.samples import Measurements
from mtpd.types import GateResult, NotApplicable
from tests.fakes.clock import FakeClock
from tests.fakes.values import operation_view
from tests.unit.control.big import CARD
from tests.unit.control.held import scripted
from tests.unit.control.made import arm, config, profile
from tuner.memory import QWEN35_27B_B2, LoadPlan, assumed, predict
from tuner.types import Evicted, Host, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from mtpd.config.model import HardwareProfile, Profile
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.tuning import TuningPlan
    from mtpd.views import DecisionView, Json, MeasurementView
    from tests.unit.control.held import Asked, ScriptedDevice
    from tuner.types import Arm, Residency

ALPHA, BETA = profile("alpha"), profile("beta", max_depth=1)
POOL = Pool(name="both", members=("alpha", "beta"))
CONFIG = config(ALPHA, BETA, pools=(POOL,))
OPERATION = "op-1"
NO_DEVICE = NotApplicable("there is no GPU")
SHUT = GateResult(passed=False, reason="the edge is at 71 °C, above 44 °C")


async def nothing_more(_profile: str, _fingerprint: str) -> dict[str, Json] | None:
    """A fingerprint of which only the digest is known."""
    return None


def no_device(which: Profile) -> MemoryForecast:
    """There is nothing to fit into."""
    return forecast(which, Unknown("no file"), NO_DEVICE, margin_bytes=None)


@dataclass
class House:
    """One tuning over a scripted device."""

    device: ScriptedDevice
    db: Database
    before: Arm | None
    gate: GateResult
    choices: Choices = field(default_factory=lambda: Choices(config=CONFIG))
    progress: list[tuple[int, int | None, str]] = field(default_factory=list)
    holds: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    busy: str | None = None
    memory: Callable[[Profile], MemoryForecast] = no_device
    hardware: HardwareProfile | None = None
    awake: Callable[[], Awaitable[None]] = checkpoint

    def report(self, done: int, total: int | None, note: str) -> None:
        self.progress.append((done, total, note))

    def ending(self, note: str) -> None:
        self.endings.append(note)

    async def forecast(self, which: Profile) -> MemoryForecast:
        return self.memory(which)

    async def gated(self) -> GateResult:
        return self.gate

    @asynccontextmanager
    async def hold(self, reason: str) -> AsyncIterator[ScriptedDevice]:
        self.holds.append(reason)
        yield self.device

    async def run(self, plan: TuningPlan) -> dict[str, Json]:
        tuning = Tuning(
            config=replace(CONFIG, hardware=self.hardware),
            calibrator=Calibrator(
                workloads=lambda: CONFIG.workloads, gate=self.gated, clock=FakeClock()
            ),
            recorder=StoreRecorder(
                measurements=Measurements(db=self.db, clock=FakeClock()),
                journal=Journal(db=self.db, clock=FakeClock()),
                bus=Bus(boot="b", clock=FakeClock()),
                describe=nothing_more,
            ),
            hold=self.hold,
            serving=lambda: self.before,
            chosen=self.choices.chosen,
            adopt=self.choices.adopt,
            busy=lambda: self.busy,
            memory=self.forecast,
            awake=self.awake,
        )
        return await tuning.run(plan, OPERATION, self)

    async def decisions(self) -> tuple[DecisionView, ...]:
        return await Journal(db=self.db, clock=FakeClock()).list()

    async def measurements(self) -> tuple[MeasurementView, ...]:
        return await Measurements(db=self.db, clock=FakeClock()).list()


@asynccontextmanager
async def house(
    folder: Path, *, before: Arm | None = None, gate: GateResult | None = None, **device: Any
) -> AsyncIterator[House]:
    async with (
        await Database.open(folder / "state.sqlite3", FakeClock()) as db,
        scripted(folder, **device) as held,
    ):
        await OperationRows(db=db).insert(operation_view(id=OPERATION), key=None)
        opened = gate or GateResult(passed=True, reason="not applicable (no GPU)")
        yield House(device=held, db=db, before=before, gate=opened)


def plan(subject: str = "alpha", **changes: Any) -> TuningPlan:
    asked: dict[str, Any] = {
        "method": "sweep",
        "depths": (0, 1),
        "workloads": ("short",),
        "prompts": 2,
        "repetitions": 1,
        "max_tokens": 24,
        "apply": True,
    }
    return tune_plan(CONFIG, TuneRequest(subject=subject, **{**asked, **changes}))


async def test_what_was_chosen_is_adopted_and_served(tmp_path: Path) -> None:
    async with house(tmp_path, before=arm("beta")) as made:
        result = await made.run(plan())
        (decision,) = await made.decisions()
        taken = await made.measurements()
    assert made.holds == ["sweep of alpha"]
    assert (decision.act, decision.subject, decision.operation_id) == ("choose", "alpha", OPERATION)
    assert decision.measurement_ids == tuple(one.id for one in taken)
    assert len(taken) == 4
    assert made.choices.measured("alpha") == made.device.running == arm("alpha", 1)
    assert (result["subject"], result["method"], result["applied"]) == ("alpha", "sweep", True)


async def test_the_arm_that_was_measured_last_is_not_started_again_to_serve(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as made:
        await made.run(plan())
    assert made.device.starts == [arm("alpha"), arm("alpha", 1)]


async def test_a_finding_that_is_not_applied_brings_back_what_served(tmp_path: Path) -> None:
    async with house(tmp_path, before=arm("beta", 1)) as made:
        await made.run(plan(apply=False))
        (decision,) = await made.decisions()
    assert decision.act == "measure"
    assert made.choices.measured("alpha") is None
    assert made.device.running == arm("beta", 1)


async def test_a_probe_decides_nothing_and_brings_back_what_served(tmp_path: Path) -> None:
    async with house(tmp_path, before=arm("alpha", 3)) as made:
        await made.run(probe_plan(CONFIG, "alpha", 2))
        (decision,) = await made.decisions()
    assert (decision.act, decision.reason[:13]) == ("measure", "depth 2 pays:")
    assert made.choices.measured("alpha") is None
    assert made.device.running == arm("alpha", 3)
    assert made.device.starts[0] == arm("alpha", 2)
    assert made.progress[-1][0] == made.progress[-1][1]


async def test_where_nothing_served_nothing_is_left_running(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(apply=False))
        assert made.device.running is None


async def test_a_pool_is_decided_after_its_members_from_all_their_cells(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        result = await made.run(plan("both", depths=None))
        alpha, beta, both = await made.decisions()
        taken = await made.measurements()
    assert [d.subject for d in (alpha, beta, both)] == ["alpha", "beta", "both"]
    ids = {name: [m.id for m in taken if m.arm.profile == name] for name in ("alpha", "beta")}
    assert list(alpha.measurement_ids) == ids["alpha"]
    assert list(beta.measurement_ids) == ids["beta"]
    assert list(both.measurement_ids) == [*ids["alpha"], *ids["beta"]]
    assert both.arm is not None
    assert made.choices.pools() == {"both": both.arm.profile}
    assert made.device.running == made.choices.measured("both")
    assert isinstance(result["depths"], list)
    assert len(result["depths"]) == 6


async def test_progress_counts_over_all_models_up_to_the_announced_total(tmp_path: Path) -> None:
    wanted = plan("both", depths=None, repetitions=2)
    async with house(tmp_path) as made:
        await made.run(wanted)
    assert wanted.total() == (4 + 2) * 2 * 2
    assert {total for _, total, _ in made.progress} == {24}
    done = [count for count, _, _ in made.progress]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 24)
    first_of_beta = next(p for p in made.progress if p[2].endswith("starting beta@0"))
    assert first_of_beta[0] == 16
    assert first_of_beta[2] == "start 1 of at most 4: starting beta@0"


async def test_what_was_not_started_is_told_with_why(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        result = await made.run(plan(method="model-based", depths=None, repetitions=2))
        everything = await made.run(plan(depths=(0, 1)))
    told = result["not_started"]
    assert isinstance(told, list)
    started = {str(which) for which in made.device.starts[:-2]}
    assert told
    assert {str(line).split()[0] for line in told} | started >= {f"alpha@{d}" for d in range(4)}
    assert all("does not pay" in str(line) for line in told)
    assert everything["not_started"] == []


async def test_a_search_says_which_start_this_is_and_how_far_it_goes(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan(method="model-based", depths=None))
    cells = 2
    waits = "draining; requests wait until the end, each at most 120 s"
    assert made.progress[0] == (0, None, waits)
    assert made.progress[1] == (0, cells, "start 1 of at most 6: starting alpha@2")
    for done, total, note in made.progress[1:]:
        start = int(note.split()[1])
        assert total == cells * start
        assert cells * (start - 1) <= done <= total


def depth_one_fits(which: Profile) -> MemoryForecast:
    """The 27B hybrid on a card that holds it at depth 1 and certainly not at depth 2."""
    shape = Shape(geometry=QWEN35_27B_B2, calibration=assumed(QWEN35_27B_B2))
    sums = [
        predict(QWEN35_27B_B2, LoadPlan(context=4096, depth=depth), shape.calibration)
        for depth in (1, 2)
    ]
    between = (sums[0].high + sums[1].low) // 2 + 2**26
    budget = Budget(free_bytes=between, headroom_bytes=0, source="a test")
    return forecast(which, shape, budget, margin_bytes=0)


async def test_depths_that_are_certain_not_to_fit_are_not_started(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        made.memory = depth_one_fits
        await made.run(plan(depths=None))
        (decision,) = await made.decisions()
        recorded = await Journal(db=made.db, clock=FakeClock()).inputs(decision.id)
    out = {one.arm.depth for one in depth_one_fits(ALPHA).out}
    assert out >= {3}
    assert 1 not in out
    assert {which.depth for which in made.device.starts} == {0, 1, 2, 3} - out
    said = [line for line in decision.evidence if "does not fit (predicted: " in line]
    assert [line.split(":")[0] for line in said] == [f"alpha@{depth}" for depth in sorted(out)]
    assert not any("does not pay" in line for line in said)
    assert recorded is not None
    assert recorded[1]["memory_bytes"]


async def test_what_a_start_showed_not_to_fit_comes_with_what_would_make_it_fit(
    tmp_path: Path,
) -> None:
    def residency(which: Arm) -> Residency:
        return Evicted(layers=4) if which.depth else Host()

    async with house(tmp_path, residency=residency) as made:
        made.memory = depth_one_fits
        accepting = replace(ALPHA, offload=Offload.ACCEPT)
        await made.run(replace(plan(depths=(0, 3)), profiles=(accepting,)))
        (decision,) = await made.decisions()
    (said,) = [line for line in decision.evidence if ADVICE in line]
    assert said.startswith(f"alpha@3: {ADVICE}depth 3, ")
    assert "enough is" in said
    assert "4 layers on the CPU (from seven evicted cells" in said


async def test_an_offload_that_is_accepted_leaves_every_depth_open(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        made.memory = depth_one_fits
        accepting = replace(ALPHA, offload=Offload.ACCEPT)
        await made.run(replace(plan(depths=None), profiles=(accepting,)))
    assert {which.depth for which in made.device.starts} == {0, 1, 2, 3}


async def test_a_model_that_fits_at_no_depth_is_tuned_where_its_profile_accepts_that(
    tmp_path: Path,
) -> None:
    pool = replace(POOL, members=("alpha",), offload=Offload.ACCEPT)
    accepting = replace(ALPHA, offload=Offload.ACCEPT)
    async with house(tmp_path, residency=lambda _arm: Evicted(layers=4)) as made:
        asked = replace(plan("both", method="model-based", depths=None), pool=pool)
        await made.run(replace(asked, profiles=(accepting,), depths=asked.depths[:1]))
        alpha, both = await made.decisions()
        recorded = await Journal(db=made.db, clock=FakeClock()).inputs(alpha.id)
    assert sorted(which.depth for which in made.device.starts) == [0, 1, 2, 3]
    assert (alpha.act, both.act) == ("choose", "choose")
    assert "tok/s, partly on the CPU, " in alpha.reason
    assert both.arm == alpha.arm
    assert "partly on the CPU" in both.reason
    assert recorded is not None
    assert recorded[1]["accept_offload"] is True


async def test_the_bounds_of_a_pool_keep_members_out(tmp_path: Path) -> None:
    pool = replace(POOL, min_context=8192)
    async with house(tmp_path) as made:
        asked = plan("both", depths=(0,))
        wide = replace(BETA, context=8192)
        await made.run(replace(asked, pool=pool, profiles=(ALPHA, wide)))
        *_, both = await made.decisions()
        quality = replace(asked, pool=replace(POOL, quality_bound=1.05))
        await made.run(replace(quality, apply=False))
        *_, bounded = await made.decisions()
    assert both.arm is not None
    assert both.arm.profile == "beta"
    assert any("holds 4096 of 8192 tokens (R1)" in line for line in both.evidence)
    assert "has no measured perplexity (R0)" in bounded.reason


async def test_the_row_cost_of_the_cards_profile_is_what_the_search_takes_for_likely(
    tmp_path: Path,
) -> None:
    card = replace(CARD, row_cost=0.41, row_cost_sd=0.2, row_cost_source="three cells")
    found: list[Any] = []
    for number, memory in enumerate((depth_one_fits, no_device)):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with house(folder) as made:
            made.memory, made.hardware = memory, card
            await made.run(plan(method="model-based", depths=(0, 1)))
            (decision,) = await made.decisions()
            recorded = await Journal(db=made.db, clock=FakeClock()).inputs(decision.id)
        assert recorded is not None
        found.append(recorded[1]["row_cost"])
    assert found == [{"c": 0.41, "sd": 0.2, "source": "the hardware profile card"}, None]


async def test_the_starts_of_a_pool_are_limited_together(tmp_path: Path) -> None:
    limits = Limits(max_starts=3)
    async with house(tmp_path) as made:
        await made.run(plan("both", depths=(0, 1), limits=limits))
        decisions = await made.decisions()
    assert made.device.starts[:3] == [arm("alpha"), arm("alpha", 1), arm("beta")]
    assert made.device.starts[3:] in ([], [arm("alpha")], [arm("alpha", 1)])
    assert [d.subject for d in decisions] == ["alpha", "beta", "both"]


async def test_a_member_that_could_not_be_measured_is_named_in_the_choice_of_the_pool(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as made:
        await made.run(plan("both", depths=(0,), limits=Limits(max_starts=1)))
        *_, both = await made.decisions()
    said = [line for line in both.evidence if "was not compared" in line]
    assert said == [
        "beta was not compared: nothing could be measured: the budget of 0 engine starts is spent"
    ]


async def test_a_member_that_is_evicted_at_every_depth_is_named_in_the_choice_of_the_pool(
    tmp_path: Path,
) -> None:
    def residency(which: Arm) -> Residency:
        return Evicted(layers=4) if which.profile == "beta" else Host()

    async with house(tmp_path, residency=residency) as made:
        await made.run(plan("both", depths=(0,)))
        *_, both = await made.decisions()
    (said,) = [line for line in both.evidence if "was not compared" in line]
    assert said.startswith("beta was not compared: no")
    assert "does not fit" in said or "layers" in said


async def test_the_evidence_of_every_start_is_written_down(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan("both", depths=(0,)))
        journal = Journal(db=made.db, clock=FakeClock())
        kept = {
            decision.subject: await journal.inputs(decision.id)
            for decision in await made.decisions()
        }
    verdicts = {name: found[1]["verdicts"] for name, found in kept.items() if found is not None}
    assert isinstance(verdicts["both"], dict)
    assert set(verdicts["both"]) == {"engine-1", "engine-2"}
    assert verdicts["alpha"] == {"engine-1": verdicts["both"]["engine-1"]}
    first = verdicts["both"]["engine-1"]
    assert isinstance(first, dict)
    assert (first["state"], first["reason"]) == ("host", "scripted")


async def test_an_arm_that_dies_is_in_the_result_and_the_others_are_chosen_from(
    tmp_path: Path,
) -> None:
    def trouble(asked: Asked) -> str | None:
        return "die" if asked.arm.depth == 1 else None

    async with house(tmp_path, trouble=trouble) as made:
        result = await made.run(plan(depths=(0, 1, 2)))
    found: Any = result["depths"]
    rows = {row["arm"]["depth"]: row for row in found}
    assert rows[1]["decode_tps"] is None
    assert "the engine did not answer /v1/chat/completions" in rows[1]["note"]
    assert rows[2]["decode_tps"] > rows[0]["decode_tps"]
    assert made.device.running == made.choices.measured("alpha") == arm("alpha", 2)


@pytest.mark.parametrize("before", [arm("beta", 1), None], ids=["something served", "nothing"])
async def test_a_cancelled_operation_brings_back_what_served(
    tmp_path: Path, before: Arm | None
) -> None:
    def trouble(asked: Asked) -> str | None:
        return "hang" if (asked.arm, asked.number) == (arm("alpha", 1), 3) else None

    async with house(tmp_path, before=before, trouble=trouble) as made:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.run, plan())
            with anyio.fail_after(10):
                await made.device.hanging.wait()
            tasks.cancel_scope.cancel()
        assert made.device.running == before
        assert await made.decisions() == ()
        assert len(await made.measurements()) == 3
    assert made.choices.measured("alpha") is None
    said = "nothing served before" if before is None else f"{before} serves again"
    assert made.endings == [said]


@pytest.mark.parametrize("last", [2, 99], ids=["within a cell", "after the last"])
async def test_what_was_slept_through_is_neither_stored_nor_decided_from(
    tmp_path: Path, last: int
) -> None:
    scope, before = anyio.CancelScope(), arm("beta", 1)

    async with house(tmp_path, before=before) as made:

        async def awake() -> None:
            if len(await made.measurements()) == min(last, cells):
                scope.cancel()
            await checkpoint_if_cancelled()

        asked = plan(method="sweep", depths=(0, 1))
        cells = asked.total() or 0
        assert cells > 2
        made.awake = awake
        with scope:
            await made.run(asked)
        assert scope.cancelled_caught
        assert made.device.running == before
        assert await made.decisions() == ()
        assert len(await made.measurements()) == min(last, cells)


async def test_a_gate_that_does_not_open_is_told_and_brings_back_what_served(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, before=arm("beta", 1), gate=SHUT) as made:
        with pytest.raises(CalibrationError, match="the measurement gate did not open: the edge"):
            await made.run(plan())
        assert made.device.running == arm("beta", 1)
        assert await made.decisions() == ()
    assert made.choices.measured("alpha") is None


async def test_when_nothing_could_be_measured_what_served_comes_back(tmp_path: Path) -> None:
    def broken(which: Arm, _start: int) -> str | None:
        return "it was killed by SIGILL" if which.profile == "alpha" else None

    async with house(tmp_path, before=arm("beta", 1), broken=broken) as made:
        with pytest.raises(CalibrationError, match="killed by SIGILL"):
            await made.run(plan())
        assert made.device.running == arm("beta", 1)


async def test_a_pool_of_which_no_member_could_be_measured_has_failed_with_why_of_each(
    tmp_path: Path,
) -> None:
    def broken(which: Arm, _start: int) -> str | None:
        return f"the model file of {which.profile} is damaged"

    async with house(tmp_path, before=None, broken=broken) as made:
        with pytest.raises(CalibrationError) as caught:
            await made.run(plan("both", depths=(0,)))
        told = await made.decisions()
    assert str(caught.value) == (
        "no member of both could be measured: alpha: the model file of alpha is damaged; "
        "beta: the model file of beta is damaged"
    )
    assert [one.subject for one in told] == ["alpha", "beta"], "what was seen is written down"
    assert made.choices.measured("both") is None


async def test_what_cannot_come_back_does_not_hide_why_the_operation_ended(
    tmp_path: Path,
) -> None:
    def broken(which: Arm, _start: int) -> str | None:
        return "its model file vanished" if which.profile == "beta" else None

    async with house(tmp_path, before=arm("beta"), gate=SHUT, broken=broken) as made:
        with capture_logs() as lines, pytest.raises(CalibrationError, match="did not open"):
            await made.run(plan())
        assert made.device.running is None
    (warning,) = [line for line in lines if line["event"] == "tuning.not_brought_back"]
    assert (warning["arm"], warning["reason"]) == ("beta@0", "its model file vanished")


async def test_a_cancelled_operation_stays_cancelled_if_nothing_comes_back(
    tmp_path: Path,
) -> None:
    def trouble(asked: Asked) -> str | None:
        return "hang" if asked.number == 2 else None

    def broken(which: Arm, _start: int) -> str | None:
        return "its model file vanished" if which.profile == "beta" else None

    async with house(tmp_path, before=arm("beta"), trouble=trouble, broken=broken) as made:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.run, plan())
            with anyio.fail_after(10):
                await made.device.hanging.wait()
            tasks.cancel_scope.cancel()
        assert made.device.starts[-1] == arm("beta")
        assert made.device.running is None
    assert made.endings == ["beta@0 does not serve again yet"]


async def test_a_chosen_arm_that_does_not_serve_is_an_error_with_its_reason(
    tmp_path: Path,
) -> None:
    def broken(which: Arm, start: int) -> str | None:
        return "out of memory" if (which, start) == (arm("alpha"), 2) else None

    def trouble(asked: Asked) -> str | None:
        # Depth 1 never measures anything, so depth 0 is chosen and must be started again.
        return "die" if asked.arm.depth == 1 else None

    async with house(tmp_path, broken=broken, trouble=trouble) as made:
        with pytest.raises(EngineError, match="out of memory"):
            await made.run(plan())
        (decision,) = await made.decisions()
    assert decision.arm is not None
    assert decision.arm.depth == 0


async def test_the_incumbent_stays_when_the_depths_tie(tmp_path: Path) -> None:
    async with house(tmp_path) as made:
        await made.run(plan())
        again = await made.run(plan())
        first, second = await made.decisions()
    assert (first.act, second.act) == ("choose", "keep")
    assert second.previous == first.arm == second.arm
    assert again["applied"] is True


async def test_a_busy_machine_is_noted_with_the_decision_and_told(tmp_path: Path) -> None:
    note = "the machine was busy when this began (load 3.0 on 2 cores)"
    async with house(tmp_path) as made:
        made.busy = note
        result = await made.run(plan())
        (decision,) = await made.decisions()
    assert result["warnings"] == [note]
    assert decision.evidence[-1] == note
