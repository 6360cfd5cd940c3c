"""A world around the admission machine: clients, a switchboard, engines, a clock.

The world does what the switchboard does: it answers every WantEngine once, changes the
engine only with the device to itself, and holds and releases in turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtpd.proxy import admission
from mtpd.proxy.admission_types import (
    Admit,
    Arrive,
    Claim,
    Close,
    Done,
    Drained,
    Event,
    Failed,
    Forget,
    Hold,
    Leave,
    Lost,
    Order,
    Priority,
    Ready,
    Recovering,
    Reject,
    Release,
    Serving,
    State,
    Tick,
    WantEngine,
)

PROFILES = st.sampled_from(["a", "b", "c"])
TIMEOUT_S = 10.0
CLAIMS = st.builds(Claim, priority=st.sampled_from(Priority), alone=st.booleans())
ORDERS = st.builds(
    Order,
    batch_max_requests=st.integers(0, 2),
    batch_max_s=st.floats(0.0, 5.0),
    age_s=st.floats(0.5, 4.0),
)


class World(RuleBasedStateMachine):
    """Everything that may happen to one device."""

    @initialize(limit=st.integers(0, 6), order=ORDERS)
    def begin(self, limit: int, order: Order) -> None:
        self.state = State(limit=limit, timeout_s=TIMEOUT_S, order=order)
        self.now = 0.0
        self.next_id = 0
        self.waiting: dict[int, tuple[str, float]] = {}
        self.running: dict[int, str] = {}
        self.claims: dict[int, Claim] = {}
        self.passed: dict[int, int] = {}
        self.ended: set[int] = set()
        self.engine: str | None = None
        self.wanted: str | None = None
        self.held = False
        self.drained = False

    def post(self, event: Event) -> None:
        self.state, effects = admission.step(replace(self.state, now=self.now), event)
        for effect in effects:
            match effect:
                case Admit(who):
                    self.admit(who)
                case Reject(who, retry_after_s=retry):
                    assert retry >= 1
                    self.end_waiting(who)
                case WantEngine(profile):
                    assert not self.running, "the engine is changed under a request"
                    assert self.wanted is None, "two bring-ups at once"
                    assert not self.held
                    self.wanted = profile
                    self.engine = None
                case Drained():
                    assert self.held
                    assert not self.drained, "told twice"
                    assert not self.running
                    self.drained = True

    def admit(self, who: int) -> None:
        profile, _ = self.waiting.pop(who)
        assert not self.held, "admitted into a held device"
        assert self.engine == profile, "a request runs on another model's engine"
        alone = [self.claims[other].alone for other in (who, *self.running)]
        assert len(alone) == 1 or not any(alone), "somebody is not alone"
        for other, (others, arrived) in self.waiting.items():
            if other < who and self.is_first_class(other, arrived):
                assert others != profile, "overtaken within one model"
                self.passed[other] = self.passed.get(other, 0) + 1
                assert self.passed[other] <= 2 * self.state.order.batch_max_requests
        self.running[who] = profile

    def is_first_class(self, who: int, arrived: float) -> bool:
        """Whether a waiter has come to the highest priority, by its own or by its age."""
        aged = (self.now - arrived) // self.state.order.age_s
        return aged >= self.claims[who].priority

    def end_waiting(self, who: int) -> None:
        del self.waiting[who]
        assert who not in self.ended
        self.ended.add(who)

    @rule(profile=PROFILES, claim=CLAIMS)
    def arrive(self, profile: str, claim: Claim) -> None:
        self.next_id += 1
        self.waiting[self.next_id] = (profile, self.now)
        self.claims[self.next_id] = claim
        self.post(Arrive(self.next_id, profile, self.now, claim))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[who]
        self.ended.add(who)
        self.post(Done(who))

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(sorted({*self.waiting, *self.running})))
        self.waiting.pop(who, None)
        self.running.pop(who, None)
        self.ended.add(who)
        self.post(Leave(who))

    @rule(seconds=st.floats(0.0, 12.0))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.post(Tick(self.now))
        assert all(arrived + TIMEOUT_S > self.now for _, arrived in self.waiting.values())

    @precondition(lambda self: self.wanted is not None and not self.held)
    @rule(capacity=st.integers(1, 3))
    def bring_up(self, capacity: int) -> None:
        assert self.wanted is not None
        self.engine, self.wanted = self.wanted, None
        self.post(Ready(self.engine, capacity))

    @precondition(lambda self: self.wanted is not None and not self.held)
    @rule(retry=st.floats(0.0, 20.0), restoring=st.none() | PROFILES)
    def fail(self, retry: float, restoring: str | None) -> None:
        assert self.wanted is not None
        profile, self.wanted = self.wanted, restoring
        self.post(
            Failed(
                profile=profile, why="no", now=self.now, retry_after_s=retry, restoring=restoring
            )
        )
        assert all(p != profile for p, _ in self.waiting.values())

    @rule(profile=PROFILES)
    def forget(self, profile: str) -> None:
        """A model is taken out of the configuration; who was asked for it does nothing then."""
        if self.wanted == profile:
            self.wanted = None
        self.post(Forget(profile, "gone"))
        assert all(p != profile for p, _ in self.waiting.values())

    @precondition(lambda self: isinstance(self.state.engine, Serving))
    @rule()
    def crash(self) -> None:
        self.post(Lost())

    @precondition(lambda self: isinstance(self.state.engine, Recovering) and not self.held)
    @rule()
    def recover(self) -> None:
        assert isinstance(self.state.engine, Recovering)
        self.engine = self.state.engine.profile
        self.post(Ready(self.engine, 2))

    @precondition(lambda self: not self.held)
    @rule()
    def hold(self) -> None:
        self.held, self.drained = True, False
        self.post(Hold("measuring"))

    @precondition(lambda self: self.held and self.drained)
    @rule(profile=PROFILES)
    def another_engine_in_the_hold(self, profile: str) -> None:
        self.engine, self.wanted = profile, None
        self.post(Ready(profile, 1))

    @precondition(lambda self: self.held)
    @rule()
    def release(self) -> None:
        self.held = self.drained = False
        self.post(Release())

    @invariant()
    def the_machine_knows_what_the_world_knows(self) -> None:
        if not hasattr(self, "state"):
            return
        assert {w.id for w in self.state.waiting} == set(self.waiting)
        assert self.state.running == set(self.running)
        assert not self.ended & {*self.waiting, *self.running}
        assert len(self.waiting) <= self.state.limit

    @invariant()
    def nobody_is_stranded(self) -> None:
        """Somebody waits only if something else will wake them."""
        if not hasattr(self, "state") or not self.waiting:
            return
        assert admission.next_deadline(self.state) is not None
        recovering = isinstance(self.state.engine, Recovering)
        assert self.held or self.running or self.wanted is not None or recovering

    def teardown(self) -> None:
        """Whatever happened, a little patience ends every request exactly once."""
        if not hasattr(self, "state"):
            return
        if self.held:
            self.release()
        for _ in range(200):
            if not self.waiting and not self.running:
                break
            self.one_step_on()
        assert not self.waiting
        assert not self.running
        assert self.ended == set(range(1, self.next_id + 1))
        self.post(Close("end"))
        self.arrive("a", Claim())
        assert not self.waiting

    def one_step_on(self) -> None:
        if self.running:
            who = min(self.running)
            del self.running[who]
            self.ended.add(who)
            self.post(Done(who))
        elif self.wanted is not None:
            self.bring_up(1)
        elif isinstance(self.state.engine, Recovering):
            self.recover()


TestWorld: Any = World.TestCase
TestWorld.settings = settings(max_examples=100, stateful_step_count=35)
