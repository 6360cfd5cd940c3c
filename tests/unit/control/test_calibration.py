from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from mtpd.control.calibration import UNCALIBRATED, Calibration, calibration_of, changes
from mtpd.control.standing import Standing
from tests.unit.control.made import profile
from tests.unit.tuner.machine import Machine, arm
from tuner.plan import History
from tuner.types import Unknown

if TYPE_CHECKING:
    from mtpd.views import Json

MACHINE = Machine()


def calibrated(*depths: int, machine: Machine = MACHINE) -> Calibration:
    told = History(observations=machine.sweep(*depths))
    found = calibration_of(Standing(decision_id=7, told=told, measurements=()))
    assert found is not None
    return found


def test_acceptance_and_step_times_are_those_that_were_measured() -> None:
    found = calibrated(0, 1, 2, 3)
    assert found.baseline.alphas == pytest.approx((186 / 200, 137 / 186, 80 / 137))
    times = dict(found.step_s(profile("m")))
    assert times[arm(2)] / times[arm(0)] == pytest.approx(1 + 2 * 0.41, rel=0.01)
    assert found.name == "7:f"


def test_costs_are_those_of_arms_that_fit_and_certain_of_the_one_that_runs() -> None:
    found = calibrated(0, 1, 2, 3)
    costs = {c.arm: c for c in found.costs(profile("m"), arm(2), lambda one: one != arm(3))}
    assert set(costs) == {arm(0), arm(1), arm(2)}
    assert costs[arm(2)].sd == 0.0
    assert 0.01 < costs[arm(0)].sd < 0.1
    assert math.log(costs[arm(2)].step_s / costs[arm(0)].step_s) == pytest.approx(
        math.log(1.82), abs=0.01
    )


def test_a_depth_that_runs_and_was_not_measured_compares_with_nothing() -> None:
    found = calibrated(0, 1, 2)
    assert found.costs(profile("m", max_depth=5), arm(4), lambda _: True) == ()


def test_depths_that_the_profile_no_longer_allows_are_no_candidates() -> None:
    costs = calibrated(0, 1, 2, 3).costs(profile("m", max_depth=1), arm(0), lambda _: True)
    assert {c.arm for c in costs} == {arm(0), arm(1)}


def test_measurements_of_depth_0_alone_say_nothing_of_a_head() -> None:
    found = calibrated(0)
    assert found.baseline == UNCALIBRATED
    assert isinstance(found.belief, Unknown)
    assert found.costs(profile("m"), arm(0), lambda _: True) == ()


def test_a_decision_that_rests_on_nothing_calibrates_nothing() -> None:
    standing = Standing(decision_id=1, told=History(), measurements=())
    assert calibration_of(standing) is None


NOW: dict[str, Json] = {
    "power_cap_w": 225.0,
    "flags": ["-a", "-b"],
    "engine": "e" * 64,
    "draft_file": None,
}


def test_a_power_cap_alone_makes_results_stale_and_leaves_the_texts_as_they_are() -> None:
    stale, same_texts = changes(NOW | {"model_sha256": "x"}, NOW | {"power_cap_w": 150.0})
    assert stale == ("power_cap_w was 225.0 and is 150.0",)
    assert same_texts
    assert changes(NOW, NOW) == ((), True)


def test_another_engine_may_change_the_texts_and_is_told_shortly() -> None:
    stale, same_texts = changes(NOW, NOW | {"engine": "f" * 64, "flags": ["-a"]})
    assert stale == ("engine was eeeeeeeeeeee and is ffffffffffff", "flags was -a -b and is -a")
    assert not same_texts


def test_what_was_not_recorded_is_not_taken_for_the_same() -> None:
    assert changes(None, NOW) == (("what it was measured under is not recorded",), False)
