"""The rules of the lifecycle, one by one; the orders of events are in the property tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from mtpd.supervise.backoff import Memory
from mtpd.supervise.machine import InvalidTransitionError, same, step
from mtpd.supervise.messages import (
    ArmTimer,
    Condemn,
    Effect,
    EndProbe,
    Event,
    Exited,
    Healthy,
    Probed,
    Progress,
    Released,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Start,
    StartProbe,
    Stop,
    TimedOut,
    Unhealthy,
    WaitRelease,
)
from mtpd.supervise.states import (
    Backoff,
    Cause,
    Engine,
    Failed,
    Launch,
    Loading,
    Probing,
    Ready,
    Releasing,
    Spawning,
    State,
    Stopped,
    Stopping,
    Wedged,
    label,
)
from mtpd.types import FailureClass, UnixEndpoint, Verdict
from tests.fakes.supervision import tiny

if TYPE_CHECKING:
    from mtpd.types import LaunchPlan

PLAN = tiny(Path("/run"))
OTHER = tiny(Path("/run"), depth=2)
PID = 77
S = TypeVar("S")


class Play:
    """Feeds events and remembers what was asked for."""

    def __init__(self, plan: LaunchPlan = PLAN) -> None:
        self.plan = plan
        self.engine = Engine()
        self.now = 1000.0
        self.effects: tuple[Effect, ...] = ()

    def state(self) -> State:
        return self.engine.state

    def asked(self) -> tuple[Effect, ...]:
        return self.effects

    def expect(self, kind: type[S]) -> S:
        assert isinstance(self.engine.state, kind)
        return self.engine.state

    def feed(self, *events: Event) -> Play:
        for event in events:
            self.engine, self.effects = step(self.engine, event)
        return self

    def time_out(self, after_s: float = 0.0) -> Play:
        self.now += after_s
        return self.feed(TimedOut(timer=self.engine.timer, now=self.now))

    def loading(self) -> Play:
        self.feed(Start(self.plan))
        return self.feed(Spawned(start=self.engine.start, pid=PID, now=self.now))

    def ready(self) -> Play:
        self.loading()
        start = self.engine.start
        return self.feed(Healthy(start=start), Probed(start=start, now=self.now, verdict=Verdict()))

    def exit(self, failure: FailureClass = FailureClass.CRASH, code: int = 1) -> Play:
        cause = Cause(failure=failure, reason="it ended", exit_code=code)
        start = self.engine.start
        return self.feed(Exited(start=start, now=self.now, jitter=0.5, cause=cause))

    def released(self, held: Cause | None = None) -> Play:
        return self.feed(Released(start=self.engine.start, now=self.now, held=held))


def test_a_start_asks_for_a_process_then_probes_it_under_the_stall_timer() -> None:
    play = Play().feed(Start(PLAN))
    assert play.state() == Spawning(plan=PLAN)
    assert play.asked() == (Spawn(start=1, plan=PLAN),)
    play.feed(Spawned(start=1, pid=PID, now=1000.0))
    assert play.state() == Loading(plan=PLAN, pid=PID, began=1000.0, heard=1000.0)
    assert play.asked() == (
        StartProbe(start=1, plan=PLAN, pid=PID),
        ArmTimer(timer=1, seconds=120.0),
    )
    play.feed(Healthy(start=1))
    assert play.state() == Probing(plan=PLAN, pid=PID)


def test_an_engine_that_ignores_term_gets_two_then_the_kill_then_counts_as_wedged() -> None:
    play = Play().ready().feed(Stop("asked"))
    assert play.asked() == (
        EndProbe(),
        Signal(start=1, name="TERM"),
        ArmTimer(timer=3, seconds=2.0),
    )
    play.time_out()
    assert play.asked() == (Signal(start=1, name="TERM"), ArmTimer(timer=4, seconds=2.0))
    play.time_out()
    assert play.asked() == (Signal(start=1, name="KILL"), ArmTimer(timer=5, seconds=5.0))
    play.time_out()
    assert play.expect(Wedged).pid == PID
    assert play.asked() == ()


def test_nothing_starts_in_the_place_of_a_wedged_process_until_it_ends() -> None:
    play = Play().ready().feed(Stop("asked")).time_out().time_out().time_out()
    play.feed(Start(OTHER))
    play.expect(Wedged)
    assert play.asked() == ()
    play.exit(code=137).released()
    assert play.state() == Spawning(plan=OTHER)


def test_an_exit_code_after_a_stop_is_a_requested_stop_whatever_it_is() -> None:
    play = Play().ready().feed(Stop("asked")).exit(FailureClass.CRASH, code=1)
    assert play.state() == Releasing(plan=PLAN, then=Stopped())
    assert WaitRelease(start=1) in play.asked()
    play.released()
    assert (play.state(), play.engine.reason) == (Stopped(), "asked")


def test_device_memory_that_never_comes_back_is_not_waited_for_without_end() -> None:
    play = Play().ready().feed(Stop("asked")).exit()
    assert play.asked()[-1] == ArmTimer(timer=4, seconds=120.0)
    play.time_out()
    assert play.state() == Stopped()
    play.released()  # late, and no longer of interest
    assert play.state() == Stopped()


def test_a_load_that_goes_on_printing_is_not_killed_for_thirty_minutes() -> None:
    play = Play().loading()
    for _ in range(17):
        play.now += 100.0
        play.feed(Progress(start=1, now=play.now, lines=5)).time_out(1.0)
        play.expect(Loading)
    play.feed(Progress(start=1, now=play.now, lines=6)).time_out(83.0)
    play.expect(Stopping)
    assert "still loading after 1800 s" in play.engine.reason


def test_a_load_may_take_as_long_as_is_configured_whatever_it_prints() -> None:
    play = Play(replace(PLAN, ready_timeout_s=30.0)).loading()
    assert play.asked()[-1] == ArmTimer(timer=1, seconds=30.0)
    play.feed(Progress(start=1, now=play.now + 29.0, lines=5)).time_out(30.0)
    play.expect(Stopping)
    assert play.engine.reason == "the engine was still loading after 30 s"


def test_a_stop_may_take_as_long_as_is_configured() -> None:
    play = Play(replace(PLAN, stop_timeout_s=20.0)).ready().feed(Stop("asked"))
    assert play.asked()[-1] == ArmTimer(timer=3, seconds=10.0)
    play.time_out(10.0)
    assert play.asked() == (Signal(start=1, name="TERM"), ArmTimer(timer=4, seconds=10.0))
    play.time_out(10.0)
    assert Signal(start=1, name="KILL") in play.asked()


def test_a_load_that_prints_nothing_is_killed_at_once_and_tried_again() -> None:
    play = Play().loading().time_out(120.0)
    play.expect(Stopping)
    assert Signal(start=1, name="KILL") in play.asked()
    play.exit(FailureClass.OOM_HOST, code=137).released()
    cause = play.expect(Backoff).cause
    assert (cause.failure, cause.exit_code) == (FailureClass.HANG, 137)


def test_the_stall_timer_counts_from_the_last_output() -> None:
    play = Play().loading()
    play.feed(Progress(start=1, now=1090.0, lines=1)).time_out(120.0)
    play.expect(Loading)
    assert play.asked() == (ArmTimer(timer=2, seconds=90.0),)


def test_a_canary_that_does_not_come_back_is_a_hang() -> None:
    play = Play().loading().feed(Healthy(start=1)).time_out(70.0)
    assert play.expect(Stopping).rung == "kill"


def test_a_canary_that_fails_kills_the_engine_with_the_probes_own_cause() -> None:
    cause = Cause(failure=FailureClass.CRASH, reason="another process answers")
    play = Play().loading().feed(Unhealthy(start=1, cause=cause)).exit(code=137).released()
    assert play.expect(Backoff).cause == replace(cause, exit_code=137)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (FailureClass.CONFIG, "failed"),
        (FailureClass.KILLED_BY_OPERATOR, "stopped"),
        (FailureClass.CRASH, "backoff"),
        (FailureClass.HANG, "backoff"),
        (FailureClass.GPU_HANG, "backoff"),
        (FailureClass.DEVICE_LOST, "backoff"),
        (FailureClass.OOM_HOST, "backoff"),
        (FailureClass.OOM_VRAM, "backoff"),
    ],
)
def test_each_failure_class_has_its_retry_rule(failure: FailureClass, expected: str) -> None:
    play = Play().loading().exit(failure).released()
    assert label(play.state()) == expected


def test_too_little_device_memory_is_tried_once_more() -> None:
    play = Play().loading().exit(FailureClass.OOM_VRAM).released().time_out(1.0)
    play.feed(Spawned(start=2, pid=PID, now=play.now)).exit(FailureClass.OOM_VRAM).released()
    play.expect(Failed)
    assert play.engine.reason == "it ended, again"


def test_six_failures_in_a_minute_open_the_breaker() -> None:
    play = Play().loading()
    delays = []
    for _ in range(5):
        play.exit().released()
        delays.append(play.expect(Backoff).until - play.now)
        play.time_out(delays[-1])
        play.feed(Spawned(start=play.engine.start, pid=PID, now=play.now))
    play.exit().released()
    failed = play.expect(Failed)
    assert play.engine.reason == "breaker open: 6 failures within 60 s; the last: it ended"
    assert (failed.cause.failure, failed.cause.breaker_open) == (FailureClass.CRASH, True)
    assert delays == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0])


def test_a_new_start_after_the_breaker_begins_with_a_clean_slate() -> None:
    play = Play().loading()
    play.engine = replace(play.engine, memory=Memory(failures=(999.0,) * 5, streak=5))
    play.exit().released()
    play.expect(Failed)
    play.feed(Start(PLAN))
    assert play.engine.memory == Memory()
    play.expect(Spawning)


def test_a_crash_after_ten_good_minutes_restarts_at_once() -> None:
    play = Play().ready()
    play.engine = replace(play.engine, memory=Memory(failures=(900.0,) * 5, streak=5))
    play.now += 600.0
    play.exit()
    releasing = play.expect(Releasing)
    assert isinstance(releasing.then, Launch)
    assert releasing.then.plan == PLAN
    assert releasing.then.cause is not None
    assert releasing.then.cause.failure is FailureClass.CRASH
    play.released()
    assert play.state() == Spawning(plan=PLAN)
    assert play.engine.memory == Memory(failures=(1600.0,), streak=1)


def test_a_crash_before_ten_good_minutes_waits_its_turn() -> None:
    play = Play().ready()
    play.now += 599.0
    play.exit().released().expect(Backoff)


def test_a_hang_after_ten_good_minutes_waits_the_shortest_time() -> None:
    play = Play().ready()
    play.engine = replace(play.engine, memory=Memory(failures=(900.0,) * 4, streak=4))
    play.now += 600.0
    play.feed(Condemn(now=play.now, reason="hangs")).exit().released()
    waiting = play.expect(Backoff)
    assert waiting.until - play.now == pytest.approx(0.5)
    assert waiting.cause.reason == "the engine hangs"


def test_a_start_does_not_shorten_a_backoff_but_another_plan_does() -> None:
    play = Play().loading().exit().released()
    play.feed(Start(PLAN)).expect(Backoff)
    assert play.feed(Start(OTHER)).state() == Spawning(plan=OTHER)


def test_a_start_after_a_stop_still_happens() -> None:
    play = Play().ready().feed(Stop("asked"), Start(PLAN)).exit().released()
    assert play.state() == Spawning(plan=PLAN)
    assert play.engine.start == 2


def test_the_last_wish_counts_also_while_memory_is_released() -> None:
    play = Play().ready().feed(Stop("asked")).exit().feed(Start(OTHER), Stop("no, stop"))
    assert play.released().state() == Stopped()
    assert play.engine.reason == "no, stop"


def test_a_stop_before_the_pid_is_known_ends_the_process_once_it_is() -> None:
    play = Play().feed(Start(PLAN), Stop("asked"))
    assert play.asked() == ()
    play.feed(Spawned(start=1, pid=PID, now=play.now))
    assert Signal(start=1, name="TERM") in play.asked()


def test_a_spawn_that_fails_is_retried_like_a_crash() -> None:
    cause = Cause(failure=FailureClass.CRASH, reason="fork: resource temporarily unavailable")
    play = Play().feed(Start(PLAN))
    play.feed(SpawnFailed(start=1, now=play.now, jitter=0.5, cause=cause))
    play.expect(Backoff)
    assert not any(isinstance(effect, WaitRelease) for effect in play.asked())


def test_news_of_an_earlier_process_changes_nothing() -> None:
    play = Play().loading().exit().released().time_out(1.0)
    before = play.engine
    play.feed(
        Healthy(start=1),
        Probed(start=1, now=play.now, verdict=Verdict()),
        Progress(start=1, now=play.now, lines=3),
        Released(start=1, now=play.now),
        TimedOut(timer=1, now=play.now),
    )
    assert play.engine == before


@pytest.mark.parametrize(
    "event",
    [
        Spawned(start=1, pid=2, now=0.0),
        Exited(start=0, now=0.0, jitter=0.0, cause=Cause(failure=FailureClass.CRASH, reason="")),
        Healthy(start=9),
        TimedOut(timer=9, now=0.0),
    ],
)
def test_what_cannot_happen_raises_with_the_story(event: Event) -> None:
    play = Play().feed(Start(PLAN), Stop("asked"))
    play.feed(Spawned(start=1, pid=PID, now=0.0)).exit().released()
    with pytest.raises(InvalidTransitionError, match="releasing: Released") as caught:
        play.feed(event)
    assert "PYTHONPATH" not in str(caught.value), "an environment may hold a key"


def test_two_plans_are_the_same_wherever_they_listen() -> None:
    moved = replace(PLAN, endpoint=UnixEndpoint("/elsewhere"))
    assert same(PLAN, moved)
    assert not same(PLAN, OTHER)
    assert not same(PLAN, replace(PLAN, fingerprint="g"))


def test_an_unwell_ready_engine_is_not_possible() -> None:
    play = Play().ready()
    play.expect(Ready)
    cause = Cause(failure=FailureClass.CRASH, reason="late")
    with pytest.raises(InvalidTransitionError):
        play.feed(Unhealthy(start=1, cause=cause))
