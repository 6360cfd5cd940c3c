"""``make bench``: every benchmark, one after the other, with the machine named."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from tests.bench import bench_daemon, bench_logs, bench_switch


def machine() -> str:
    """Processor, cores and kernel."""
    text = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    name = names[0] if names else platform.processor()
    system = f"Linux {platform.release()}, Python {sys.version.split()[0]}"
    return f"{name}, {os.cpu_count()} cores, {system}"


def main() -> None:
    """Run all."""
    load = os.getloadavg()[0]
    sys.stdout.write(f"machine: {machine()}; load average before: {load:.1f}\n")
    for bench in (bench_logs, bench_daemon, bench_switch):
        bench.main()


if __name__ == "__main__":
    main()
