"""Where a forecast's facts come from: headers, the card, and the sums that engines printed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.model import Config, Fit
from mtpd.control import memory
from mtpd.control.memory import Budget
from mtpd.control.printed import PrintedSums, calibration
from mtpd.control.shapes import (
    DeviceBudget,
    MemoryPlanner,
    described,
    forecast_now,
    logged_sums,
)
from mtpd.engine import logs
from mtpd.gpu.base import absent_everywhere
from mtpd.types import NotApplicable, Value
from mtpd.units import DeviceKey
from tests.fakes.big_model import write_27b
from tests.unit.control.big import CARD, MIB, SHAPE, big
from tests.unit.control.made import BINARY, config
from tuner.memory import QWEN35_27B_B2, Fits, LoadPlan, assumed
from tuner.types import Unknown

if TYPE_CHECKING:
    from mtpd.config.model import HardwareProfile, Profile
    from mtpd.control.memory import MemoryForecast
    from mtpd.gpu.base import GpuReading

CORPUS = Path(__file__).parents[2] / "corpus" / "gpu_logs"


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
    broken_off = []
    for path in sorted(CORPUS.glob("*.log")):
        every = PrintedSums()
        for line in path.read_text(encoding="utf-8").splitlines():
            if (fact := logs.fact(line)) is not None:
                every.hear(fact)
        assert logged_sums(path) == every.last, path.name
        if every.last is None:
            broken_off.append(path.name)
    assert broken_off == ["taken_b2_n3.log"], "the only load that did not end"


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
        config=Config(hardware=hardware),
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
    kept, before = budget.read(alone=False), budget_of(Card(16000, 300)).read(alone=True)
    assert isinstance(kept, Budget)
    assert isinstance(before, Budget)
    assert kept.source == f"{before.source} with no engine of mtpd on it"
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


async def test_a_depth_is_certain_only_where_it_fits_into_what_was_measured(
    tmp_path: Path,
) -> None:
    which = big(model=str(write_27b(tmp_path / "b2.gguf")), fit=Fit.AUTO)
    card = Card(15700)
    planner = planner_of(which, tmp_path, card)
    assert not planner.certain(which.arm(0)), "nothing was read yet"
    found = await planner.forecast(which)
    verdicts = [isinstance(one.verdict, Fits) for one in found.arms]
    assert [planner.certain(one.arm) for one in found.arms] == verdicts
    assert sorted(verdicts, reverse=True) == verdicts
    assert set(verdicts) == {True, False}
    silent = planner_of(which, tmp_path, Card(None))
    described_only = await silent.forecast(which)
    assert isinstance(described_only.arms[0].verdict, Fits)
    assert not silent.certain(which.arm(0)), "the card is described, not measured"


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


def planner_of(which: Profile, folder: Path, card: Card | None = None) -> MemoryPlanner:
    return MemoryPlanner(
        config=config(which),
        binary=BINARY,
        budget=budget_of(card or Card(16368)),
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
