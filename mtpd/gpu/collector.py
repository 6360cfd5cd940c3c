"""The gauges of a device, for Prometheus: from the newest reading, none for what is absent.

The labels are the device's address and words of closed sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mtpd.gpu.sampler import Sample
from mtpd.types import Value
from tuner.power import Throttle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from mtpd.gpu.sampler import Sampler

__all__ = ["DeviceCollector"]

_GAUGES: Final = (
    ("vram_total_bytes", "Device memory"),
    ("vram_used_bytes", "Device memory that is used"),
    ("gtt_used_bytes", "Host memory that the device has mapped"),
    ("edge_c", "Edge temperature in degrees Celsius"),
    ("junction_c", "Temperature of the hottest spot in degrees Celsius"),
    ("memory_c", "Temperature of the memory in degrees Celsius"),
    ("power_w", "Power in watts"),
    ("power_cap_w", "Power limit in watts"),
    ("busy_percent", "How much of the time the device computes"),
    ("core_mhz", "Clock of the cores"),
    ("ecc_uncorrectable", "Memory errors that could not be corrected"),
)
_METRIC_NAMES: Final = {
    "edge_c": "edge_celsius",
    "junction_c": "junction_celsius",
    "memory_c": "memory_celsius",
    "power_w": "power_watts",
    "power_cap_w": "power_cap_watts",
    "busy_percent": "busy_ratio",
    "core_mhz": "core_hertz",
    "ecc_uncorrectable": "ecc_uncorrectable_errors",
}
_FACTORS: Final = {"busy_percent": 0.01, "core_mhz": 1e6}
_STATES: Final = ("unseen", "answering", "silent", "gone", "stale")


class DeviceCollector(Collector):
    """Gauges over the newest reading of a sampler."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def describe(self) -> tuple[Metric, ...]:
        """Nothing in advance: there may be no reading yet."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One family after another; an absent field has no series."""
        device = self._sampler.device
        state = GaugeMetricFamily(
            "mtpd_gpu_state", "1 for how the device answers", labels=["device", "state"]
        )
        for name in _STATES:
            state.add_metric([device, name], float(name == self._sampler.state.name))
        yield state
        sample = self._sampler.latest
        if not isinstance(sample, Sample):
            return
        for name, says in _GAUGES:
            reading = getattr(sample.reading, name)
            if isinstance(reading, Value):
                family = GaugeMetricFamily(
                    f"mtpd_gpu_{_METRIC_NAMES.get(name, name)}", says, labels=["device"]
                )
                family.add_metric([device], reading.value * _FACTORS.get(name, 1))
                yield family
        throttle = sample.reading.throttle
        if isinstance(throttle, Value):
            family = GaugeMetricFamily(
                "mtpd_gpu_throttled", "1 for a reason of throttling", labels=["device", "reason"]
            )
            for bit in Throttle:
                family.add_metric([device, str(bit.name).lower()], float(bit in throttle.value))
            yield family
