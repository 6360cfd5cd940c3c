"""AMD cards through AMD's own library: the second source, behind sysfs.

The binding must match the installed ROCm; where it does not, importing it raises anything
from KeyError to OSError, or prints on standard output, so it is imported late and its
failure is a reason, not an error. On gfx906 it answers some questions wrongly: power 0, an
energy counter of 2**32 - 1, throttling without its reason (facts of the 10.1 library);
those answers are refused.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
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
from mtpd.types import Absent, ProcessMemory, Value
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mtpd.types import Reading

__all__ = ["AmdProvider", "load"]

NAME: Final = "amdsmi"
ADVICE: Final = "install ROCm's amd-smi-lib and the amdsmi of the same release (pip install amdsmi)"
FOLDERS: Final = (Path("/opt/rocm/share/amd_smi"), Path("/usr/lib/python3/dist-packages"))
"""Where the installed ROCm keeps the binding that fits its library."""

_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_UUID = re.compile(r"GPU-[0-9a-f]{16}")
_UNSET = frozenset({0xFFFF, 0xFFFFFFFF, (1 << 64) - 1})
_MICROWATTS_FROM: Final = 10_000
"""Caps are watts before ROCm 6.1 and microwatts since; nothing draws 10 kW or 10 mW."""

# Seen from released bindings: a missing library (KeyError, OSError), one of another
# release (AttributeError), unexpected serial numbers (ValueError, TypeError).
_BROKEN = (ImportError, AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError)


def _import() -> Any:
    """The binding beside ROCm's library, else the installed one."""
    for folder in FOLDERS:
        package = folder / "amdsmi" / "__init__.py"
        if package.is_file():
            spec = importlib.util.spec_from_file_location("amdsmi", package)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                sys.modules["amdsmi"] = module
                spec.loader.exec_module(module)
                return module
    import amdsmi  # noqa: PLC0415 - an extra, and broken where its library is missing

    return amdsmi


