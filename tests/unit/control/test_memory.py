"""From a profile to the verdict per depth, with the sums that a real card printed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.model import DrafterConfig, Fit, HardwareProfile
from mtpd.control import memory
from mtpd.control.memory import Budget, Shape
from mtpd.control.memory_rows import memory_view, notes, speed_of
from mtpd.control.printed import PrintedSums, calibration
from mtpd.control.shapes import (
    DeviceBudget,
    MemoryPlanner,
    described,
    forecast_now,
    geometry_of,
    logged_sums,
)
from mtpd.engine import logs
from mtpd.gpu.base import absent_everywhere
from mtpd.types import NotApplicable, Value
from mtpd.units import DeviceKey
from tests.fakes.big_model import write_27b
from tests.unit.control.made import BINARY, arm, config, observation, profile
from tuner.advisor import Speed
from tuner.memory import QWEN35_27B_B2, Evicts, Fits, KvType, LoadPlan, assumed
from tuner.summary import summarise
from tuner.types import Drafter, Unknown

if TYPE_CHECKING:
    from mtpd.config.model import Profile
    from mtpd.control.memory import MemoryForecast
    from mtpd.gpu.base import GpuReading

CORPUS = Path(__file__).parents[2] / "corpus" / "gpu_logs"
MIB = 2**20
CARD = HardwareProfile(
    name="card",
    description="a card",
    isa="gfx906",
    vram_mib=16368,
    power_cap_w=None,
    gate_edge_c=None,
    row_cost=None,
    row_cost_source=None,
    drafting_note=None,
)
NO_CARD = NotApplicable("there is no GPU")
SHAPE = Shape(geometry=QWEN35_27B_B2, calibration=assumed(QWEN35_27B_B2))


def big(**changes: Any) -> Profile:
    """Note 002's model, slots and context."""
    options: dict[str, Any] = {
        "context": 4096,
        "slots": 2,
        "kv_type": "q8_0",
        "draft_kv_type": "f16",
        "fit": Fit.ENGINE,
        "max_depth": 5,
    }
    return profile("big", **{**options, **changes})


def on_card(which: Profile, free_mib: int | None = 16368, shape: Any = SHAPE) -> MemoryForecast:
    free = None if free_mib is None else free_mib * MIB
    budget = Budget(free_bytes=free, headroom_bytes=256 * MIB, source="a test")
    margin = memory.margin_bytes(which, None, 256)
    return memory.forecast(which, shape, budget, margin_bytes=margin)


def test_depths_from_the_engines_margin_on_are_out_and_the_others_are_certain() -> None:
    found = on_card(big())
    assert [one.arm.depth for one in found.out] == [3, 4, 5]
    assert found.deepest == 2
    assert set(found.memory_bytes) == {arm("big", depth) for depth in range(6)}
    sizes = [found.memory_bytes[arm("big", depth)] for depth in range(6)]
    assert sizes == sorted(sizes)


def test_every_depth_that_fits_makes_the_last_one_the_deepest() -> None:
    found = on_card(big(), free_mib=24000)
    assert (found.out, found.deepest) == ((), 5)


def test_a_depth_within_the_error_of_the_prediction_stays_open() -> None:
    found = on_card(big(fit=Fit.OFF), free_mib=15671 + 256 + 64)
    verdicts = [type(one.verdict) for one in found.arms]
    assert verdicts[3] is Unknown
    assert verdicts[0] is Fits
    assert verdicts[5] is Evicts
    assert 3 not in {one.arm.depth for one in found.out}
    assert found.deepest is None, "nothing is certain of depth 3"


def test_depth_zero_is_left_to_a_start_even_if_it_is_predicted_not_to_fit() -> None:
    found = on_card(big(), free_mib=8000)
    assert isinstance(found.arms[0].verdict, Evicts)
    assert [one.arm.depth for one in found.out] == [1, 2, 3, 4, 5]
    assert found.deepest is None


def test_unknown_free_memory_takes_no_depth_out() -> None:
    found = on_card(big(), free_mib=None)
    assert (found.out, found.deepest) == ((), None)
    assert all(isinstance(one.verdict, Unknown) for one in found.arms)
    assert found.memory_bytes, "the sums are predicted all the same"


def test_without_a_device_nothing_fits_and_nothing_is_evicted() -> None:
    found = memory.forecast(big(), SHAPE, NO_CARD, margin_bytes=None)
    assert {one.verdict for one in found.arms} == {NO_CARD}
    assert (found.out, found.deepest, found.advice(3), found.joint()) == ((), 5, None, ())
    view = memory_view(found, wanted=3)
    assert {one.verdict for one in view.depths} == {"not_applicable"}
    assert (view.free_bytes, view.margin_bytes, view.source) == (None, None, "there is no GPU")


