"""NVIDIA cards through NVML, for those who run the daemon on one.

Covers memory, temperature, power and cap. NVML opens no CUDA context. There is no GTT and
no junction sensor to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mtpd.gpu.base import Device, GpuReading, absent_everywhere, bounded
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.types import Reading

__all__ = ["NvmlProvider", "load"]

NAME: Final = "nvml"
ADVICE: Final = "install the NVIDIA driver and pip install 'mtpd[nvidia]'"
_BROKEN = (ImportError, AttributeError, OSError, TypeError, ValueError)


def _import() -> Any:
    import pynvml  # noqa: PLC0415 - an extra

    return pynvml


def load(*, binding: Callable[[], Any] = _import) -> Any | Absent:
    """The initialised binding, or why there is none."""
    try:
        module = binding()
        failures = _failures(module)
    except _BROKEN as error:
        return Absent(f"{_said(error)}; {ADVICE}")
    try:
        module.nvmlInit()
    except failures as error:
        return Absent(f"{_said(error)}; {ADVICE}")
    return module


class NvmlProvider:
    """Reads cards through an initialised binding.

    Args:
        module: What ``load`` returned, or anything with the same functions.
    """

    name = NAME

    def __init__(self, *, module: Any) -> None:
        self._nvml = module
        self._failures = _failures(module)

    def devices(self) -> tuple[Device, ...]:
        """The cards by PCI address."""
        return tuple(
            Device(key=key, vendor="nvidia", name=self._model(handle))
            for key, handle in sorted(self._handles().items())
        )

    def read(self, key: DeviceKey) -> GpuReading:
        """Read a card; each field stands or fails by itself."""
        handle = self._handles().get(key)
        if handle is None:
            return absent_everywhere(f"the device {key} is gone")
        nvml = self._nvml
        return GpuReading(
            vram_total_bytes=self._bytes(lambda: self._memory(handle).total),
            vram_used_bytes=self._bytes(lambda: self._memory(handle).used),
            gtt_used_bytes=NotApplicable("NVIDIA cards have no GTT"),
            edge_c=self._number(lambda: nvml.nvmlDeviceGetTemperature(handle, 0), high=150),
            junction_c=NotApplicable("NVML has no junction sensor"),
            power_w=self._watts(lambda: nvml.nvmlDeviceGetPowerUsage(handle)),
            power_cap_w=self._watts(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle)),
        )

    def _memory(self, handle: Any) -> Any:
        # Version 1 counts the driver's reserve as used.
        return self._nvml.nvmlDeviceGetMemoryInfo(handle, self._nvml.nvmlMemory_v2)

    def _handles(self) -> dict[DeviceKey, Any]:
        handles: dict[DeviceKey, Any] = {}
        try:
            for index in range(self._nvml.nvmlDeviceGetCount()):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                handles[DeviceKey(_address(self._nvml.nvmlDeviceGetPciInfo(handle).busId))] = handle
        except self._failures:
            return handles
        return handles

    def _model(self, handle: Any) -> str | None:
        try:
            return _text(self._nvml.nvmlDeviceGetName(handle))
        except self._failures:
            return None

    def _bytes(self, ask: Callable[[], object]) -> Value[int] | Absent:
        number = self._number(ask, high=1 << 50)
        return Value(int(number.value), NAME) if isinstance(number, Value) else number

    def _watts(self, ask: Callable[[], object]) -> Reading[float]:
        milli = self._number(ask, high=10_000_000)
        return Value(milli.value / 1000, NAME) if isinstance(milli, Value) else milli

    def _number(self, ask: Callable[[], object], *, high: float) -> Value[float] | Absent:
        try:
            answer = ask()
        except self._failures as error:
            return Absent(_said(error))
        if not isinstance(answer, int | float):
            return Absent(f"NVML answers {str(answer)[:40]!r}")
        return bounded(answer, low=0, high=high, source=NAME)


def _address(bus_id: str | bytes) -> str:
    """``00000000:03:00.0`` as sysfs writes it: ``0000:03:00.0``."""
    domain, _, slot = _text(bus_id).lower().partition(":")
    return f"{int(domain, 16):04x}:{slot}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _failures(module: Any) -> tuple[type[Exception], ...]:
    return (*_BROKEN, module.NVMLError)


def _said(error: Exception) -> str:
    return f"NVML: {type(error).__name__}: {str(error)[:200]}"
