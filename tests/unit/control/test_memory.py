"""From a profile to the verdict per depth, and what would make a depth fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.model import DrafterConfig, Fit
from mtpd.control import memory
from mtpd.control.memory import Shape
from mtpd.control.memory_rows import memory_view, notes, speed_of
from mtpd.control.shapes import geometry_of
from mtpd.types import NotApplicable
from tests.fakes.big_model import write_27b
from tests.unit.control.big import CARD, MIB, NO_CARD, SHAPE, big, on_card
from tests.unit.control.made import BINARY, arm, observation
from tuner.advisor import Speed
from tuner.memory import Evicts, Fits, Geometry, KvType, LoadPlan, Predicted, assumed
from tuner.summary import summarise
from tuner.types import Drafter, Unknown

if TYPE_CHECKING:
    from pathlib import Path


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
            {"drafter": DrafterConfig(kind=Drafter.EAGLE3, max_depth=2, model="/d.gguf")},
            1,
            "what a drafter of kind eagle3 needs is not predicted",
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


def drafting(kind: Drafter, draft: Geometry | Unknown | None) -> memory.MemoryForecast:
    model = None if kind is Drafter.NGRAM else "/d.gguf"
    one = big(drafter=DrafterConfig(kind=kind, max_depth=2, model=model))
    budget = NotApplicable("there is no device")
    return memory.forecast(one, replace(SHAPE, draft=draft), budget, margin_bytes=None)


def test_an_ngram_arm_needs_what_depth_0_needs() -> None:
    found = drafting(Drafter.NGRAM, None).memory_bytes
    plain, *deeper = (found[one] for one in sorted(found, key=lambda one: one.depth))
    assert len(deeper) == 2
    assert all(one - plain < 8 * MIB for one in deeper), "output rows of what is verified"


def test_an_arm_with_a_draft_model_needs_both_models_at_every_depth() -> None:
    one, two = (drafting(Drafter.DRAFT_MODEL, SHAPE.geometry).at(depth) for depth in (1, 2))
    plain = drafting(Drafter.DRAFT_MODEL, SHAPE.geometry).at(0)
    for drafts in (one, two):
        assert isinstance(drafts.predicted, Predicted)
        assert isinstance(plain.predicted, Predicted)
        assert drafts.predicted.weights.size == 2 * plain.predicted.weights.size
        assert drafts.predicted.recurrent.size == plain.predicted.recurrent.size
        assert drafts.predicted.draft_kv.size > plain.predicted.recurrent.size


def test_a_draft_model_whose_header_says_too_little_is_unknown_with_its_reason() -> None:
    why = Unknown("the header has no single number for gemma.block_count")
    assert drafting(Drafter.DRAFT_MODEL, why).at(1).predicted == why
    assert isinstance(drafting(Drafter.DRAFT_MODEL, why).at(0).predicted, Predicted)
