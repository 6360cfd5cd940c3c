"""Microseconds of one verdict: over a whole recorded load, and again with each look.

Run as ``python -m tests.bench.bench_residency``; measured, never asserted. The log is the
27B model at depth 3 on a real card; reading the card's counters is timed in
``bench_gpu``, parsing the log in ``bench_logs``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.engine.evidence import EvidenceCollector
from mtpd.engine.logs import fact
from mtpd.engine.memory_look import MemoryLook
from mtpd.engine.residency import Rate, Witnesses, conclude, rejudge
from mtpd.types import ProcessMemory, Value
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.engine.facts import Fact

LOG = Path(__file__).parents[1] / "corpus" / "gpu_logs" / "free_b2_n3.log"
ROUNDS = 301
OTHERS = 30
"""Other processes on the card, as on a desktop."""


def look(used_mib: int, *, pid: int) -> MemoryLook:
    """A card with an engine and its neighbours on it."""
    clients = [
        ProcessMemory(
            pid=number, name="x", vram_bytes=Value(MIB, "fdinfo"), gtt_bytes=Value(MIB, "fdinfo")
        )
        for number in range(1000, 1000 + OTHERS)
    ]
    own = Value(used_mib * MIB, "kfd")
    clients.append(ProcessMemory(pid=pid, name="llama-server", vram_bytes=own))
    return MemoryLook(
        at_s=0.0,
        vram_total_bytes=Value(16368 * MIB, "sysfs"),
        vram_used_bytes=Value((used_mib + OTHERS) * MIB, "sysfs"),
        gtt_used_bytes=Value(OTHERS * MIB, "sysfs"),
        processes=tuple(clients),
        engine=frozenset({pid}),
    )


def heard() -> list[tuple[str, Fact]]:
    """The facts of the load."""
    lines = LOG.read_text(errors="replace").split("\n")
    return [(line, found) for line in lines if (found := fact(line)) is not None]


def median_us(call: Callable[[], object]) -> float:
    """Median CPU time of one call, microseconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        call()
        times.append((time.process_time_ns() - began) / 1000)
    return round(statistics.median(times), 1)


def measure() -> dict[str, object]:
    """The verdict on a load (evidence and weighing), and one look of a serving engine."""
    facts, before, now = heard(), look(0, pid=7), look(15679, pid=7)

    def load() -> object:
        collector = EvidenceCollector(device_expected=True)
        for line, found in facts:
            collector.add(line, found)
        return conclude(
            Witnesses(
                log=collector.verdict(),
                printed=collector.printed,
                fused_off=collector.fused_off,
                before=before,
                now=now,
                depth=3,
                speculates=True,
                rate=Rate(97.2, 98.7),
            )
        )

    verdict = conclude(Witnesses(log=EvidenceCollector().verdict()))
    return {
        "bench": "residency",
        "facts": len(facts),
        "verdict_per_load_us": median_us(load),
        "goal_us": 1000,
        "again_per_look_us": median_us(lambda: rejudge(verdict, ready=now, now=now)),
        "python": sys.version.split()[0],
    }


def main() -> None:
    """Print one line of JSON and one for people."""
    result = measure()
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.write(
        f"a verdict takes {result['verdict_per_load_us']} us per load of {result['facts']} facts "
        f"and {result['again_per_look_us']} us per look while serving\n"
    )


if __name__ == "__main__":
    main()
