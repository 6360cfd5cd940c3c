"""Keeps the account of one card's memory: free before a start, given back after an end.

Covers looking at the card and at an engine's share of it, refusing a start onto a card
that is not free, and the wait for the memory of an ended engine. The waits are bounded;
what is said at their end names who holds the memory. Reading the card is
``mtpd.gpu``'s business, the verdict on an engine ``mtpd.engine.residency``'s.

While the memory of one engine moves, from the look before its start to the one when it is
loaded, and from its end until its memory is back, no other engine's may: each would be
counted as the other's (``mtpd.supervise.shares``). Starts by supervisors wait, too.

KFD frees the memory of a killed process in a work queue, after the process is gone, and
within no bound (facts/gpu.md section 5.3); a card in a reset answers nothing for a while
and forgets its power cap (section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio
import structlog
from anyio import to_thread

from mtpd.engine.memory_look import MemoryLook, free, holders, unreturned
from mtpd.errors import EngineError
from mtpd.supervise.identity import pids_of
from mtpd.supervise.needs import Needs
from mtpd.supervise.shares import Shares
from mtpd.supervise.states import Cause
from mtpd.types import Absent, FailureClass, Value
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from mtpd.clock import Clock
    from mtpd.gpu.base import GpuReading
    from mtpd.types import LaunchPlan, ProcessMemory, Reading
    from mtpd.units import EngineId

__all__ = ["CardKeeper", "Sample", "Telemetry"]

log = structlog.get_logger()

POLL_S = 0.1
AGAIN_S = 1.0
"""Between two looks at a card of which it is known already that it is not free."""
FOLLOW_S = 0.9
"""Between two looks while an engine serves: more often only disturbs a measurement."""
POLLS = 3
"""Looks in a row that must show the memory back."""
WARN_S, GIVE_UP_S = 10.0, 30.0
TURN_S = 60.0
"""So long an ended engine's memory is waited for to be told from that of one that loads."""
RESET_S = 60.0
"""Vega 20 needs some seconds for a reset; one that takes longer has failed."""

_UNRECOVERED_HINT = (
    "end what holds it; a model that fits the free memory may be started meanwhile, and if "
    "nothing holds it only a reset of the card or a reboot brings it back"
)
_FAILED_HINT = "see the kernel log; a card whose reset failed comes back with a reboot only"
_WHOLE_WATT = 0.5


class Sample(Protocol):
    """One reading with its time."""

    @property
    def at_s(self) -> float:
        """Monotonic seconds."""

    @property
    def reading(self) -> GpuReading:
        """What was read."""


