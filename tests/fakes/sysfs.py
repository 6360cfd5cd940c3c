"""A sysfs and procfs tree as amdgpu and KFD of Linux 6.12 show a Radeon Pro VII (gfx906).

File names and units as in the driver's amdgpu_pm.c, vega20_hwmgr.c, kfd_topology.c,
kfd_process.c and amdgpu_fdinfo.c; the values are those of a card capped at 150 W.
``Tree.files`` raises what a read of a real file raises, which permissions cannot express
for root. A process that is not the test's can move the tree, too: by writing its files.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from typing import TYPE_CHECKING

from mtpd.gpu.files import Files
from mtpd.units import MIB, DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FIRST = DeviceKey("0000:03:00.0")
SECOND = DeviceKey("0000:0a:00.0")
VRAM_TOTAL = 17163091968
GTT_TOTAL = 67387215872
GPU_ID = 26287
SERIAL = "2172c0de5eed0906"
EDGE, HOTSPOT, PPT = 1 << 1, 1 << 2, 1 << 13
"""Bits of the throttle status of Vega 20 (smu11_driver_if.h:212)."""

_BRIDGE = "sys/devices/pci0000:00/0000:00:01.1"
_KFD = "sys/devices/virtual/kfd/kfd"


class FailingFiles(Files):
    """Reads files as the real ones, failing where told to; counts the reads."""

    def __init__(self, root: Path, errors: Mapping[Path, int]) -> None:
        super().__init__(root=str(root))
        self._errors = errors
        self.reads: list[str] = []

    def kept(self, path: str) -> bytes:
        self._check(path)
        return super().kept(path)

    def once(self, path: str) -> bytes:
        self._check(path)
        return super().once(path)

    def write(self, path: str, text: str) -> None:
        self._check(path)
        super().write(path, text)

    def _check(self, path: str) -> None:
        self.reads.append(path)
        for failing, code in self._errors.items():
            if os.path.realpath(path) == str(failing):
                raise OSError(code, os.strerror(code), path)


class Tree:
    """A tree under construction below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._errors: dict[Path, int] = {}

    def write(self, path: str, text: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(self.root / target, link.parent))

    def fail(self, path: str, code: int) -> None:
        """Let reads and writes of a file fail with an error number."""
        self._errors[(self.root / path).resolve()] = code

    def heal(self) -> None:
        """Let everything be read again."""
        self._errors.clear()

    def files(self) -> FailingFiles:
        """What reads this tree."""
        return FailingFiles(self.root, self._errors)

    def vram(self, used_bytes: int, *, key: str = FIRST) -> None:
        self.write(f"{device(key)}/mem_info_vram_used", f"{used_bytes}\n")

    def gtt(self, used_bytes: int, *, key: str = FIRST) -> None:
        self.write(f"{device(key)}/mem_info_gtt_used", f"{used_bytes}\n")

    def sensors(self, *, key: str = FIRST, **values: int) -> None:
        """Set sensors: edge_c, junction_c, power_w, cap_w, busy_percent, core_mhz, throttle."""
        folder = hwmon(key)
        paths = {
            "edge_c": (f"{folder}/temp1_input", 1000),
            "junction_c": (f"{folder}/temp2_input", 1000),
            "memory_c": (f"{folder}/temp3_input", 1000),
            "power_w": (f"{folder}/power1_input", 1_000_000),
            "cap_w": (f"{folder}/power1_cap", 1_000_000),
            "busy_percent": (f"{device(key)}/gpu_busy_percent", 1),
            "core_mhz": (f"{folder}/freq1_input", 1_000_000),
        }
        for name, value in values.items():
            if name == "throttle":
                self.write(f"{device(key)}/gpu_metrics", gpu_metrics(throttle=value))
            else:
                path, factor = paths[name]
                self.write(path, f"{value * factor}\n")

    def process(
        self,
        pid: int,
        *,
        vram_bytes: int,
        gtt_bytes: int = 18 * MIB,
        evicted_bytes: int = 0,
        kfd: bool = True,
        descriptors: int = 1,
        name: str = "llama-server",
        key: str = FIRST,
        gpu_id: int = GPU_ID,
    ) -> None:
        """Add or change a process: a ROCm client, or (``kfd=False``) a Vulkan one."""
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/fdinfo/0", "pos:\t0\nflags:\t0100002\nmnt_id:\t26\n")
        for number in range(descriptors):
            # Duplicates of one client: the same id, to be counted once.
            text = fdinfo(77, key, vram_bytes=vram_bytes, gtt_bytes=gtt_bytes)
            text += f"amd-evicted-vram:\t{evicted_bytes // 1024} KiB\n"
            self.write(f"proc/{pid}/fdinfo/{5 + number}", text)
        if kfd:
            folder = f"{_KFD}/proc/{pid}"
            self.write(f"{folder}/vram_{gpu_id}", f"{vram_bytes}\n")
            self.write(f"{folder}/stats_{gpu_id}/evicted_ms", "0\n")

    def end(self, pid: int) -> None:
        """Remove a process."""
        for folder in (f"proc/{pid}", f"{_KFD}/proc/{pid}"):
            shutil.rmtree(self.root / folder, ignore_errors=True)

    def vanish(self, key: str = FIRST) -> None:
        """Unbind a card: its folder goes, its address is free."""
        (self.root / f"sys/bus/pci/devices/{key}").unlink()
        shutil.rmtree(self.root / device(key))

    def renumber(self, key: str = FIRST) -> None:
        """Give a card's sensors another hwmon number."""
        folder = self.root / hwmon(key)
        folder.rename(folder.with_name("hwmon9"))


