"""Who is believed about the acceptance of a request, and what each source identifies.

The figures are those of the recorded logs, replies and metrics; where a test says what is
true, it counts from the drafts that the engine printed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine import prom, timings
from mtpd.engine.acceptance import Source, read_acceptance
from mtpd.engine.facts import AcceptancePerPosition, DraftAcceptance
from mtpd.engine.logs import fact
from mtpd.engine.prom import SpecCounters
from mtpd.engine.timings import Timings
from mtpd.types import Absent
from tests.unit.engine import recorded

if TYPE_CHECKING:
    from mtpd.engine.facts import Fact

NONE = Absent("this build does not say")
ONE_COUNTED = SpecCounters(drafts=10, drafted=20, accepted=11, per_position=(7, 4))
OTHER_TIMED = Timings(
    prompt_n=4,
    prompt_ms=1.0,
    predicted_n=30,
    predicted_ms=9.0,
    cache_n=0,
    draft_n=25,
    draft_n_accepted=3,
)
OTHER_LOGGED = DraftAcceptance(
    slot=0, task=0, rate=0.5, accepted=2, drafted=4, mean_len=2.0, per_position=(1.0, 0.0)
)


def reply(name: str) -> Timings:
    found = timings.from_response(json.loads(recorded.text(f"logs/{name}.json")))
    assert isinstance(found, Timings)
    return found


def counters(name: str) -> SpecCounters:
    found = prom.spec_counters(recorded.text(f"logs/{name}.txt"))
    assert isinstance(found, SpecCounters)
    return found


def requests(name: str) -> list[list[Fact]]:
    """The acceptance facts of each request of a recorded log."""
    found: list[list[Fact]] = []
    for line in recorded.lines(f"logs/{name}.log"):
        one = fact(line)
        if isinstance(one, DraftAcceptance):
            found.append([one])
        elif isinstance(one, AcceptancePerPosition):
            found[-1].append(one)
    return found


def timed(predicted: int, drafted: int | None, accepted: int | None) -> Timings:
    return Timings(
        prompt_n=11,
        prompt_ms=1.0,
        predicted_n=predicted,
        predicted_ms=1.0,
        cache_n=0,
        draft_n=drafted,
        draft_n_accepted=accepted,
    )


def test_the_counters_are_believed_before_the_reply_and_the_log() -> None:
    read = read_acceptance(2, counters=ONE_COUNTED, timings=OTHER_TIMED, facts=[OTHER_LOGGED])
    assert read.source is Source.METRICS
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (10, 20, 11, (7, 4))


def test_the_reply_is_believed_before_the_log() -> None:
    read = read_acceptance(2, counters=NONE, timings=OTHER_TIMED, facts=[OTHER_LOGGED])
    assert read.source is Source.TIMINGS
    assert (read.drafted, read.accepted) == (25, 3)


def test_the_log_answers_where_nothing_else_does() -> None:
    read = read_acceptance(2, counters=NONE, timings=NONE, facts=[OTHER_LOGGED])
    assert read.source is Source.LOG
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (2, 4, 2, (2, 0))


def test_without_any_source_everything_is_unknown() -> None:
    read = read_acceptance(2, counters=NONE, timings=NONE)
    assert read.source is Source.NONE
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (None,) * 4


def test_at_depth_zero_nothing_is_drafted_and_that_is_known() -> None:
    read = read_acceptance(0, counters=NONE, timings=reply("b11434_completion_n0"))
    assert read.source is Source.NONE
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (0, 0, 0, ())


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_the_recorded_counters_of_a_run_give_both_positions(build: str) -> None:
    counted = prom.delta(
        counters(f"{build}_metrics_before_first_request_n2"), counters(f"{build}_metrics_n2")
    )
    read = read_acceptance(2, counters=counted, timings=NONE)
    assert read.source is Source.METRICS
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (137, 269, 21, (21, 0))


def test_the_embedded_engine_counts_like_its_own_log_says() -> None:
    counted = read_acceptance(2, counters=counters("embedded_metrics_n2"), timings=NONE)
    logged = read_acceptance(2, counters=NONE, timings=NONE, facts=requests("embedded_n2")[0])
    assert counted.per_position == logged.per_position == (7, 4)
    assert counted.steps == logged.steps == 11


def test_at_depth_one_totals_say_everything() -> None:
    # The third request of the log: the last of its 787 decode steps had nothing to draft.
    read = read_acceptance(1, counters=NONE, timings=timed(1500, 786, 712))
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (786, 786, 712, (712,))


def test_at_depth_one_counters_without_positions_say_everything() -> None:
    counted = SpecCounters(drafts=786, drafted=786, accepted=712, per_position=None)
    read = read_acceptance(1, counters=counted, timings=NONE)
    assert read.per_position == (712,)


@pytest.mark.parametrize("number", range(3))
def test_at_depth_one_a_log_line_says_everything(number: int) -> None:
    facts = requests("b11434_synth_n1_0.9")[number][:1]
    read = read_acceptance(1, counters=NONE, timings=NONE, facts=facts)
    drafted, accepted = ((789, 710), (787, 712), (786, 712))[number]
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (
        drafted,
        drafted,
        accepted,
        (accepted,),
    )


@pytest.mark.parametrize("name", ["b10434_completion_n2", "b11434_completion_n2"])
def test_deeper_totals_leave_the_positions_and_the_steps_unknown(name: str) -> None:
    # 38 drafted tokens are 19 or 20 steps: the reply does not say whether the last one drafted.
    read = read_acceptance(2, counters=NONE, timings=reply(name))
    assert read.source is Source.TIMINGS
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (None, 38, 3, None)


def test_deeper_totals_give_the_steps_where_only_one_number_fits() -> None:
    read = read_acceptance(2, counters=NONE, timings=timed(1500, 1133, 932))
    assert (read.steps, read.per_position) == (567, None)


def test_deeper_counters_without_positions_leave_them_unknown() -> None:
    counted = SpecCounters(drafts=567, drafted=1133, accepted=932, per_position=None)
    read = read_acceptance(2, counters=counted, timings=OTHER_TIMED, facts=[OTHER_LOGGED])
    assert read.source is Source.METRICS
    assert (read.steps, read.per_position) == (567, None)


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_the_log_completes_the_totals_of_a_reply(build: str) -> None:
    facts = requests(f"{build}_runtime_n2_lv4")[0]
    read = read_acceptance(2, counters=NONE, timings=reply(f"{build}_completion_n2"), facts=facts)
    assert read.source is Source.TIMINGS
    # 3 of 19: 0.158 was printed, and 3 of 20 would be 0.150.
    assert (read.steps, read.accepted, read.per_position) == (19, 3, (3, 0))


@pytest.mark.parametrize(
    ("name", "number", "depth", "steps", "positions"),
    [
        ("b11434_synth_n2_0.93_0.69", 0, 2, 567, (533, 399)),
        ("b11434_synth_n2_0.93_0.69", 1, 2, 566, (524, 409)),
        ("b11434_synth_n2_0.93_0.69", 2, 2, 572, (529, 398)),
        ("b11434_synth_n2_0.96_0.85", 0, 2, 532, (515, 451)),
        ("b11434_synth_n3_0.9_0.7_0.5", 0, 3, 484, (430, 340, 245)),
    ],
)
def test_the_rates_of_a_log_give_back_the_counts(
    name: str, number: int, depth: int, steps: int, positions: tuple[int, ...]
) -> None:
    facts = requests(name)[number]
    read = read_acceptance(depth, counters=NONE, timings=NONE, facts=facts)
    assert read.steps == steps
    assert read.per_position == positions
    assert sum(positions) == read.accepted


def test_a_mean_length_is_held_within_what_the_drafted_tokens_allow() -> None:
    # Rounded to 2.65 it says 565 steps; 1131 tokens at two a step take 566.
    (totals, _) = requests("b11434_synth_n2_0.93_0.69")[1]
    read = read_acceptance(2, counters=NONE, timings=NONE, facts=[totals])
    assert (read.steps, read.per_position) == (566, None)


def test_a_log_without_an_accepted_token_does_not_tell_the_steps() -> None:
    facts = requests("b10434_runtime_n2_lv4")[2]
    read = read_acceptance(2, counters=NONE, timings=NONE, facts=facts)
    assert (read.drafted, read.accepted) == (7, 0)
    assert (read.steps, read.per_position) == (None, None)


def test_a_log_line_of_the_oldest_builds_gives_the_totals_only() -> None:
    line = "draft acceptance rate = 0.81500 (  163 accepted /   200 generated)"
    found = fact(line)
    assert isinstance(found, DraftAcceptance)
    read = read_acceptance(2, counters=NONE, timings=NONE, facts=[found])
    assert (read.steps, read.drafted, read.accepted, read.per_position) == (None, 200, 163, None)


def test_rates_without_totals_are_no_counts() -> None:
    rates = AcceptancePerPosition(slot=0, task=0, rates=(0.9, 0.7))
    read = read_acceptance(2, counters=NONE, timings=NONE, facts=[rates])
    assert read.source is Source.NONE
    assert read.per_position is None


def test_a_reply_that_drafted_nothing_leaves_the_log_to_answer() -> None:
    silent = timed(30, None, None)
    assert read_acceptance(2, counters=NONE, timings=silent).source is Source.NONE
    read = read_acceptance(2, counters=NONE, timings=silent, facts=[OTHER_LOGGED])
    assert read.source is Source.LOG


@st.composite
def drafts(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A depth, and the drafted and accepted tokens of each decode step of a reply."""
    depth = draw(st.integers(1, 5))
    step = st.integers(0, depth).flatmap(
        lambda drafted: st.tuples(st.just(drafted), st.integers(0, drafted))
    )
    return depth, draw(st.lists(step, min_size=1, max_size=60))


