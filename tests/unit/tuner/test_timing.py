from __future__ import annotations

import dataclasses
import math

import pytest

from tests.unit.tuner.machine import UNKNOWN, Evicted, Machine, arm
from tuner.plan import Ask, History
from tuner.timing import main_fingerprint, start_times
from tuner.types import Observation, Start

CALM = Machine(wobble=0.0, draft_share=0.15)


def steps_of(depth: int, count: int = 4, start_id: str = "m@2#1") -> History:
    ask = Ask(arm=arm(depth), cells=(), reason="", short_steps=count)
    return History(observations=CALM.run(arm(depth)), short_steps=CALM.short_steps(ask, start_id))


def test_the_fingerprint_of_most_usable_observations_counts() -> None:
    first, second, third, *_ = CALM.run(arm(1))
    other = dataclasses.replace(first, fingerprint="a")
    hot = dataclasses.replace(other, excluded="hot")
    assert main_fingerprint([first, second, other, hot, hot]) == "f"
    assert main_fingerprint([first, other]) == "a", "a draw goes to the first name"
    assert main_fingerprint([hot]) is None
    assert main_fingerprint([third]) == "f"


def test_a_start_has_one_time_per_workload_and_per_number_of_rows() -> None:
    (one,) = start_times(steps_of(2))
    assert (one.arm, one.start_id) == (arm(2), "m@2#1")
    assert [name for name, _ in one.steady] == ["code", "prose"]
    step_s = (1 + 2 * CALM.row_cost) / CALM.raw_tps
    assert one.steady[0][1].count == 6
    assert one.steady[0][1].value == pytest.approx(math.log(step_s), abs=0.006), "0.5 % by prompt"
    assert not one.host
    assert [(rows, time.count) for rows, time in one.short] == [(0, 4), (1, 4), (2, 4)]
    assert one.short[2][1].value == pytest.approx(math.log(step_s))
    assert one.short[0][1].value == pytest.approx(-math.log(CALM.raw_tps))


def test_what_is_not_resident_or_not_usable_or_of_another_fingerprint_is_not_timed() -> None:
    good = CALM.run(arm(0))
    evicted = [dataclasses.replace(o, residency=Evicted(layers=1)) for o in CALM.run(arm(1))]
    unread = [dataclasses.replace(o, start_id="u") for o in CALM.run(arm(2))]
    other = [dataclasses.replace(o, fingerprint="g", start_id="g") for o in good[:2]]
    hot = [dataclasses.replace(o, excluded="hot", start_id="h") for o in good]
    blind = [dataclasses.replace(o, accepted=None) for o in CALM.run(arm(3))]
    history = History(
        observations=(*good, *evicted, *unread, *other, *hot, *blind),
        starts=(Start(arm=arm(2), start_id="u", residency=UNKNOWN),),
    )
    assert [(t.arm, t.start_id) for t in start_times(history)] == [(arm(0), "m@0#1")]


def test_short_steps_of_another_fingerprint_or_of_a_start_without_replies_say_nothing() -> None:
    history = steps_of(2)
    other = [dataclasses.replace(s, fingerprint="g", step_s=9.0) for s in history.short_steps]
    assert start_times(history.stepped(*other)) == start_times(history)
    assert start_times(History(short_steps=history.short_steps)) == ()
    alien = steps_of(2, start_id="elsewhere")
    assert start_times(alien)[0].short == ()


def test_starts_are_ordered_from_shallow_to_deep_whatever_the_order_told() -> None:
    runs = (*CALM.run(arm(2), start_id="b"), *CALM.run(arm(0)), *CALM.run(arm(2), start_id="a"))
    told = History(observations=runs)
    turned = History(observations=runs[::-1])
    assert [t.start_id for t in start_times(told)] == ["m@0#1", "m@2#a", "m@2#b"]
    assert start_times(turned) == start_times(told)


def slowed(o: Observation, factor: float) -> Observation:
    return dataclasses.replace(o, decode_s=o.decode_s * factor)


def test_a_hot_repetition_moves_nothing() -> None:
    first, *rest = CALM.run(arm(2))
    (calm,) = start_times(History(observations=(first, *rest)))
    (hot,) = start_times(History(observations=(slowed(first, 1.4), *rest)))
    assert hot.steady[0][1].count == 5
    assert hot.steady[0][1].value == pytest.approx(calm.steady[0][1].value, abs=0.002)
    assert hot.steady[1] == pytest.approx(calm.steady[1]) or hot.steady[1][1].sd > 0


def test_noise_is_taken_from_the_scatter_and_shared_by_the_workloads() -> None:
    runs = CALM.run(arm(2))
    rough = tuple(slowed(o, 1.08 if i % 2 else 1 / 1.08) for i, o in enumerate(runs))
    (calm,), (wild,) = (start_times(History(observations=x)) for x in (runs, rough))
    assert calm.steady[0][1].sd == calm.steady[1][1].sd < 0.011
    assert wild.steady[0][1].sd > 2 * calm.steady[0][1].sd
    assert wild.steady[0][1].count == 6


def test_more_short_steps_narrow_the_mean_down_to_a_floor() -> None:
    few, many, very_many = (start_times(steps_of(2, n))[0].short[1][1].sd for n in (4, 16, 4000))
    assert few > 1.9 * many
    assert very_many == pytest.approx(0.003, rel=0.05)


def test_two_repetitions_that_disagree_are_both_kept() -> None:
    calm = [o for o in CALM.run(arm(1)) if o.workload == "code"]
    near = dataclasses.replace(calm[0], workload="busy", prompt=0)
    far = dataclasses.replace(near, prompt=1, decode_s=3 * near.decode_s)
    (one,) = start_times(History(observations=(*calm, near, far)))
    (_, busy), (_, code) = one.steady
    assert (busy.count, code.count) == (2, len(calm))
    assert busy.value - code.value == pytest.approx(math.log(3) / 2, abs=0.02)
