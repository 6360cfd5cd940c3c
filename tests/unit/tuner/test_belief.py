from __future__ import annotations

import dataclasses
import math

import pytest

from tests.unit.tuner.machine import WORKLOADS, Host, Machine, arm
from tuner.belief import Belief, Slow, believe, slow_arms, suspect_arms
from tuner.cost import RowCost
from tuner.plan import Ask, History
from tuner.select import choose
from tuner.types import Arm, Drafter, Unknown

CARD = Machine(draft_share=0.175, accepted=(186, 137, 80, 40), wobble=0.001)
"""Study 000's card; the draft costs what is expected of it."""


def started(*depths: int, machine: Machine = CARD, short: int = 24) -> History:
    history = History()
    for number, depth in enumerate(depths):
        ask = Ask(arm=arm(depth), cells=(), reason="", short_steps=short if depth else 0)
        start_id = f"{number}"
        history = history.tell(*machine.run(arm(depth), start_id=start_id))
        history = history.stepped(*machine.short_steps(ask, f"{arm(depth)}#{start_id}"))
    return history


def known(history: History, *, deepest: int | None = None) -> Belief:
    belief = believe(history, deepest=deepest)
    assert isinstance(belief, Belief)
    return belief


def test_one_start_with_short_steps_speaks_of_every_depth() -> None:
    belief = known(started(2), deepest=4)
    assert belief.deepest == 4
    assert belief.counted == 2
    assert (belief.starts, belief.short_steps) == (1, 72)
    for depth in range(3):
        said = belief.tps(depth)
        assert said.low < CARD.tps(depth) < said.high
        assert said.mid == pytest.approx(CARD.tps(depth), rel=0.04)
    assert belief.step_s(2).mid == pytest.approx(1.82 / 32.4, rel=0.01)
    assert belief.row_cost().low < 0.41 < belief.row_cost().high
    assert belief.expected[:3] == pytest.approx((1.0, 1.93, 2.615))


def test_a_difference_is_more_certain_than_its_two_speeds() -> None:
    belief = known(started(1, 2))
    mean, sd = belief.log_ratio(2, 1)
    assert math.exp(mean) == pytest.approx(CARD.tps(2) / CARD.tps(1), rel=0.01)
    alone = math.sqrt(belief.covariance[2][2] + belief.covariance[1][1])
    assert sd < 0.9 * alone
    assert belief.ratio(2, 1).mid == pytest.approx(math.exp(mean))
    assert belief.ratio(2, 2).low == belief.ratio(2, 2).high == 1.0


def test_the_chance_to_beat_is_that_of_the_difference() -> None:
    belief = known(started(1, 2))
    mean, sd = belief.log_ratio(2, 1)
    half = belief.p_beats(2, 1, eps=math.expm1(mean))
    assert half == pytest.approx(0.5)
    one_sd = belief.p_beats(2, 1, eps=math.expm1(mean - sd))
    assert one_sd == pytest.approx(0.8413, abs=1e-4)
    assert belief.p_beats(2, 2) == 0.0


def test_a_second_start_narrows_the_difference_and_short_steps_do() -> None:
    plain, one, two = (
        known(h).log_ratio(2, 1)[1] for h in (started(1, 2, short=0), started(2), started(1, 2))
    )
    assert two < one
    assert two < plain


def test_what_was_told_in_another_order_is_the_same_belief() -> None:
    history = started(2, 0, 1)
    turned = History(
        observations=history.observations[::-1],
        starts=history.starts[::-1],
        short_steps=history.short_steps[::-1],
    )
    assert believe(turned) == believe(history)


@pytest.mark.parametrize("once", [0.05, 0.7])
def test_what_every_short_step_with_rows_costs_once_moves_no_forecast(once: float) -> None:
    history = started(2)
    dear = dataclasses.replace(
        history,
        short_steps=tuple(
            dataclasses.replace(s, step_s=s.step_s + (once / CARD.raw_tps if s.rows else 0.0))
            for s in history.short_steps
        ),
    )
    for depth in range(3):
        fair = known(history).tps(depth).mid
        assert known(dear).tps(depth).mid == pytest.approx(fair, rel=5e-3)


def test_it_covers_what_it_rests_on_and_nothing_else() -> None:
    belief = known(started(0, 2))
    assert belief.covers(arm(2), "f")
    assert not belief.covers(arm(1), "f")
    assert not belief.covers(arm(2), "g")
    assert not belief.covers(arm(2), None)


