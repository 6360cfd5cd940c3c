"""One start of an engine: its process, what it printed, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mtpd.engine import evidence, failures, logs
from mtpd.supervise.output import Output
from mtpd.supervise.spawn import not_started
from mtpd.supervise.states import Cause
from mtpd.types import Verdict
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.engine.facts import Fact
    from mtpd.supervise.logfile import LogFile
    from mtpd.supervise.ports import Child
    from mtpd.supervise.spawn import Exit
    from mtpd.types import LaunchPlan
    from mtpd.units import EngineId

__all__ = ["Life"]

FACTS = 20_000
"""A load prints some hundred; this many mean that the log is not what it seems."""


class Life:
    """Collects the facts of one start until its residency is judged.

    Attributes:
        child: None until the process exists.
        served: Whether it was ready once.
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
        self._facts: list[tuple[str, Fact]] = []
        self._overflow = False
        self.output = Output(on_lines=self._take, file=file)
        self.child: Child | None = None
        self.served = False
        self.end: Exit | None = None
        self.ended = anyio.Event()

    def judge(self) -> Verdict:
        """Judge the residency by all that was printed so far; later facts are only passed on."""
        if self.child is not None:
            self.child.catch_up()
        facts, self._facts, self.served = self._facts, [], True
        if self._overflow:
            reason = f"the load printed more than {FACTS} facts"
            return Verdict(residency=Unknown(reason), reason=reason)
        return evidence.judge(facts)

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
        if not self.served:
            self._overflow = self._overflow or len(self._facts) >= FACTS
            if not self._overflow:
                self._facts.append((line, fact))
        if self._on_fact is not None:
            self._on_fact(self.engine_id, fact)
