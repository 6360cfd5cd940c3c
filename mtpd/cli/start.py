"""Where both programs begin: an interrupt while they load ends them without a traceback.

Loading takes up to a second. Until the commands are there, SIGINT has its default effect;
from then on it is reported like every other end (``mtpd.cli.failure``). A terminal or pipe whose
encoding lacks a sign gets a question mark in its place.
"""

from __future__ import annotations

import io
import signal
import sys

__all__ = ["mtpctl", "mtpd"]


def mtpd() -> None:
    """Run ``mtpd``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mtpd.cli.mtpd import main  # noqa: PLC0415  # loading is what must be interruptible

    signal.signal(signal.SIGINT, signal.default_int_handler)
    _bear_any_encoding()
    main()


def mtpctl() -> None:
    """Run ``mtpctl``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mtpd.cli.mtpctl import main  # noqa: PLC0415  # loading is what must be interruptible

    signal.signal(signal.SIGINT, signal.default_int_handler)
    _bear_any_encoding()
    main()


def _bear_any_encoding() -> None:
    """What is shown holds signs such as ≤, and names that others chose."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None where there is no standard output
        sys.stdout.reconfigure(errors="replace")
