"""AMD cards through AMD's own library: the second source, behind sysfs.

Covers the same fields as sysfs. The binding must match the installed ROCm; where it does
not, importing it raises anything from KeyError to OSError, or prints on standard output,
so it is imported late and its failure is a reason, not an error.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mtpd.gpu.base import Device, GpuReading, absent_everywhere, bounded
from mtpd.types import Absent, Value
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.types import Reading

__all__ = ["AmdProvider", "load"]

NAME: Final = "amdsmi"
ADVICE: Final = "install ROCm's amd-smi-lib and the amdsmi of the same release (pip install amdsmi)"
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UNSET = frozenset({0xFFFF, 0xFFFFFFFF, (1 << 64) - 1})
_MICROWATTS_FROM: Final = 10_000
"""Caps are watts before ROCm 6.1 and microwatts since; nothing draws 10 kW or 10 mW."""

# Seen from released bindings: a missing library (KeyError, OSError), one of another
# release (AttributeError), unexpected serial numbers (ValueError, TypeError).
_BROKEN = (ImportError, AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)


def _import() -> Any:
    import amdsmi  # noqa: PLC0415 - an extra, and broken where its library is missing

    return amdsmi


def load(*, binding: Callable[[], Any] = _import) -> Any | Absent:
    """The initialised binding, or why there is none."""
    try:
        # Without its library the binding explains itself on standard output.
        with contextlib.redirect_stdout(io.StringIO()):
            module = binding()
    except _BROKEN as error:
        return Absent(f"{_said(error)}; {ADVICE}")
    try:
        module.amdsmi_init()
    except _failures(module) as error:
        return Absent(f"{_said(error)}; {ADVICE}")
    return module


class AmdProvider:
    """Reads cards through an initialised binding.

    Args:
        module: What ``load`` returned, or anything with the same functions.
        root: Where ``sys`` lies: an address is believed only if the card is there.
    """

    name = NAME

    def __init__(self, *, module: Any, root: Path = Path("/")) -> None:
        self._smi = module
        self._root = root
        self._failures = _failures(module)

    def devices(self) -> tuple[Device, ...]:
        """The cards by PCI address."""
        return tuple(Device(key=key, vendor="amd") for key in sorted(self._handles()))

    def read(self, key: DeviceKey) -> GpuReading:
        """Read a card; each field stands or fails by itself."""
        handle = self._handles().get(key)
        if handle is None:
            return absent_everywhere(f"the device {key} is gone")
        smi = self._smi
        total = self._bytes(lambda: smi.amdsmi_get_gpu_memory_total(handle, self._kind("VRAM")))
        used = self._bytes(lambda: smi.amdsmi_get_gpu_memory_usage(handle, self._kind("VRAM")))
        if used == Value(0, NAME):
            used = Absent("amdsmi reports 0, which is also its answer when it cannot read")
        return GpuReading(
            vram_total_bytes=total,
            vram_used_bytes=used,
            gtt_used_bytes=self._bytes(
                lambda: smi.amdsmi_get_gpu_memory_usage(handle, self._kind("GTT"))
            ),
            edge_c=self._celsius(handle, "EDGE"),
            junction_c=self._celsius(handle, "JUNCTION"),
            power_w=self._number(
                lambda: smi.amdsmi_get_power_info(handle).get("socket_power"), low=1, high=2000
            ),
            power_cap_w=self._cap(handle),
        )

    def _handles(self) -> dict[DeviceKey, Any]:
        handles: dict[DeviceKey, Any] = {}
        try:
            for handle in self._smi.amdsmi_get_processor_handles():
                address = str(self._smi.amdsmi_get_gpu_device_bdf(handle)).lower()
                # Some releases return garbage where the render node cannot be opened.
                known = (self._root / "sys/bus/pci/devices" / address).exists()
                if _ADDRESS.fullmatch(address) and known:
                    handles[DeviceKey(address)] = handle
        except self._failures:
            return handles
        return handles

    def _kind(self, name: str) -> Any:
        return getattr(self._smi.AmdSmiMemoryType, name)

    def _bytes(self, ask: Callable[[], object]) -> Value[int] | Absent:
        number = self._number(ask, low=0, high=1 << 50)
        return Value(int(number.value), NAME) if isinstance(number, Value) else number

    def _celsius(self, handle: Any, sensor: str) -> Reading[float]:
        smi = self._smi
        return self._number(
            lambda: smi.amdsmi_get_temp_metric(
                handle,
                getattr(smi.AmdSmiTemperatureType, sensor),
                smi.AmdSmiTemperatureMetric.CURRENT,
            ),
            low=-40,
            high=150,
        )

    def _cap(self, handle: Any) -> Reading[float]:
        cap = self._number(
            lambda: self._smi.amdsmi_get_power_cap_info(handle).get("power_cap"), low=1, high=2e9
        )
        if isinstance(cap, Value) and cap.value > _MICROWATTS_FROM:
            return Value(cap.value / 1e6, NAME)
        return cap

    def _number(
        self, ask: Callable[[], object], *, low: float, high: float
    ) -> Value[float] | Absent:
        try:
            answer = ask()
        except self._failures as error:
            return Absent(_said(error))
        # "N/A" can stand in place of any number.
        if not isinstance(answer, int | float) or answer in _UNSET:
            return Absent(f"amdsmi answers {str(answer)[:40]!r}")
        return bounded(answer, low=low, high=high, source=NAME)


def _failures(module: Any) -> tuple[type[Exception], ...]:
    """What a call can raise: the binding's own exceptions derive from none of the usual."""
    own = getattr(module, "AmdSmiException", None)
    return (*_BROKEN, own) if isinstance(own, type) else _BROKEN


def _said(error: Exception) -> str:
    return f"amdsmi: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
