from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.tuner.machine import arm
from tests.unit.tuner.traffic import ALPHAS, LONG, costs, fed, fresh, request, step_s
from tuner.acceptance import expected_tokens
from tuner.level import Level
from tuner.outlook import Prospect, outlook

LOW = (0.75, 0.55, 0.4)


def by_depth(prospects: tuple[Prospect, ...]) -> dict[int, Prospect]:
    return {p.arm.depth: p for p in prospects}


def true_gain(alphas: tuple[float, ...], now: int, new: int) -> float:
    speeds = [expected_tokens(alphas[:k]) / step_s(k) for k in (now, new)]
    return math.log(speeds[1] / speeds[0])


def test_before_any_request_there_is_no_outlook() -> None:
    assert outlook(fresh(), costs(0, 1, 2), arm(2)) == ()


def test_the_running_arm_must_have_a_step_cost() -> None:
    with pytest.raises(ValueError, match="m@3 has no step cost"):
        outlook(fresh(), costs(0, 1, 2), arm(3))


@pytest.mark.parametrize("alphas", [ALPHAS, LOW])
def test_gains_are_those_of_the_formula_once_the_acceptance_is_known(
    alphas: tuple[float, ...],
) -> None:
    live, _ = fed(fresh(), *[request(3, alphas)] * 300)
    found = by_depth(outlook(live, costs(0, 1, 2, 3), arm(3)))
    assert (found[3].gain, found[3].sd) == (0.0, 0.0)
    for depth in (0, 1, 2):
        assert found[depth].gain == pytest.approx(true_gain(alphas, 3, depth), abs=0.01)
        assert found[depth].sd == pytest.approx(math.hypot(0.015, 0.015), abs=0.004)
    assert found[3].tps.mid == pytest.approx(expected_tokens(alphas) / step_s(3), rel=0.01)
    assert found[3].tps.low < found[3].tps.mid < found[3].tps.high


def test_the_error_grows_with_what_is_not_seen() -> None:
    live, _ = fed(fresh(), *[request(1)] * 200)
    found = by_depth(outlook(live, costs(0, 1, 2, 3), arm(1)))
    assert found[0].sd < found[2].sd < found[3].sd


def test_the_error_is_the_gradient_times_the_spread() -> None:
    """Moving the common deviation by its sd moves the gain by what the outlook says."""
    live, _ = fed(fresh(), request(1))
    wide = replace(live, common=Level(1.0))
    (known,) = (replace(c, positions=(Level(1e12),) * 2) for c in wide.classes)
    tight = replace(known, offset=Level(1e12))
    exact = tuple(replace(c, sd=0.0) for c in costs(1, 2))

    def gain(mean: float) -> Prospect:
        state = replace(wide, common=Level(1.0, 0.0, mean), classes=(tight,))
        return by_depth(outlook(state, exact, arm(1)))[2]

    slope = (gain(0.001).gain - gain(-0.001).gain) / 0.002
    assert gain(0.0).sd == pytest.approx(abs(slope), rel=1e-3)
    classwise = replace(wide, common=Level(1e12), classes=(replace(known, offset=Level(1.0)),))
    assert by_depth(outlook(classwise, exact, arm(1)))[2].sd == pytest.approx(abs(slope), rel=1e-3)


def test_the_mix_of_classes_decides_what_pays() -> None:
    bad = (0.3, 0.2)
    live, _ = fed(fresh(), *[request(2), request(2, bad, LONG)] * 100)
    mixed = by_depth(outlook(live, costs(0, 1, 2), arm(2)))[1].gain
    long, _ = fed(live, *[request(2, bad, LONG)] * 500)
    assert by_depth(outlook(long, costs(0, 1, 2), arm(2)))[1].gain > mixed + 0.05


def test_a_slow_card_slows_all_arms_alike() -> None:
    live, _ = fed(fresh(), *[request(2, slow=1.1)] * 40)
    calm, _ = fed(fresh(), *[request(2)] * 40)
    slow, usual = (by_depth(outlook(x, costs(0, 1, 2), arm(2))) for x in (live, calm))
    assert slow[1].gain == pytest.approx(usual[1].gain)
    assert slow[1].tps.mid == pytest.approx(usual[1].tps.mid / 1.1)


def test_a_slow_class_weighs_more_in_the_mix() -> None:
    fast, _ = fed(fresh(), *[request(2), request(2, LOW, LONG)] * 60)
    slow, _ = fed(fresh(), *[request(2), request(2, LOW, LONG, slow=1.3)] * 60)
    gains = [by_depth(outlook(x, costs(1, 2), arm(2)))[1].gain for x in (fast, slow)]
    assert gains[1] > gains[0]


def test_what_both_arms_showed_live_corrects_the_calibration_as_far_as_it_is_better() -> None:
    live, _ = fed(fresh(), *[request(1, slow=1.06)] * 40, *[request(2)] * 40)
    found = by_depth(outlook(live, costs(0, 1, 2), arm(2)))[1]
    calm, _ = fed(fresh(), *[request(1)] * 40, *[request(2)] * 40)
    usual = by_depth(outlook(calm, costs(0, 1, 2), arm(2)))[1]
    trust = (usual.gain - found.gain) / math.log(1.06)
    assert trust == pytest.approx(0.00045 / (0.00045 + 0.0004 * (1 + 40 / 3000)), rel=0.02)
    only, _ = fed(fresh(), *[request(2)] * 40)
    assert found.sd < by_depth(outlook(only, costs(0, 1, 2), arm(2)))[1].sd


def test_an_arm_that_no_longer_fits_is_no_witness() -> None:
    live, _ = fed(fresh(), *[request(3, slow=2.0)] * 40, *[request(2)] * 40)
    assert {p.arm.depth for p in outlook(live, costs(0, 1, 2), arm(2))} == {0, 1, 2}