@given(drafts())
def test_what_is_filled_in_is_true_or_bounded_by_what_is(
    one: tuple[int, list[tuple[int, int]]],
) -> None:
    depth, steps = one
    drafted, accepted = sum(d for d, _ in steps), sum(a for _, a in steps)
    real = sum(d > 0 for d, _ in steps)
    counts = tuple(sum(a > i for _, a in steps) for i in range(depth))
    reported = timed(1 + len(steps) + accepted, drafted or None, accepted if drafted else None)

    read = read_acceptance(depth, counters=NONE, timings=reported)
    assert read.steps in {None, real}
    assert read.per_position in {None, counts}

    if not drafted:
        return
    line = DraftAcceptance(
        slot=0,
        task=0,
        rate=round(accepted / drafted, 5),
        accepted=accepted,
        drafted=drafted,
        mean_len=round(1 + accepted / real, 2),
    )
    rates = AcceptancePerPosition(slot=0, task=0, rates=tuple(round(n / real, 3) for n in counts))
    read = read_acceptance(depth, counters=NONE, timings=reported, facts=[line, rates])
    assert read.accepted == accepted
    if read.steps is not None:
        assert -(-drafted // depth) <= read.steps <= len(steps)
        assert read.per_position is not None
        chain = (read.steps, *read.per_position, 0)
        assert sorted(chain, reverse=True) == list(chain)


def test_deeper_counters_without_positions_take_them_from_the_same_requests_log() -> None:
    counted = SpecCounters(drafts=100, drafted=200, accepted=160, per_position=None)
    said: list[Fact] = [
        DraftAcceptance(slot=0, task=1, rate=0.8, accepted=160, drafted=200, mean_len=2.6),
        AcceptancePerPosition(slot=0, task=1, rates=(0.9, 0.7)),
    ]
    read = read_acceptance(2, counters=counted, timings=Absent("none"), facts=said)
    assert (read.source, read.per_position) == (Source.METRICS, (90, 70))
