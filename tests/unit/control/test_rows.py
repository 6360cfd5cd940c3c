"""What the tuner returns, as the API shows it: unknown stays null, and the note says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtpd.config.model import Quality
from mtpd.control.rows import depth_row, depth_rows, quality_view
from mtpd.views import ArmView, QualityView, encode
from tests.unit.control.made import arm, observation
from tuner.summary import ArmSummary, summarise
from tuner.types import Evicted, Host, Observation, Start, Unknown


def only(*observations: Observation, starts: tuple[Start, ...] = ()) -> ArmSummary:
    (row,) = summarise(observations, starts)
    return row


def test_a_measured_arm_shows_speed_and_both_positions() -> None:
    row = depth_row(only(observation()))
    assert row.arm == ArmView(profile="tiny", drafter="mtp", depth=2, p_min=0.0)
    assert row.workloads == {"prose": pytest.approx(135.0)}
    assert row.decode_tps == pytest.approx(135.0)
    assert row.tokens_per_step == pytest.approx(108 / 40)
    assert [(a.position, a.accepted, a.offered) for a in row.acceptance] == [
        (1, 38, 40),
        (2, 30, 38),
    ]
    assert row.tps_interval is not None
    assert row.tps_interval.low < 135.0 < row.tps_interval.high
    for shown in row.acceptance:
        assert shown.alpha.low < shown.accepted / shown.offered < shown.alpha.high
    assert (row.residency, row.same_text, row.note) == ("host", None, "")
    assert (row.repetitions, row.excluded, row.outliers) == (1, 0, 0)


def test_unknown_acceptance_is_no_position_and_a_reason() -> None:
    row = depth_row(only(observation(steps=None, accepted_per_position=None)))
    assert row.acceptance == ()
    assert row.note == "acceptance unknown: the build does not count verification steps"
    assert row.decode_tps is not None


def test_without_the_accepted_total_the_tokens_per_step_are_unknown() -> None:
    blind = observation(steps=None, drafted=None, accepted=None, accepted_per_position=None)
    row = depth_row(only(blind))
    assert row.tokens_per_step is None
    shown = encode(row)
    assert isinstance(shown, dict)
    assert shown["tokens_per_step"] is None


def test_depth_zero_has_no_acceptance_and_that_needs_no_excuse() -> None:
    row = depth_row(only(observation(arm(depth=0))))
    assert (row.acceptance, row.note, row.tokens_per_step) == ((), "", 1.0)


def test_an_arm_that_did_not_start_shows_null_and_says_why() -> None:
    start = Start(
        arm=arm(depth=3),
        start_id="not-started-0",
        residency=Unknown("the engine did not become ready"),
        failure="the engine was killed by SIGILL",
    )
    row = depth_row(only(starts=(start,)))
    assert (row.decode_tps, row.tps_interval, row.tokens_per_step) == (None, None, None)
    assert (row.workloads, row.acceptance, row.residency) == ({}, (), "unknown")
    assert row.note == (
        "the engine was killed by SIGILL; residency unknown: the engine did not become ready"
    )


def test_an_evicted_arm_shows_its_residency_and_no_speed() -> None:
    start = Start(arm=arm(depth=3), start_id="s", residency=Evicted(layers=2))
    row = depth_row(only(starts=(start,)))
    assert (row.residency, row.decode_tps) == ("evicted", None)


def test_what_was_left_out_is_counted_and_named() -> None:
    row = depth_row(
        only(
            observation(),
            observation(repetition=1, excluded="the card throttled"),
            observation(repetition=2, excluded="the card throttled"),
            observation(repetition=3, tokens=1),
        )
    )
    assert (row.repetitions, row.excluded) == (1, 3)
    assert row.note == (
        "left out: fewer than two tokens were generated; left out: the card throttled"
    )


def test_rows_come_by_model_and_depth() -> None:
    made = [
        observation(arm(name, depth), digest=name)
        for name, depth in (("b", 1), ("a", 3), ("b", 0), ("a", 0))
    ]
    rows = depth_rows(reversed(summarise(made)))
    assert [(r.arm.profile, r.arm.depth) for r in rows] == [("a", 0), ("a", 3), ("b", 0), ("b", 1)]


def test_another_text_than_the_shallowest_depth_is_shown() -> None:
    made = [
        observation(arm(depth=0)),
        observation(arm(depth=1)),
        observation(arm(depth=2), digest="other"),
    ]
    assert [row.same_text for row in depth_rows(summarise(made))] == [True, True, False]


def test_what_nobody_measured_stays_null() -> None:
    assert quality_view(None) is None
    assert quality_view(Quality(perplexity=5.6553, corpus="wikitext-2", chunks=32)) == QualityView(
        perplexity=5.6553, stderr=None, corpus="wikitext-2", chunks=32
    )


def test_an_arm_keeps_its_p_min() -> None:
    assert ArmView.of(arm(depth=2, p_min=0.75)).p_min == 0.75
    assert depth_row(ArmSummary(arm=arm(), residency=Host())).decode_tps is None


def test_a_traced_position_is_judged_by_the_drafts_that_reached_it() -> None:
    cut = observation(arm(depth=3, p_min=0.5), drafted=90, offered_per_position=(40, 31, 13))
    (row,) = depth_rows(summarise([cut]))
    assert [(a.accepted, a.offered) for a in row.acceptance] == [(38, 40), (30, 31), (12, 13)]
    (blind,) = depth_rows(summarise([replace(cut, offered_per_position=None)]))
    assert [(a.accepted, a.offered) for a in blind.acceptance] == [(38, 40), (30, 38), (12, 30)]
    assert row.acceptance[1].alpha.mid > blind.acceptance[1].alpha.mid


def test_the_energy_of_an_arm_is_shown_or_why_it_is_not_known() -> None:
    (known,) = depth_rows(summarise([observation(joules_per_token=4.0)]))
    assert (known.tokens_per_joule, known.energy_note) == (0.25, "")
    (dark,) = depth_rows(summarise([observation()]))
    assert dark.tokens_per_joule is None
    assert dark.energy_note == "the energy of 1 of 1 prompts was not measured"
