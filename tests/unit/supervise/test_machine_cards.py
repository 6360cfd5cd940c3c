"""What the lifecycle makes of the card: not free, silent, lost, or another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtpd.supervise.backoff import Memory
from mtpd.supervise.messages import (
    Broken,
    Judged,
    Released,
    Signal,
    SpawnFailed,
    Start,
    Stop,
    Unhealthy,
    WaitRelease,
)
from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Cause,
    Failed,
    Ready,
    Spawning,
    Stopped,
    Stopping,
    label,
)
from mtpd.types import FailureClass, Verdict
from tests.unit.supervise.test_machine import OTHER, Play

HELD = Cause(failure=FailureClass.VRAM_UNRECOVERED, reason="4711 llama-server 9000 MiB")
SILENT = Cause(failure=FailureClass.GPU_FAILED, reason="the card does not answer")


@pytest.mark.parametrize(("held", "name"), [(HELD, "vram_unrecovered"), (SILENT, "gpu_failed")])
def test_a_stop_that_leaves_the_card_unfree_is_a_state_that_ends_when_it_is_free(
    held: Cause, name: str
) -> None:
    play = Play().ready().feed(Stop("asked")).exit().released(held)
    assert play.expect(Blocked).cause == held
    assert label(play.state()) == name
    assert play.engine.reason == held.reason
    wait = WaitRelease(start=1, reset=held is SILENT)
    assert wait in play.asked()
    play.released(held).expect(Blocked)
    assert wait in play.asked()
    assert play.released().state() == Stopped()


def test_a_start_asks_a_card_that_is_not_free_itself_and_is_refused_into_the_same_state() -> None:
    play = Play().ready().feed(Stop("asked")).exit().released(HELD)
    play.feed(Start(OTHER)).expect(Spawning)
    play.feed(Released(start=1, now=play.now, held=HELD)).expect(Spawning)  # of the one before
    refused = SpawnFailed(start=2, now=play.now, jitter=0.5, cause=HELD)
    assert play.feed(refused).state() == Blocked(plan=OTHER, cause=HELD)
    assert play.asked() == (WaitRelease(start=2),)
    play.feed(Stop("asked"))
    assert play.state() == Stopped()


def test_a_replacement_is_started_although_the_memory_is_not_back_and_asks_the_card() -> None:
    play = Play().ready().feed(Start(OTHER)).exit().released(HELD)
    assert play.state() == Spawning(plan=OTHER)


def test_a_failure_keeps_its_own_cause_and_its_own_wait_where_memory_is_not_back() -> None:
    assert Play().loading().exit(FailureClass.CONFIG).released(HELD).expect(Failed).cause != HELD
    Play().loading().exit().released(HELD).expect(Backoff)


@pytest.mark.parametrize("failure", [FailureClass.GPU_HANG, FailureClass.DEVICE_LOST])
def test_a_hung_card_is_waited_for_and_no_start_follows_while_it_is_silent(
    failure: FailureClass,
) -> None:
    play = Play().ready()
    play.now += 3600.0
    play.exit(failure)
    assert WaitRelease(start=1, reset=True) in play.asked()
    assert play.released(SILENT).expect(Blocked).cause == SILENT
    again = Play().ready()
    again.now += 3600.0
    again.exit(failure).released().expect(Backoff)  # never at once, however long it served


def test_an_engine_that_lost_its_card_is_killed_although_it_is_healthy() -> None:
    lost = Cause(failure=FailureClass.DEVICE_LOST, reason="ErrorDeviceLost")
    play = Play().ready().feed(Broken(start=1, now=1000.0, cause=lost))
    assert play.expect(Stopping).rung == "kill"
    assert Signal(start=1, name="KILL") in play.asked()
    play.exit(FailureClass.OOM_HOST, code=137)
    assert WaitRelease(start=1, reset=True) in play.asked()
    play.released()
    assert play.expect(Backoff).cause.failure is FailureClass.DEVICE_LOST
    play.feed(Broken(start=1, now=1000.0, cause=lost)).expect(Backoff)


def test_the_wrong_card_is_refused_while_it_loads_and_not_tried_again() -> None:
    wrong = Cause(failure=FailureClass.CONFIG, reason="wrong device")
    play = Play().loading().feed(Unhealthy(start=1, cause=wrong)).exit(code=137).released()
    assert play.expect(Failed).cause.reason == "wrong device"


def test_a_card_that_is_lost_after_ten_good_minutes_waits_the_shortest_time() -> None:
    lost = Cause(failure=FailureClass.DEVICE_LOST, reason="ErrorDeviceLost")
    play = Play().ready()
    play.engine = replace(play.engine, memory=Memory(failures=(900.0,) * 4, streak=4))
    play.now += 600.0
    play.feed(Broken(start=1, now=play.now, cause=lost)).exit().released()
    assert play.expect(Backoff).until - play.now == pytest.approx(0.5)


def test_a_serving_engine_is_judged_again_and_goes_on_serving() -> None:
    worse = Verdict(reason="spilled since")
    play = Play().ready().feed(Judged(start=1, verdict=worse))
    assert play.expect(Ready).verdict == worse
    assert play.asked() == ()
    play.feed(Stop("asked"), Judged(start=1, verdict=Verdict())).expect(Stopping)


def test_a_gpu_runtime_that_fails_to_start_is_tried_again_later() -> None:
    broken = Cause(failure=FailureClass.GPU_INIT, reason="no ROCm-capable device")
    play = Play().loading().feed(Unhealthy(start=1, cause=broken)).exit(code=137).released()
    assert play.expect(Backoff).cause.failure is FailureClass.GPU_INIT
