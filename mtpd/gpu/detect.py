"""Which sources read this machine's devices, and why the others do not.

Covers one look at start. The files of the driver come first and the vendor's library
second; NVML is asked where there is no AMD card, and the host always answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtpd.gpu import amd, nvml
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider, Refusal
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.gpu.base import Device, GpuProvider

__all__ = ["Detection", "Refusal", "detect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What was found.

    Attributes:
        provider: The sources to ask, as one.
        devices: Its devices; the host alone where there is no GPU.
        refused: The sources that are not asked, with reasons.
    """

    provider: LayeredProvider
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
    """Find the sources that have a device; never fails.

    Args:
        root: Where ``sys`` and ``proc`` lie.
        load_amd: Imports and initialises amdsmi.
        load_nvml: Imports and initialises NVML.
    """
    refused: list[Refusal] = []
    sources: list[GpuProvider] = []
    tried: tuple[tuple[str, Callable[[], GpuProvider | Absent]], ...] = (
        ("sysfs", lambda: SysfsProvider(root=root)),
        ("amdsmi", lambda: _amd(load_amd(), root)),
        ("nvml", lambda: _nvml(load_nvml())),
    )
    for name, source in tried:
        if name == "nvml" and sources:
            refused.append(Refusal(name, "the cards of this machine are AMD's"))
            continue
        provider = source()
        if isinstance(provider, Absent):
            refused.append(Refusal(name, provider.reason))
        elif provider.devices():
            sources.append(provider)
        else:
            refused.append(Refusal(name, "it sees no device"))
            provider.close()
    layered = LayeredProvider(
        tuple(sources) or (HostProvider(root),), refused=tuple(refused) if sources else ()
    )
    return Detection(provider=layered, devices=layered.devices(), refused=tuple(refused))


def _amd(loaded: Any, root: Path) -> GpuProvider | Absent:
    return loaded if isinstance(loaded, Absent) else amd.AmdProvider(module=loaded, root=root)


def _nvml(loaded: Any) -> GpuProvider | Absent:
    return loaded if isinstance(loaded, Absent) else nvml.NvmlProvider(module=loaded)
