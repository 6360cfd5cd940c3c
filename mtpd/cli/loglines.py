"""Where log lines go of commands that print results: never between them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import WrappedLogger

__all__ = ["logs_to_stderr"]


def logs_to_stderr() -> None:
    """Send what drivers' readers log to standard error, so that ``--json`` stays JSON.

    Where logging was set up already, its lines go there anyway.
    """
    if not structlog.is_configured():
        structlog.configure(logger_factory=_logger)


def _logger(*_names: object) -> WrappedLogger:
    return structlog.PrintLogger(sys.stderr)
