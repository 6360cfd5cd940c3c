"""Where both programs begin: an interrupt while they load ends them without a traceback.

Loading takes up to a second. Until the commands are there, SIGINT has its default effect;
from then on it is reported like every other end (``mtpd.cli.failure``).
"""

from __future__ import annotations

import signal

__all__ = ["mtpctl", "mtpd"]


def mtpd() -> None:
    """Run ``mtpd``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mtpd.cli.mtpd import main  # noqa: PLC0415  # loading is what must be interruptible

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def mtpctl() -> None:
    """Run ``mtpctl``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mtpd.cli.mtpctl import main  # noqa: PLC0415  # loading is what must be interruptible

    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
