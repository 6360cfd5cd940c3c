"""Which processes hold memory of an AMD card: from KFD, and from their open files.

KFD knows ROCm processes and tells everybody. ``/proc/PID/fdinfo`` knows every client,
Vulkan included, but only to the same user. The memory of a ROCm process stands in both:
the larger counts, never the sum.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.gpu.base import MEMORY_MAX_BYTES
from mtpd.gpu.files import reason_of
from mtpd.gpu.sysfs_metrics import integer
from mtpd.types import Absent, ProcessMemory, Value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mtpd.gpu.files import Files
    from mtpd.units import DeviceKey

__all__ = ["processes"]

_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MILLISECONDS_MAX: Final = 1 << 62
# Linux 7 renames what older kernels call memory; both mean what lies there now.
_VRAM: Final = ("drm-resident-vram", "drm-memory-vram")
_GTT: Final = ("drm-resident-gtt", "drm-memory-gtt")
_EVICTED: Final = ("amd-evicted-vram",)
_NO_KFD: Final = Absent("KFD does not list the process")

Bytes = Value[int] | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """What the open files of a process say."""

    vram: Bytes
    gtt: Bytes
    evicted: Bytes

    @property
    def holds_nothing(self) -> bool:
        return all(isinstance(one, Value) and one.value == 0 for one in (self.vram, self.gtt))


def processes(
    files: Files, *, address: DeviceKey, gpu_id: int | None, pids: Collection[int] | None
) -> tuple[ProcessMemory, ...]:
    """The users of a card, by pid.

    Args:
        files: Reads the files.
        address: PCI address of the card.
        gpu_id: KFD's number of it, or None.
        pids: Only these; None means all that can be seen.
    """
    listed = files.at("sys/class/kfd/kfd/proc")
    in_kfd = set() if gpu_id is None else _numbers(files.entries(listed))
    asked = _numbers(files.entries(files.at("proc"))) if pids is None else set(pids)
    found: list[ProcessMemory] = []
    for pid in sorted(asked | (in_kfd if pids is None else set())):
        kfd = _kfd(files, f"{listed}/{pid}", gpu_id) if pid in in_kfd else None
        opened = _opened(files, files.at(f"proc/{pid}"), address)
        if kfd is None and (isinstance(opened, Absent) or opened.holds_nothing):
            continue
        found.append(_process(files, pid, kfd, opened))
    return tuple(found)


def _process(
    files: Files, pid: int, kfd: tuple[Bytes, Bytes] | None, opened: _Open | Absent
) -> ProcessMemory:
    unseen = opened if isinstance(opened, Absent) else None
    vram = unseen or (opened.vram if isinstance(opened, _Open) else _NO_KFD)
    if kfd is not None:
        vram = _larger(kfd[0], vram)
    return ProcessMemory(
        pid=pid,
        name=files.text(files.at(f"proc/{pid}/comm")),
        vram_bytes=vram,
        gtt_bytes=opened.gtt if isinstance(opened, _Open) else opened,
        evicted_bytes=opened.evicted if isinstance(opened, _Open) else opened,
        evicted_ms=_NO_KFD if kfd is None else kfd[1],
    )


def _larger(one: Bytes, other: Bytes) -> Bytes:
    if isinstance(one, Absent):
        return other if isinstance(other, Value) else one
    return other if isinstance(other, Value) and other.value > one.value else one


def _kfd(files: Files, folder: str, gpu_id: int | None) -> tuple[Bytes, Bytes] | None:
    """Memory and eviction time of a ROCm process; None when it has just ended."""
    vram = _number(files, f"{folder}/vram_{gpu_id}", MEMORY_MAX_BYTES, "kfd")
    if vram is None and not os.path.isdir(folder):  # noqa: PTH112 - as all paths here
        return None
    evicted = _number(files, f"{folder}/stats_{gpu_id}/evicted_ms", _MILLISECONDS_MAX, "kfd")
    return (
        vram or Absent("KFD does not say how much memory of this card it holds"),
        evicted or Absent("KFD does not count evictions"),
    )


def _number(files: Files, path: str, most: int, source: str) -> Bytes | None:
    try:
        data = files.once(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Absent(f"{os.path.basename(path)}: {reason_of(error)}")  # noqa: PTH119
    found = integer(data, 0, most, where=os.path.basename(path))  # noqa: PTH119
    return Value(found.value, source) if isinstance(found, Value) else found


def _opened(files: Files, folder: str, address: DeviceKey) -> _Open | Absent:
    """What a process's open files on this card say, each client counted once."""
    try:
        names = os.listdir(f"{folder}/fdinfo")  # noqa: PTH208 - as all paths here
    except OSError as error:
        return Absent(f"its open files cannot be seen: {reason_of(error)}")
    clients: dict[str, dict[str, str]] = {}
    for name in names:
        if not _may_be_card(f"{folder}/fd/{name}"):
            continue
        said = _pairs(files.text(f"{folder}/fdinfo/{name}") or "")
        if said.get("drm-pdev", "").lower() == address:
            # Duplicated descriptors are one client and show the same numbers.
            clients[said.get("drm-client-id", f"descriptor {name}")] = said
    if not clients:
        return Absent("it has no open file of this card")
    each = tuple(clients.values())
    return _Open(vram=_sum(each, _VRAM), gtt=_sum(each, _GTT), evicted=_sum(each, _EVICTED))


def _may_be_card(link: str) -> bool:
    """Whether a descriptor can be a card's; what cannot be seen may be one."""
    try:
        return os.readlink(link).startswith("/dev/dri/")  # noqa: PTH115 - as all paths here
    except OSError:
        return True


def _pairs(text: str) -> dict[str, str]:
    parted = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in parted if colon}


def _sum(clients: Collection[Mapping[str, str]], names: tuple[str, ...]) -> Bytes:
    total = 0
    for said in clients:
        text = next((said[name] for name in names if name in said), None)
        if text is None:
            return Absent(f"fdinfo has no {names[0]}")
        number, _, unit = text.partition(" ")
        factor = _UNITS.get(unit.strip())
        if factor is None or not (number.isascii() and number.isdigit()) or len(number) > 18:  # noqa: PLR2004
            return Absent(f"fdinfo holds {text[:40]!r}")
        total += int(number) * factor
    if total > MEMORY_MAX_BYTES:
        return Absent(f"fdinfo holds the impossible value {total}")
    return Value(total, "fdinfo")


def _numbers(names: list[str]) -> set[int]:
    return {int(name) for name in names if name.isascii() and name.isdigit()}
