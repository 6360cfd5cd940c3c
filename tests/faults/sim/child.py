"""Engine processes in virtual time: they load, print, serve, crash, hang, and do not end."""

from __future__ import annotations

import errno
import signal
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import anyio

from mtpd.errors import EngineError
from mtpd.supervise.spawn import Exit
from mtpd.types import FailureClass, UnixEndpoint
from mtpd.units import MIB
from tests.fakes.card_memory import OVERHEAD, printed_mib
from tests.fakes.log_lines import Start, load_lines
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.supervise.output import Output
    from mtpd.types import Command, Endpoint, LaunchPlan
    from mtpd.units import EngineId
    from tests.faults.sim.card import Card
    from tests.faults.sim.fate import Fate, Words
    from tests.faults.sim.loop import VirtualLoop

__all__ = ["Child", "LostError", "Machine", "Make", "taken_mib"]

OUT_OF_MEMORY: Words = (
    (
        b"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1197.00 MiB on device 0: "
        b"cudaMalloc failed: out of memory\n"
    ),
    1,
)
DEVICE_LOST = b"ggml_vulkan: device lost on ROCm0\n"
SPILLED_MIB = 900
STEPS = 8
"""Pieces in which a load prints its lines."""
CANARY_S = 60.0
LAST_WORDS_S = 1.0
NOTICED_S = 0.002


class LostError(Exception):
    """The engine broke off."""


@dataclass(frozen=True, slots=True)
class Make:
    """Of what a process is an engine.

    Attributes:
        evicts: Whether a layer of it stays in host memory.
    """

    profile: str
    depth: int
    layers: int
    evicts: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.profile, str(self.depth), str(self.layers), str(int(self.evicts)))

    @classmethod
    def read(cls, argv: tuple[str, ...]) -> Make:
        return cls(argv[0], int(argv[1]), int(argv[2]), argv[3] == "1")


@lru_cache(maxsize=256)
def _log(make: Make) -> tuple[str, ...]:
    """The lines of a load as llama.cpp prints them."""
    script = Script(
        device=Device(), layers=make.layers, evict_at_depth=make.depth if make.evicts else None
    )
    start = Start(
        model=f"/{make.profile}.gguf",
        slots=1,
        context=4096,
        depth=make.depth,
        layers_on_device=None,
    )
    said = [
        f"0.00.100.000 {'I' if kind == 'T' else kind} {text}"
        for kind, text in load_lines(script, start)
    ]
    url = f"unix:///{make.profile}.sock"
    return (*said, f"0.00.200.000 I srv  llama_server: listening on {url}")


@lru_cache(maxsize=256)
def taken_mib(make: Make) -> int:
    """Device memory that such an engine takes."""
    return round(printed_mib(_log(make), Device().name)) + OVERHEAD // MIB


