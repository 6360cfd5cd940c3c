"""Which source reads this machine's devices, and why the others do not.

Covers one look at start. Sources are tried in the order of trust; the host is the last
and always answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtpd.gpu import amd, nvml
from mtpd.gpu.host import HostProvider
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.gpu.base import Device, GpuProvider

__all__ = ["Detection", "Refusal", "detect"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A source that was passed over."""

    provider: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What was found.

    Attributes:
        provider: The source to ask.
        devices: Its devices; the host alone where there is no GPU.
        refused: The sources before it, with reasons.
    """

    provider: GpuProvider
    devices: tuple[Device, ...]
    refused: tuple[Refusal, ...]

    @property
    def has_gpu(self) -> bool:
        """Whether any device is a GPU."""
        return any(device.vendor != "cpu" for device in self.devices)


def detect(
    *,
    root: Path = Path("/"),
    load_amd: Callable[[], Any] = amd.load,
    load_nvml: Callable[[], Any] = nvml.load,
) -> Detection:
    """Find the first source that has a device; never fails.

    Args:
        root: Where ``sys`` lies.
        load_amd: Imports and initialises amdsmi.
        load_nvml: Imports and initialises NVML.
    """
    refused: list[Refusal] = []
    sources: tuple[tuple[str, Callable[[], GpuProvider | Absent]], ...] = (
        ("sysfs", lambda: SysfsProvider(root=root)),
        ("amdsmi", lambda: _amd(load_amd(), root)),
        ("nvml", lambda: _nvml(load_nvml())),
    )
    for name, source in sources:
        provider = source()
        if isinstance(provider, Absent):
            refused.append(Refusal(name, provider.reason))
            continue
        devices = provider.devices()
        if devices:
            return Detection(provider=provider, devices=devices, refused=tuple(refused))
        refused.append(Refusal(name, "it sees no device"))
    host = HostProvider()
    return Detection(provider=host, devices=host.devices(), refused=tuple(refused))


def _amd(loaded: Any, root: Path) -> GpuProvider | Absent:
    return loaded if isinstance(loaded, Absent) else amd.AmdProvider(module=loaded, root=root)


def _nvml(loaded: Any) -> GpuProvider | Absent:
    return loaded if isinstance(loaded, Absent) else nvml.NvmlProvider(module=loaded)
