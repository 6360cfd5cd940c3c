"""A service manager: hears what a daemon says of itself, and holds its listening sockets."""

from __future__ import annotations

import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Manager", "activated", "managed"]

_HAND_OVER = """
import os, sys
count = int(sys.argv[1])
numbers = [os.dup(int(word)) for word in sys.argv[3 : 3 + count]]
for place, number in enumerate(numbers, 3):
    os.dup2(number, place)
    os.set_inheritable(place, True)
os.closerange(3 + count, 64)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.argv[3 + count], sys.argv[3 + count :])
"""


@dataclass(slots=True)
class Manager:
    """Hears one daemon.

    Attributes:
        sock: Where the daemon sends its messages.
        heard: Them, in their order.
    """

    sock: socket.socket
    heard: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.sock.getsockname()}

    def hear(self) -> list[str]:
        """Every message so far."""
        while True:
            try:
                self.heard.append(self.sock.recv(65536).decode())
            except BlockingIOError:
                return self.heard

    async def until(self, text: str, *, times: int = 1, within_s: float = 30.0) -> None:
        """Wait until a message that holds this text has come so often."""
        with anyio.fail_after(within_s):
            while sum(text in message for message in self.hear()) < times:
                await anyio.wait_readable(self.sock)


@contextmanager
def managed(folder: Path) -> Iterator[Manager]:
    """A manager that listens in a folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(str(folder / "notify"))
        yield Manager(sock)


def activated(
    argv: Sequence[str], sockets: Sequence[socket.socket], names: str
) -> tuple[list[str], list[int]]:
    """A command line that runs another with these sockets as systemd passes them.

    Returns it with the descriptors that its process must inherit.
    """
    numbers = [sock.fileno() for sock in sockets]
    words = [str(len(numbers)), names, *map(str, numbers)]
    return [sys.executable, "-I", "-c", _HAND_OVER, *words, *argv], numbers
