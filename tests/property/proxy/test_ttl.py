"""Any order of requests, engines and time: who is unloaded was not asked for long enough."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mtpd.proxy.ttl import Idle

PROFILES = st.sampled_from("abc")
TTL = {"a": 5.0, "b": 0.0, "c": 60.0}


class World(RuleBasedStateMachine):
    """Keeps the histories themselves, and asks them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.idle = Idle()
        self.running: list[str] = []
        self.loaded: set[str] = set()
        self.useful: dict[str, float] = {}

    @rule(profile=PROFILES)
    def a_request_comes(self, profile: str) -> None:
        self.running.append(profile)
        self.idle = self.idle.came(profile)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def a_request_ends(self, data: st.DataObject) -> None:
        profile = data.draw(st.sampled_from(self.running))
        self.running.remove(profile)
        self.useful[profile] = self.now
        self.idle = self.idle.went(profile, self.now)

    @rule(profile=PROFILES)
    def an_engine_is_ready(self, profile: str) -> None:
        self.loaded.add(profile)
        self.useful[profile] = self.now
        self.idle = self.idle.loaded(profile, self.now)

    @rule(profile=PROFILES)
    def an_engine_is_gone(self, profile: str) -> None:
        self.loaded.discard(profile)
        self.idle = self.idle.gone(profile)

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    def expected(self) -> dict[str, float]:
        """When each profile's time is up."""
        return {
            name: self.useful[name] + TTL[name]
            for name in self.loaded
            if TTL[name] and name not in self.running
        }

    @invariant()
    def those_are_due_who_were_of_no_use_for_their_time(self) -> None:
        ends = self.expected()
        up = sorted((end, name) for name, end in ends.items() if end <= self.now)
        assert self.idle.due(self.now, TTL.__getitem__) == tuple(name for _, name in up)

    @invariant()
    def the_next_time_is_the_first_of_all(self) -> None:
        assert self.idle.next_due(TTL.__getitem__) == min(self.expected().values(), default=None)


TestWorld = World.TestCase


@given(PROFILES, st.floats(0.0, 1e9))
def test_without_a_ttl_nobody_is_ever_due(profile: str, now: float) -> None:
    idle = Idle().loaded(profile, now)
    assert idle.next_due(lambda _: 0.0) is None
    assert idle.due(math.inf, lambda _: 0.0) == ()
