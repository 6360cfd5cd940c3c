"""Lines per second of the log parser over the recorded logs.

Run as ``python -m tests.bench.bench_logs``; measured, never asserted. The corpus is a
mixed one: start-ups at verbosity 3 to 5, requests, failures, JSON, colours. CPU time is
taken, so that other programs on the machine count little.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from mtpd.engine.evidence import EvidenceCollector
from mtpd.engine.logs import fact

CORPUS = Path(__file__).parents[1] / "corpus"
ROUNDS = 7


def corpus_lines() -> list[str]:
    """All lines of all recorded logs."""
    paths = sorted(
        path for folder in ("logs", "gpu_logs") for path in (CORPUS / folder).glob("*.log")
    )
    return [line for path in paths for line in path.read_text(errors="replace").split("\n")]


def one_round(lines: list[str], *, judged: bool) -> float:
    """CPU seconds for one pass, with or without collecting evidence."""
    collector = EvidenceCollector()
    began = time.process_time()
    for line in lines:
        found = fact(line)
        if judged and found is not None:
            collector.add(line, found)
    return time.process_time() - began


def measure() -> dict[str, object]:
    """Lines per CPU second: the median of some rounds, and the best of them."""
    lines = corpus_lines()
    parsed = [one_round(lines, judged=False) for _ in range(ROUNDS)]
    judged = [one_round(lines, judged=True) for _ in range(ROUNDS)]
    return {
        "bench": "logs",
        "lines": len(lines),
        "parse_lines_per_s": round(len(lines) / statistics.median(parsed)),
        "parse_lines_per_s_best": round(len(lines) / min(parsed)),
        "parse_and_judge_lines_per_s": round(len(lines) / statistics.median(judged)),
        "goal_lines_per_s": 200_000,
        "python": sys.version.split()[0],
    }


def main() -> None:
    """Print one line of JSON and one for people."""
    result = measure()
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.write(
        f"log parser lines/s: {result['parse_lines_per_s']:,} (median of {ROUNDS}), "
        f"{result['parse_and_judge_lines_per_s']:,} with evidence, "
        f"over {result['lines']:,} recorded lines; goal 200,000\n"
    )


if __name__ == "__main__":
    main()
