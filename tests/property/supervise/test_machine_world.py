"""The machine in a world of processes, timers, probes and an inbox, in any order."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import assert_never, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.supervise.machine import step
from mtpd.supervise.messages import (
    ArmTimer,
    Broken,
    Condemn,
    DisarmTimer,
    Effect,
    EndProbe,
    Event,
    Exited,
    Healthy,
    Judged,
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
    Blocked,
    Cause,
    Engine,
    Failed,
    Loading,
    Probing,
    Ready,
    Releasing,
    Spawning,
    State,
    Stopped,
    Stopping,
    Wedged,
)
from mtpd.types import (
    Command,
    EngineKey,
    FailureClass,
    LaunchPlan,
    UnixEndpoint,
    Verdict,
)
from mtpd.units import DeviceKey
from tuner.types import Arm, Drafter


def plan(depth: int) -> LaunchPlan:
    drafter = Drafter.MTP if depth else Drafter.NONE
    return LaunchPlan(
        key=EngineKey(DeviceKey("host"), "m"),
        arm=Arm(profile="m", drafter=drafter, depth=depth),
        command=Command(argv=("/bin/true",), env={}),
        endpoint=UnixEndpoint("/run/m.sock"),
        fingerprint="f",
    )


PLANS = [plan(depth) for depth in range(3)]


@dataclass
class World:
    """All that the runner and the operating system would hold.

    An event is first posted and later delivered, so that news can be under way while
    the machine already moves on.
    """

    engine: Engine = field(default_factory=Engine)
    now: float = 1000.0
    spawning: int | None = None
    alive: int | None = None
    told_alive: bool = False
    probe: int | None = None
    ready: int | None = None
    release: int | None = None
    timer: int | None = None
    killed: bool = False
    wedge: bool = False

    def __post_init__(self) -> None:
        self.inbox: deque[Event] = deque()

    # What the world can do ----------------------------------------------------------

    def post(self, event: Event) -> None:
        self.inbox.append(event)

    def act(self, action: str, number: int) -> None:
        """Do it if it is possible; a name and a number make any history."""
        self.now += number / 4
        match action:
            case "start":
                self.post(Start(PLANS[number % len(PLANS)]))
            case "stop":
                self.post(Stop("asked"))
            case "condemn":
                self.post(Condemn(now=self.now, reason="hangs"))
            case "wait":
                self.now += number * 100.0
            case "deliver":
                for _ in range(number % 3 + 1):
                    self.deliver()
            case "spawn":
                self.finish_spawn(number, ok=number % 2 == 0)
            case "exit":
                self.exit(number)
            case "probe":
                self.advance_probe(number)
            case _:
                self.small(action, number)

    def small(self, action: str, number: int) -> None:
        if action == "break" and self.alive is not None:
            self.post(Broken(start=self.alive, now=self.now, cause=cause(number)))
        if action == "judge" and self.ready is not None:
            self.post(Judged(start=self.ready, verdict=Verdict(reason="worse")))
        if action == "time out":
            self.time_out()
        if action == "print" and self.alive is not None:
            self.post(Progress(start=self.alive, now=self.now, lines=1))
        if action == "release" and self.release is not None:
            held = HELD[number] if number < len(HELD) else None
            self.post(Released(start=self.release, now=self.now, held=held))
            self.release = None

    def finish_spawn(self, number: int, *, ok: bool) -> None:
        if self.spawning is None:
            return
        start, self.spawning = self.spawning, None
        if ok:
            assert self.alive is None, "two processes"
            self.alive = start
            self.post(Spawned(start=start, pid=100 + start, now=self.now))
        else:
            failed = cause(number // 2)  # an odd number: every class has one
            self.post(SpawnFailed(start=start, now=self.now, jitter=0.5, cause=failed))

    def exit(self, number: int) -> None:
        if self.alive is None or (self.wedge and self.killed):
            return
        start, self.alive, self.killed = self.alive, None, False
        self.post(Exited(start=start, now=self.now, jitter=number / 20, cause=cause(number)))

    def advance_probe(self, number: int) -> None:
        if self.probe is None:
            return
        if number % 3 == 0:
            self.post(Healthy(start=self.probe))
            return
        start, self.probe = self.probe, None
        if number % 3 == 1:
            self.ready = start
            self.post(Probed(start=start, now=self.now, verdict=Verdict()))
        else:
            self.post(Unhealthy(start=start, cause=cause(number)))

    def time_out(self) -> None:
        if self.timer is not None:
            self.post(TimedOut(timer=self.timer, now=self.now))
            self.timer = None

    # What the machine does to the world ---------------------------------------------

    def deliver(self) -> None:
        if not self.inbox:
            return
        event = self.inbox.popleft()
        if isinstance(event, Spawned):
            self.told_alive = True
        if isinstance(event, Exited):
            self.told_alive = False
        self.engine, effects = step(self.engine, event)
        for effect in effects:
            self.obey(effect)
        self.check()

    def obey(self, effect: Effect) -> None:
        match effect:
            case Spawn(start=start):
                assert self.alive is None, "a second process"
                assert self.spawning is None, "a second spawn"
                self.spawning = start
            case StartProbe(start=start):
                assert self.probe is None, "a second probe"
                self.probe = start
            case EndProbe():
                self.probe = None
            case Signal(start=start, name=name):
                assert self.told_alive, "a signal to a dead process"
                assert start == self.engine.start, "a signal to another process"
                self.killed = self.killed or (name == "KILL" and self.alive is not None)
            case ArmTimer(timer=timer):
                self.timer = timer
            case DisarmTimer():
                self.timer = None
            case WaitRelease(start=start):
                assert not self.told_alive, "memory of a live process is waited for"
                self.release = start
            case _:
                assert_never(effect)

    # What must hold -----------------------------------------------------------------

    def check(self) -> None:
        state = self.engine.state
        if self.engine.armed:
            assert self.time_will_come(), f"{state}: nothing will end this wait"
        else:
            assert self.timer is None, f"{state}: a timer runs that nobody waits for"
        match state:
            case Spawning() | Stopping(pid=None):
                assert self.spawn_will_end(), "waits for no spawn"
                assert not self.told_alive
                assert not self.engine.armed
            case Loading() | Probing():
                assert self.told_alive, "waits for a process that ended"
                assert self.engine.armed, "nothing ends this wait"
                assert self.probe is not None or self.probe_news(), "nobody looks at it"
            case Stopping() | Backoff() | Releasing():
                assert self.engine.armed, "nothing ends this wait"
                assert self.told_alive == isinstance(state, Stopping)
            case Ready() | Wedged():
                assert self.told_alive, "the process ended"
                assert not self.engine.armed
            case Stopped() | Failed() | Blocked():
                assert not self.told_alive, "a process is left"
                if isinstance(state, Blocked):
                    assert self.release_will_end(), "nobody looks whether the card is free"
                assert self.spawning is None
                assert not self.engine.armed
            case _:
                assert_never(state)
        if not isinstance(state, Loading | Probing):
            assert self.probe is None, f"{state} is still probed"
        assert len(self.engine.memory.failures) <= 11, "it remembers without bound"

    def time_will_come(self) -> bool:
        news = (e.timer for e in self.inbox if isinstance(e, TimedOut))
        return self.timer is not None or self.engine.timer in news

    def spawn_will_end(self) -> bool:
        ends = any(isinstance(event, Spawned | SpawnFailed) for event in self.inbox)
        return self.spawning is not None or ends

    def release_will_end(self) -> bool:
        return self.release is not None or any(isinstance(e, Released) for e in self.inbox)

    def probe_news(self) -> bool:
        return any(isinstance(event, Probed | Unhealthy) for event in self.inbox)


HELD = [
    Cause(failure=FailureClass.VRAM_UNRECOVERED, reason="held"),
    Cause(failure=FailureClass.GPU_FAILED, reason="silent"),
]


def cause(number: int) -> Cause:
    classes = [each for each in FailureClass if each is not FailureClass.WEDGED]
    return Cause(failure=classes[number % len(classes)], reason="why", exit_code=number)


ACTIONS = ["start", "stop", "condemn", "wait", "spawn", "exit", "probe", "time out"]
ACTIONS += [
    "break",
    "judge",
    "print",
    "release",
    "release",
    "spawn",
    "spawn",
    "probe",
    "probe",
    "probe",
]
ACTIONS += ["deliver"] * 5
History = list[tuple[str, int]]
HISTORY = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 19)), max_size=80)
SEEDS = range(1500)


def drawn(seed: int, length: int = 150) -> History:
    """A long history; hypothesis draws short ones, which it can shrink."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible history, not a secret
    return [(rng.choice(ACTIONS), rng.randrange(20)) for _ in range(rng.randrange(length))]


