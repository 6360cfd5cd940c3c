"""What one process prints: lines to a listener, the ring and the log file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.supervise.lines import Ring, Splitter
from mtpd.supervise.logwriter import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.supervise.logfile import LogFile

__all__ = ["Output"]


class Output:
    """Takes the bytes of a process's pipes; each pipe keeps its own half line.

    Attributes:
        ring: The last lines of all pipes.
    """

    def __init__(self, *, on_lines: Callable[[Sequence[str]], None], file: LogFile | None) -> None:
        self._on_lines, self._file = on_lines, None if file is None else LogWriter(file)
        self._splitters: dict[int, Splitter] = {}
        self.ring = Ring()

    def feed(self, pipe: int, data: bytes) -> None:
        """Take what was read; also without a whole line the listener is called."""
        self._pass_on(self._splitters.setdefault(pipe, Splitter()).feed(data))

    def end(self, pipe: int) -> None:
        """Take the end of a pipe, and a last line without a line feed."""
        if (splitter := self._splitters.pop(pipe, None)) and (rest := splitter.end()):
            self._pass_on(rest)

    def close(self, done: Callable[[], None]) -> None:
        """Close the log file; ``done`` is called once all is in it."""
        if self._file is None:
            done()
        else:
            self._file.close(done)

    def _pass_on(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.ring.add(line)
        if self._file is not None:
            self._file.write(lines)
        self._on_lines(lines)
