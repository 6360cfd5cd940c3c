"""Runs one of llama.cpp's tools to its end, as engines run: it dies with the daemon.

Covers one process: its text as it comes, its end, and killing it when nobody wants it any
more. What the text means is ``mtpd.engine.tool_output``.
"""

from __future__ import annotations

import uuid
from signal import SIGKILL
from typing import TYPE_CHECKING, Protocol

import anyio

from mtpd.errors import BinaryError, EngineError
from mtpd.supervise.lines import COLOUR
from mtpd.supervise.spawn import not_started
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.supervise.spawn import Exit, Pipes, ShimChild
    from mtpd.types import Command

__all__ = ["ToolRunner"]

QUIET_S = 1800.0
"""A tool that prints nothing for so long hangs; a pass over four chunks takes minutes on a CPU."""
PRINTED_BYTES = 64 * 1024 * 1024
"""A tool that prints more than so much never ends, and its device serves nobody meanwhile."""
KEPT_CHARS = 4 * 1024 * 1024
"""Of each pipe; a perplexity over a whole corpus prints some 20 KiB."""
_LAST_LINES = 3


class Spawner(Protocol):
    """Creates a process; ``ShimSpawner`` is the real one."""

    def spawn(
        self,
        command: Command,
        *,
        engine_id: str,
        output: Pipes,
        on_exit: Callable[[Exit], None],
    ) -> ShimChild:
        """See ``ShimSpawner``."""


class _Texts:
    """The text of each pipe, whole, and a scope that is cancelled once there is too much."""

    def __init__(self, on_text: Callable[[tuple[str, ...]], None], most: int) -> None:
        self._on_text, self._most = on_text, most
        self._taken: dict[int, bytearray] = {}
        self.count = 0
        self.patience = anyio.CancelScope()

    def feed(self, pipe: int, data: bytes) -> None:
        kept = self._taken.setdefault(pipe, bytearray())
        more = data[: KEPT_CHARS - len(kept)]
        kept += more
        self.count += len(data)
        if self.count > self._most:
            self.patience.cancel()
        if more:
            self._on_text(self.all())

    def end(self, pipe: int) -> None:
        """Nothing is held back."""

    def close(self, done: Callable[[], None]) -> None:
        """Nothing is open."""
        done()

    def all(self) -> tuple[str, ...]:
        return tuple(COLOUR.sub("", one.decode(errors="replace")) for one in self._taken.values())

    def last(self) -> tuple[str, ...]:
        """The last lines that say something, of the pipe that speaks of errors if one does."""
        lines = [line.strip() for text in self.all() for line in text.splitlines()]
        said = [line for line in lines if any(letter.isalpha() for letter in line)]
        wrong = [line for line in said if "error" in line.lower() or "fail" in line.lower()]
        return tuple((wrong or said)[-_LAST_LINES:])


class ToolRunner:
    """Runs tools, one process each.

    Args:
        spawner: Creates the process.
        new_id: Makes what it carries, so that all that it starts is found.
        quiet_s: How long it may print nothing.
        printed: How many bytes it may print.
    """

    def __init__(
        self,
        spawner: Spawner,
        *,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        quiet_s: float = QUIET_S,
        printed: int = PRINTED_BYTES,
    ) -> None:
        self._spawner, self._new_id = spawner, new_id
        self._quiet_s, self._printed = quiet_s, printed

    async def run(
        self, command: Command, *, name: str, on_text: Callable[[tuple[str, ...]], None]
    ) -> tuple[str, ...]:
        """Run to the end; a cancellation kills it and waits until it is gone.

        Args:
            command: What is run.
            name: What to call it in a sentence.
            on_text: Told all the text of each pipe whenever there is more.

        Returns:
            All the text of each pipe.

        Raises:
            BinaryError: It could not be started.
            EngineError: It ended with an error, printed nothing for too long, or without end.
        """
        texts = _Texts(on_text, self._printed)
        ended: list[Exit] = []
        try:
            child = self._spawner.spawn(
                command, engine_id=self._new_id(), output=texts, on_exit=ended.append
            )
        except OSError as error:
            message = f"{name} cannot be started: {error.strerror}"
            raise BinaryError(message) from error
        try:
            with texts.patience:
                await self._closed(child, texts, name)
            if texts.patience.cancelled_caught:
                message = f"{name} printed more than {self._printed} bytes and was ended"
                raise EngineError(message, failure=FailureClass.HANG)
        finally:
            child.signal(SIGKILL)
            with anyio.CancelScope(shield=True):
                await child.closed()
        if ended[0].code != 0:
            raise _failed(name, ended[0], texts)
        return texts.all()

    async def _closed(self, child: ShimChild, texts: _Texts, name: str) -> None:
        while True:
            before = texts.count
            with anyio.move_on_after(self._quiet_s):
                await child.closed()
                return
            if texts.count == before:
                message = f"{name} printed nothing for {self._quiet_s:g} s and was ended"
                raise EngineError(message, failure=FailureClass.HANG)


def _failed(name: str, end: Exit, texts: _Texts) -> EngineError:
    lines = [line for text in texts.all() for line in text.splitlines()]
    if (cause := not_started(end, lines)) is not None:
        return EngineError(f"{name} did not run: {cause.reason}", failure=cause.failure)
    how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exit_code}"
    said = " | ".join(texts.last())
    message = f"{name} ended with {how}" + (f": {said}" if said else " and printed nothing")
    return EngineError(message, failure=FailureClass.CRASH)