def test_without_a_shape_everything_is_unknown_with_its_reason() -> None:
    found = on_card(big(), shape=Unknown("the file is damaged"))
    assert {one.verdict for one in found.arms} == {Unknown("the file is damaged")}
    assert (found.memory_bytes, found.deepest, found.advice(3), found.joint()) == (
        {},
        None,
        None,
        (),
    )
    view = memory_view(found)
    assert [one.predicted for one in view.depths] == [None] * 6
    assert (view.calibration, view.advice) == (None, ())


@pytest.mark.parametrize(
    ("changes", "depth", "reason"),
    [
        ({"n_gpu_layers": 20}, 0, "its profile says itself how many layers go to the device"),
        (
            {"flash_attention": "off"},
            0,
            "the compute buffers without flash attention are not predicted",
        ),
        (
            {"drafter": DrafterConfig(kind=Drafter.DRAFT_MODEL, max_depth=2, model="/d.gguf")},
            1,
            "what a drafter of kind draft-model needs is not predicted",
        ),
    ],
)
def test_what_the_prediction_does_not_cover_is_unknown(
    changes: dict[str, Any], depth: int, reason: str
) -> None:
    assert memory.load_plan(big(**changes), depth, SHAPE) == Unknown(reason)


def test_a_separate_drafter_leaves_depth_zero_predicted() -> None:
    other = DrafterConfig(kind=Drafter.DRAFT_MODEL, max_depth=2, model="/d.gguf")
    found = on_card(big(drafter=other))
    assert isinstance(found.arms[0].verdict, Fits)
    assert found.deepest is None
    assert list(found.memory_bytes) == [arm("big", 0)]


def test_a_file_without_a_head_cannot_draft(tmp_path: Path) -> None:
    shape = geometry_of(str(write_27b(tmp_path / "m.gguf", blocks=64, mtp=0)))
    assert not isinstance(shape, Unknown)
    known = Shape(geometry=shape, calibration=assumed(shape))
    assert memory.load_plan(big(), 1, known) == Unknown("the file has no MTP block to draft with")
    assert isinstance(memory.load_plan(big(), 0, known), LoadPlan)


def test_the_draft_cache_follows_the_profile_as_the_command_line_does() -> None:
    plan = memory.load_plan(big(draft_kv_type=None, ubatch=256), 2, SHAPE)
    assert plan == LoadPlan(
        context=4096,
        slots=2,
        depth=2,
        kv_type_k=KvType.Q8_0,
        kv_type_v=KvType.Q8_0,
        draft_kv_type_k=KvType.Q8_0,
        draft_kv_type_v=KvType.Q8_0,
        ubatch=256,
    )


def test_the_margin_is_what_the_command_line_tells_the_engine() -> None:
    assert memory.margin_bytes(big(fit=Fit.ENGINE), None, 256) == 1024 * MIB
    assert memory.margin_bytes(big(fit=Fit.OFF), None, 256) is None
    assert memory.margin_bytes(big(fit=Fit.AUTO), None, 256) == 256 * MIB
    # This build has no fit that could be told a margin: every layer goes to the device.
    assert memory.margin_bytes(big(fit=Fit.AUTO), BINARY, 256) is None


def test_advice_for_note_002_names_the_margin_first_and_predicts_other_depths() -> None:
    found = on_card(big())
    view = memory_view(found, wanted=5, speed=Speed(alphas=(0.9, 0.8, 0.6), row_cost=0.41))
    assert [one.depth for one in view.advice] == [3, 5]
    three = view.advice[0]
    assert [(one.lever, one.enough) for one in three.options][:2] == [
        ("fit margin", True),
        ("slots", True),
    ]
    ratios = {one.lever: one.tps_ratio for one in three.options}
    # E(2)/(1 + .82) over E(3)/(1 + 1.23), from alphas and row cost: 2.62/1.82 over 3.052/2.23
    assert ratios["depth"] == pytest.approx((2.62 / 1.82) / (3.052 / 2.23))
    assert ratios["KV type"] is None
    assert three.together == ("a fit margin of 256 MiB",)
    assert "from seven evicted cells" in three.reason
    assert view.best is not None
    assert view.best.startswith("depth 1, 2 slots, ") or view.best.startswith("depth 2, 2 slots, ")
    assert "(predicted)" in view.best
    assert memory_view(found).best is None, "nothing was measured"


def test_the_evidence_says_does_not_fit_for_each_depth_that_is_out() -> None:
    said = notes(on_card(big()), [arm("big", depth) for depth in (3, 4, 5)])
    assert [line.split(":")[0] for line in said] == ["big@3", "big@4", "big@5"]
    assert all(line.split(": ")[1].startswith("does not fit (predicted") for line in said)
    assert all("does not pay" not in line for line in said)


