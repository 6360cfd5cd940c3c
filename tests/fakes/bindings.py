"""Vendor bindings in small: the functions the providers call, answering as the real ones.

The amdsmi answers are those of the 10.1 library on a gfx906: power 0, caps in microwatts,
"N/A" in place of numbers.
"""

from __future__ import annotations

from types import SimpleNamespace

from mtpd.units import MIB


class AmdSmiError(Exception):
    """Derives from Exception alone, as the binding's own does."""


class FakeAmdSmi:
    """One card as amdsmi shows it."""

    AmdSmiException = AmdSmiError
    AmdSmiMemoryType = SimpleNamespace(VRAM=0, GTT=2)
    AmdSmiTemperatureType = SimpleNamespace(EDGE=0, JUNCTION=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

    def __init__(self, address: str = "0000:03:00.0") -> None:
        self.address = address
        self.used: object = 15_404 * MIB
        self.edge: object = 71
        self.power: dict[str, object] = {"socket_power": 0, "current_socket_power": "N/A"}
        self.cap: object = 150_000_000
        self.broken: set[str] = set()

    def amdsmi_init(self) -> None:
        self._check("amdsmi_init")

    def amdsmi_get_processor_handles(self) -> list[str]:
        self._check("amdsmi_get_processor_handles")
        return ["handle"]

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        assert handle == "handle"
        return self.address

    def amdsmi_get_gpu_memory_total(self, handle: str, kind: int) -> int:
        self._check("amdsmi_get_gpu_memory_total")
        return 17163091968

    def amdsmi_get_gpu_memory_usage(self, handle: str, kind: int) -> object:
        self._check("amdsmi_get_gpu_memory_usage")
        return self.used if kind == 0 else 14680064

    def amdsmi_get_temp_metric(self, handle: str, sensor: int, metric: int) -> object:
        self._check("amdsmi_get_temp_metric")
        return self.edge if sensor == 0 else 86

    def amdsmi_get_power_info(self, handle: str) -> dict[str, object]:
        self._check("amdsmi_get_power_info")
        return self.power

    def amdsmi_get_power_cap_info(self, handle: str) -> dict[str, object]:
        self._check("amdsmi_get_power_cap_info")
        return {"power_cap": self.cap}

    def _check(self, name: str) -> None:
        if name in self.broken:
            raise AmdSmiError(name)


class NvmlError(Exception):
    """Derives from Exception alone, as the binding's own does."""


class FakeNvml:
    """One card as NVML shows it."""

    NVMLError = NvmlError
    nvmlMemory_v2 = 2  # noqa: N815 - the binding's name

    def __init__(self) -> None:
        self.broken: set[str] = set()

    def nvmlInit(self) -> None:  # noqa: N802 - the binding's name
        self._check("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetCount")
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 - the binding's name
        return f"handle-{index}"

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802 - the binding's name
        return SimpleNamespace(busId="00000000:3B:00.0")

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetName")
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int) -> SimpleNamespace:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetMemoryInfo")
        assert version == self.nvmlMemory_v2
        return SimpleNamespace(total=150_754_820_096, used=9_370_000_000)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetTemperature")
        return 34

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetPowerUsage")
        return 89_000

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetPowerManagementLimit")
        return 700_000

    def _check(self, name: str) -> None:
        if name in self.broken:
            raise NvmlError(name)
