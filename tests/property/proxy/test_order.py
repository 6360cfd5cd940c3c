"""Nobody starves: the bounds of overtaking, against clients that never stop coming."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.proxy import admission
from mtpd.proxy.admission_types import (
    Admit,
    Arrive,
    Claim,
    Done,
    Order,
    Priority,
    Ready,
    State,
    WantEngine,
)

MODELS = "abc"
CLAIMS = st.builds(Claim, priority=st.sampled_from(Priority))
NORMAL = st.just(Claim())
ORDERS = st.builds(
    Order,
    batch_max_requests=st.integers(0, 3),
    batch_max_s=st.floats(0.0, 8.0),
    age_s=st.floats(0.5, 6.0),
)


@dataclass
class Busy:
    """One device whose engines need ``load_s`` to come up and ``use_s`` for a request.

    Attributes:
        log: Who was admitted when.
        overtaken: Of each waiter, those that came later and were admitted before it.
    """

    order: Order
    slots: int
    load_s: float
    use_s: float
    state: State = field(init=False)
    now: float = 0.0
    arrived: dict[int, tuple[str, float, Claim]] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    ends: list[tuple[float, int]] = field(default_factory=list)
    loading: tuple[float, str] | None = None
    log: dict[int, float] = field(default_factory=dict)
    overtaken: dict[int, list[int]] = field(default_factory=dict)
    changes: int = 0

    def __post_init__(self) -> None:
        self.state = State(limit=10_000, timeout_s=1e9, order=self.order)

    def arrive(self, model: str, claim: Claim) -> int:
        who = len(self.arrived) + 1
        self.arrived[who] = (model, self.now, claim)
        self.waiting.add(who)
        self._post(Arrive(who, model, self.now, claim))
        return who

    def run_until(self, when: float) -> None:
        """Let loads and requests end, in the order of their times."""
        while (at := self._next()) is not None and at <= when:
            self.now = at
            if self.loading is not None and self.loading[0] == at:
                model, self.loading = self.loading[1], None
                self._post(Ready(model, self.slots))
            else:
                end = min(self.ends)
                self.ends.remove(end)
                self._post(Done(end[1]))
        self.now = when

    def _next(self) -> float | None:
        loads = [] if self.loading is None else [self.loading[0]]
        return min((*loads, *(at for at, _ in self.ends)), default=None)

    def _post(self, event: Arrive | Ready | Done) -> None:
        self.state, effects = admission.step(replace(self.state, now=self.now), event)
        for effect in effects:
            if isinstance(effect, Admit):
                self._admitted(effect.id)
            elif isinstance(effect, WantEngine):
                self.changes += 1
                self.loading = (self.now + self.load_s, effect.profile)

    def _admitted(self, who: int) -> None:
        self.waiting.discard(who)
        self.log[who] = self.now
        self.ends.append((self.now + self.use_s, who))
        for other in self.waiting:
            if other < who:
                self.overtaken.setdefault(other, []).append(who)


@st.composite
def busy_days(draw: st.DrawFn, claims: st.SearchStrategy[Claim]) -> Busy:
    """More arrivals than can be served, for three models."""
    day = Busy(draw(ORDERS), draw(st.integers(1, 3)), draw(st.floats(0.0, 6.0)), 1.0)
    arrivals = draw(st.lists(st.tuples(st.sampled_from(MODELS), claims), min_size=1, max_size=60))
    every_s = draw(st.floats(0.0, 1.5))
    for model, claim in arrivals:
        day.arrive(model, claim)
        day.run_until(day.now + every_s)
    day.run_until(day.now + 10_000)
    return day


@given(busy_days(NORMAL))
@settings(max_examples=300)
def test_equals_are_overtaken_only_so_often_and_only_by_other_models(day: Busy) -> None:
    assert set(day.log) == set(day.arrived), "somebody was never served"
    for who, others in day.overtaken.items():
        models = [day.arrived[other][0] for other in others]
        assert day.arrived[who][0] not in models
        for model in set(models):
            assert models.count(model) <= day.order.batch_max_requests


@given(busy_days(CLAIMS))
@settings(max_examples=300)
def test_priority_bends_the_bound_only_until_the_waiter_has_aged(day: Busy) -> None:
    assert set(day.log) == set(day.arrived), "somebody was never served"
    for who, others in day.overtaken.items():
        model, arrived, claim = day.arrived[who]
        risen = arrived + claim.priority * day.order.age_s
        late = [day.arrived[other][0] for other in others if day.log[other] > risen + 1e-6]
        assert model not in late
        for other_model in set(late):
            assert late.count(other_model) <= day.order.batch_max_requests


@given(busy_days(NORMAL))
@settings(max_examples=300)
def test_a_waiter_is_not_overtaken_for_longer_than_a_batch_may_last(day: Busy) -> None:
    """Once per other model: a turn may last its time, and then what runs ends."""
    for who, others in day.overtaken.items():
        for model in set(MODELS) - {day.arrived[who][0]}:
            times = [day.log[other] for other in others if day.arrived[other][0] == model]
            if times:
                assert max(times) - min(times) <= day.order.batch_max_s


@given(st.sampled_from(MODELS), st.integers(1, 2), ORDERS)
@settings(max_examples=60)
def test_urgent_requests_without_end_do_not_starve_one_that_is_not(
    model: str, slots: int, order: Order
) -> None:
    day = Busy(order, slots, load_s=2.0, use_s=1.0)
    day.arrive("a", Claim())
    day.run_until(3.0)
    low = day.arrive(model, Claim(priority=Priority.LOW))
    for _ in range(200):
        day.arrive("a", Claim(priority=Priority.HIGH))
        day.run_until(day.now + 0.5)
        if low in day.log:
            break
    aged = 2 * order.age_s
    # What came before it grew old meanwhile; after that only a batch may overtake it.
    older = 1.0 + 2 * aged
    batch = min(order.batch_max_s + 1.0, order.batch_max_requests + 1.0)
    assert day.log[low] - 3.0 <= aged + older + batch + 2.0 + 2 * day.use_s


@given(st.integers(2, 40))
def test_alternating_requests_cost_a_change_per_batch_and_not_per_request(pairs: int) -> None:
    day = Busy(Order(), 1, load_s=10.0, use_s=1.0)
    for _ in range(pairs):
        day.arrive("a", Claim())
        day.arrive("b", Claim())
    day.run_until(10_000)
    assert day.changes <= 2 + 2 * pairs // 16
