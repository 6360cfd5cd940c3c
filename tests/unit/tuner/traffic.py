"""Live requests with exact rates, for tests: counters without any noise."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.tuner.machine import arm
from tuner.baseline import Baseline
from tuner.classes import Band, WorkloadClass
from tuner.live import Alarm, Live, push
from tuner.outlook import StepCost
from tuner.request import Request
from tuner.types import Drafter

SHORT = WorkloadClass()
LONG = WorkloadClass(band=Band.LONG)
ALPHAS = (0.9, 0.8, 0.7)
PLAIN_S = 0.03
ROW = 0.4


def step_s(depth: int) -> float:
    """Seconds per step of the scripted card: linear in the rows."""
    return PLAIN_S * (1 + ROW * depth)


def costs(*depths: int, sd: float = 0.015) -> tuple[StepCost, ...]:
    """Calibrated step times, right to the digit."""
    return tuple(StepCost(arm=arm(k), step_s=step_s(k), sd=sd) for k in depths)


def fresh(*, calibrated: bool = True) -> Live:
    """Nothing seen yet; the calibration was right."""
    times = tuple((c.arm, c.step_s) for c in costs(0, 1, 2, 3))
    return Live(
        profile="m",
        drafter=Drafter.MTP,
        baselines=(Baseline(alphas=ALPHAS, steps=400.0),),
        step_s=times if calibrated else (),
    )


def request(
    depth: int,
    alphas: tuple[float, ...] = ALPHAS,
    klass: WorkloadClass = SHORT,
    *,
    steps: int = 200,
    slow: float = 1.0,
) -> Request:
    """One request that shows exactly these conditional acceptances."""
    hits: list[int] = []
    left = float(steps)
    for alpha in alphas[:depth]:
        left *= alpha
        hits.append(round(left))
    return Request(
        arm=arm(depth),
        klass=klass,
        tokens=1 + steps + sum(hits),
        decode_s=steps * step_s(depth) * slow,
        accepted=sum(hits),
        drafted=steps * depth,
        steps=steps if depth else 0,
        per_position=tuple(hits),
        context_tokens=1000,
    )


def fed(live: Live, *requests: Request) -> tuple[Live, tuple[Alarm, ...]]:
    """The state after these requests and all alarms on the way."""
    alarms: tuple[Alarm, ...] = ()
    for one in requests:
        live, more = push(live, one)
        alarms += more
    return live, alarms


def aggregate(one: Request) -> Request:
    """The same request of a build that counts no positions."""
    return replace(one, steps=None, per_position=None)
