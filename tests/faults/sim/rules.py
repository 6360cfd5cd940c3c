"""What must hold in every world, after every step.

Each rule raises ``BrokenRuleError`` with a sentence. They look at the fake machine, where the truth
is, and at what the daemon believes; never only at the latter.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from mtpd.events import EngineTransition
from mtpd.proxy.admission_types import NoEngine, Pending, Recovering, Serving
from mtpd.supervise.states import Backoff
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from mtpd.events import Event
    from mtpd.proxy.engines import Lease
    from mtpd.proxy.lane import Lane
    from mtpd.supervise.runner import EngineActor
    from mtpd.units import EngineId
    from tests.faults.sim.child import Child, Make
    from tests.faults.sim.world import World

__all__ = ["BrokenRuleError", "Rules"]

DOCUMENT = Path(__file__).parents[3] / "docs" / "supervision.md"
WEDGED_S = 5.0
"""After SIGKILL; from then on nobody can be blamed for a process that is still there."""
LATE_S = 1.0
"""How much later than its deadline a request may be told."""
LONGEST_BACKOFF_S = 72.0
BREAKER = ((60.0, 6), (600.0, 11))
"""How many starts there may be within a time, without an order between them."""


class BrokenRuleError(AssertionError):
    """Something that must never be."""


def _table() -> frozenset[tuple[str, str]]:
    """Every change of state that the documentation lists."""
    return frozenset(re.findall(r"^\| (\w+) \| (\w+) \| [A-Z]", DOCUMENT.read_text(), re.MULTILINE))


TABLE = _table()


class Rules:
    """Watches one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._spawns: dict[str, list[float]] = {}
        self._ordered: set[str] = set()
        machine = world.machine
        machine.on_spawn, machine.on_end, machine.on_signal = (
            self.spawned,
            self.ended,
            self.signalled,
        )
        world.ledger.notes.on_drop = self.unnoted
        world.on_event, world.on_order = self.heard, self.ordered
        world.loop.on_turn, world.loop.on_quiet = self.turned, self.quiet

    def broken(self, what: str) -> BrokenRuleError:
        """The error for a broken rule."""
        error = BrokenRuleError(f"{self._world.loop.time() - 1000.0:.3f} s: {what}")
        self._world.broken = self._world.broken or error
        return error

    # When a process comes, is signalled, or goes ------------------------------------

    def spawned(self, make: Make, engine_id: EngineId) -> None:
        """A process is about to come to be."""
        world = self._world
        world.say(f"spawn {engine_id} {make.profile}@{make.depth}")
        noted = engine_id in world.ledger.notes.kept
        if engine_id not in world.ledger.open and not noted:
            msg = f"{engine_id} is created before its row is durable, or its note"
            raise self.broken(msg)
        if engine_id not in world.ledger.open and not world.ledger.refused(engine_id):
            msg = f"{engine_id} is noted although nothing was refused"
            raise self.broken(msg)
        if world.ended_at is not None:
            msg = f"{engine_id} is created after the daemon was told to end"
            raise self.broken(msg)
        others = [child for child in world.machine.live() if not _wedged(child, world)]
        for other in others:
            self._may_be_beside(make, other)
        self._ordered.discard(make.profile)
        if world.holding:
            msg = f"{engine_id} is created while another is being measured"
            raise self.broken(msg)
        self._spawns.setdefault(make.profile, []).append(world.loop.time())

    def _may_be_beside(self, make: Make, other: Child) -> None:
        seating = self._world.seating
        seat, held = seating.seat(make.profile), seating.seat(other.make.profile)
        if seat == held:
            msg = f"{make.profile} is started beside {other.engine_id} of its seat"
            raise self.broken(msg)
        group = seating.group(seat)
        if make.profile not in self._ordered:
            return  # a restart after a crash: others may have come beside it since
        if group.exclusive and group.name != held.group and not seating.group(held).persistent:
            msg = f"{make.profile} is exclusive and {other.engine_id} is still there"
            raise self.broken(msg)

    def ended(self, child: Child, code: int) -> None:
        """A process is gone."""
        world = self._world
        world.say(f"exit {child.engine_id} {code}")
        if child.short:
            self._may_be_short(child)

    def _may_be_short(self, child: Child) -> None:
        """Only what nobody could know lets device memory run out."""
        world = self._world
        ours = [hold for pid, hold in world.card.holds.items() if pid != child.pid]
        excused = (
            world.card.foreign_at >= child.born_at - 1.0
            or child.make.profile in world.forced
            or not ours
            or any(not hold.gone and hold.gtt_mib for hold in ours)
            or any(other.killed_at is not None for other in world.machine.live())
        )
        if not excused:
            held = ", ".join(f"{hold.vram_mib} MiB gone={hold.gone}" for hold in ours)
            msg = f"{child.engine_id} ran out of memory beside {held}"
            raise self.broken(msg)

    def unnoted(self, engine_id: str) -> None:
        """A note was taken back: its row is durable, or its process is gone."""
        living = {child.engine_id for child in self._world.machine.live()}
        if engine_id in living and engine_id not in self._world.ledger.open:
            msg = f"the note of {engine_id} is taken back before its row is durable"
            raise self.broken(msg)

    def signalled(self, child: Child, number: int) -> None:
        """A process is asked to end."""
        self._world.say(f"{signal.Signals(number).name} {child.engine_id}")

    def ordered(self, profile: str) -> None:
        """A supervisor was told to start something."""
        self._world.say(f"order {profile}")
        self._ordered.add(profile)

    def measuring(self, profile: str) -> None:
        """An operation has the card for itself from now on."""
        world = self._world
        there = [child for child in world.machine.live() if not _wedged(child, world)]
        others = [child.engine_id for child in there if child.make.profile != profile]
        if others or len(there) > 1:
            msg = f"{profile} is measured beside {others or there}"
            raise self.broken(msg)

    # When a request is let in -------------------------------------------------------

    def leased(self, profile: str, lease: Lease) -> Child | None:
        """A request may use an engine; returns who answers there."""
        world = self._world
        if lease.arm.profile != profile:
            msg = f"a request for {profile} is sent to {lease.arm}"
            raise self.broken(msg)
        child = world.machine.at(lease.endpoint)
        if child is None:
            return None  # it has just died, and nobody was told yet
        if child.make.profile != profile or child.make.depth != lease.arm.depth:
            msg = f"a request for {lease.arm} is answered by {child.make}"
            raise self.broken(msg)
        if child.engine_id != lease.engine_id:
            msg = f"{child.engine_id} answers for {lease.engine_id}"
            raise self.broken(msg)
        if not child.proved:
            msg = f"{child.engine_id} gets a request before its canary came back"
            raise self.broken(msg)
        if child.make.evicts and profile not in world.forced:
            msg = f"{child.engine_id} serves although a layer was evicted"
            raise self.broken(msg)
        return child

    # After every turn of the loop ---------------------------------------------------

    def turned(self) -> None:
        """What is cheap to look at."""
        world = self._world
        if world.card.used_mib > 16368:
            raise self.broken("the card holds more than it has")

    def heard(self, event: Event) -> None:
        """The daemon told something."""
        self._world.say(str(event))
        if isinstance(event, EngineTransition):
            if (event.old, event.new) not in TABLE:
                msg = f"{event.profile} goes from {event.old} to {event.new}"
                raise self.broken(msg)
            self._moved(event.profile, self._world.actors[event.profile])

    def _moved(self, profile: str, actor: EngineActor) -> None:
        state = actor._engine.state
        if isinstance(state, Backoff):
            wait_s = state.until - self._world.loop.time()
            reset = state.cause.failure in {FailureClass.GPU_HANG, FailureClass.DEVICE_LOST}
            if wait_s > LONGEST_BACKOFF_S or (wait_s < -121.0 and not reset):
                msg = f"{profile} waits {wait_s:.1f} s before its next start"
                raise self.broken(msg)
        if len(actor._engine.memory.failures) > 11:
            msg = f"{profile} remembers {actor._engine.memory.failures}"
            raise self.broken(msg)

    # Before time jumps --------------------------------------------------------------

    def quiet(self) -> None:
        """All have done what they can for now: nobody may wait for nothing."""
        for lane in self._world.board._lanes.there():
            self._may_wait(lane)

    def _may_wait(self, lane: Lane) -> None:
        state, now = lane.state, self._world.loop.time()
        if not state.waiting or state.closed is not None:
            return
        late = [waiter for waiter in state.waiting if waiter.deadline < now - LATE_S]
        if late:
            msg = f"a request for {late[0].profile} waits beyond its deadline"
            raise self.broken(msg)
        if state.held is not None or lane.lock.locked():
            return
        match state.engine:
            case NoEngine():
                msg = f"requests wait on {lane.seat}, and nobody starts an engine"
                raise self.broken(msg)
            case Pending(profile=profile):
                msg = f"{profile} was asked for on {lane.seat}, and nobody is at it"
                raise self.broken(msg)
            case Recovering(profile=profile):
                actor = self._world.actors.get(profile)
                if actor is None or actor.view().state in {"stopped", "failed", "wedged"}:
                    msg = f"requests wait for {profile}, which nobody restarts"
                    raise self.broken(msg)
            case Serving(profile=profile, capacity=capacity):
                same = [waiter for waiter in state.waiting if waiter.profile == profile]
                if same and not state.running and len(state.waiting) == len(same):
                    msg = f"{profile} is idle with {capacity} places and is waited for"
                    raise self.broken(msg)
            case never:
                assert_never(never)

    # At the end ---------------------------------------------------------------------

    def over(self) -> None:
        """The daemon has ended."""
        world = self._world
        left = [child for child in world.machine.live() if not _wedged(child, world)]
        if left:
            msg = f"{[child.engine_id for child in left]} outlive the daemon"
            raise self.broken(msg)
        for lane in world.board._lanes.there():
            if lane._tickets or lane.state.waiting or lane.state.running:
                msg = f"{lane.seat} still counts requests: {lane.state}"
                raise self.broken(msg)
        for profile, spawns in self._spawns.items():
            self._check_pace(profile, spawns)

    def _check_pace(self, profile: str, spawns: list[float]) -> None:
        """Starts without an order between them keep their distance."""
        orders = [at for at, what in self._world.trace if what == f"order {profile}"]
        for within_s, tolerated in BREAKER:
            for first, last in zip(spawns, spawns[tolerated:], strict=False):
                ordered = any(first <= at <= last for at in orders)
                if last - first < within_s and not ordered:
                    msg = f"{profile} was started {tolerated + 1} times within {within_s:g} s"
                    raise self.broken(msg)


def _wedged(child: Child, world: World) -> bool:
    """Whether the kernel alone is to blame that a process is still there."""
    return child.killed_at is not None and world.loop.time() - child.killed_at >= WEDGED_S - 0.01
