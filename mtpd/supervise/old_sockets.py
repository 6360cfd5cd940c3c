"""Removes the sockets of engines whose daemon was killed.

An engine leaves its socket behind even when it ends well; its daemon removes it, unless that was
killed. Every start has a socket of its own, so nobody would ever take these away.

A socket is old where no socket of this machine has its path, and nobody takes a connection: one
that is bound and does not listen yet has the first, one of another network namespace the second.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path

import structlog

__all__ = ["sweep"]

log = structlog.get_logger()

ENGINES = re.compile(r"[0-9a-f]{12}\.sock")
"""How ``mtpd.engine.launch`` names them."""
BOUND = Path("/proc/net/unix")


def sweep(directory: Path, bound: Path = BOUND) -> None:
    """Remove the old sockets of a directory of ours; ``bound`` lists the paths of all others."""
    with suppress(OSError):
        lines = bound.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        names = {line.split(maxsplit=7)[-1] for line in lines if line}
        for path in directory.iterdir():
            if ENGINES.fullmatch(path.name) and str(path) not in names and _is_old(path):
                path.unlink(missing_ok=True)
                log.info("socket.removed", path=str(path))


def _is_old(path: Path) -> bool:
    """Whether it is a socket of ours that nobody listens on."""
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:  # its queue is full, say
            return False
    return False
