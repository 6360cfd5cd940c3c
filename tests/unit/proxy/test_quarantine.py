"""The record of requests that bring engines down: what is told of it."""

from __future__ import annotations

from mtpd.proxy.payload import Whole
from mtpd.proxy.poison import Death, Entry, Rules
from mtpd.proxy.quarantine import Quarantine
from tests.fakes.clock import FakeClock
from tests.fakes.front import keep_in
from tuner.types import Arm

DEATH = Death(
    request_id="r", path="/", size_bytes=2, engine_id="a#1", arm=Arm(profile="a"), cause="crash: x"
)


async def test_a_request_is_told_once_however_many_alike_died_with_it() -> None:
    told: list[Entry] = []
    rules = Rules(after=1, hold_s=100.0)
    quarantine = Quarantine(rules=lambda: rules, clock=FakeClock(), told=keep_in(told))
    for _ in range(3):
        await quarantine.died("a", Whole(b"{}"), DEATH)
    assert len(told) == len(quarantine.views()) == 1
