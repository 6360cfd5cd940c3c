"""What must hold from prediction over search to choice, on cards of any size.

The card is real arithmetic (the 27B geometry), the speeds are a scripted machine's, whose
depths beyond the card's memory are evicted.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.tuner.test_tuner_properties import machines
from tests.unit.tuner.machine import WORKLOADS, Machine, arm, arms
from tuner.advisor import Device, Speed
from tuner.design import ModelBased, Sweep
from tuner.joint import JointChoice, choose_load
from tuner.levers import Load
from tuner.memory import QWEN35_27B_B2, Fits, LoadPlan, assumed, predict
from tuner.plan import Ask, History, Stop
from tuner.replay import Recording, Told, replay
from tuner.select import choose
from tuner.types import Evicted, Start

if TYPE_CHECKING:
    from tuner.types import Decision

pytestmark = pytest.mark.slow

MIB: Final = 2**20
DEPTHS: Final = range(5)
CALIBRATION: Final = assumed(QWEN35_27B_B2)


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """Free memory, slots and context: which depths it holds, and which it is known to."""

    free_mib: int
    slots: int
    context: int

    def load(self, depth: int) -> Load:
        return Load(
            geometry=QWEN35_27B_B2,
            plan=LoadPlan(context=self.context, slots=self.slots, depth=depth),
            device=Device(free_bytes=self.free_mib * MIB, headroom_bytes=0, margin_bytes=None),
            calibration=CALIBRATION,
        )

    def holds(self, depth: int) -> bool:
        """Whether the load is really there: the prediction without its error is the truth."""
        load = self.load(depth)
        return load.predicted.total <= self.free_mib * MIB

    @property
    def evicts_from(self) -> int | None:
        return next((depth for depth in DEPTHS if not self.holds(depth)), None)

    @property
    def deepest(self) -> int | None:
        """The deepest depth that is predicted to fit for sure; None if none is."""
        fitting = [depth for depth in DEPTHS if isinstance(self.load(depth).stays, Fits)]
        return max(fitting, default=None)


@st.composite
def cards(draw: st.DrawFn) -> Card:
    return Card(
        free_mib=draw(st.integers(13_500, 17_500)),
        slots=draw(st.integers(1, 3)),
        context=draw(st.sampled_from((2048, 8192, 16384))),
    )


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("context", [2048, 8192, 16384])
def test_what_is_predicted_to_fit_for_sure_does_fit(slots: int, context: int) -> None:
    cards_of = [
        Card(free_mib=free, slots=slots, context=context) for free in range(13500, 17500, 50)
    ]
    said = [(card, card.deepest) for card in cards_of]
    assert all(card.holds(deepest) for card, deepest in said if deepest is not None)
    assert any(deepest is not None for _, deepest in said)


def searched(
    machine: Machine, deepest: int | None, *, model: bool
) -> tuple[History, list[Ask], Stop, Decision]:
    design: Sweep | ModelBased = Sweep(arms=arms(*DEPTHS), workloads=WORKLOADS)
    if model:
        design = ModelBased(arms=arms(*DEPTHS), workloads=WORKLOADS, deepest=deepest)
    history, asks, stop = machine.calibrate(design)
    return history, asks, stop, choose(history, deepest=deepest)


@given(cards(), machines(), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_an_arm_over_the_memory_budget_is_never_chosen(
    card: Card,
    machine: Machine,
    model: bool,  # noqa: FBT001 - drawn
    told: bool,  # noqa: FBT001 - drawn
) -> None:
    there = dataclasses.replace(machine, evicts_from=card.evicts_from)
    deepest = card.deepest if told else None
    _, asks, stop, decision = searched(there, deepest, model=model)
    if decision.arm is not None:
        assert card.holds(decision.arm.depth)
        assert (
            predict(QWEN35_27B_B2, card.load(decision.arm.depth).plan, CALIBRATION).total
            <= card.free_mib * MIB
        )
    if model and deepest is not None:
        assert all(ask.arm.depth <= deepest for ask in asks)
    for one in stop.rejected:
        if one.verdict == "does not fit":
            assert card.evicts_from is not None or told


@given(cards(), st.integers(0, 3000), machines())
@settings(max_examples=25, deadline=None)
def test_more_free_memory_never_removes_an_arm_that_could_be_chosen(
    card: Card, more_mib: int, machine: Machine
) -> None:
    larger = dataclasses.replace(card, free_mib=card.free_mib + more_mib)

    def usable(of: Card) -> set[int]:
        there = dataclasses.replace(machine, evicts_from=of.evicts_from)
        history, _, _, _ = searched(there, None, model=False)
        return {o.arm.depth for o in history.observations if not isinstance(o.residency, Evicted)}

    assert usable(card) <= usable(larger)
    if card.deepest is not None:
        assert larger.deepest is not None
        assert larger.deepest >= card.deepest


@given(
    cards(),
    st.integers(0, 3000),
    st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4).map(tuple),
    st.floats(0.0, 1.0),
)
@settings(max_examples=40, deadline=None)
def test_a_joint_choice_stays_on_the_device_and_more_memory_never_makes_it_slower(
    card: Card, more_mib: int, alphas: tuple[float, ...], row_cost: float
) -> None:
    def chosen(free_mib: int) -> JointChoice:
        load = dataclasses.replace(card, free_mib=free_mib).load(0)
        return choose_load(
            QWEN35_27B_B2,
            load.plan,
            CALIBRATION,
            load.device,
            Speed(alphas=alphas, row_cost=row_cost),
            depths=DEPTHS,
            slots=(1, 2),
            contexts=(2048, 4096),
        )

    before, after = chosen(card.free_mib), chosen(card.free_mib + more_mib)
    for offer in (*before.trades, *([before.chosen] if before.chosen else [])):
        assert isinstance(dataclasses.replace(card.load(0), plan=offer.plan).stays, Fits)
    for trade in before.trades:
        assert (trade.plan.slots, trade.plan.context) != (card.slots, card.context)
    if before.chosen is not None:
        assert after.chosen is not None
        assert after.chosen.gain >= before.chosen.gain / 1.02 / (1 + 1e-9)
        assert all(t.gain > before.chosen.gain * 1.02 for t in before.trades)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineBench:
    """Answers a design as a daemon would."""

    machine: Machine

    def run(self, ask: Ask, history: History) -> Told:
        start_id = f"{ask.arm}#{len(history.starts)}"
        residency = self.machine.resides(ask.arm.depth)
        start = Start(arm=ask.arm, start_id=start_id, residency=residency)
        if isinstance(residency, Evicted):
            return Told(start=start)
        told = self.machine.run(ask.arm, ask.cells, str(len(history.starts)))
        return Told(
            start=start,
            observations=told,
            short_steps=self.machine.short_steps(ask, start_id),
        )


@given(machines(), st.none() | st.floats(0.0, 0.5), st.none() | st.integers(0, 4))
@settings(max_examples=25, deadline=None)
def test_a_decision_replayed_from_what_was_recorded_is_identical(
    machine: Machine, draft_share: float | None, incumbent: int | None
) -> None:
    there = dataclasses.replace(machine, draft_share=draft_share)
    design = ModelBased(arms=arms(*DEPTHS), workloads=WORKLOADS)
    held = None if incumbent is None else arm(incumbent)
    first = replay(design, MachineBench(there), incumbent=held)
    again = replay(design, Recording(history=first.history), incumbent=held)
    assert again.decision == first.decision
    assert again.asks == first.asks
    assert again.stop == first.stop
    turned = History(
        observations=first.history.observations[::-1],
        starts=first.history.starts[::-1],
        short_steps=first.history.short_steps[::-1],
    )
    assert choose(turned, held) == first.decision
