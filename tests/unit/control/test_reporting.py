"""What a report puts side by side; the studies' own tables come out of their own numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.control import reporting
from mtpd.control.compared import quality_of_row
from mtpd.control.reporting import Wanted
from mtpd.report.build import document
from mtpd.report.markdown import markdown
from tests.fakes import study, views
from tuner.candidates import Objective
from tuner.types import Evicted, Observation, Resident, Unknown

if TYPE_CHECKING:
    from mtpd.report_views import PairView


def pair(found: tuple[PairView, ...], base: str, variant: str) -> PairView:
    (only,) = [one for one in found if (one.base, one.variant) == (base, variant)]
    return only


@pytest.mark.parametrize("name", sorted(study.MATRIX))
def test_a_row_has_the_figures_of_study_000(name: str) -> None:
    """Study 000, "The measurement matrix"."""
    printed = study.MATRIX[name]
    (row,) = [one for one in reporting.matrix(study.records()) if one.model == name]
    assert row.size_bytes == round(printed.gib * study.GIB)
    assert row.quality is not None
    assert (row.quality.perplexity, row.quality.chunks) == (printed.perplexity, 32)
    assert row.decode_tps == pytest.approx(printed.tps)
    assert [one.alpha.mid for one in row.acceptance] == pytest.approx(
        list(printed.alphas or ()), abs=5e-4
    )
    assert row.residency == type(printed.residency).__name__.lower()
    assert len(row.measurement_ids) == 3


def test_the_pairs_of_study_000_cost_what_it_says() -> None:
    """Study 000, "What does abliteration cost?": +1.9 % and +1.2 %, within the error bars."""
    found = reporting.pairs(study.records())
    plain = pair(found, "qwen3.8-27b-q4_0", "qwen3.8-27b-uncensored-i1-q4_0")
    both = pair(found, "qwen3.8-27b-b2", "qwen3.8-27b-uncensored-b2")
    for one, percent in ((plain, 1.9), (both, 1.2)):
        assert one.perplexity_change is not None
        assert 100 * one.perplexity_change == pytest.approx(percent, abs=0.05)
        assert one.verdict == "tie"
    assert both.z == pytest.approx(0.3215, abs=1e-4), "TUNER.md, test vector ppl_compare"
    assert both.speed_ratio == pytest.approx(45.8 / 46.0)
    assert both.traps == ()
    assert len(found) == 15


def test_the_recommendations_of_study_000_come_with_their_rules() -> None:
    """Study 000, "Operating recommendation for this card"."""
    found = {one.purpose: one for one in reporting.recommendations(study.records())}
    arms = {purpose: one.arm and one.arm.profile for purpose, one in found.items()}
    assert arms == {
        "balanced": "qwen3.6-27b-b2",
        "balanced, with the tag uncensored": "qwen3.8-27b-uncensored-b2",
        "quality, layers on the CPU accepted": "qwen3.8-27b-uncensored-q4_k_m",
    }
    assert found["balanced"].reason.startswith("R2 balanced: qwen3.6-27b-b2@2")


def test_note_002_comes_out_with_residency_and_mean() -> None:
    """Note 002, "The depth sweep"."""
    told = reporting.model_report(study.sweep())
    assert [one.row.arm.depth for one in told.depths] == [2, 3, 4, 5]
    for one in told.depths:
        speeds, mean, residency, _ = views.NOTE_002[one.row.arm.depth]
        assert one.row.workloads == pytest.approx(dict(zip(views.WORKLOADS, speeds, strict=True)))
        assert one.row.decode_tps == pytest.approx(mean, abs=0.06)
        assert one.row.residency == residency
        assert one.served == (one.row.arm.depth == 2)
        assert len(one.measurement_ids) == 12


def test_a_measured_perplexity_stands_before_the_declared_one_and_names_its_row() -> None:
    first = study.records()[1]
    stored = views.perplexity(first.name, 5.7, number=9)
    measured = replace(
        first, view=replace(first.view, perplexity=stored), quality=quality_of_row(stored)
    )
    rows = reporting.matrix([measured, *study.records()[2:4]])
    assert [row.perplexity_id for row in rows] == [9, None, None]
    assert rows[0].quality is not None
    assert rows[0].quality.perplexity == 5.7
    (trap,) = [one for one in rows[0].traps if one.column == "perplexity"]
    assert trap.trap == "corpus", "a hash and a name are not known to be the same text"
    text = markdown(document(study.report(measured, *study.records()[2:4])))
    assert "by their numbers in `mtpctl ppl --json`: qwen3.6-27b-b2 9." in text
    assert "not measured here: qwen3.8-27b-q4_0, qwen3.8-27b-b2." in text


def test_another_chunk_count_is_a_trap_and_no_difference() -> None:
    """Study 000, trap 2: 7.76 over 16 chunks and 5.84 over 32 of the same file."""
    records = list(study.records())
    records[3] = replace(records[3], quality=study.perplexity(7.76, chunks=16))
    (row,) = [one for one in reporting.matrix(records) if one.model == records[3].name]
    (trap,) = [one for one in row.traps if one.column == "perplexity"]
    assert trap.trap == "chunks"
    assert trap.sentence == "one was measured over a chunk count of 32, the other 16"
    found = pair(reporting.pairs(records), records[3].name, "qwen3.8-27b-uncensored-b2")
    assert (found.perplexity_change, found.z, found.verdict) == (None, None, None)
    assert [one.trap for one in found.traps] == ["chunks"]
    assert found.speed_ratio is not None


def test_acceptance_of_another_text_is_marked_and_of_the_same_is_not() -> None:
    """Study 000, trap 1: only runs producing the same text are comparable."""
    one, two = (
        study.record(
            name, study.repetitions(study.arm(name), 40.0, (0.9, 0.7), Resident(), text="same")
        )
        for name in ("a", "b")
    )
    other = study.record("c", study.repetitions(study.arm("c"), 40.0, (0.9, 0.7), Resident()))
    rows = reporting.matrix((one, two, other))
    assert [[trap.trap for trap in row.traps] for row in rows] == [[], [], ["text"]]
    assert "measured on other texts than a (1 of 1 prompts)" in rows[2].traps[0].sentence


def test_speeds_over_other_prompts_are_marked_and_not_compared() -> None:
    one = study.record("a", study.repetitions(study.arm("a"), 40.0, (0.9, 0.7), Resident()))
    two = study.record(
        "b", study.repetitions(study.arm("b"), 40.0, (0.9, 0.7), Resident(), workload="prose")
    )
    rows = reporting.matrix((one, two))
    assert {trap.trap for trap in rows[1].traps} == {"cells", "text"}
    (found,) = reporting.pairs((one, two))
    assert found.speed_ratio is None
    assert [trap.trap for trap in found.traps] == ["cells"]


def test_a_resident_and_an_evicted_model_are_not_silently_compared() -> None:
    found = pair(
        reporting.pairs(study.records()), "qwen3.8-27b-uncensored-q4_k_m", "qwen3.6-27b-b2"
    )
    assert found.speed_ratio == pytest.approx(50.3 / 27.0)
    (trap,) = found.traps
    assert (trap.column, trap.trap) == ("speed", "residency")
    assert trap.sentence == "the base was measured evicted, the variant resident"


def test_what_was_not_measured_is_said_and_never_a_number() -> None:
    bare = study.record("bare", [])
    (row,) = reporting.matrix([bare])
    assert (row.decode_tps, row.tps_interval, row.tokens_per_joule) == (None, None, None)
    assert (row.acceptance, row.acceptance_arm, row.measurement_ids) == ((), None, ())
    assert row.residency == "unknown"
    assert row.unknown == (
        "size: the model file cannot be read",
        "perplexity: not measured",
        "speed and residency: bare@2 was not measured",
        "alpha1 and alpha2: no measured arm tells it",
    )
    (found,) = reporting.pairs([bare, study.records()[1]])
    assert found.unknown == ("perplexity of bare: not measured", "speed of bare: not measured")
    assert (found.speed_ratio, found.perplexity_change, found.traps) == (None, None, ())
    told = reporting.model_report(bare)
    assert told.depths == ()
    assert told.economics.cost is None
    (none, *_) = reporting.recommendations([bare])
    assert none.arm is None
    assert "bare" in none.reason


def test_acceptance_of_a_shallow_choice_is_that_of_the_next_arm_that_tells_both() -> None:
    name = "m"
    told = [
        *study.repetitions(study.arm(name, 1), 44.0, (0.93,), Resident()),
        *study.repetitions(study.arm(name, 2), 43.0, (0.93, 0.74), Resident()),
    ]
    (row,) = reporting.matrix([study.record(name, told, served=1)])
    assert row.arm.depth == 1
    assert row.acceptance_arm is not None
    assert row.acceptance_arm.depth == 2
    assert [one.position for one in row.acceptance] == [1, 2]
    assert row.measurement_ids == (1, 2, 3, 4, 5, 6)


def depths(*speeds: tuple[int, float]) -> list[Observation]:
    return [
        one
        for depth, tps in speeds
        for one in study.repetitions(
            study.arm("m", depth), tps, (0.93, 0.74)[:depth], Resident(), text="same"
        )
    ]


def test_the_balance_rests_on_the_measured_row_cost() -> None:
    """TUNER.md, predict_tps: [.93, .74] at c = 0.41 and 32.4 tok/s gives 46.61 at depth 2."""
    told = depths((0, 32.4), (1, 32.4 * 1.93 / 1.41), (2, 46.6097))
    found = reporting.model_report(study.record("m", told)).economics
    assert found.unknown == ""
    assert found.cost is not None
    assert found.cost.row_cost.mid == pytest.approx(0.41, abs=0.02)
    one, two = found.balance
    assert (one.depth, two.depth) == (1, 2)
    assert two.tokens_per_step == pytest.approx(2.6182, abs=1e-3), "TUNER.md, expected_tokens"
    assert two.cost == pytest.approx(1.82, abs=0.04)
    assert two.gain == pytest.approx(two.tokens_per_step / two.cost)
    assert two.measured == pytest.approx(46.6097 / 32.4)
    assert two.misfit == pytest.approx(0.0, abs=0.03)


def test_depths_that_made_other_texts_have_no_measured_ratio_and_say_why() -> None:
    told = depths((0, 32.4), (1, 44.3), (2, 46.6))
    mixed = [replace(one, digest="other") if one.arm.depth == 2 else one for one in told]
    found = reporting.model_report(study.record("m", mixed))
    one, two = found.economics.balance
    assert (one.trap, two.measured, two.misfit) == (None, None, None)
    assert one.measured is not None
    assert two.trap is not None
    assert two.trap.trap == "text"
    assert [[trap.trap for trap in row.traps] for row in found.depths] == [[], [], ["text"]]
    text = markdown(document(study.report(study.record("m", mixed))))
    assert "not comparable (text): m@2 and m@0 generated different texts for 1 of 1" in text


def test_depths_over_other_prompts_than_the_first_are_marked() -> None:
    told = depths((0, 32.4), (1, 44.3))
    told += study.repetitions(
        study.arm("m", 1), 40.0, (0.9,), Resident(), workload="prose", text="same"
    )
    found = reporting.model_report(study.record("m", told))
    (trap,) = found.depths[1].traps
    assert (trap.trap, trap.sentence) == ("cells", "measured over 2 prompts, m@0 over 1")
    assert found.economics.balance[0].measured == pytest.approx(44.3 / 32.4), "the shared prompt"


def test_an_assumed_row_cost_is_unknown() -> None:
    found = reporting.model_report(study.record("m", depths((2, 46.0)))).economics
    assert (found.cost, found.balance) == (None, ())
    assert found.unknown.startswith("the cost of a row was not measured: assumed beforehand")


def test_without_depth_0_the_formula_stands_alone() -> None:
    found = reporting.model_report(study.record("m", depths((1, 44.3), (2, 46.6)))).economics
    assert found.cost is not None
    assert [(one.measured, one.misfit) for one in found.balance] == [(None, None)] * 2


def test_efficiency_is_asked_for_where_an_energy_is_known() -> None:
    frugal, fast = (
        study.record(
            name,
            study.repetitions(study.arm(name), tps, (0.9, 0.7), Resident(), power_w=watts),
        )
        for name, tps, watts in (("frugal", 45.0, 100.0), ("fast", 50.0, 150.0))
    )
    rows = reporting.matrix((frugal, fast))
    assert rows[0].tokens_per_joule == pytest.approx(0.45, rel=1e-3)
    assert not any("energy" in one for one in rows[0].unknown)
    found = {one.purpose: one for one in reporting.recommendations((frugal, fast))}
    chosen = found["efficiency"].arm
    assert chosen is not None
    assert chosen.profile == "frugal"
    assert "efficiency" not in {
        one.purpose for one in reporting.recommendations(study.records())
    }, "no energy is known there"


def test_what_a_pool_asks_comes_first() -> None:
    asked = Wanted(purpose="the pool p (speed)", objective=Objective.SPEED, accept_offload=True)
    first, *_ = reporting.recommendations(study.records(), [asked])
    assert first.purpose == "the pool p (speed)"
    assert first.reason.startswith("R2 speed: ")


def test_a_row_that_failed_to_start_says_why() -> None:
    told = study.repetitions(study.arm("m"), 40.0, (0.9, 0.7), Evicted(layers=1))
    doubtful = [replace(one, residency=Unknown("no log was read")) for one in told]
    (row,) = reporting.matrix([study.record("m", doubtful)])
    assert row.residency == "unknown"
    assert "residency: no log was read" in row.unknown
