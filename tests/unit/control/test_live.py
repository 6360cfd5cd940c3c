"""Learning from what is relayed, remembered in a real database."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.model import Config, Pool
from mtpd.control.live import SAVE_S, LiveTraffic
from mtpd.control.loop import EVERY_S
from mtpd.control.metering import Meter
from mtpd.control.remembered import Remembered, Said, dump, load
from mtpd.events import EngineTransition
from mtpd.gpu.window import Around
from mtpd.store.db import Database
from mtpd.store.live_states import LiveStates
from mtpd.types import Absent
from tests.fakes.clock import FakeClock
from tests.unit.control.made import profile
from tests.unit.control.test_observed import FINISHED
from tests.unit.tuner.machine import arm
from tests.unit.tuner.traffic import LONG, SHORT, fresh, request
from tuner.demand import Demand
from tuner.live import push
from tuner.moment import DOUBTS, PolicyState
from tuner.request import Exclusion
from tuner.types import Act

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tuner.classes import WorkloadClass

MODEL = profile("m")
CONFIG = Config(profiles={"m": MODEL})


@dataclass(slots=True)
class Rig:
    """Traffic with its clock and its card; ``slowed`` is what the card's readings say.

    Attributes:
        counted: Models whose engines' counters were asked for.
    """

    traffic: LiveTraffic
    states: LiveStates
    clock: FakeClock
    slowed: list[str]
    counted: list[str]

    async def serve(self, count: int = 1, **change: object) -> None:
        for _ in range(count):
            self.clock.advance(10.0)
            event = replace(FINISHED, profile="m", **change)  # type: ignore[arg-type]
            await self.traffic.finished(event, self.clock.now())


@asynccontextmanager
async def rig(folder: Path, config: Config = CONFIG, *, on_card: bool = True) -> AsyncIterator[Rig]:
    clock, slowed, counted = FakeClock(), list[str](), list[str]()
    async with await Database.open(folder / "mtpd.sqlite3", clock) as db:
        states = LiveStates(db=db, clock=clock)
        traffic = LiveTraffic(
            config=config,
            states=states,
            meter=Meter(counted.append),
            around=lambda _begin, _end: Around(slowed=slowed[-1] if slowed else None),
            on_card=on_card,
            clock=clock,
        )
        await traffic.restore()
        yield Rig(traffic, states, clock, slowed, counted)


async def test_counters_are_read_once_for_all_that_has_ended(tmp_path: Path) -> None:
    """What they moved by is of the latest request and of those before it together."""
    async with rig(tmp_path) as it:
        event = replace(FINISHED, profile="m")
        for latest in (False, False, True):
            await it.traffic.finished(event, it.clock.now(), latest=latest)
        assert it.counted == ["m"]


async def test_requests_are_counted_by_class_and_what_does_not_count_by_reason(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as it:
        await it.serve(3)
        await it.serve(2, outcome="client_gone")
        it.slowed.append("thermal")
        await it.serve()
        ((_, watched),) = it.traffic.seen()
        live = watched.state.live
        assert live.requests == 3
        assert dict(live.excluded) == {Exclusion.CANCELLED: 2, Exclusion.THROTTLED: 1}
        assert [str(c.klass) for c in live.classes] == ["long/code/greedy/reasoning"]
        assert watched.state.demand.tokens > 0


async def test_a_restart_of_the_daemon_does_not_forget(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.serve(4)
        await it.traffic.save(now=True)
        before = it.traffic.of(MODEL).state
    async with rig(tmp_path) as it:
        after = it.traffic.of(MODEL).state
        assert after.live.common == before.live.common
        assert after.live.requests == 4
        assert after.demand == before.demand


async def test_writing_waits_and_loses_at_most_some_seconds(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.serve()
        await it.traffic.save()
        assert "m" in await it.states.all(schema=1)
        first = await it.states.all(schema=1)
        it.traffic.remember(MODEL, replace(it.traffic.of(MODEL).state, cache_s=9.0))
        await it.traffic.save()
        assert await it.states.all(schema=1) == first
        it.clock.advance(SAVE_S)
        await it.traffic.save()
        assert await it.states.all(schema=1) != first


async def test_a_look_alone_writes_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        state = it.traffic.of(MODEL).state
        for _ in range(20):
            it.clock.advance(EVERY_S)
            it.traffic.remember(MODEL, replace(state, cache_s=1.0), worth=False)
            await it.traffic.save()
        assert await it.states.all(schema=1) == {}
        await it.traffic.save(now=True)
        assert set(await it.states.all(schema=1)) == {"m"}


async def test_what_is_of_another_drafter_or_cannot_be_read_is_forgotten(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.serve()
        await it.traffic.save(now=True)
        await it.states.put({"x": '{"live":1}'}, schema=1)
        await it.states.put({"old": "{}"}, schema=9)
    plain = Config(profiles={"m": profile("m", max_depth=0), "x": profile("x")})
    async with rig(tmp_path, plain) as it:
        assert it.traffic.seen() == ()


async def test_a_model_or_a_depth_that_is_gone_teaches_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.serve(depth=9)
        await it.traffic.finished(replace(FINISHED, profile="other"), it.clock.now())
        assert it.traffic.seen() == ()


def moved(old: str, new: str) -> EngineTransition:
    return EngineTransition(
        engine_id="e", profile="m", arm="m@2", old=old, new=new, reason="because"
    )


async def test_a_start_is_timed_and_the_prompt_cache_is_part_of_what_it_costs(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as it:
        await it.traffic.moved_on(moved("stopped", "spawning"), 100.0)
        await it.traffic.moved_on(moved("probing", "ready"), 142.0)
        await it.serve(cached_tokens=8000, prompt_s=2.0)
        state = it.traffic.of(MODEL).state
        assert state.start_s == 42.0
        assert state.cache_s == 8000 * 2.0 / 1000
        await it.serve(cached_tokens=None)
        assert it.traffic.of(MODEL).state.cache_s == state.cache_s


async def test_a_request_of_an_engine_that_went_slow_makes_its_calibration_doubtful(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as it:
        await it.serve(40)
        await it.serve(4, decode_s=4.0)
        watched = it.traffic.of(MODEL)
        assert watched.doubts
        assert "a step of m@2 takes" in watched.doubts[0]
        assert watched.moved[-1] == watched.doubts[0]


async def test_one_doubt_is_enough_however_often_an_engine_goes_slow(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        for start in range(DOUBTS + 2):
            await it.traffic.moved_on(moved("probing", "ready"), it.clock.now())
            await it.serve(40)
            await it.serve(6, decode_s=4.0 + start)
        doubts = it.traffic.of(MODEL).doubts
        assert len(set(doubts)) == len(doubts) == DOUBTS


async def test_without_a_card_a_slow_step_is_a_busy_machine(tmp_path: Path) -> None:
    async with rig(tmp_path, on_card=False) as it:
        await it.serve(40)
        await it.serve(4, decode_s=4.0)
        watched = it.traffic.of(MODEL)
        assert watched.moved
        assert watched.doubts == ()


CLASSES = st.sampled_from([SHORT, LONG])
ALPHA = st.floats(0.05, 0.95)


@given(
    st.lists(st.tuples(st.integers(0, 3), CLASSES, ALPHA), max_size=25),
    st.none() | st.builds(Said, act=st.sampled_from(Act), arm=st.just(arm(2)), at_s=ALPHA),
)
def test_what_is_remembered_comes_back_as_it_was(
    served: list[tuple[int, WorkloadClass, float]], said: Said | None
) -> None:
    live = fresh()
    for depth, klass, alpha in served:
        live, _ = push(live, request(depth, (alpha,) * 3, klass, steps=50))
    policy = PolicyState(restarts=(1.0, 2.5), previous=arm(1), doubts=("x",), alerted=(arm(2),))
    state = Remembered(
        live=live,
        policy=policy,
        demand=Demand().look(3.0, 4),
        calibration="c",
        said=said,
        start_s=1.5,
    )
    assert load(dump(state)) == state


@given(st.text())
def test_no_text_is_too_odd_to_be_refused(text: str) -> None:
    assert isinstance(load(text), Absent)


POOLS = Config(
    profiles={"m": MODEL, "n": profile("n", tags=("code",)), "o": profile("o")},
    pools={"both": Pool(name="both", members=("m", "n"))},
)


async def test_what_was_asked_for_lately_may_need_the_model_that_runs(tmp_path: Path) -> None:
    async with rig(tmp_path, POOLS) as r:
        await r.serve(pool="both")
        assert r.traffic.needs(MODEL, "n", within_s=60) is None
        assert r.traffic.needs(MODEL, "o", within_s=60) == "m was asked for by both 0 s ago"
        await r.serve(pool="both", tags=("prose",))
        assert r.traffic.needs(MODEL, "n", within_s=60) == "m was asked for by both:prose 0 s ago"
        r.clock.advance(60)
        assert r.traffic.needs(MODEL, "n", within_s=60) is None
        await r.serve(outcome="rejected")
        assert r.traffic.needs(MODEL, "n", within_s=60) is None
        await r.serve()
        assert r.traffic.needs(MODEL, "n", within_s=60) == "m was asked for by its own name 0 s ago"
        await r.serve(pool="both", tags=("code",))
        r.clock.advance(55)
        assert r.traffic.needs(MODEL, "n", within_s=60) is None


async def test_what_a_pool_asks_for_goes_to_the_model_that_answers_for_it_now(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, POOLS) as r:
        await r.serve(3, pool="both")
        await r.serve(3)
        state = replace(r.traffic.of(MODEL).state, policy=PolicyState(clock_s=9.0, restarts=(9.0,)))
        r.traffic.remember(MODEL, state)
        asked = r.traffic.asked_by(MODEL, "both")
        assert 0 < asked < state.demand.look(r.clock.now()).tokens_per_s
        r.traffic.handed_over(MODEL, "gone", "both")
        assert r.traffic.of(MODEL).state == state
        r.traffic.handed_over(MODEL, "n", "both")
        other = POOLS.profiles["n"]
        assert r.traffic.asked_by(MODEL, "both") == 0
        assert r.traffic.asked_by(other, "both") == asked
        assert r.traffic.of(MODEL).state.policy.restarts == ()
        assert r.traffic.of(other).state.policy.restarts == (9.0,)


async def test_what_the_machine_slept_through_is_left_out_and_counted(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.serve(2)
        before = it.traffic.of(MODEL).state
        await it.serve(suspended_s=28_800.0)
        after = it.traffic.of(MODEL).state
        assert dict(after.live.excluded) == {Exclusion.SUSPENDED: 1}
        assert after.live.classes == before.live.classes
        assert after.cache_s == before.cache_s


async def test_after_a_suspend_nothing_counts_before_the_engine_was_asked_anew(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as it:
        it.traffic.proven("m", it.clock.now())  # as every engine is when it becomes ready
        await it.serve()
        it.clock.advance(5.0)
        it.traffic.resumed(it.clock.now())
        await it.serve(2)  # each begins when the one before has ended, as FINISHED says
        assert it.traffic.of(MODEL).state.live.requests == 1
        it.clock.advance(5.0)
        it.traffic.proven("m", it.clock.now())
        await it.serve(duration_s=10.1)  # it began a little too early
        assert dict(it.traffic.of(MODEL).state.live.excluded) == {Exclusion.SUSPENDED: 3}
        await it.serve(duration_s=100.0, waited_s=95.0)  # the queue is no engine
        await it.serve()
        assert it.traffic.of(MODEL).state.live.requests == 3


async def test_an_engine_start_that_was_slept_through_was_not_timed(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await it.serve()

        async def moved(old: str, new: str) -> None:
            event = EngineTransition(
                engine_id="e", profile="m", arm="m@2", old=old, new=new, reason=""
            )
            await it.traffic.moved_on(event, it.clock.now())

        await moved("stopped", "spawning")
        it.traffic.resumed(it.clock.now())
        it.clock.advance(9.0)
        await moved("probing", "ready")
        assert it.traffic.of(MODEL).state.start_s is None