def test_slots_context_and_depth_are_chosen_together() -> None:
    view = memory_view(on_card(big(fit=Fit.AUTO)))
    loads = {(one.slots, one.context): one.depth for one in view.joint}
    assert loads[1, 8192] == 5, "one slot less buys two depths"
    assert loads[2, 8192] == 3


@pytest.mark.parametrize("name", ["free_b2_n0", "free_b2_n1", "free_b2_n3", "free_b2_n5"])
def test_a_resident_start_calibrates_every_depth_to_what_other_starts_printed(name: str) -> None:
    sums = logged_sums(CORPUS / f"{name}.log")
    assert sums is not None
    assert (sums.depth, sums.slots, sums.context_per_slot) == (int(name[-1]), 2, 2048)
    plan = memory.load_plan(big(), 0, SHAPE)
    assert isinstance(plan, LoadPlan)
    found = calibration(QWEN35_27B_B2, plan, sums)
    assert found.source == "calibrated by a start"


@pytest.mark.parametrize("name", ["fit16_b2_n1", "fit16_b2_n4"])
def test_an_evicted_start_calibrates_nothing(name: str) -> None:
    sums = logged_sums(CORPUS / f"{name}.log")
    assert sums is not None
    assert sums.host_cache
    plan = memory.load_plan(big(), 0, SHAPE)
    assert isinstance(plan, LoadPlan)
    assert calibration(QWEN35_27B_B2, plan, sums) == assumed(QWEN35_27B_B2)


@pytest.mark.parametrize("changes", [{"slots": 1}, {"context": 8192}, {"kv_type": "f16"}])
def test_a_start_with_other_options_calibrates_nothing(changes: dict[str, Any]) -> None:
    sums = logged_sums(CORPUS / "free_b2_n3.log")
    plan = memory.load_plan(big(**changes), 0, SHAPE)
    assert sums is not None
    assert isinstance(plan, LoadPlan)
    assert calibration(QWEN35_27B_B2, plan, sums).source == "assumed from other cards"


def test_the_lines_that_are_read_are_all_that_the_sums_need() -> None:
    for path in sorted(CORPUS.glob("*.log")):
        every = PrintedSums()
        for line in path.read_text(encoding="utf-8").splitlines():
            if (fact := logs.fact(line)) is not None:
                every.hear(fact)
        assert logged_sums(path) == every.last is not None, path.name


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert logged_sums(tmp_path / "none.log") is None


def test_a_start_that_did_not_come_to_its_end_says_nothing() -> None:
    sums = PrintedSums()
    for line in (CORPUS / "free_b2_n3.log").read_text(encoding="utf-8").splitlines():
        if "model loaded" in line:
            break
        if (fact := logs.fact(line)) is not None:
            sums.hear(fact)
    assert sums.last is None


class Card:
    """A card with a reading that a test changes."""

    def __init__(self, total_mib: int | None, used_mib: int = 0) -> None:
        self.total_mib, self.used_mib = total_mib, used_mib

    def read(self) -> GpuReading:
        nothing = absent_everywhere("it says nothing")
        if self.total_mib is None:
            return nothing
        return replace(
            nothing,
            vram_total_bytes=Value(self.total_mib * MIB, "fake"),
            vram_used_bytes=Value(self.used_mib * MIB, "fake"),
        )


def budget_of(
    card: Card, *, is_gpu: bool = True, hardware: HardwareProfile | None = CARD
) -> DeviceBudget:
    return DeviceBudget(
        read=card.read,
        device=DeviceKey("0000:03:00.0"),
        is_gpu=is_gpu,
        hardware=hardware,
        headroom_mib=256,
    )


def free_mib(budget: Budget | NotApplicable) -> float | None:
    assert isinstance(budget, Budget)
    return None if budget.free_bytes is None else budget.free_bytes / MIB


def test_the_card_that_answers_goes_before_the_profile_that_describes_it() -> None:
    found = budget_of(Card(16000, 300)).read(alone=True)
    assert free_mib(found) == 15700
    assert isinstance(found, Budget)
    assert (found.source, found.forecast) == ("measured on 0000:03:00.0 by fake", False)


def test_while_an_engine_of_ours_runs_what_was_free_before_counts() -> None:
    card = Card(16000, 300)
    budget = budget_of(card)
    assert free_mib(budget.read(alone=True)) == 15700
    card.used_mib = 15000
    assert free_mib(budget.read(alone=False)) == 15700
    assert free_mib(budget.read(alone=True)) == 1000


