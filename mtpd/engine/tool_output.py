"""What llama-perplexity and llama-bench print, as values. Pure; never raises.

A tool prints to two pipes; which of them a text came from plays no role here, and a text may
end anywhere. What was not printed is ``Absent`` with a reason, never 0.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mtpd.views import Json

__all__ = [
    "BenchRow",
    "PerplexityOutput",
    "bench_done",
    "read_bench",
    "read_perplexity",
    "tensors_done",
]

_RUNNING: Final = re.compile(r"\[(\d{1,9})\]([^\s,\[\]]{1,64}),")
_ANNOUNCED: Final = re.compile(r"perplexity over (\d{1,9}) chunks, n_ctx=(\d{1,9})")
_FINAL: Final = re.compile(r"Final estimate: PPL = (\S{1,64}) \+/- (\S{1,64})")
_TENSOR: Final = re.compile(r"\[ *(\d{1,6})/ *\d{1,6}\]")
_MOST: Final = 2**31 - 1
_BENCH_STEP: Final = re.compile(r"benchmark (\d{1,6})/(\d{1,6}): starting")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityOutput:
    """What llama-perplexity has said so far.

    Attributes:
        running: Perplexity over all chunks so far, after each chunk.
        chunks: How many chunks it announced; the text may hold fewer than were asked for.
        context: Tokens per chunk, as announced.
        perplexity: Its final estimate.
        stderr: The standard error of that: sigma of the mean NLL times the perplexity
            (perplexity.cpp).
    """

    running: tuple[float, ...]
    chunks: int | Absent
    context: int | Absent
    perplexity: float | Absent
    stderr: float | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One test of llama-bench.

    Attributes:
        prompt_tokens: Tokens that it processed at once; 0 for a test of generation.
        gen_tokens: Tokens that it generated; 0 for a test of prompt processing.
        depth: Tokens in the context before.
        tps: Mean tokens per second.
        tps_sd: Their standard deviation over the repetitions.
        samples: Tokens per second of each repetition.
        build: Commit and number of the build.
        backends: What it ran on.
    """

    prompt_tokens: int
    gen_tokens: int
    depth: int
    tps: float
    tps_sd: float | None
    samples: tuple[float, ...]
    build: str
    backends: str

    @property
    def name(self) -> str:
        """As llama-bench's own table calls it: pp512, tg128, pp512+tg128, tg128 @ d4096."""
        parts = [f"pp{self.prompt_tokens}"] if self.prompt_tokens else []
        parts += [f"tg{self.gen_tokens}"] if self.gen_tokens else []
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")


def read_perplexity(texts: Iterable[str]) -> PerplexityOutput:
    """Read what the pipes of llama-perplexity gave up to now."""
    pipes = tuple(texts)
    announced = _first(_ANNOUNCED, pipes)
    final = _first(_FINAL, pipes)
    perplexity, stderr = (None, None) if final is None else map(_positive, final.groups())
    return PerplexityOutput(
        running=max((_running(text) for text in pipes), key=len, default=()),
        chunks=Absent("it announced no chunks") if announced is None else int(announced[1]),
        context=Absent("it announced no context") if announced is None else int(announced[2]),
        perplexity=Absent("it printed no final estimate") if perplexity is None else perplexity,
        stderr=Absent("it printed no error of its estimate") if stderr is None else stderr,
    )


def read_bench(texts: Iterable[str]) -> tuple[BenchRow, ...] | Absent:
    """Read the JSON list of a finished llama-bench."""
    why = "it printed no JSON list of tests"
    for text in texts:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, list) or not found:
            continue
        rows = [_row(one) for one in found]
        known = [row for row in rows if row is not None]
        if len(known) == len(rows):
            return tuple(known)
        why = "a test in its JSON lacks its tokens or its speed"
    return Absent(why)


def bench_done(texts: Iterable[str]) -> tuple[int, int] | None:
    """Tests of llama-bench that are over, and how many there are; None where it does not say."""
    steps = [match for text in texts for match in _BENCH_STEP.finditer(text)]
    return (int(steps[-1][1]) - 1, int(steps[-1][2])) if steps else None


def tensors_done(texts: Iterable[str]) -> int:
    """Tensors that llama-quantize has begun, 0 where it does not say: ``[   7/ 866] name``."""
    return max((int(match[1]) for text in texts for match in _TENSOR.finditer(text)), default=0)


def _first(pattern: re.Pattern[str], texts: Iterable[str]) -> re.Match[str] | None:
    return next((match for text in texts if (match := pattern.search(text))), None)


def _running(text: str) -> tuple[float, ...]:
    """The values of chunks 1, 2, 3 and so on, up to the first that is missing or no number."""
    out: list[float] = []
    for match in _RUNNING.finditer(text):
        value = _positive(match[2])
        if int(match[1]) != len(out) + 1 or value is None:
            break
        out.append(value)
    return tuple(out)


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _row(found: Json) -> BenchRow | None:
    if not isinstance(found, dict):
        return None
    prompt, generated = _count(found.get("n_prompt")), _count(found.get("n_gen"))
    speed = _finite(found.get("avg_ts"))
    if prompt is None or generated is None or prompt + generated == 0:
        return None
    if speed is None or speed <= 0:
        return None
    samples = found.get("samples_ts")
    listed = map(_finite, samples if isinstance(samples, list) else ())
    return BenchRow(
        prompt_tokens=prompt,
        gen_tokens=generated,
        depth=_count(found.get("n_depth")) or 0,
        tps=speed,
        tps_sd=_finite(found.get("stddev_ts")),
        samples=tuple(one for one in listed if one is not None),
        build=_build(found),
        backends=str(found.get("backends") or "unknown"),
    )


def _count(value: Json) -> int | None:
    """A number of tokens; llama-bench has them in 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MOST else None


def _finite(value: Json) -> float | None:
    """A number; JSON has larger ones than there are floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _build(found: Mapping[str, Json]) -> str:
    commit, number = found.get("build_commit"), found.get("build_number")
    return f"{commit} ({number})" if commit and number is not None else "unknown"
