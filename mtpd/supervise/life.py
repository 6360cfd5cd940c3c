"""One start of an engine: its process, what it printed, and what that means."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import anyio

from mtpd.engine import failures, logs
from mtpd.engine.evidence import EvidenceCollector
from mtpd.engine.facts import DeviceLost, EvalTime, Listening, Phase, UsingDevice
from mtpd.engine.failures_seen import asked
from mtpd.engine.memory_look import room
from mtpd.engine.residency import Witnesses, conclude, not_ours
from mtpd.gpu.identity import same_card
from mtpd.supervise.output import Output
from mtpd.supervise.spawn import not_started
from mtpd.supervise.states import Cause
from mtpd.types import FailureClass
from mtpd.units import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.engine.facts import Fact
    from mtpd.engine.memory_look import MemoryLook
    from mtpd.supervise.logfile import LogFile
    from mtpd.supervise.ports import Child
    from mtpd.supervise.spawn import Exit
    from mtpd.types import LaunchPlan, Verdict
    from mtpd.units import EngineId

    Hear = Callable[[EngineId, Sequence[str], Sequence[tuple[int, Fact]]], None]
    """Takes the lines of a start, and the facts of some of them by their place among these."""

__all__ = ["Life", "unheard"]

_OPAQUE_HINT = "correct `command` in its profile; no shell reads it"
RATES = 5
"""Replies whose median speed is taken: enough to pass over one slow one."""
RATE_TOKENS = 32
"""Shorter replies measure the first step after a prompt more than the engine."""


def unheard(
    _engine: EngineId, _lines: Sequence[str], _facts: Sequence[tuple[int, Fact]], /
) -> None:
    """Nobody listens to the lines."""


class Life:
    """Collects the facts of one start until its residency is judged.

    Attributes:
        child: None until the process exists.
        served: Whether it was ready once.
        stop_asked: Whether its stop command was run.
        listening: Set when it says that it takes requests.
        refused: Set when it can already be said that it must not serve.
        refusal: Why, from then on.
        lost: Set when it says that its card is lost.
        lost_line: In these words.
        ended: Set when the process has ended.
        end: How, from then on.
        before: The card before the start, None where it was not looked at.
        ready: The card when the residency was judged.
        witnesses: What the verdict rests on.
    """

    def __init__(
        self,
        *,
        start: int,
        engine_id: EngineId,
        plan: LaunchPlan,
        file: LogFile | None,
        on_fact: Callable[[EngineId, Fact], None] | None,
        on_output: Callable[[Life], None],
        on_lines: Hear = unheard,
    ) -> None:
        self.start, self.engine_id, self.plan = start, engine_id, plan
        self._on_fact, self._on_output, self._on_lines = on_fact, on_output, on_lines
        # An engine that finds no card although one is planned for must not pass as "host".
        self._evidence = EvidenceCollector(device_expected=plan.key.device != HOST)
        self.output = Output(on_lines=self._take, file=file)
        self.child: Child | None = None
        self.served = self.stop_asked = False
        self.end: Exit | None = None
        self.listening, self.ended = anyio.Event(), anyio.Event()
        self.refused, self.refusal = anyio.Event(), Cause(failure=FailureClass.CONFIG, reason="")
        self.lost, self.lost_line = anyio.Event(), ""
        self.judged: Verdict | None = None
        """The verdict on it now, once it serves."""
        self.before: MemoryLook | None = None
        self.ready: MemoryLook | None = None
        self.witnesses: Witnesses | None = None
        self._cause: Cause | None = None
        self._rates: deque[float] = deque(maxlen=RATES)

    def judge(self, now: MemoryLook | None = None, *, speculates: bool | None = None) -> Verdict:
        """Judge the residency by all that was printed and measured so far.

        Args:
            now: The card with the model loaded.
            speculates: Whether its slots draft, None where they do not say.
        """
        if self.child is not None:
            self.child.catch_up()
        self.served = True
        if self.plan.opaque is not None:
            return not_ours(self.before, now)
        self.ready = now
        self.witnesses = Witnesses(
            log=self._evidence.verdict(),
            printed=self._evidence.printed,
            fused_off=self._evidence.fused_off,
            before=self.before,
            now=now,
            depth=self.plan.arm.depth,
            speculates=speculates,
        )
        return replace(conclude(self.witnesses), room_bytes=room(self.before, now))

    @property
    def without_gpu(self) -> Cause | None:
        """Why it runs without the card that it was to use, where its runtime says so.

        Not an arm that does not fit: the next start may find the card again.
        """
        said = self._evidence.not_initialised
        if said is None or self.plan.key.device == HOST or self._evidence.printed.device_bytes:
            return None
        return Cause(
            failure=FailureClass.GPU_INIT,
            reason=f"the engine found no GPU and went on with the processor: {said.line}",
            hint="check the driver and who may open /dev/kfd and /dev/dri",
        )

    @property
    def decode_tps(self) -> float | None:
        """Median tokens per second of its latest replies; None before the first long one."""
        return median(self._rates) if self._rates else None

    @property
    def pid(self) -> int:
        """Its process id; 0 before it has one."""
        return 0 if self.child is None else self.child.pid

    def cause(self, end: Exit) -> Cause:
        """Say what this end means if nobody asked for it."""
        if self._cause is None:  # looking for it in 4000 lines takes a while
            self._cause = self._found(end)
        return self._cause

    def _found(self, end: Exit) -> Cause:
        lines = self.output.ring.tail()
        if (cause := not_started(end, lines)) and not self.served:
            return cause if self.plan.opaque is None else replace(cause, hint=_OPAQUE_HINT)
        failure = failures.classify(
            exit_code=end.exit_code,
            signal=end.signal,
            ready_before=self.served,
            lines=lines,
            asked=asked(self.plan.command.argv),
            oom_kills=end.oom_kills,
        )
        return Cause(
            failure=failure.failure,
            reason=failure.sentence,
            hint=failure.hint,
            exit_code=end.shell_code,
        )

    @property
    def code(self) -> int | None:
        """The exit code, minus the signal, or None while it lives."""
        return self.end.code if self.end else None

    def kill(self, number: int) -> None:
        """Signal the process, if there is one."""
        if self.child is not None:
            self.child.signal(number)

    def _take(self, lines: Sequence[str]) -> None:
        found: list[tuple[int, Fact]] = []
        if self.plan.opaque is None:
            for place, line in enumerate(lines):
                if (fact := logs.fact(line)) is not None:
                    self._keep(line, fact)
                    found.append((place, fact))
        self._on_lines(self.engine_id, lines, found)
        self._on_output(self)

    def _keep(self, line: str, fact: Fact) -> None:
        self._evidence.add(line, fact)
        match fact:
            case Listening():
                self.listening.set()
            case UsingDevice(bus_id=str() as bus_id) if not self.served:
                self._check_card(bus_id)
            case DeviceLost():
                self.lost_line = line
                self.lost.set()
            case EvalTime(phase=Phase.DECODE, tokens=tokens, ms=ms) if tokens >= RATE_TOKENS:
                if ms > 0:
                    self._rates.append(tokens / ms * 1000)
            case _:
                pass
        if self._on_fact is not None:
            self._on_fact(self.engine_id, fact)

    def _check_card(self, bus_id: str) -> None:
        """Refuse an engine that takes another card than the one it was planned for."""
        device = self.plan.key.device
        if device == HOST or same_card(bus_id, device) is not False:
            return
        self.refusal = Cause(
            failure=FailureClass.CONFIG,
            reason=f"wrong device: the engine uses {bus_id}, it was to use {device}",
            hint="choose the card that mtpd watches with extra_env under [engine] "
            "(GGML_VK_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES) or device in the profile",
        )
        self.refused.set()
