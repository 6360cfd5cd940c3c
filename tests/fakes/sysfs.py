"""A sysfs tree as amdgpu of Linux 6.12 shows one Radeon Pro VII (gfx906, 16 GiB).

File names and units as in the driver's amdgpu_pm.c and vega20_hwmgr.c; the values are
those of a card capped at 150 W. ``Tree.read`` raises what a read of a real file raises,
which permissions cannot express for root.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from mtpd.gpu.sysfs import read_text
from mtpd.units import MIB, DeviceKey

if TYPE_CHECKING:
    from pathlib import Path

FIRST = DeviceKey("0000:03:00.0")
SECOND = DeviceKey("0000:0a:00.0")
VRAM_TOTAL = 17163091968
_BRIDGE = "sys/devices/pci0000:00/0000:00:01.1"


class Tree:
    """A tree under construction below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._errors: dict[Path, int] = {}

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / target, link.parent))

    def fail(self, path: str, code: int) -> None:
        """Let reads of a file fail with an error number."""
        self._errors[(self.root / path).resolve()] = code

    def read(self, path: Path) -> str:
        """Read a file as ``SysfsProvider`` does, failing where told to."""
        code = self._errors.get(path.resolve())
        if code is not None:
            raise OSError(code, os.strerror(code), str(path))
        return read_text(path)


def device(key: str = FIRST) -> str:
    """Folder of a card."""
    return f"{_BRIDGE}/{key}"


def hwmon(key: str = FIRST) -> str:
    """Folder of a card's sensors."""
    return f"{device(key)}/hwmon/hwmon3"


def no_gpu(root: Path) -> Tree:
    """A machine with a management controller's display and a CPU sensor, but no GPU."""
    tree = Tree(root)
    controller = "sys/devices/pci0000:00/0000:00:1c.0/0000:09:00.0"
    tree.write(f"{controller}/vendor", "0x1a03\n")
    tree.link(f"{controller}/drm/card0/device", controller)
    tree.link("sys/class/drm/card0", f"{controller}/drm/card0")
    tree.write("sys/class/drm/version", "drm 1.1.0 20060810\n")
    return tree


def card(tree: Tree, *, key: str = FIRST, number: int = 1, edge_c: int = 38) -> None:
    """Add an idle card."""
    folder, sensors = device(key), hwmon(key)
    for name, text in {
        "vendor": "0x1002\n",
        "device": "0x66a1\n",
        "power/runtime_status": "active\n",
        "mem_info_vram_total": f"{VRAM_TOTAL}\n",
        "mem_info_vram_used": "11444224\n",
        "mem_info_gtt_used": "14680064\n",
    }.items():
        tree.write(f"{folder}/{name}", text)
    for name, text in {
        "name": "amdgpu\n",
        "temp1_label": "edge\n",
        "temp1_input": f"{edge_c * 1000}\n",
        "temp2_label": "junction\n",
        "temp2_input": "40000\n",
        "temp3_label": "mem\n",
        "temp3_input": "39000\n",
        "power1_average": "21000000\n",
        "power1_cap": "150000000\n",
    }.items():
        tree.write(f"{sensors}/{name}", text)
    # A hwmon of another chip on the same card must be passed over.
    tree.write(f"{folder}/hwmon/hwmon1/name", "nvme\n")
    tree.write(f"{folder}/hwmon/hwmon1/temp1_input", "99000\n")
    tree.link(f"{folder}/drm/card{number}/device", folder)
    tree.link(f"sys/class/drm/card{number}", f"{folder}/drm/card{number}")
    tree.link(f"sys/class/drm/card{number}-DP-1", f"{folder}/drm/card{number}")
    tree.link(f"sys/bus/pci/devices/{key}", folder)


def build(root: Path, scenario: str) -> Tree:
    """One of the scenarios of ``SCENARIOS``."""
    tree = no_gpu(root)
    if scenario != "no_gpu":
        card(tree)
    if scenario == "two_gpus":
        card(tree, key=SECOND, number=2, edge_c=41)
    if scenario == "new_kernel":
        (tree.root / hwmon() / "power1_average").rename(tree.root / hwmon() / "power1_input")
    if scenario == "spilled":
        tree.write(f"{device()}/mem_info_vram_used", f"{15_404 * MIB}\n")
        tree.write(f"{device()}/mem_info_gtt_used", f"{3_000 * MIB}\n")
    if scenario in {"suspended", "in_reset"}:
        names = ("temp1_input", "temp2_input", "power1_average", "power1_cap")
        for name in names:
            tree.fail(f"{hwmon()}/{name}", errno.EPERM)
    if scenario == "suspended":
        tree.write(f"{device()}/power/runtime_status", "suspended\n")
    if scenario == "malformed":
        tree.write(f"{device()}/mem_info_vram_used", "\n")
        tree.write(f"{device()}/mem_info_gtt_used", "-1\n")
        tree.write(f"{hwmon()}/temp1_input", "65535000\n")
        tree.write(f"{hwmon()}/temp2_input", "N/A\n")
        tree.write(f"{hwmon()}/power1_average", "4294967295\n")
        tree.write(f"{hwmon()}/power1_cap", "\n")
    return tree


SCENARIOS = (
    "idle",
    "two_gpus",
    "new_kernel",
    "spilled",
    "suspended",
    "in_reset",
    "malformed",
    "no_gpu",
)
