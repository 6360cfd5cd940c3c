"""Joules of the processor package, where the kernel shows them (RAPL, root only by default).

Its scope is the processor, never a card: such joules are not to be added to a card's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mtpd.gpu.files import reason_of
from mtpd.types import Absent, Value

__all__ = ["SCOPE", "PackageEnergy"]

SCOPE: Final = "cpu_package"
_MICRO: Final = 1e6
_ZONE = re.compile(r"intel-rapl:\d+")


class PackageEnergy:
    """Counts joules over all packages; the hardware's counters wrap, this one does not.

    Asked at least once per wrap: some minutes at full load.

    Args:
        root: Where ``sys`` lies.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        base = root / "sys/class/powercap"
        self._zones = (
            sorted(zone for zone in base.iterdir() if _is_package(zone)) if base.is_dir() else []
        )
        self._last_uj: dict[Path, int] = {}
        self._joules = 0.0

    def read(self) -> Value[float] | Absent:
        """Joules since the first reading, which is 0 by definition."""
        if not self._zones:
            return Absent("the kernel shows no energy counter of the processor")
        now_uj: dict[Path, int] = {}
        gained_uj = 0
        for zone in self._zones:
            count_uj, range_uj = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
            if isinstance(count_uj, Absent):
                return count_uj
            if isinstance(range_uj, Absent):
                return range_uj
            before_uj = self._last_uj.get(zone, count_uj)
            gained_uj += (count_uj - before_uj) % (range_uj + 1)
            now_uj[zone] = count_uj
        self._last_uj = now_uj
        self._joules += gained_uj / _MICRO
        return Value(self._joules, SCOPE)


def _is_package(zone: Path) -> bool:
    """Whether a zone is a whole package; its parts would count twice."""
    if not _ZONE.fullmatch(zone.name):
        return False
    try:
        return (zone / "name").read_text().startswith("package-")
    except OSError:
        return False


def _number(path: Path) -> int | Absent:
    try:
        text = path.read_text(errors="replace").strip()
    except OSError as error:
        return Absent(f"{path.name}: {reason_of(error)}")
    if not re.fullmatch(r"[0-9]{1,19}", text):
        return Absent(f"{path.name} holds {text[:40]!r}")
    return int(text)
