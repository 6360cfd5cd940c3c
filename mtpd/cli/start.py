"""Where both programs begin: an interrupt while they load ends them without a traceback.

Loading takes up to a second. Until the commands are there, SIGINT has its default effect;
from then on it is reported like every other end (``mtpd.cli.failure``). A terminal or pipe whose
encoding lacks a sign gets a question mark in its place. A daemon, which runs for weeks, loads no
more than it needs.
"""

from __future__ import annotations

import io
import signal
import sys

__all__ = ["mtpctl", "mtpd"]


def mtpd() -> None:
    """Run ``mtpd``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _load_structlog()
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


def _load_structlog() -> None:
    """Load structlog without rich, which it takes to draw tracebacks where it is installed.

    ``mtpd.logs`` has it draw none, and rich would be 3 MB of a daemon. Commands that print tables
    load it later, themselves. None in ``sys.modules`` is how Python is told that a module is not
    to be had.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # see above
    try:
        import structlog  # noqa: F401, PLC0415  # see above
    finally:
        del sys.modules["rich"]


def _bear_any_encoding() -> None:
    """What is shown holds signs such as ≤, and names that others chose."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None where there is no standard output
        sys.stdout.reconfigure(errors="replace")
