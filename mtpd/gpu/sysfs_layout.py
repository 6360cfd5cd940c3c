"""Where the files of an amdgpu card lie: looked up once, and again when they moved.

Covers discovery by PCI address and the map to KFD. The numbers of card, hwmon and KFD
node change between boots and after a rebind; the address of the slot does not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.gpu.base import Device
from mtpd.gpu.sysfs_metrics import isa, pci_address
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.gpu.files import Files

__all__ = ["Layout", "find_cards"]

AMD: Final = "0x1002"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DEVICE_FILES: Final = (
    "mem_info_vram_total",
    "mem_info_vram_used",
    "mem_info_gtt_total",
    "mem_info_gtt_used",
    "gpu_busy_percent",
    "mem_busy_percent",
    "gpu_metrics",
    "power/runtime_status",
    "ras/umc_err_count",
)
_SENSOR_FILES: Final = (
    "power1_input",
    "power1_average",
    "power1_cap",
    "power1_cap_default",
    "power1_cap_min",
    "power1_cap_max",
    "freq1_input",
    "freq2_input",
)
_CRITICAL_MAX_MILLI: Final = 150_000
_LABELS: Final = {"edge": "edge", "junction": "junction", "mem": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One card.

    Attributes:
        device: What it is.
        folder: Its directory.
        files: Path of each file that it has, by the file's name; sensors are named
            edge, junction and memory.
        has_sensors: Whether the driver has a hwmon directory for it.
        gpu_id: KFD's number of it, or None where KFD does not show it.
        absent: Paths of the files that it may have and had not.
    """

    device: Device
    folder: str
    files: Mapping[str, str]
    has_sensors: bool
    gpu_id: int | None
    absent: tuple[str, ...]

    @property
    def is_outdated(self) -> bool:
        """Whether a file exists by now that was not there when the card was looked up."""
        return any(os.path.lexists(path) for path in self.absent)


def find_cards(files: Files) -> dict[DeviceKey, Layout]:
    """The amdgpu cards by address; a card of another vendor or driver is passed over."""
    base = files.at("sys/bus/pci/devices")
    nodes = _kfd_nodes(files)
    driver = files.text(files.at("sys/module/amdgpu/version"))
    cards: dict[DeviceKey, Layout] = {}
    for name in files.entries(base):
        folder = f"{base}/{name}"
        address = name.lower()
        if not _ADDRESS.fullmatch(address) or files.text(f"{folder}/vendor") != AMD:
            continue
        if files.text(f"{folder}/mem_info_vram_total") is None:
            continue
        gpu_id, target = nodes.get(address, (None, 0))
        serial = files.text(f"{folder}/unique_id")
        sensors = _sensor_folder(files, folder)
        present, absent = _present(files, folder, sensors)
        cards[DeviceKey(address)] = Layout(
            device=Device(
                key=DeviceKey(address),
                vendor="amd",
                name=files.text(f"{folder}/product_name"),
                uuid=f"GPU-{serial.lower()}" if serial else None,
                isa=isa(target),
                driver=driver,
                junction_limit_c=_junction_limit_c(files, sensors),
            ),
            folder=folder,
            files=present,
            has_sensors=sensors is not None,
            gpu_id=gpu_id,
            absent=absent,
        )
    return cards


def _present(
    files: Files, folder: str, sensors: str | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files that a card has, by name, and the paths of those that it has not."""
    labels: list[str] = []
    paths = {name: f"{folder}/{name}" for name in _DEVICE_FILES}
    if sensors is not None:
        paths |= {name: f"{sensors}/{name}" for name in _SENSOR_FILES}
        for number in (1, 2, 3):
            # The oldest drivers label nothing; their first sensor is the edge.
            labels.append(f"{sensors}/temp{number}_label")
            label = files.text(labels[-1]) or ("edge" if number == 1 else "")
            if label in _LABELS:
                paths[_LABELS[label]] = f"{sensors}/temp{number}_input"
    present = {name: path for name, path in paths.items() if os.path.lexists(path)}
    sought = (*paths.values(), *labels)
    return present, tuple(path for path in sought if not os.path.lexists(path))


def _junction_limit_c(files: Files, sensors: str | None) -> float | None:
    """The driver labels its sensors in one order: edge, junction, memory."""
    milli = _natural(files.text(f"{sensors}/temp2_crit")) if sensors is not None else 0
    return milli / 1000 if 0 < milli <= _CRITICAL_MAX_MILLI else None


def _sensor_folder(files: Files, folder: str) -> str | None:
    for name in files.entries(f"{folder}/hwmon"):
        if files.text(f"{folder}/hwmon/{name}/name") == "amdgpu":
            return f"{folder}/hwmon/{name}"
    return None


def _kfd_nodes(files: Files) -> dict[str, tuple[int, int]]:
    """KFD's number and instruction set of each card; without the right to see it, none."""
    base = files.at("sys/class/kfd/kfd/topology/nodes")
    nodes: dict[str, tuple[int, int]] = {}
    for name in files.entries(base):
        properties = dict(
            words
            for line in (files.text(f"{base}/{name}/properties") or "").splitlines()
            if len(words := line.split()) == 2  # noqa: PLR2004 - a name and a value
        )
        gpu_id = _natural(files.text(f"{base}/{name}/gpu_id"))
        if not gpu_id:  # 0: a processor
            continue
        address = pci_address(
            domain=_natural(properties.get("domain")),
            location=_natural(properties.get("location_id")),
        )
        nodes[address] = (gpu_id, _natural(properties.get("gfx_target_version")))
    return nodes


def _natural(text: str | None) -> int:
    """A number of KFD's topology, in which 0 means none."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else 0
