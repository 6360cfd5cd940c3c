"""One start of an engine: its process, what it printed, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mtpd.engine import failures, logs
from mtpd.engine.evidence import EvidenceCollector
from mtpd.engine.facts import Listening
from mtpd.supervise.output import Output
from mtpd.supervise.spawn import not_started
from mtpd.supervise.states import Cause
from mtpd.units import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.engine.facts import Fact
    from mtpd.supervise.logfile import LogFile
    from mtpd.supervise.ports import Child
    from mtpd.supervise.spawn import Exit
    from mtpd.types import LaunchPlan, Verdict
    from mtpd.units import EngineId

__all__ = ["Life"]


class Life:
    """Collects the facts of one start until its residency is judged.

    Attributes:
        child: None until the process exists.
        served: Whether it was ready once.
        listening: Set when it says that it takes requests.
        ended: Set when the process has ended.
        end: How, from then on.
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
    ) -> None:
        self.start, self.engine_id, self.plan = start, engine_id, plan
        self._on_fact, self._on_output = on_fact, on_output
        # An engine that finds no card although one is planned for must not pass as "host".
        self._evidence = EvidenceCollector(device_expected=plan.key.device != HOST)
        self.output = Output(on_lines=self._take, file=file)
        self.child: Child | None = None
        self.served = False
        self.end: Exit | None = None
        self.listening = anyio.Event()
        self.ended = anyio.Event()

    def judge(self) -> Verdict:
        """Judge the residency by all that was printed so far; later facts are only passed on."""
        if self.child is not None:
            self.child.catch_up()
        self.served = True
        return self._evidence.verdict()

    def cause(self, end: Exit) -> Cause:
        """Say what this end means if nobody asked for it."""
        lines = self.output.ring.tail()
        if (cause := not_started(end, lines)) and not self.served:
            return cause
        failure = failures.classify(
            exit_code=end.exit_code, signal=end.signal, ready_before=self.served, lines=lines
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
        for line in lines:
            if (fact := logs.fact(line)) is not None:
                self._keep(line, fact)
        self._on_output(self)

    def _keep(self, line: str, fact: Fact) -> None:
        self._evidence.add(line, fact)
        if isinstance(fact, Listening):
            self.listening.set()
        if self._on_fact is not None:
            self._on_fact(self.engine_id, fact)
