"""NVIDIA cards through NVML, for those who run the daemon on one.

NVML opens no CUDA context. There is no GTT and no junction sensor to read; the energy
counter is a real one.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mtpd.gpu.base import (
    MEMORY_MAX_BYTES,
    NOT_ASKED,
    POWER_MAX_W,
    Device,
    GpuReading,
    PowerCap,
    Throttle,
    absent_everywhere,
    bounded,
    no_cap,
)
from mtpd.types import Absent, NotApplicable, ProcessMemory, Value
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mtpd.types import Reading

__all__ = ["NvmlProvider", "load"]

NAME: Final = "nvml"
ADVICE: Final = "install the NVIDIA driver and pip install 'mtpd[nvidia]'"
_BROKEN = (ImportError, AttributeError, LookupError, OSError, TypeError, ValueError)
_MEMORY_TEMPERATURE: Final = 82  # NVML_FI_DEV_MEMORY_TEMP
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_UNCORRECTED, _VOLATILE = 1, 0
_MILLI: Final = 1000

# nvmlClocksEventReasons. Idle (0x1) and clocks set by an application are no throttling.
_REASONS: Final = (
    (0x4, Throttle.POWER),  # software power cap
    (0x80, Throttle.POWER),  # hardware power brake
    (0x20 | 0x40, Throttle.THERMAL),  # software and hardware thermal slowdown
    (0x8, Throttle.FIRMWARE),  # hardware slowdown
)


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
        proc: Where the names of processes are read.
    """

    name = NAME

    def __init__(self, *, module: Any, proc: Path = Path("/proc")) -> None:
        self._nvml = module
        self._proc = proc
        self._failures = _failures(module)
        self._known: dict[DeviceKey, Any] = {}

    def devices(self) -> tuple[Device, ...]:
        """The cards by PCI address, looked up anew."""
        self._known = self._handles()
        driver = self._text(lambda: _text(self._nvml.nvmlSystemGetDriverVersion()))
        return tuple(
            Device(
                key=key,
                vendor="nvidia",
                name=self._said_of(handle, "nvmlDeviceGetName"),
                uuid=self._said_of(handle, "nvmlDeviceGetUUID"),
                driver=driver,
            )
            for key, handle in sorted(self._known.items(), key=lambda one: one[0])
        )

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        """Read a card; each field stands or fails by itself."""
        handle = self._handle(key)
        if handle is None:
            return absent_everywhere(f"the device {key} is gone")
        nvml = self._nvml
        total = self._bytes(lambda: self._clients_bytes(handle), 1)
        most = total.value if isinstance(total, Value) else MEMORY_MAX_BYTES
        reading = GpuReading(
            vram_total_bytes=total,
            vram_used_bytes=self._bytes(lambda: self._memory(handle).used, 0, most),
            gtt_total_bytes=NotApplicable("NVIDIA cards have no GTT"),
            gtt_used_bytes=NotApplicable("NVIDIA cards have no GTT"),
            edge_c=self._number(lambda: nvml.nvmlDeviceGetTemperature(handle, 0), high=150),
            junction_c=NotApplicable("NVML has no junction sensor"),
            memory_c=self._memory_c(handle),
            power_w=self._watts(lambda: nvml.nvmlDeviceGetPowerUsage(handle)),
            power_cap_w=self._watts(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle)),
            energy_j=self._milli(
                lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle), high=float(1 << 63)
            ),
            busy_percent=self._number(
                lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, high=100
            ),
            memory_busy_percent=self._number(
                lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory, high=100
            ),
            core_mhz=self._number(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK), high=10_000
            ),
            memory_mhz=self._number(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, _MEMORY_CLOCK), high=50_000
            ),
            throttle=self._throttle(handle) if slow else NOT_ASKED,
            ecc_uncorrectable=(self._uncorrectable(handle) if slow else NOT_ASKED),
        )
        if isinstance(reading.vram_total_bytes, Absent):
            # A card that fell off the bus keeps a dead handle; look for it next time.
            self._known.pop(key, None)
        return reading

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """Compute and graphics processes; the driver does not always say how much they hold."""
        handle = self._handle(key)
        if handle is None:
            return Absent(f"the device {key} is gone")
        found: dict[int, ProcessMemory] = {}
        try:
            rows = list(self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))
            with contextlib.suppress(*self._failures):
                rows += self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
        except self._failures as error:
            return Absent(_said(error))
        for row in rows:
            pid = getattr(row, "pid", None)
            if isinstance(pid, int) and (pids is None or pid in pids):
                found.setdefault(pid, self._process(pid, getattr(row, "usedGpuMemory", None)))
        return tuple(found[pid] for pid in sorted(found))

    def power_cap(self, key: DeviceKey) -> PowerCap:
        """The power limit and its range."""
        handle = self._handle(key)
        if handle is None:
            return no_cap(Absent(f"the device {key} is gone"))
        nvml = self._nvml
        between = "nvmlDeviceGetPowerManagementLimitConstraints"
        return PowerCap(
            current_w=self._watts(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle)),
            default_w=self._watts(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)),
            min_w=self._watts(lambda: getattr(nvml, between)(handle)[0]),
            max_w=self._watts(lambda: getattr(nvml, between)(handle)[1]),
        )

    def write_cap_w(self, key: DeviceKey, watts: int) -> None:
        """Ask the driver for a power limit; raises OSError.

        What the driver made of it is seen only by reading it back.
        """
        handle = self._handle(key)
        if handle is None:
            msg = f"the device {key} is gone"
            raise FileNotFoundError(msg)
        try:
            self._nvml.nvmlDeviceSetPowerManagementLimit(handle, watts * _MILLI)
        except self._failures as error:
            raise PermissionError(_said(error)) from error

    def close(self) -> None:
        """Shut NVML down."""
        self._known = {}
        with contextlib.suppress(*self._failures):
            self._nvml.nvmlShutdown()

    def _handle(self, key: DeviceKey) -> Any | None:
        if key not in self._known:
            self._known = self._handles()
        return self._known.get(key)

    def _handles(self) -> dict[DeviceKey, Any]:
        handles: dict[DeviceKey, Any] = {}
        try:
            for index in range(self._nvml.nvmlDeviceGetCount()):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                handles[DeviceKey(_address(self._nvml.nvmlDeviceGetPciInfo(handle).busId))] = handle
        except self._failures:
            return handles
        return handles

    def _memory(self, handle: Any) -> Any:
        # Version 1 counts the driver's reserve as used.
        return self._nvml.nvmlDeviceGetMemoryInfo(handle, self._nvml.nvmlMemory_v2)

    def _clients_bytes(self, handle: Any) -> object:
        """What clients can have: the driver's own reserve (0.6 GiB on an H200) is not free."""
        memory = self._memory(handle)
        return memory.total - memory.reserved

    def _memory_c(self, handle: Any) -> Reading[float]:
        def ask() -> object:
            (field,) = self._nvml.nvmlDeviceGetFieldValues(handle, [_MEMORY_TEMPERATURE])
            # Cards without the sensor answer with an error in the field, and 0 beside it.
            return field.value.uiVal if field.nvmlReturn == 0 else f"error {field.nvmlReturn}"

        return self._number(ask, high=150, low=1)

    def _throttle(self, handle: Any) -> Reading[Throttle]:
        ask = getattr(
            self._nvml,
            "nvmlDeviceGetCurrentClocksEventReasons",
            getattr(self._nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None),
        )
        if ask is None:
            return Absent("this NVML binding does not report throttling")
        bits = self._number(lambda: ask(handle), high=float(1 << 63))
        if isinstance(bits, Absent):
            return bits
        found = Throttle.NONE
        for mask, reason in _REASONS:
            if int(bits.value) & mask:
                found |= reason
        return Value(found, NAME)

    def _uncorrectable(self, handle: Any) -> Reading[int]:
        count = self._number(
            lambda: self._nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE),
            high=float(1 << 62),
        )
        return Value(int(count.value), NAME) if isinstance(count, Value) else count

    def _process(self, pid: int, used: object) -> ProcessMemory:
        if isinstance(used, int) and 0 <= used <= MEMORY_MAX_BYTES:
            vram: Reading[int] = Value(used, NAME)
        else:
            vram = Absent(f"NVML answers {str(used)[:40]!r}")
        try:
            name = (self._proc / str(pid) / "comm").read_text(errors="replace").strip() or None
        except OSError:
            name = None
        return ProcessMemory(pid=pid, name=name, vram_bytes=vram)

    def _said_of(self, handle: Any, call: str) -> str | None:
        return self._text(lambda: getattr(self._nvml, call)(handle))

    def _text(self, ask: Callable[[], str | bytes]) -> str | None:
        try:
            return _text(ask())
        except self._failures:
            return None

    def _bytes(
        self, ask: Callable[[], object], least: int, most: int = MEMORY_MAX_BYTES
    ) -> Value[int] | Absent:
        number = self._number(ask, low=least, high=most)
        return Value(int(number.value), NAME) if isinstance(number, Value) else number

    def _watts(self, ask: Callable[[], object]) -> Value[float] | Absent:
        return self._milli(ask, high=POWER_MAX_W * _MILLI)

    def _milli(self, ask: Callable[[], object], *, high: float) -> Value[float] | Absent:
        milli = self._number(ask, low=1, high=high)
        return Value(milli.value / _MILLI, NAME) if isinstance(milli, Value) else milli

    def _number(
        self, ask: Callable[[], object], *, high: float, low: float = 0
    ) -> Value[float] | Absent:
        try:
            answer = ask()
        except self._failures as error:
            return Absent(_said(error))
        if isinstance(answer, bool) or not isinstance(answer, int | float):
            return Absent(f"NVML answers {str(answer)[:40]!r}")
        return bounded(answer, low=low, high=high, source=NAME)


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