def play(history: History, *, wedge: bool) -> World:
    world = World(engine=Engine(), wedge=wedge)
    for action, number in history:
        world.act(action, number)
    return world


def stopped(world: World) -> State:
    """The state that a fair world reaches after a stop."""
    world.post(Stop("at the end"))
    for _ in range(30):
        while world.inbox:
            world.deliver()
        if isinstance(world.engine.state, Stopped):
            break
        world.finish_spawn(0, ok=True)
        if world.killed:
            world.exit(0)
        world.time_out()
    return world.engine.state


def check_stop(history: History, *, wedge: bool) -> None:
    world = play(history, wedge=wedge)
    state = stopped(world)
    assert isinstance(state, Stopped if world.alive is None else Wedged), state
    assert world.alive is None or wedge


@settings(max_examples=400)
@given(history=HISTORY, wedge=st.booleans())
def test_every_possible_order_is_accepted_and_a_stop_ends_in_stopped_or_wedged(
    *, history: History, wedge: bool
) -> None:
    check_stop(history, wedge=wedge)


@pytest.mark.slow
def test_long_histories_end_the_same_way_and_pass_through_every_state() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        try:
            check_stop(drawn(seed), wedge=seed % 2 == 0)
        except AssertionError as error:
            msg = f"seed {seed}: {error}"
            raise AssertionError(msg) from error
        world = play(drawn(seed), wedge=seed % 2 == 0)
        seen |= {line.split(":")[0] for line in world.engine.story}
    named = {state.__name__.lower() for state in get_args(State) if state is not Blocked}
    assert seen == named | {"vram_unrecovered", "gpu_failed"}


@settings(max_examples=200)
@given(history=HISTORY)
def test_restarts_are_never_closer_than_the_breaker_allows(*, history: History) -> None:
    """Without a start, a stop or ten good minutes, at most eleven starts follow each other."""
    world = World(engine=Engine())
    world.post(Start(PLANS[0]))
    world.deliver()
    for action, number in history * 3:
        if action not in {"start", "stop", "wait"}:
            world.act(action, number % 8)
    assert world.engine.start <= 11
