"""The configuration as it lies on the disk: how to read it again, and what to watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.config.sources import KINDS, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mtpd.config.model import Config

__all__ = ["ConfigOnDisk", "Stamp"]

Stamp = frozenset[tuple[str, int, int, int]]
"""Path, time of the last change (ns), size and inode of every file that is there."""


@dataclass(frozen=True, slots=True)
class ConfigOnDisk:
    """A configuration file with all that is read along with it.

    Attributes:
        path: The file that was named.
        read: Reads and checks everything as at the start, command line included; raises
            ConfigError with every problem; blocking.
    """

    path: Path
    read: Callable[[], Config]

    def stamp(self, sources: Iterable[str]) -> Stamp:
        """Tells one state of the files from another; blocking.

        Args:
            sources: The files that were read last. Profiles beside the file count also
                where they are new.
        """
        beside = (self.path.parent / "profiles",)
        paths = {str(self.path), *sources}
        for kind in KINDS:
            paths |= {str(path) for path in find(beside, kind).values()}
        return frozenset(one for path in paths if (one := _stamp(path)) is not None)


def _stamp(path: str) -> tuple[str, int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return path, found.st_mtime_ns, found.st_size, found.st_ino