def test_why_nothing_is_believed() -> None:
    nothing = believe(History())
    assert nothing == Unknown("no start that passes was timed")
    assert isinstance(believe(started(0)), Unknown)
    bare = Machine(positions=False)
    assert believe(started(2, machine=bare)) == Unknown(
        "no depth was measured with position counts that can be trusted"
    )
    cut = Arm(profile="m", drafter=Drafter.MTP, depth=2, p_min=0.3)
    twice = History(observations=(*CARD.run(arm(2)), *CARD.run(cut)))
    assert believe(twice) == Unknown("two arms of one depth were measured")


def test_a_workload_without_a_step_time_counts_as_an_ordinary_one() -> None:
    """The counts of an evicted start are of a workload that no sound start ran."""
    code = [c for c in CARD.run(arm(1)) if c.workload == WORKLOADS[0].name]
    slow = dataclasses.replace(CARD, slow_from=2)
    belief = known(History(observations=(*code, *slow.run(arm(2)))))
    assert belief.starts == 1
    assert belief.counted == 2
    assert belief.tps(1).mid == pytest.approx(CARD.tps(1), rel=0.03)


def test_a_start_that_is_too_slow_is_found_whichever_came_first() -> None:
    unread = dataclasses.replace(CARD, slow_from=2)
    for depths in ((2, 1), (1, 2)):
        (found,) = slow_arms(started(*depths, machine=unread))
        assert found == Slow(arm=arm(2), witness=1, ratio=pytest.approx(2.0, rel=0.03))  # type: ignore[arg-type]
        assert found.reason == "does not fit (a step takes 2.0x of what depth 1 predicts)"
    assert slow_arms(started(2, machine=unread)) == (), "one start has no witness"


def test_a_slow_start_says_nothing_of_step_times_and_its_texts_count() -> None:
    unread = dataclasses.replace(CARD, slow_from=2)
    belief = known(started(1, 2, machine=unread))
    assert (belief.starts, belief.counted) == (1, 2)
    assert belief.step_s(1).mid == pytest.approx(1.41 / 32.4, rel=0.01)
    assert not belief.covers(arm(2), "f")


def test_what_lies_deeper_than_a_slow_start_is_no_witness_either() -> None:
    unread = dataclasses.replace(CARD, slow_from=2)
    history = started(1, 2, 3, machine=unread)
    assert [one.arm for one in slow_arms(history)] == [arm(2)]
    assert known(history).starts == 1


@pytest.mark.parametrize("share", [None, 0.175])
@pytest.mark.parametrize("row_cost", [0.0, 0.41, 0.83, 1.0])
@pytest.mark.parametrize("depths", [(0, 1), (0, 2), (1, 2), (1, 3), (0, 3)])
def test_a_dear_row_is_not_taken_for_an_eviction(
    depths: tuple[int, ...], row_cost: float, share: float | None
) -> None:
    dear = Machine(row_cost=row_cost, draft_share=share)
    assert slow_arms(started(*depths, machine=dear)) == ()


@pytest.mark.parametrize("share", [None, 0.175])
def test_one_slow_start_of_two_condemns_the_arm(share: float | None) -> None:
    fine = dataclasses.replace(CARD, draft_share=share)
    slow = dataclasses.replace(fine, slow_from=2)
    history = started(1, 2, machine=fine)
    again = slow.run(arm(2), start_id="later")
    assert [one.arm for one in slow_arms(history.tell(*again))] == [arm(2)]


def test_a_row_cost_known_beforehand_is_a_witness_too() -> None:
    """Depth 2 against depth 0 without short steps: dear rows or an eviction."""
    history = started(0, 2, machine=dataclasses.replace(CARD, slow_from=2, draft_share=None))
    assert slow_arms(history) == ()
    sure = RowCost(c=0.41, sd=0.05, source="this card, last week")
    assert [one.arm for one in slow_arms(history, sure)] == [arm(2)]


def test_where_there_is_no_device_nothing_is_evicted() -> None:
    slow = dataclasses.replace(CARD, slow_from=2, residency=Host())
    history = started(1, 2, machine=slow)
    assert slow_arms(history) == ()
    assert known(history).starts == 2


@pytest.mark.parametrize(("factor", "suspected"), [(1.3, False), (1.5, True)])
def test_a_start_that_is_slow_for_another_reason_is_not_called_an_eviction(
    factor: float,
    suspected: bool,  # noqa: FBT001 - given
) -> None:
    """A throttled card is slower by less than layers on the CPU make it."""
    history = started(1, 2)
    throttled = dataclasses.replace(
        history,
        observations=tuple(
            dataclasses.replace(o, decode_s=o.decode_s * (factor if o.arm == arm(2) else 1.0))
            for o in history.observations
        ),
        short_steps=tuple(
            dataclasses.replace(s, step_s=s.step_s * (factor if s.arm == arm(2) else 1.0))
            for s in history.short_steps
        ),
    )
    assert bool(slow_arms(throttled)) is suspected


