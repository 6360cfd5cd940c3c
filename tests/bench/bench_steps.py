"""Short steps against steady ones: what a reply of one step shows of a verification row.

``python -m tests.bench.bench_steps [--binary PATH] [--model FILE] [--rebuild]`` starts an engine
at depths 0 to 3, measures steady steps by long replies and single steps as mtpd does, and says
how well one start predicts the others (docs/short_steps.md). Not part of ``make bench``: it
takes half a minute and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from mtpd.config.data import bundled_model
from mtpd.engine import timings
from mtpd.engine.facts_run import SpecStatistics
from mtpd.engine.logs import fact
from mtpd.engine.timings import Timings
from mtpd.short_steps import StepClock
from tests.bench.host import machine
from tests.contract.harness import EMBEDDED, Kind, serving
from tests.contract.requests import MTP
from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.engine.client import EngineClient
    from tests.contract.harness import Engine

DEPTHS = (0, 1, 2, 3)
TOKENS = 300
LONG_REPLIES = 5
WANTED = 40
TEXTS = (
    "The history of the city begins with a small village on the river, where",
    "def read_lines(path: str) -> list[str]:",
    "A list is",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What one engine start showed, in milliseconds; all medians.

    Attributes:
        steady: A step of a long reply.
        short: A single step, by the draft tokens that it verified.
        spread: Half the middle half of the single steps, as a share of their median.
        draft: A drafted token as the engine's log counts it, or None without drafts.
    """

    depth: int
    steady: float
    short: tuple[float, ...]
    spread: float
    draft: float | None

    @property
    def extra(self) -> float:
        """What a single step of full depth takes more than a steady one."""
        return self.short[-1] - self.steady

    def predicted(self, depth: int, *, full: float) -> float:
        """The step at another depth: the line through the plain step and one of full depth."""
        plain = self.short[0]
        return plain + depth / self.depth * (full - plain)


async def measured(kind: Kind, model: str, depth: int, home: Path) -> Start:
    """One start: a warm-up, long replies, single steps."""
    flags = ("--model", model, "--cache-ram", "0", *((*MTP, str(depth)) if depth else ()))
    async with serving(kind, *flags, home=home) as (engine, client):
        await _long(client, TEXTS[0])
        before = _drafting(engine)
        steady = [await _long(client, TEXTS[n % len(TEXTS)]) for n in range(LONG_REPLIES)]
        after = _drafting(engine)
        arm = Arm(profile="m", drafter=Drafter.MTP if depth else Drafter.NONE, depth=depth)
        clock = StepClock(client=client, arm=arm, start_id="s", fingerprint="f", seed=1)
        taken = [step async for step in clock.steps(TEXTS, WANTED)]
    single = [[1000 * s.step_s for s in taken if s.rows == rows] for rows in range(depth + 1)]
    low, middle, high = statistics.quantiles(single[-1], n=4)
    return Start(
        depth=depth,
        steady=statistics.median(steady),
        short=tuple(statistics.median(times) for times in single),
        spread=(high - low) / 2 / middle,
        draft=(after[0] - before[0]) / (after[1] - before[1]) / depth if depth else None,
    )


async def _long(client: EngineClient, text: str) -> float:
    """Milliseconds per step of a long reply; the first token comes with the prompt."""
    body: dict[str, Any] = {"prompt": text, "n_predict": TOKENS, "temperature": 0.0, "seed": 1}
    body |= {"ignore_eos": True, "cache_prompt": False}
    timed = timings.from_response(await client.complete("/completion", body, timeout_s=600))
    assert isinstance(timed, Timings)
    return timed.predicted_ms / (timed.predicted_n - 1 - (timed.draft_n_accepted or 0))


def _drafting(engine: Engine) -> tuple[float, int]:
    """Milliseconds spent drafting and how many drafts, since the start."""
    said = [found for line in engine.lines if isinstance(found := fact(line), SpecStatistics)]
    if not said or said[-1].ms is None:
        return (0.0, 0)
    return (said[-1].ms[1], said[-1].calls[1])


def measured_table(starts: Sequence[Start]) -> str:
    """Markdown: what was measured."""
    single = " | ".join(f"T'({depth})" for depth in DEPTHS)
    rows = [
        f"| depth k | steady T(k) | {single} | T'(k) - T(k) | draft token (log) |",
        "|" + "---|" * (4 + len(DEPTHS)),
    ]
    for start in starts:
        cells = [str(start.depth), f"{start.steady:.3f}"]
        cells += [f"{start.short[d]:.3f}" if d <= start.depth else "" for d in DEPTHS]
        cells += [f"{start.extra:+.3f}", "" if start.draft is None else f"{start.draft:.3f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def predicted_table(starts: Sequence[Start]) -> str:
    """Markdown: what each start predicts of the others, and how wrong it is."""
    steady = {start.depth: start.steady for start in starts}
    drafting = [start for start in starts if start.depth]
    rows = [
        "| from depth | through | " + " | ".join(f"T({s.depth})" for s in drafting) + " |",
        "|" + "---|" * (2 + len(drafting)),
    ]
    for start in drafting:
        for name, full in (("T(k), steady", start.steady), ("T'(k), single", start.short[-1])):
            cells = [str(start.depth), name]
            for other in drafting:
                value = start.predicted(other.depth, full=full)
                cells.append(f"{value:.3f} ({value / steady[other.depth] - 1:+.1%})")
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


async def measure(kind: Kind, model: str) -> list[Start]:
    """All depths, one start each."""
    with tempfile.TemporaryDirectory(prefix="mtpd-b-") as home:
        return [await measured(kind, model, depth, Path(home)) for depth in DEPTHS]


def main() -> None:
    """Print the machine and a table per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", help="a llama-server; without it the embedded engine")
    parser.add_argument("--model", action="append", help="a GGUF file with an MTP head")
    parser.add_argument("--rebuild", action="store_true", help="build the graph anew at every step")
    asked = parser.parse_args()
    kind = Kind(name="external", argv=(asked.binary,)) if asked.binary else EMBEDDED
    if asked.rebuild:
        kind = replace(kind, env={**kind.env, "LLAMA_GRAPH_REUSE_DISABLE": "1"})
    models = asked.model or [
        str(bundled_model(f"{name}.gguf")) for name in ("tiny-chained", "tiny-unchained")
    ]
    load = os.getloadavg()[0]
    sys.stdout.write(f"machine: {machine()}; load average before: {load:.1f}\n")
    for model in models:
        starts = anyio.run(measure, kind, model)
        tables = f"{measured_table(starts)}\n\n{predicted_table(starts)}"
        sys.stdout.write(f"\n{Path(model).stem}, milliseconds\n\n{tables}\n")
        spreads = {start.depth: round(start.spread, 3) for start in starts}
        sys.stdout.write(f"\nspread of the deepest single step: {json.dumps(spreads)}\n")


if __name__ == "__main__":
    main()