class Telemetry(Protocol):
    """Reads one card without ever blocking the loop; ``mtpd.gpu.sampler`` does."""

    @property
    def latest(self) -> Sample | Absent:
        """The newest reading, if there is one."""

    async def fresh(self) -> Sample:
        """Read now."""

    async def following(self) -> Sample:
        """Wait for the next sample that is taken anyway."""

    async def processes(
        self, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """Who holds memory of the card."""


async def _pids_of(engine_id: EngineId) -> tuple[int, ...]:
    """Look through all processes, in a thread."""
    return await to_thread.run_sync(pids_of, engine_id)


class CardKeeper:
    """The account of one card; every supervisor of the card shares it.

    Args:
        telemetry: Reads the card.
        clock: Measures the waits.
        needs: Takes what starts were measured to take.
        sleep: Between two looks.
        pids: The processes of an engine start, by its id.
        turn_s: How long the end of an engine waits for another that loads.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        clock: Clock,
        needs: Needs | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        pids: Callable[[EngineId], Awaitable[tuple[int, ...]]] = _pids_of,
        turn_s: float = TURN_S,
    ) -> None:
        self._telemetry, self._clock, self._sleep = telemetry, clock, sleep
        self._pids_of, self._turn_s = pids, turn_s
        self._pids: dict[EngineId, frozenset[int]] = {}
        self._shares = Shares()
        self._needs = needs or Needs()
        self._plans: dict[EngineId, LaunchPlan] = {}
        self._moving: EngineId | None = None
        self._still = anyio.Event()
        self._owed: MemoryLook | None = None
        self._owed_by: frozenset[int] = frozenset()
        self._owed_of: EngineId | None = None
        self._silent = False
        self._sensors: tuple[str, ...] = ()
        self._cap_w: float | None = None
        self._followed_s: dict[EngineId, float] = {}

    @property
    def room_bytes(self) -> int | None:
        """Device memory that an engine would find if ours were stopped; None if unknown."""
        if self._shares.profiles:
            return self._shares.room_bytes
        sample = self._telemetry.latest
        return None if isinstance(sample, Absent) else _free(sample)

    @property
    def profiles(self) -> frozenset[str]:
        """Whose engines hold memory of the card."""
        return self._shares.profiles

    def held(self, profile: str) -> int | None:
        """Device memory that the engine of a profile holds; None where that is not known."""
        return self._shares.held(profile)

    async def free_now(self) -> int | None:
        """Device memory that nobody holds; None where the card does not say."""
        return _free(await self._telemetry.fresh())

    async def admit(self, engine_id: EngineId, plan: LaunchPlan) -> MemoryLook:
        """Look at the card before a start: what it shows is the baseline of that start.

        Raises:
            EngineError: The memory of an earlier engine is not back and the plan is not
                known to fit beside it, or the card has not answered since it hung.
        """
        await self._take(engine_id)
        try:
            look = await self._admitted(engine_id, plan)
        except BaseException:
            self._give(engine_id)
            raise
        self._plans[engine_id] = plan
        self._shares.begin(engine_id, plan.key.profile, look)
        return look

    async def _admitted(self, engine_id: EngineId, plan: LaunchPlan) -> MemoryLook:
        sample = await self._telemetry.fresh()
        if self._silent and not self._answers(sample.reading):
            raise _error(_failed())
        self._silent = False
        self._sensors = _readable(sample.reading)
        if isinstance(sample.reading.power_cap_w, Value):
            self._cap_w = sample.reading.power_cap_w.value
        raw = await self._at(sample, self._owed_by)
        look = self._shares.framed(raw, engine_id)
        owing = self._shares.framed(raw, self._owed_of)
        left = 0 if self._owed is None else unreturned(self._owed, owing)
        if not left:
            self._forgive()
        elif not _fits(plan, look):
            raise _error(_unrecovered(left, look))
        else:
            log.warning("vram.not_recovered", left_mib=left // MIB, starts=str(plan.arm))
        return look

    def withdrawn(self, engine_id: EngineId) -> None:
        """Do not wait for the memory of a start any more."""
        self._shares.withdraw(engine_id)
        self._give(engine_id)

    async def look(self, engine_id: EngineId, pid: int) -> MemoryLook:
        """Look at the card and at what this engine holds of it, now that it is loaded."""
        found = await self._pids_of(engine_id)
        self._pids[engine_id] = frozenset((*found, pid))
        raw = await self._at(await self._telemetry.fresh(), self._pids[engine_id])
        look = self._shares.framed(raw, engine_id)
        self._shares.note(engine_id, look, settled=False)
        plan = self._plans.get(engine_id)
        if plan is not None and (held := self.took(engine_id)) is not None:
            self._needs.note(plan.fingerprint, plan.arm, held)
        self._give(engine_id)
        return look

    def took(self, engine_id: EngineId) -> int | None:
        """Device memory that a start was measured to take, or None."""
        return self._shares.of(engine_id)

    async def following(self, engine_id: EngineId, pid: int) -> MemoryLook:
        """The next look of those that are taken anyway, while no other engine's memory moves."""
        last_s = self._followed_s.get(engine_id, float("-inf"))
        sample = await self._telemetry.following()
        while sample.at_s - last_s < FOLLOW_S or self._moving not in {None, engine_id}:
            sample = await self._telemetry.following()
        self._followed_s[engine_id] = sample.at_s
        raw = await self._at(sample, self._pids.get(engine_id, frozenset({pid})))
        look = self._shares.framed(raw, engine_id)
        self._shares.note(engine_id, look, settled=True)
        return look

    async def released(
        self, engine_id: EngineId, pid: int, before: MemoryLook | None, *, reset: bool
    ) -> Cause | None:
        """Wait until an ended engine's memory is back; None if it is, or if nobody can tell.

        Args:
            engine_id: The start that ended.
            pid: Its process, in case that it was never looked at.
            before: The card before it; None where it had not come so far.
            reset: Wait first until a card answers that may be in a reset.
        """
        if before is None:  # it came to nothing, because of what an earlier one owes
            return await self._returned(engine_id, pid, None, reset=reset)
        with anyio.move_on_after(self._turn_s):
            await self._take(engine_id)
        try:
            if self._moving != engine_id:
                return None  # beside one that has loaded all the time nobody can tell
            return await self._returned(engine_id, pid, before, reset=reset)
        finally:
            if self._owed_of != engine_id:
                self._forget(engine_id)
            self._give(engine_id)

    async def _returned(
        self, engine_id: EngineId, pid: int, before: MemoryLook | None, *, reset: bool
    ) -> Cause | None:
        if reset and not await self._answering():
            return _failed()
        pids = self._pids.pop(engine_id, frozenset({pid}))
        owed, owed_of = before, engine_id
        if owed is None:
            owed, pids, owed_of = self._owed, self._owed_by, self._owed_of or engine_id
        if owed is None:
            return None
        pause_s = AGAIN_S if owed is self._owed else POLL_S
        began, warned, row = self._clock.now(), False, 0
        while True:
            raw = await self._at(await self._telemetry.fresh(), pids)
            look = self._shares.framed(raw, owed_of)
            left = unreturned(owed, look)
            if left is None:
                return None  # a card whose counters fail is not held against the next engine
            row = 0 if left else row + 1
            waited_s = self._clock.now() - began
            if row >= POLLS:
                log.info("vram.released", engine=engine_id, after_s=round(waited_s, 3))
                self._settle(owed)
                return None
            if left and waited_s >= GIVE_UP_S:
                self._owed, self._owed_by, self._owed_of = owed, pids, owed_of
                self._shares.owe(owed_of)
                return _unrecovered(left, look)
            if left and waited_s >= WARN_S and not warned:
                warned = True
                log.warning("vram.slow", engine=engine_id, held=holders(look))
            await self._sleep(pause_s)

    async def _take(self, engine_id: EngineId) -> None:
        """Wait until no other engine's memory moves; from now on this one's does."""
        while self._moving not in {None, engine_id}:
            await self._still.wait()
        if self._moving is None:  # who waits for one that has it already keeps its event
            self._moving, self._still = engine_id, anyio.Event()

    def _give(self, engine_id: EngineId) -> None:
        """Its memory has come to rest."""
        if self._moving == engine_id:
            self._moving = None
            self._still.set()

    def _forget(self, engine_id: EngineId) -> None:
        self._shares.end(engine_id)
        self._plans.pop(engine_id, None)
        self._followed_s.pop(engine_id, None)

    def _forgive(self) -> None:
        """Nothing is owed any more."""
        if self._owed_of is not None:
            self._forget(self._owed_of)
        self._owed = self._owed_of = None

    def _settle(self, paid: MemoryLook) -> None:
        """Forget a debt that is paid; an older one of a lower level stays."""
        if self._owed is paid:
            self._forgive()

    async def _answering(self) -> bool:
        """Wait for a card that may be in a reset; says so where it lost its power cap."""
        began = self._clock.now()
        while not self._answers(reading := (await self._telemetry.fresh()).reading):
            if self._clock.now() - began >= RESET_S:
                self._silent = True
                return False
            await self._sleep(AGAIN_S if self._silent else POLL_S)
        self._silent = False
        self._verify_cap(reading.power_cap_w)
        return True

    def _verify_cap(self, cap: Reading[float]) -> None:
        """Say so where the cap is not the one before; measuring has a gate for it."""
        if not isinstance(cap, Value) or self._cap_w is None:
            return
        if abs(cap.value - self._cap_w) > _WHOLE_WATT:
            log.warning("gpu.cap_lost", cap_w=cap.value, before_w=self._cap_w)

    def _answers(self, reading: GpuReading) -> bool:
        """Whether every sensor that could be read before the last start can be read now."""
        return all(isinstance(getattr(reading, name), Value) for name in self._sensors)

    async def _at(self, sample: Sample, pids: frozenset[int]) -> MemoryLook:
        reading = sample.reading
        return MemoryLook(
            at_s=sample.at_s,
            vram_total_bytes=reading.vram_total_bytes,
            vram_used_bytes=reading.vram_used_bytes,
            gtt_used_bytes=reading.gtt_used_bytes,
            processes=await self._telemetry.processes(),
            engine=pids,
        )


def _free(sample: Sample) -> int | None:
    return free(sample.reading.vram_total_bytes, sample.reading.vram_used_bytes)


def _readable(reading: GpuReading) -> tuple[str, ...]:
    """Sensors of the card itself: the memory counters are the kernel's, and always answer."""
    sensors = ("edge_c", "power_w")
    return tuple(name for name in sensors if isinstance(getattr(reading, name), Value))


def _fits(plan: LaunchPlan, look: MemoryLook) -> bool:
    """Whether a plan is known to fit into what is measured to be free."""
    left = free(look.vram_total_bytes, look.vram_used_bytes)
    return plan.memory_bytes is not None and left is not None and plan.memory_bytes <= left


def _unrecovered(left: int, look: MemoryLook) -> Cause:
    amount = f"{left // MIB} MiB of device memory have" if left >= MIB else "its process has"
    reason = f"{amount} not come back from an ended engine; held by: {holders(look)}"
    return Cause(failure=FailureClass.VRAM_UNRECOVERED, reason=reason, hint=_UNRECOVERED_HINT)


def _failed() -> Cause:
    return Cause(
        failure=FailureClass.GPU_FAILED,
        reason=f"the card has not answered since it hung, for more than {RESET_S:.0f} s",
        hint=_FAILED_HINT,
    )


def _error(cause: Cause) -> EngineError:
    return EngineError(cause.reason, failure=cause.failure, hint=cause.hint)