def contradicted(depth: int = 2) -> History:
    """One start whose single steps make no sense, as on a busy machine."""
    history = started(depth)
    odd = tuple(
        dataclasses.replace(s, step_s=s.step_s * (4.0 if s.rows == 0 else 1.0))
        for s in history.short_steps
    )
    return dataclasses.replace(history, short_steps=odd)


def test_short_steps_that_contradict_the_steady_ones_are_left_out() -> None:
    odd, steady = contradicted(), known(started(2, short=0))
    left = known(odd)
    assert (left.short_steps, left.contradicted) == (0, 72)
    assert left.log_tps == steady.log_tps
    assert left.covariance == steady.covariance
    assert known(started(2)).contradicted == 0
    said = "72 short steps left out: they contradict the steady ones, as they do on a busy machine"
    assert said in choose(odd).evidence
    assert not any("left out" in line for line in choose(started(2)).evidence)


def slowed(history: History, depth: int, factor: float) -> History:
    """Every step of the starts at a depth takes longer, as where a part of it has spilled."""
    return dataclasses.replace(
        history,
        observations=tuple(
            dataclasses.replace(o, decode_s=o.decode_s * factor) if o.arm.depth == depth else o
            for o in history.observations
        ),
        short_steps=tuple(
            dataclasses.replace(s, step_s=s.step_s * factor) if s.arm.depth == depth else s
            for s in history.short_steps
        ),
    )


def test_an_arm_that_stays_behind_the_forecast_is_suspect_before_it_counts_as_evicted() -> None:
    history = slowed(started(1, 2), 2, 1.25)
    (suspect,) = suspect_arms(history)
    assert (suspect.arm, suspect.witness) == (arm(2), 1)
    assert suspect.share == pytest.approx(1 / 1.25, abs=0.05)
    said = f"m@2: residency is suspect, whatever the log says: it reached {suspect.share:.2f} of "
    assert str(suspect).startswith(said)
    assert str(suspect).endswith("what the starts up to depth 1 forecast (below 0.90)")
    assert slow_arms(history) == ()
    assert choose(history).evidence[-1] == str(suspect)


def test_what_is_as_fast_as_forecast_or_evicted_or_on_a_host_is_no_suspect() -> None:
    assert suspect_arms(started(0, 1, 2)) == ()
    assert suspect_arms(slowed(started(1, 2), 2, 1.04)) == ()
    assert suspect_arms(slowed(started(1, 2), 2, 2.0)) == (), "that one does not fit"
    assert suspect_arms(slowed(started(2), 2, 1.25)) == (), "nothing forecasts it"
    uncertain = slowed(started(1, 2, short=0), 2, 1.25)
    assert suspect_arms(uncertain) == (), "without short steps a row may cost that much"
    host = dataclasses.replace(CARD, residency=Host())
    assert suspect_arms(slowed(started(1, 2, machine=host), 2, 1.25)) == ()
    bad = dataclasses.replace(CARD, accepted=(186, 20, 5))
    assert suspect_arms(started(1, 2, machine=bad)) == (), "the second token is seldom kept"


def paused() -> History:
    """Two starts on a machine that others took: once during prose, once during code."""
    history = started(2, 3)
    hit = {(2, "prose"), (3, "code")}
    slow = tuple(
        dataclasses.replace(
            o, decode_s=o.decode_s * (2.5 if (o.arm.depth, o.workload) in hit else 1)
        )
        for o in history.observations
    )
    return dataclasses.replace(history, observations=slow)


def test_times_that_contradict_each_other_are_as_noisy_as_they_contradict() -> None:
    belief, quiet = known(paused()), known(started(2, 3))
    assert quiet.scatter == 1.0
    assert belief.scatter > 10
    assert (belief.short_steps, belief.contradicted) == (168, 0)
    assert belief.log_ratio(3, 2)[1] > 2 * quiet.log_ratio(3, 2)[1]
    assert 0 < belief.row_cost().low < belief.row_cost().mid < 1
    ratio = belief.ratio(3, 2)
    assert ratio.low < CARD.tps(3) / CARD.tps(2) < ratio.high
    (said,) = [line for line in choose(paused()).evidence if "scatter" in line]
    assert said.startswith(f"the step times scatter {belief.scatter:.1f} times as much as rep")
    assert not any("scatter" in line for line in choose(started(2, 3)).evidence)
