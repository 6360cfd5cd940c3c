"""``make bench``: every benchmark, one after the other, with the machine named."""

from __future__ import annotations

import os
import sys

from tests.bench import (
    bench_daemon,
    bench_gpu,
    bench_logs,
    bench_loop_lag,
    bench_proxy,
    bench_residency,
    bench_switch,
)
from tests.bench.host import machine


def main() -> None:
    """Run all."""
    load = os.getloadavg()[0]
    sys.stdout.write(f"machine: {machine()}; load average before: {load:.1f}\n")
    for bench in (
        *(bench_logs, bench_residency, bench_gpu, bench_daemon, bench_switch, bench_proxy),
        bench_loop_lag,
    ):
        bench.main()


if __name__ == "__main__":
    main()
