"""Ending a program as Ctrl-C does, whatever tells it to end."""

from __future__ import annotations

import signal

__all__ = ["end_as_ctrl_c_does"]


def end_as_ctrl_c_does(*numbers: signal.Signals) -> None:
    """Take signals for Ctrl-C: their default would leave files or a changed terminal behind."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
