"""Vendor bindings in small: the functions the providers call, answering as the real ones.

The amdsmi answers are those of the 10.1 library on a gfx906 (docs/gpu.md): power 0, an
energy counter of 2**32 - 1, caps in microwatts, "N/A" in place of numbers. The NVML ones
are those of an H200 with driver 580.
"""

from __future__ import annotations

from types import SimpleNamespace

from mtpd.units import MIB

AMD_CALLS: dict[str, object] = {
    "amdsmi_get_gpu_asic_info": {
        "market_name": "AMD Radeon Pro VII",
        "target_graphics_version": "gfx906",
    },
    "amdsmi_get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.16.13"},
    "amdsmi_get_gpu_enumeration_info": {"hip_id": 0, "hip_uuid": "GPU-2172c0de5eed0906"},
    "amdsmi_get_gpu_activity": {"gfx_activity": 99, "umc_activity": 63, "mm_activity": "N/A"},
    "amdsmi_get_energy_count": {
        "energy_accumulator": 4294967295,
        "counter_resolution": 15.3,
        "timestamp": 1,
    },
    "amdsmi_get_gpu_metrics_info": {"throttle_status": True},
    "amdsmi_get_gpu_process_list": [
        {"name": "llama-server", "pid": 4242, "mem": 14_680 * MIB, "evicted_time": 0},
    ],
    "amdsmi_get_power_info": {
        "socket_power": 0,
        "current_socket_power": "N/A",
        "average_socket_power": 0,
    },
    "amdsmi_get_power_cap_info": {
        "power_cap": 150_000_000,
        "default_power_cap": 190_000_000,
        "min_power_cap": 0,
        "max_power_cap": 190_000_000,
    },
}


class AmdSmiError(Exception):
    """Derives from Exception alone, as the binding's own does."""


class FakeAmdSmi:
    """One card as amdsmi shows it."""

    AmdSmiException = AmdSmiError
    AmdSmiMemoryType = SimpleNamespace(VRAM=0, GTT=2)
    AmdSmiTemperatureType = SimpleNamespace(EDGE=0, JUNCTION=1, VRAM=2)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiClkType = SimpleNamespace(GFX=1, MEM=2)
    AmdSmiGpuBlock = SimpleNamespace(UMC=1)

    def __init__(self, address: str = "0000:03:00.0") -> None:
        self.address = address
        self.used: object = 15_404 * MIB
        self.edge: object = 71
        self.clock: object = {"clk": 1343, "min_clk": 809, "max_clk": 1700}
        self.ecc: object = {"correctable_count": 4, "uncorrectable_count": 0}
        self.answers = dict(AMD_CALLS)
        self.broken: set[str] = set()
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> object:
        if name not in AMD_CALLS:
            raise AttributeError(name)

        def call(handle: str) -> object:
            self._check(name)
            return self.answers[name]

        return call

    def amdsmi_init(self) -> None:
        self._check("amdsmi_init")

    def amdsmi_shut_down(self) -> None:
        self._check("amdsmi_shut_down")

    def amdsmi_get_processor_handles(self) -> list[str]:
        self._check("amdsmi_get_processor_handles")
        return ["handle"]

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        assert handle == "handle"
        return self.address

    def amdsmi_get_gpu_memory_total(self, handle: str, kind: int) -> int:
        self._check("amdsmi_get_gpu_memory_total")
        return 17163091968 if kind == 0 else 67387215872

    def amdsmi_get_gpu_memory_usage(self, handle: str, kind: int) -> object:
        self._check("amdsmi_get_gpu_memory_usage")
        return self.used if kind == 0 else 14680064

    def amdsmi_get_temp_metric(self, handle: str, sensor: int, metric: int) -> object:
        self._check("amdsmi_get_temp_metric")
        return self.edge if sensor == 0 else 86 - 12 * (sensor == 2)

    def amdsmi_get_clock_info(self, handle: str, kind: int) -> object:
        self._check("amdsmi_get_clock_info")
        return self.clock if kind == 1 else {"clk": 1000}

    def amdsmi_get_gpu_ecc_count(self, handle: str, block: int) -> object:
        self._check("amdsmi_get_gpu_ecc_count")
        return self.ecc

    def _check(self, name: str) -> None:
        self.asked.append(name)
        if name in self.broken:
            raise AmdSmiError(name)


class NvmlError(Exception):
    """Derives from Exception alone, as the binding's own does."""


NVML_CALLS: dict[str, object] = {
    "nvmlDeviceGetName": "NVIDIA H200",
    "nvmlDeviceGetUUID": "GPU-7a3b1c2d-0000-1111-2222-333344445555",
    "nvmlDeviceGetTemperature": 34,
    "nvmlDeviceGetPowerUsage": 89_000,
    "nvmlDeviceGetPowerManagementLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=61),
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetComputeRunningProcesses": [
        SimpleNamespace(pid=4242, usedGpuMemory=9_500_000_000)
    ],
    "nvmlDeviceGetGraphicsRunningProcesses": [SimpleNamespace(pid=4343, usedGpuMemory=None)],
    "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=43))],
}


class FakeNvml:
    """One card as NVML shows it."""

    NVMLError = NvmlError
    nvmlMemory_v2 = 2  # noqa: N815 - the binding's name

    def __init__(self) -> None:
        self.answers = dict(NVML_CALLS)
        self.broken: set[str] = set()
        self.limit_set: int | None = None
        self.obeys = True
        self.used: object = 9_370_000_000

    def __getattr__(self, name: str) -> object:
        if name not in NVML_CALLS:
            raise AttributeError(name)

        def call(handle: str, *_arguments: object) -> object:
            self._check(name)
            return self.answers[name]

        return call

    def nvmlInit(self) -> None:  # noqa: N802 - the binding's name
        self._check("nvmlInit")

    def nvmlShutdown(self) -> None:  # noqa: N802 - the binding's name
        self._check("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802 - the binding's name
        self._check("nvmlSystemGetDriverVersion")
        return b"580.159.04"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetCount")
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 - the binding's name
        return f"handle-{index}"

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802 - the binding's name
        return SimpleNamespace(busId="00000000:3B:00.0")

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int) -> SimpleNamespace:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceGetMemoryInfo")
        assert version == self.nvmlMemory_v2
        return SimpleNamespace(total=150_754_820_096, reserved=676_331_520, used=self.used)

    def nvmlDeviceSetPowerManagementLimit(self, handle: str, milliwatts: int) -> None:  # noqa: N802 - the binding's name
        self._check("nvmlDeviceSetPowerManagementLimit")
        self.limit_set = milliwatts
        if self.obeys:
            self.answers["nvmlDeviceGetPowerManagementLimit"] = milliwatts

    def _check(self, name: str) -> None:
        if name in self.broken:
            raise NvmlError(name)
