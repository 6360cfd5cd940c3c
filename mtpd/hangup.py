"""What a SIGHUP means: read the configuration again, or the terminal is gone.

A daemon is told to reload with it, and a program that was started by hand gets it when its
terminal is closed. Which one it is shows in whether there still is a controlling terminal.
"""

from __future__ import annotations

import enum
import os
import signal

__all__ = ["Hangup", "Meaning", "has_terminal"]


class Meaning(enum.Enum):
    """What to do."""

    RELOAD = "reload"
    STOP = "stop"
    NOTHING = "nothing"


class Hangup:
    """Tells one SIGHUP from the other; made before the signal is received.

    Args:
        terminal: Whether there is a controlling terminal at the start.
        ignored: Whether the signal is ignored at the start, as ``nohup`` has it.
    """

    def __init__(self, *, terminal: bool, ignored: bool) -> None:
        self._terminal, self._ignored = terminal, ignored

    @classmethod
    def here(cls) -> Hangup:
        """For this process as it is now."""
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        return cls(terminal=has_terminal(), ignored=ignored)

    def meaning(self, *, terminal: bool) -> Meaning:
        """What a signal means that came just now.

        Args:
            terminal: Whether there is a controlling terminal now.
        """
        lost, self._terminal = self._terminal and not terminal, terminal
        if not lost:
            return Meaning.RELOAD
        return Meaning.NOTHING if self._ignored else Meaning.STOP


def has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    os.close(terminal)
    return True