def device(key: str = FIRST) -> str:
    """Folder of a card."""
    return f"{_BRIDGE}/{key}"


def hwmon(key: str = FIRST) -> str:
    """Folder of a card's sensors."""
    return f"{device(key)}/hwmon/hwmon3"


def gpu_metrics(*, throttle: int = 0, version: tuple[int, int] = (1, 0)) -> bytes:
    """``gpu_metrics`` v1.0 as kgd_pp_interface.h:480 lays it out: 80 bytes, power 0."""
    head = struct.pack("<HBB4xQ", 80, *version, 1_234_567_890_123)
    head += struct.pack("<6H3HHI", 38, 40, 39, 41, 39, 40, 0, 0, 0xFFFF, 0, 0xFFFFFFFF)
    clocks = struct.pack("<14H", *[809, 971, 350, *[0xFFFF] * 4] * 2)
    return head + clocks + struct.pack("<IHBB4x", throttle, 1500, 16, 80)


def fdinfo(client: int, key: str, *, vram_bytes: int, gtt_bytes: int = 0) -> str:
    """What ``/proc/PID/fdinfo/N`` of an open render node says."""
    return (
        f"pos:\t0\nflags:\t02100002\nmnt_id:\t28\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\n"
        f"drm-pdev:\t{key}\ndrm-memory-vram:\t{vram_bytes // 1024} KiB\n"
        f"drm-memory-gtt: \t{gtt_bytes // 1024} KiB\ndrm-memory-cpu: \t0 KiB\n"
    )


def no_gpu(root: Path) -> Tree:
    """A machine with a management controller's display and a CPU sensor, but no GPU."""
    tree = Tree(root)
    controller = "sys/devices/pci0000:00/0000:00:1c.0/0000:09:00.0"
    tree.write(f"{controller}/vendor", "0x1a03\n")
    tree.link(f"{controller}/drm/card0/device", controller)
    tree.link("sys/class/drm/card0", f"{controller}/drm/card0")
    tree.link("sys/bus/pci/devices/0000:09:00.0", controller)
    tree.write("sys/class/drm/version", "drm 1.1.0 20060810\n")
    tree.write("sys/devices/platform/coretemp.0/hwmon/hwmon0/name", "coretemp\n")
    tree.write("sys/devices/platform/coretemp.0/hwmon/hwmon0/temp1_input", "47000\n")
    tree.write("proc/self/cgroup", "0::/\n")
    return tree


def card(
    tree: Tree,
    *,
    key: str = FIRST,
    number: int = 1,
    edge_c: int = 38,
    gpu_id: int = GPU_ID,
    serial: str = SERIAL,
) -> None:
    """Add an idle card."""
    folder, sensors = device(key), hwmon(key)
    for name, text in {
        "vendor": "0x1002\n",
        "device": "0x66a1\n",
        "unique_id": f"{serial}\n",
        "power/runtime_status": "active\n",
        "mem_info_vram_total": f"{VRAM_TOTAL}\n",
        "mem_info_vram_used": "11444224\n",
        "mem_info_gtt_total": f"{GTT_TOTAL}\n",
        "mem_info_gtt_used": "14680064\n",
        "gpu_busy_percent": "0\n",
        "mem_busy_percent": "0\n",
        "ras/umc_err_count": "ue: 0\nce: 0\nde: 0\n",
    }.items():
        tree.write(f"{folder}/{name}", text)
    tree.write(f"{folder}/gpu_metrics", gpu_metrics())
    for name, text in {
        "name": "amdgpu\n",
        "temp1_label": "edge\n",
        "temp1_input": f"{edge_c * 1000}\n",
        "temp2_label": "junction\n",
        "temp2_input": "40000\n",
        "temp2_crit": "105000\n",
        "temp3_label": "mem\n",
        "temp3_input": "39000\n",
        "power1_input": "21000000\n",
        "power1_cap": "150000000\n",
        "power1_cap_default": "190000000\n",
        "power1_cap_max": "190000000\n",
        "power1_cap_min": "0\n",
        "freq1_input": "809000000\n",
        "freq2_input": "350000000\n",
    }.items():
        tree.write(f"{sensors}/{name}", text)
    # A hwmon of another chip on the same card must be passed over.
    tree.write(f"{folder}/hwmon/hwmon1/name", "nvme\n")
    tree.write(f"{folder}/hwmon/hwmon1/temp1_input", "99000\n")
    tree.link(f"{folder}/drm/card{number}/device", folder)
    tree.link(f"sys/class/drm/card{number}", f"{folder}/drm/card{number}")
    tree.link(f"sys/class/drm/card{number}-DP-1", f"{folder}/drm/card{number}")
    tree.link(f"sys/bus/pci/devices/{key}", folder)
    _kfd_node(tree, key=key, number=number, gpu_id=gpu_id)


