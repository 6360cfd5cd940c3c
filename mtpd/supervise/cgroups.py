"""A control group for each process that we start, where the service manager lets us have some.

Nothing leaves its group by a fork, a session of its own or a cleaned environment, so killing the
group ends all that an engine started. Only a unit with ``Delegate=`` may have groups of its own,
and only the unit knows that it has it: ours say so in ``MTPD_CGROUP``. No controller is turned on
below the unit's group, so the daemon may stay in it (the rule against processes in inner groups
is about controllers). Covers the files; ``mtpd.supervise.remains`` uses them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLE", "Cgroup", "Cgroups"]

log = structlog.get_logger()

VARIABLE, DELEGATED = "MTPD_CGROUP", "delegated"


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The group of one process and of all that it starts."""

    path: Path

    def kill(self) -> None:
        """Send SIGKILL to whatever is in it, now and at once."""
        with suppress(OSError):
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")

    def lives(self) -> bool:
        """Whether a process is in it; one that has ended and was not reaped does not count."""
        with suppress(OSError):
            return "populated 1" in (self.path / "cgroup.events").read_text(encoding="ascii")
        return False

    def remove(self) -> None:
        """Remove it; it has to be empty."""
        try:
            self.path.rmdir()
        except OSError as error:
            log.warning("cgroup.left", path=str(self.path), reason=error.strerror)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Makes groups below the daemon's own."""

    above: Path

    @classmethod
    def delegated(
        cls, environment: Mapping[str, str], proc: Path = Path("/proc")
    ) -> Cgroups | None:
        """Those below the unit's group, None where it is not ours to divide."""
        if environment.get(VARIABLE) != DELEGATED:
            return None
        above = _own(proc / "self")
        if above is None or not (above / "cgroup.kill").exists():
            log.warning(
                "cgroup.none", reason="no cgroup v2 with cgroup.kill (Linux 5.14) is mounted"
            )
            return None
        return cls(above)

    def make(self, name: str) -> Cgroup | None:
        """Make one; None, and a line in the log, where that is refused."""
        path = self.above / f"engine-{name}"
        try:
            path.mkdir()
        except OSError as error:
            log.warning("cgroup.refused", path=str(path), reason=error.strerror)
            return None
        return Cgroup(path)


def _own(process: Path) -> Path | None:
    """The directory of a process's group in cgroup v2."""
    with suppress(OSError):
        groups = (process / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (process / "mountinfo").read_text(encoding="utf-8").splitlines()
        inside = next(
            (line.removeprefix("0::/") for line in groups if line.startswith("0::/")), None
        )
        mounted = next((line.split()[4] for line in mounts if " - cgroup2 " in line), None)
        if inside is not None and mounted is not None:
            return Path(mounted) / inside
    return None