def load(*, binding: Callable[[], Any] = _import) -> Any | Absent:
    """The initialised binding, or why there is none."""
    try:
        # Without its library the binding explains itself on standard output.
        with contextlib.redirect_stdout(io.StringIO()):
            module = binding()
    except _BROKEN as error:
        sys.modules.pop("amdsmi", None)  # half imported, it would fail in another way next time
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
        self._cards = root / "sys/bus/pci/devices"
        self._failures = _failures(module)

    def devices(self) -> tuple[Device, ...]:
        """The cards by PCI address."""
        return tuple(
            self._device(key, handle)
            for key, handle in sorted(self._handles().items(), key=lambda one: one[0])
        )

    def read(self, key: DeviceKey, *, slow: bool = True) -> GpuReading:
        """Read a card; each field stands or fails by itself."""
        handle = self._awake(key)
        if isinstance(handle, Absent):
            return absent_everywhere(handle.reason)
        smi = self._smi
        activity = self._dict("amdsmi_get_gpu_activity", handle)
        total = self._bytes(
            lambda: smi.amdsmi_get_gpu_memory_total(handle, smi.AmdSmiMemoryType.VRAM), 1
        )
        most = total.value if isinstance(total, Value) else MEMORY_MAX_BYTES
        return GpuReading(
            vram_total_bytes=total,
            # 0 is also its answer when it cannot read; no running card uses nothing.
            vram_used_bytes=self._bytes(
                lambda: smi.amdsmi_get_gpu_memory_usage(handle, smi.AmdSmiMemoryType.VRAM), 1, most
            ),
            gtt_total_bytes=self._bytes(
                lambda: smi.amdsmi_get_gpu_memory_total(handle, smi.AmdSmiMemoryType.GTT), 1
            ),
            gtt_used_bytes=self._bytes(
                lambda: smi.amdsmi_get_gpu_memory_usage(handle, smi.AmdSmiMemoryType.GTT), 0
            ),
            edge_c=self._celsius(handle, "EDGE"),
            junction_c=self._celsius(handle, "JUNCTION"),
            memory_c=self._celsius(handle, "VRAM"),
            power_w=self._power(handle),
            power_cap_w=self._limit(self._dict("amdsmi_get_power_cap_info", handle), "power_cap"),
            energy_j=self._energy(handle),
            busy_percent=self._of(activity, "gfx_activity", low=0, high=100),
            memory_busy_percent=self._of(activity, "umc_activity", low=0, high=100),
            core_mhz=self._clock(handle, "GFX"),
            memory_mhz=self._clock(handle, "MEM"),
            throttle=self._throttle(handle) if slow else NOT_ASKED,
            ecc_uncorrectable=(self._uncorrectable(handle) if slow else NOT_ASKED),
        )

    def processes(
        self, key: DeviceKey, *, pids: Collection[int] | None = None
    ) -> tuple[ProcessMemory, ...] | Absent:
        """ROCm processes only: a Vulkan client is not in its list."""
        handle = self._handles().get(key)
        if handle is None:
            return Absent(f"the device {key} is gone")
        try:
            rows = list(self._smi.amdsmi_get_gpu_process_list(handle))
        except self._failures as error:
            return Absent(_said(error))
        found: dict[int, ProcessMemory] = {}
        for row in rows:
            pid = row.get("pid") if isinstance(row, dict) else None
            if isinstance(pid, int) and (pids is None or pid in pids):
                found[pid] = self._process(pid, row)
        return tuple(found[pid] for pid in sorted(found))

    def power_cap(self, key: DeviceKey) -> PowerCap:
        """The power limit and its range."""
        handle = self._awake(key)
        if isinstance(handle, Absent):
            return no_cap(handle)
        said = self._dict("amdsmi_get_power_cap_info", handle)
        return PowerCap(
            current_w=self._limit(said, "power_cap"),
            default_w=self._limit(said, "default_power_cap"),
            min_w=self._limit(said, "min_power_cap", least=0),
            max_w=self._limit(said, "max_power_cap"),
        )

    def close(self) -> None:
        """Shut the library down; releases count these calls or take a second one well."""
        with contextlib.suppress(*self._failures):
            self._smi.amdsmi_shut_down()

    def _handles(self) -> dict[DeviceKey, Any]:
        handles: dict[DeviceKey, Any] = {}
        try:
            for handle in self._smi.amdsmi_get_processor_handles():
                address = str(self._smi.amdsmi_get_gpu_device_bdf(handle)).lower()
                # Some releases return garbage where the render node cannot be opened.
                if _ADDRESS.fullmatch(address) and (self._cards / address).exists():
                    handles[DeviceKey(address)] = handle
        except self._failures:
            return handles
        return handles

    def _awake(self, key: DeviceKey) -> Any | Absent:
        """The handle of a card that a question would not wake."""
        handle = self._handles().get(key)
        if handle is None:
            return Absent(f"the device {key} is gone")
        with contextlib.suppress(OSError):
            if "susp" in (self._cards / key / "power/runtime_status").read_text():
                return Absent("the card is asleep; asking the library would wake it")
        return handle

    def _device(self, key: DeviceKey, handle: Any) -> Device:
        asic = self._dict("amdsmi_get_gpu_asic_info", handle)
        driver = self._dict("amdsmi_get_gpu_driver_info", handle)
        listed = self._dict("amdsmi_get_gpu_enumeration_info", handle)
        uuid = _word(listed, "hip_uuid")
        return Device(
            key=key,
            vendor="amd",
            name=_word(asic, "market_name"),
            uuid=uuid if uuid is not None and _UUID.fullmatch(uuid) else None,
            isa=_word(asic, "target_graphics_version"),
            driver=_word(driver, "driver_version"),
        )

    def _process(self, pid: int, row: dict[str, object]) -> ProcessMemory:
        # ``memory_usage`` counts duplicated descriptors twice and KiB as 1000; ``mem`` is KFD's.
        return ProcessMemory(
            pid=pid,
            name=_word(row, "name"),
            vram_bytes=self._whole(self._of(row, "mem", low=0, high=MEMORY_MAX_BYTES)),
            evicted_ms=self._whole(self._of(row, "evicted_time", low=0, high=1 << 62)),
        )

    def _power(self, handle: Any) -> Reading[float]:
        said = self._dict("amdsmi_get_power_info", handle)
        first: Reading[float] = Absent("amdsmi does not report power")
        for name in ("current_socket_power", "socket_power", "average_socket_power"):
            power = self._of(said, name, low=1, high=POWER_MAX_W)
            if isinstance(power, Value):
                return power
            first = power
        return first

    def _energy(self, handle: Any) -> Reading[float]:
        said = self._dict("amdsmi_get_energy_count", handle)
        # Called ``power`` before ROCm 6.4; the resolution is in microjoules.
        name = "energy_accumulator"
        if isinstance(said, dict) and name not in said:
            name = "power"
        count = self._of(said, name, low=1, high=float(1 << 63))
        step = self._of(said, "counter_resolution", low=1e-3, high=1e6)
        if isinstance(count, Value) and isinstance(step, Value):
            return Value(count.value * step.value / 1e6, NAME)
        return count if isinstance(count, Absent) else step

    def _clock(self, handle: Any, kind: str) -> Reading[float]:
        try:
            said = self._smi.amdsmi_get_clock_info(handle, getattr(self._smi.AmdSmiClkType, kind))
        except self._failures as error:
            return Absent(_said(error))
        name = "clk" if isinstance(said, dict) and "clk" in said else "cur_clk"
        return self._of(said, name, low=0, high=10_000)

    def _throttle(self, handle: Any) -> Reading[Throttle]:
        said = self._dict("amdsmi_get_gpu_metrics_info", handle)
        if isinstance(said, Absent):
            return said
        match said.get("throttle_status"):
            case bool(throttled):
                # The binding makes one bit of all reasons.
                return Value(Throttle.UNSPECIFIED if throttled else Throttle.NONE, NAME)
            case other:
                return Absent(f"amdsmi answers {str(other)[:40]!r}")

    def _uncorrectable(self, handle: Any) -> Reading[int]:
        # The total is 0 where the files cannot be read; the memory block alone says so.
        smi = self._smi
        try:
            said = smi.amdsmi_get_gpu_ecc_count(handle, smi.AmdSmiGpuBlock.UMC)
        except self._failures as error:
            return Absent(_said(error))
        return self._whole(self._of(said, "uncorrectable_count", low=0, high=1 << 62))

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

    def _limit(self, said: object, name: str, *, least: float = 1) -> Value[float] | Absent:
        cap = self._of(said, name, low=least, high=POWER_MAX_W * 1e6)
        if isinstance(cap, Absent):
            return cap
        in_watts = cap.value / 1e6 if cap.value > _MICROWATTS_FROM else cap.value
        return bounded(in_watts, low=least, high=POWER_MAX_W, source=NAME)

    def _bytes(
        self, ask: Callable[[], object], least: int, most: int = MEMORY_MAX_BYTES
    ) -> Value[int] | Absent:
        return self._whole(self._number(ask, low=least, high=most))

    def _dict(self, call: str, handle: Any) -> dict[str, object] | Absent:
        try:
            said = getattr(self._smi, call)(handle)
        except self._failures as error:
            return Absent(_said(error))
        return said if isinstance(said, dict) else Absent(f"{call} answers {str(said)[:40]!r}")

    def _of(self, said: object, name: str, *, low: float, high: float) -> Value[float] | Absent:
        """A member of an answer; releases differ in which members there are."""
        if isinstance(said, Absent):
            return said
        return self._number(
            lambda: said.get(name) if isinstance(said, dict) else said, low=low, high=high
        )

    def _number(
        self, ask: Callable[[], object], *, low: float, high: float
    ) -> Value[float] | Absent:
        try:
            answer = ask()
        except self._failures as error:
            return Absent(_said(error))
        # "N/A" can stand in place of any number.
        if isinstance(answer, bool) or not isinstance(answer, int | float) or answer in _UNSET:
            return Absent(f"amdsmi answers {str(answer)[:40]!r}")
        return bounded(answer, low=low, high=high, source=NAME)

    @staticmethod
    def _whole(number: Value[float] | Absent) -> Value[int] | Absent:
        return Value(int(number.value), NAME) if isinstance(number, Value) else number


def _word(said: object, name: str) -> str | None:
    """A text member of an answer; None where it is missing, empty or "N/A"."""
    text = said.get(name) if isinstance(said, dict) else None
    return text if isinstance(text, str) and text not in {"", "N/A"} else None


def _failures(module: Any) -> tuple[type[Exception], ...]:
    """What a call can raise: the binding's own exceptions derive from none of the usual."""
    own = getattr(module, "AmdSmiException", None)
    return (*_BROKEN, own) if isinstance(own, type) else _BROKEN


def _said(error: Exception) -> str:
    return f"amdsmi: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
