"""Tells the service manager how the daemon is: the datagrams of sd_notify(3).

Without a service manager every message goes nowhere. Covers the protocol; what is said, and
when, is ``mtpd.service``'s business.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Notifier", "watchdog_s"]

log = structlog.get_logger()


class Notifier:
    """Sends messages to the service manager's socket.

    Args:
        address: ``NOTIFY_SOCKET``: a path, or ``@`` and an abstract name; None for nobody.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address

    def send(self, *fields: str) -> None:
        """Send one message of ``KEY=value`` fields; never waits, and never fails the caller."""
        if not self.address:
            return
        name = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                sock.sendto("\n".join(fields).encode(), name)
        except OSError as error:
            log.warning("notify.not_sent", fields=fields, reason=error.strerror or str(error))


def watchdog_s(environment: Mapping[str, str]) -> float | None:
    """How long the service manager lets pass without a sign of life; None for any time."""
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    meant = pid in {"", str(os.getpid())}
    return int(usec) / 1e6 if meant and usec.isdecimal() and int(usec) else None
