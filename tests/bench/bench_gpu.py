"""What a reading of the card costs, on plain files, and whether anything grows.

Run as ``python -m tests.bench.bench_gpu``; measured, never asserted. CPU time is taken.
On hardware the firmware's transfer comes on top, some milliseconds for the slow fields.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.clock import SystemClock
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.sampler import Sample, Sampler
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.gpu.worker import TelemetryThread
from tests.fakes import sysfs

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
READINGS = 2000
LONG = 100_000
GOAL_US = 250.0


@dataclass(frozen=True, slots=True)
class Growth:
    """Before and after many readings."""

    resident_kib: int
    descriptors: int


def _cost_us(call: Callable[[], object]) -> float:
    """CPU microseconds of a call: the median over the rounds of the mean of many."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(READINGS):
            call()
        rounds.append((time.process_time() - began) / READINGS * 1e6)
    return statistics.median(rounds)


def _now() -> Growth:
    text = Path("/proc/self/status").read_text()
    resident = next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))
    return Growth(int(resident), len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - a count


def _long_run(sampler: Sampler, provider: LayeredProvider) -> tuple[Growth, Growth]:
    """Resident memory and descriptors around ``LONG`` readings that are kept as the loop does."""

    def read(count: int) -> None:
        for number in range(count):
            reading = provider.read(sysfs.FIRST, slow=number % 10 == 0)
            sampler._keep(Sample(float(number), reading), stale=False)

    read(LONG // 20)  # fills the ring
    before = _now()
    read(LONG)
    return before, _now()


def measure() -> dict[str, object]:
    """Costs in microseconds of CPU time, and growth over 100,000 readings."""
    with tempfile.TemporaryDirectory() as folder:
        sysfs.build(Path(folder), "serving")
        provider = LayeredProvider((SysfsProvider(root=Path(folder)),))
        sampler = Sampler(
            provider=provider,
            device=sysfs.FIRST,
            thread=TelemetryThread(),
            clock=SystemClock(),
            publish=lambda _event: None,
        )
        provider.read(sysfs.FIRST)
        fast = _cost_us(lambda: provider.read(sysfs.FIRST, slow=False))
        full = _cost_us(lambda: provider.read(sysfs.FIRST))
        processes = _cost_us(lambda: provider.processes(sysfs.FIRST))
        one = _cost_us(lambda: provider.processes(sysfs.FIRST, pids=(4242,)))
        cap = _cost_us(lambda: provider.power_cap(sysfs.FIRST))
        before, after = _long_run(sampler, provider)
        provider.close()
    return {
        "bench": "gpu",
        "fast_us": round(fast, 1),
        "full_us": round(full, 1),
        "goal_us": GOAL_US,
        "processes_us": round(processes, 1),
        "one_process_us": round(one, 1),
        "cap_us": round(cap, 1),
        "readings": LONG,
        "resident_growth_kib": after.resident_kib - before.resident_kib,
        "descriptor_growth": after.descriptors - before.descriptors,
        "resident_peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "python": sys.version.split()[0],
    }


def main() -> None:
    """Print one line of JSON and one for people."""
    result = measure()
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.write(
        f"a reading of the card: {result['fast_us']} µs, {result['full_us']} µs with the slow "
        f"fields; goal {GOAL_US:g} µs; after {LONG:,} readings "
        f"{result['resident_growth_kib']} KiB and {result['descriptor_growth']} descriptors more\n"
    )


if __name__ == "__main__":
    main()