def test_a_card_that_does_not_answer_is_taken_from_its_profile_else_unknown() -> None:
    silent = Card(None)
    assert budget_of(silent).read(alone=True) == described(CARD, 256 * MIB)
    unknown = budget_of(silent, hardware=None).read(alone=True)
    assert free_mib(unknown) is None


def test_engines_on_the_host_have_no_budget_whatever_hardware_is_named() -> None:
    assert isinstance(budget_of(Card(16000), is_gpu=False).read(alone=True), NotApplicable)


async def test_a_planner_reads_a_header_once_and_again_after_the_file_changed(
    tmp_path: Path,
) -> None:
    file = write_27b(tmp_path / "b2.gguf")
    which = big(model=str(file))
    planner = planner_of(which, tmp_path)
    first = await planner.forecast(which)
    assert not isinstance(first.shape, Unknown)
    assert first.shape.geometry.nextn_layers == 1
    write_27b(file, blocks=64, mtp=0)
    again = await planner.forecast(which)
    assert not isinstance(again.shape, Unknown)
    assert again.shape.geometry.nextn_layers == 0
    file.unlink()
    assert isinstance((await planner.forecast(which)).shape, Unknown)


async def test_a_planner_is_calibrated_by_the_log_before_and_by_what_it_hears(
    tmp_path: Path,
) -> None:
    which = big(model=str(write_27b(tmp_path / "b2.gguf")))
    assert source(await planner_of(which, tmp_path).forecast(which)) == "assumed from other cards"
    shutil.copy(CORPUS / "free_b2_n2.log", tmp_path / "big.log")
    assert source(await planner_of(which, tmp_path).forecast(which)) == "calibrated by a start"
    (tmp_path / "big.log").unlink()
    planner = planner_of(which, tmp_path)
    for line in (CORPUS / "free_b2_n2.log").read_text(encoding="utf-8").splitlines():
        if (fact := logs.fact(line)) is not None:
            planner.hear("big", fact)
    assert source(await planner.forecast(which)) == "calibrated by a start"


def source(found: MemoryForecast) -> str:
    assert not isinstance(found.shape, Unknown)
    return found.shape.calibration.source


def planner_of(which: Profile, folder: Path) -> MemoryPlanner:
    return MemoryPlanner(
        config=config(which),
        binary=BINARY,
        budget=budget_of(Card(16368)),
        alone=lambda: True,
        log_of=lambda name: folder / f"{name}.log",
    )


def test_a_file_that_is_no_gguf_is_unknown_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"not a model")
    found = forecast_now(
        config(),
        big(model=str(tmp_path / "m.gguf")),
        described(CARD, 0),
        binary=None,
        sums=None,
    )
    assert isinstance(found.shape, Unknown)
    assert "is not a GGUF file" in found.shape.reason


def test_the_speed_at_other_depths_comes_from_the_deepest_counts_and_two_step_times() -> None:
    rows = summarise([observation(arm("big", depth)) for depth in (0, 2)])
    known = speed_of(rows, None)
    assert known is not None
    assert len(known.alphas) == 2
    # 40 steps in .8 s at depth 2 against 40 tokens in .8 s at depth 0: a row costs nothing.
    assert known.row_cost == pytest.approx(0.0)
    one = summarise([observation(arm("big", 2))])
    assert speed_of(one, None) is None, "one depth shows no row cost"
    described_cost = speed_of(one, replace(CARD, row_cost=0.41))
    assert described_cost is not None
    assert described_cost.row_cost == 0.41
    assert speed_of(summarise([observation(arm("big"))]), replace(CARD, row_cost=0.41)) is None
    assert speed_of((), CARD) is None


def test_the_deepest_counts_say_more_than_shallow_ones() -> None:
    known = speed_of(summarise([observation(arm("big", depth)) for depth in (1, 3)]), None)
    assert known is not None
    assert len(known.alphas) == 3


def test_a_cache_in_host_memory_calibrates_nothing_even_if_all_sizes_agree() -> None:
    sums = logged_sums(CORPUS / "free_b2_n3.log")
    plan = memory.load_plan(big(), 0, SHAPE)
    assert sums is not None
    assert isinstance(plan, LoadPlan)
    spilled = replace(sums, host_cache=True)
    assert calibration(QWEN35_27B_B2, plan, spilled) == assumed(QWEN35_27B_B2)


def test_the_depth_is_read_where_a_build_does_not_print_its_rollback_rows(tmp_path: Path) -> None:
    text = (CORPUS / "free_b2_n3.log").read_text(encoding="utf-8")
    assert "  3 rs_seq)" in text
    log = tmp_path / "old.log"
    log.write_text(text.replace("  3 rs_seq)", ")"), encoding="utf-8")
    sums = logged_sums(log)
    assert sums is not None
    assert sums.depth == 3