def _kfd_node(tree: Tree, *, key: str, number: int, gpu_id: int) -> None:
    (tree.root / _KFD / "proc").mkdir(parents=True, exist_ok=True)
    tree.link("sys/class/kfd/kfd", _KFD)
    tree.write("sys/module/amdgpu/version", "6.16.13\n")
    nodes = f"{_KFD}/topology/nodes"
    tree.write(f"{nodes}/0/gpu_id", "0\n")
    tree.write(f"{nodes}/0/properties", "cpu_cores_count 12\nlocation_id 0\ndomain 0\n")
    _domain, bus, rest = key.split(":")
    slot, function = rest.split(".")
    location = (int(bus, 16) << 8) | (int(slot, 16) << 3) | int(function, 16)
    tree.write(f"{nodes}/{number}/gpu_id", f"{gpu_id}\n")
    tree.write(
        f"{nodes}/{number}/properties",
        "cpu_cores_count 0\nsimd_count 240\nlocal_mem_size 0\ngfx_target_version 90006\n"
        f"location_id {location}\ndomain 0\n",
    )


def build(root: Path, scenario: str) -> Tree:
    """One of the scenarios of ``SCENARIOS``."""
    tree = no_gpu(root)
    if scenario != "no_gpu":
        card(tree)
    if scenario in _CHANGES:
        _CHANGES[scenario](tree)
    return tree


def _second(tree: Tree) -> None:
    card(tree, key=SECOND, number=2, edge_c=41, gpu_id=51234, serial="21720ddba11ab1e5")


def _serving(tree: Tree) -> None:
    tree.vram(15_404 * MIB)
    tree.sensors(edge_c=71, junction_c=86, memory_c=74, power_w=149, busy_percent=99)
    tree.sensors(core_mhz=1343, throttle=PPT)
    tree.process(4242, vram_bytes=14_680 * MIB)


def _hot(tree: Tree) -> None:
    _serving(tree)
    tree.sensors(throttle=PPT | EDGE | HOTSPOT)


def _old_kernel(tree: Tree) -> None:
    (tree.root / hwmon() / "power1_input").rename(tree.root / hwmon() / "power1_average")
    tree.write(f"{hwmon()}/power1_cap_min", "\n")  # a driver's error is an empty line


def _spilled(tree: Tree) -> None:
    tree.vram(15_404 * MIB)
    tree.gtt(3_000 * MIB)


def _suspended(tree: Tree) -> None:
    reset(tree)
    tree.write(f"{device()}/power/runtime_status", "suspended\n")


def reset(tree: Tree) -> None:
    """Let every sensor fail as during a reset, or while the card sleeps."""
    for path in (
        *(f"{device()}/{name}" for name in ("gpu_busy_percent", "mem_busy_percent", "gpu_metrics")),
        *(f"{hwmon()}/{name}" for name in _SENSORS),
    ):
        tree.fail(path, errno.EPERM)


def _malformed(tree: Tree) -> None:
    tree.write(f"{device()}/mem_info_vram_used", "\n")
    tree.write(f"{device()}/mem_info_gtt_used", "-1\n")
    tree.write(f"{device()}/gpu_busy_percent", "137\n")
    tree.write(f"{device()}/gpu_metrics", b"\x50\x00\x01")
    tree.write(f"{device()}/ras/umc_err_count", "Query currently inaccessible\n")
    tree.write(f"{hwmon()}/temp1_input", "65535000\n")
    tree.write(f"{hwmon()}/temp3_input", "N/A\n")
    tree.write(f"{hwmon()}/power1_input", "4294967295\n")
    tree.write(f"{hwmon()}/power1_cap", "\n")
    tree.fail(f"{hwmon()}/temp2_input", errno.EINVAL)
    tree.fail(f"{device()}/mem_busy_percent", errno.EOPNOTSUPP)
    tree.fail(f"{hwmon()}/freq1_input", errno.EBUSY)
    tree.fail(f"{hwmon()}/freq2_input", errno.ENODEV)


_SENSORS = (
    *(f"temp{number}_input" for number in (1, 2, 3)),
    *("power1_input", "power1_cap", "power1_cap_default", "power1_cap_max", "power1_cap_min"),
    *("freq1_input", "freq2_input"),
)

_CHANGES: dict[str, Callable[[Tree], None]] = {
    "two_gpus": _second,
    "serving": _serving,
    "throttle_thermal": _hot,
    "vulkan_client": lambda tree: tree.process(
        4242, vram_bytes=14_680 * MIB, kfd=False, descriptors=3
    ),
    "old_kernel": _old_kernel,
    "cap_lost": lambda tree: tree.sensors(cap_w=190),
    "ecc_error": lambda tree: tree.write(f"{device()}/ras/umc_err_count", "ue: 1\nce: 4\nde: 0\n"),
    "spilled": _spilled,
    "suspended": _suspended,
    "in_reset": reset,
    "malformed": _malformed,
}

SCENARIOS = ("idle", *_CHANGES, "no_gpu")