class Child:
    """One process.

    Attributes:
        make: Of what it is an engine.
        born_at: When it was created.
        listening: Whether it takes requests.
        proved: Whether its canary came back.
        exited: Whether the kernel has let go of it.
        killed_at: When SIGKILL came.
        short: Whether it ended for want of device memory.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        pid: int,
        engine_id: EngineId,
        make: Make,
        fate: Fate,
        output: Output,
        on_exit: Callable[[Exit], None],
    ) -> None:
        self.machine, self.pid, self.start_ticks = machine, pid, pid
        self.engine_id, self.make, self.fate = engine_id, make, fate
        self._output, self._on_exit, self._loop = output, on_exit, machine.loop
        self.born_at = machine.loop.time()
        self.listening = self.proved = self.exited = self.hung = self.short = False
        self.killed_at: float | None = None
        self.card_lost = self._stopping = False
        self._listens, self._disturbed = anyio.Event(), anyio.Event()
        self._ended, self._closed = anyio.Event(), anyio.Event()
        self._load(0)

    # Its own life -------------------------------------------------------------------

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._loop.call_later(seconds, lambda: None if self.exited else act())

    def _load(self, step: int) -> None:
        lines = _log(self.make)
        first, last = len(lines) * step // STEPS, len(lines) * (step + 1) // STEPS
        if step == STEPS // 2:
            if self.fate.stalls:
                return
            if self.fate.ends_loading is not None:
                self._end(self.fate.ends_loading)
                return
        if step == STEPS - 1 and not self._take():
            return
        self._print("\n".join(lines[first:last]).encode() + b"\n")
        if step < STEPS - 1:
            self._later(self.fate.load_s / STEPS, lambda: self._load(step + 1))
        else:
            self.listening = True
            self._listens.set()

    def _take(self) -> bool:
        spilled = SPILLED_MIB if self.fate.spills else 0
        if self.machine.card.take(self.pid, taken_mib(self.make) - spilled, spilled):
            return True
        self.short = True
        self._end(OUT_OF_MEMORY)
        return False

    def serve(self) -> None:
        """The canary came back: what its fate has for the time of serving begins."""
        self.proved = True
        fate = self.fate
        if fate.ends_serving is not None:
            after_s, words = fate.ends_serving
            self._later(after_s, lambda: self._end(words))
        if fate.hangs_s is not None:
            self._later(fate.hangs_s, self.hang)
        if fate.loses_card_s is not None:
            self._later(fate.loses_card_s, self._lose_card)

    def hang(self) -> None:
        """It answers nothing any more, and does not hear SIGTERM."""
        self.hung = True
        self._disturbed.set()

    def end_by(self, number: int) -> None:
        """Somebody else ends it with a signal."""
        if not self.exited and not self.fate.wedged_s:
            self._exit(-number)

    def _lose_card(self) -> None:
        self.card_lost = True
        self._print(DEVICE_LOST)
        self._disturbed.set()

    def _end(self, words: Words) -> None:
        said, code = words
        if said:
            self._print(said)
        self._exit(code)

    def _print(self, data: bytes) -> None:
        self._output.feed(1, data)

    def _exit(self, code: int) -> None:
        self.exited, self.listening = True, False
        self.machine.card.ended(self.pid, self.fate.lag_s)
        self.machine.ended(self, code)
        self._ended.set()
        self._disturbed.set()
        self._listens.set()
        self._loop.call_later(NOTICED_S, self._reaped, code)

    def _reaped(self, code: int) -> None:
        self._output.end(1)
        self._output.close(self._closed.set)
        self._on_exit(Exit(code))

    # What the daemon does to it -----------------------------------------------------

    def signal(self, number: int) -> None:
        self.machine.signalled(self, number)
        if self.exited:
            return
        if number == signal.SIGKILL:
            if self.killed_at is None:
                self.killed_at = self._loop.time()
                if self.fate.wedged_s < float("inf"):
                    self._later(self.fate.wedged_s + 0.01, lambda: self._exit(-9))
        elif not self.fate.deaf and not self.hung:
            code = 0 if self.listening and not self._stopping else -15
            self._stopping = True
            self._disturbed.set()
            self._later(self.fate.term_s if self.listening else 0.01, lambda: self._exit(code))

    def catch_up(self) -> None:
        """All that it printed has been read."""

    async def closed(self) -> None:
        await self._closed.wait()

    # What clients and probes do -----------------------------------------------------

    async def until_listening(self) -> None:
        """Wait until it takes connections; for ever where it never does."""
        await self._listens.wait()
        if self.exited:
            await anyio.sleep_forever()

    async def complete(self, seconds: float) -> None:
        """Have so much generated; raises LostError where the engine breaks off."""
        if not (self.exited or self.card_lost or self._stopping or self.hung):
            with anyio.move_on_after(seconds):
                await self._disturbed.wait()
                await anyio.lowlevel.checkpoint()
        if self.hung:
            await self._ended.wait()
        if self.exited or self.card_lost or self._stopping:
            raise LostError

    async def answer(self) -> bool:
        """Whether a question through its queue is answered; never, where it hangs."""
        if self.hung:
            await anyio.sleep_forever()
        await anyio.sleep(0.01)
        return not self.exited


class Machine:
    """The processes of a world; passes for a spawner and for a probe.

    Attributes:
        children: All that were ever created, oldest first.
        on_spawn: Told before a process comes to be.
        on_end: Told of an end.
        on_signal: Told of a signal.
    """

    def __init__(self, loop: VirtualLoop, card: Card, fates: Callable[[Make], Fate]) -> None:
        self.loop, self.card, self._fates = loop, card, fates
        self.children: list[Child] = []
        self.on_spawn: Callable[[Make, EngineId], None] = lambda _make, _engine: None
        self.on_end: Callable[[Child, int], None] = lambda _child, _code: None
        self.on_signal: Callable[[Child, int], None] = lambda _child, _number: None
        self._at: dict[str, Child] = {}

    def spawn(
        self,
        command: Command,
        *,
        engine_id: EngineId,
        output: Output,
        on_exit: Callable[[Exit], None],
    ) -> Child:
        make = Make.read(command.argv)
        fate = self._fates(make)
        self.on_spawn(make, engine_id)
        if not fate.born:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        child = Child(
            self,
            pid=100 + len(self.children),
            engine_id=engine_id,
            make=make,
            fate=fate,
            output=output,
            on_exit=on_exit,
        )
        self.children.append(child)
        self._at[f"/{make.profile}.sock"] = child
        return child

    def live(self) -> list[Child]:
        """Those that the kernel has not let go of."""
        return [child for child in self.children if not child.exited]

    def ended(self, child: Child, code: int) -> None:
        self.on_end(child, code)

    def signalled(self, child: Child, number: int) -> None:
        self.on_signal(child, number)

    async def pids_of(self, engine_id: EngineId) -> tuple[int, ...]:
        await anyio.lowlevel.checkpoint()
        return tuple(child.pid for child in self.live() if child.engine_id == engine_id)

    def at(self, endpoint: Endpoint) -> Child | None:
        """Who listens at an endpoint, if somebody does."""
        assert isinstance(endpoint, UnixEndpoint)
        child = self._at.get(endpoint.path)
        return child if child is not None and child.listening else None

    # The probe ----------------------------------------------------------------------

    def clear(self, endpoint: Endpoint) -> None:
        """A socket file keeps nobody from binding here."""

    async def check(
        self,
        plan: LaunchPlan,
        *,
        pid: int,
        listening: anyio.Event,
        on_healthy: Callable[[], None],
    ) -> bool | None:
        child = next(child for child in self.children if child.pid == pid)
        await child.until_listening()
        on_healthy()
        await anyio.sleep(0.1)
        if child.fate.canary == "hangs" or child.hung:
            await anyio.sleep(CANARY_S)
            raise EngineError("the canary failed: no answer", failure=FailureClass.HANG)
        if child.fate.canary == "fails" or child.exited:
            await anyio.sleep(LAST_WORDS_S)
            raise EngineError("the canary failed: HTTP 500", failure=FailureClass.CRASH)
        child.serve()
        return plan.arm.depth > 0

    async def fails(self, plan: LaunchPlan) -> bool:
        await anyio.sleep(0.01)
        child = self.at(plan.endpoint)
        return child is None or child.card_lost

    async def answers(self, plan: LaunchPlan) -> bool:
        """The question of the pulse."""
        child = self.at(plan.endpoint)
        return child is not None and await child.answer()
