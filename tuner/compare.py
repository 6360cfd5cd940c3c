"""What may be compared with what, and how sure a difference is.

Covers the traps (another text, another chunk count, another fingerprint, a warm card) as
values that name themselves, medians with marked outliers, perplexities, and speed differences
paired by prompt. Does not choose anything (``tuner.select``).
"""

from __future__ import annotations

import enum
import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.special import t_two_sided_p
from tuner.types import Residency, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Comparable",
    "Incomparable",
    "Median",
    "PairedT",
    "Perplexity",
    "PerplexityRun",
    "PplComparison",
    "Quality",
    "Run",
    "SpeedRun",
    "TextRun",
    "Trap",
    "chunk_nll",
    "comparable",
    "compare_quality",
    "mean_of_medians",
    "median_of",
    "paired_t",
    "ppl_compare",
]

Z_95 = 1.96
_P_95 = 0.05
OUTLIER_SCORE = 3.5
"""Distance from the median, in robust standard deviations, from which a value is marked."""

COOL_C = 44.0
"""Edge temperature from which a start is too warm for the study's gate (study 000)."""

FILL_TOLERANCE = 0.10
"""Relative difference of the context fill up to which step times compare (TUNER 3.7)."""

_MAD_TO_SD = 1.4826
_LEAST_DEVIATION = 0.01
"""Robust deviation assumed at least, relative to the median: three timings may agree by chance."""


class Trap(enum.StrEnum):
    """Why two results must not be compared."""

    TEXT = "text"
    SAMPLING = "sampling"
    FINGERPRINT = "fingerprint"
    CORPUS = "corpus"
    CHUNKS = "chunks"
    CONTEXT = "context"
    FLAGS = "flags"
    KIND = "kind"
    CELLS = "cells"
    RECORD = "record"
    RESIDENCY = "residency"
    SLOTS = "slots"
    FILL = "context fill"
    CAP = "power cap"
    TEMPERATURE = "temperature"
    PROCESS = "other process"


@dataclass(frozen=True, slots=True)
class Comparable:
    """Nothing speaks against the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomparable:
    """The comparison is refused.

    Attributes:
        trap: Which trap it is.
        sentence: What differs, with both values.
    """

    trap: Trap
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityRun:
    """What a perplexity depends on besides the model.

    Attributes:
        corpus: Name or hash of the text.
        chunks: Number of chunks; a text has easy and hard parts.
        context: Tokens per chunk, or None if not recorded.
        flags: What else the tool was told that changes the result, or None likewise.
    """

    corpus: str
    chunks: int
    context: int | None = None
    flags: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRun:
    """What an acceptance or a speed depends on besides the arm.

    Attributes:
        digest: SHA-256 of the generated text.
        temperature: Sampling temperature.
        seed: Sampling seed, or None if it plays no role.
        fingerprint: Digest of everything else except the depth.
    """

    digest: str
    temperature: float = 0.0
    seed: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRun:
    """What a speed depends on besides depth and text (TUNER 3.7).

    ``Unknown`` is what was not recorded, and never compares: such a cell is "not
    comparable" and not "slow". None is what the machine does not have.

    Attributes:
        fingerprint: Digest of build, files and arguments, the depth left out.
        residency: Verdict on the engine start.
        slots: Parallel requests.
        context: Tokens of context over all slots.
        fill_tokens: Tokens in the KV cache before the reply.
        cap_w: Power cap, or None without one.
        edge_start_c: Edge temperature at the start, or None without a sensor.
        other_process: Whether another process used the device.
    """

    fingerprint: str | Unknown
    residency: Residency
    slots: int | Unknown
    context: int | Unknown
    fill_tokens: int | Unknown
    cap_w: float | Unknown | None
    edge_start_c: float | Unknown | None
    other_process: bool | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A measured perplexity.

    Attributes:
        value: Perplexity, > 1.
        stderr: Its standard error as the tool prints it, or None.
        run: What it was measured on.
        chunk_nll: Mean negative log likelihood per chunk for paired tests, or None.
    """

    value: float
    stderr: float | None
    run: PerplexityRun
    chunk_nll: tuple[float, ...] | None = None


class Perplexity(enum.StrEnum):
    """Verdict on the second of two perplexities."""

    BETTER = "better"
    WORSE = "worse"
    TIE = "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class PplComparison:
    """Difference of two log perplexities, second minus first.

    Attributes:
        delta_log: log(p2 / p1).
        se: Its standard error.
        z: ``delta_log / se``.
        verdict: Of the second against the first.
    """

    delta_log: float
    se: float
    z: float
    verdict: Perplexity


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedT:
    """Paired t test of b - a."""

    mean: float
    se: float
    t: float
    df: int
    p: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """Repetitions of one cell; outliers are marked, never dropped.

    Attributes:
        value: Median over all repetitions.
        low: Smallest.
        high: Largest.
        count: How many.
        outliers: Indices of the marked ones, in the order given.
    """

    value: float
    low: float
    high: float
    count: int
    outliers: tuple[int, ...]

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (self.high - self.low) / self.value


Run = PerplexityRun | TextRun | SpeedRun
_Value = str | float | Unknown | None


def comparable(a: Run, b: Run) -> Comparable | Incomparable:
    """Whether two results may be compared, or the first trap that forbids it."""
    match a, b:
        case PerplexityRun(), PerplexityRun():
            return _first_difference(
                (Trap.CORPUS, "measured on corpus", a.corpus, b.corpus),
                (Trap.CHUNKS, "measured over a chunk count of", a.chunks, b.chunks),
                (Trap.CONTEXT, "measured with a context of", a.context, b.context),
                (Trap.FLAGS, "measured with the flags", a.flags, b.flags),
            )
        case TextRun(), TextRun():
            return _first_difference(
                (Trap.FINGERPRINT, "measured under fingerprint", a.fingerprint, b.fingerprint),
                (Trap.SAMPLING, "sampled at temperature", a.temperature, b.temperature),
                (Trap.SAMPLING, "sampled with seed", a.seed, b.seed),
                (Trap.TEXT, "generating the text", a.digest, b.digest),
            )
        case SpeedRun(), SpeedRun():
            return _same_speed_run(a, b)
        case _:
            sentence = "a perplexity, a generated text and a speed are different things"
            return Incomparable(trap=Trap.KIND, sentence=sentence)


def _same_speed_run(a: SpeedRun, b: SpeedRun) -> Comparable | Incomparable:
    for one in (a, b):
        if isinstance(refused := _unfit_for_timing(one), Incomparable):
            return refused
    left, right = (type(one.residency).__name__.lower() for one in (a, b))
    fills = [one.fill_tokens for one in (a, b) if not isinstance(one.fill_tokens, Unknown)]
    far = max(fills) > (1 + FILL_TOLERANCE) * min(fills)
    return _first_difference(
        (Trap.FINGERPRINT, "measured under fingerprint", a.fingerprint, b.fingerprint),
        (Trap.RESIDENCY, "measured", left, right),
        (Trap.SLOTS, "measured with a slot count of", a.slots, b.slots),
        (Trap.CONTEXT, "measured with a context of", a.context, b.context),
        (Trap.CAP, "measured under a power cap in W of", a.cap_w, b.cap_w),
        (Trap.FILL, "measured at a fill in tokens of", fills[0], fills[far]),
    )


def _unfit_for_timing(one: SpeedRun) -> Incomparable | None:
    """What forbids to compare this run with any other, or None."""
    for name in SpeedRun.__slots__:
        if isinstance(value := getattr(one, name), Unknown):
            sentence = f"{name} was not recorded: {value.reason}"
            return Incomparable(trap=Trap.RECORD, sentence=sentence)
    if one.other_process:
        return Incomparable(trap=Trap.PROCESS, sentence="another process used the device")
    if isinstance(one.edge_start_c, float | int) and one.edge_start_c > COOL_C:
        sentence = f"one started at {one.edge_start_c:g} C, above the gate's {COOL_C:g} C"
        return Incomparable(trap=Trap.TEMPERATURE, sentence=sentence)
    return None


def _first_difference(
    *checks: tuple[Trap, str, _Value, _Value],
) -> Comparable | Incomparable:
    for trap, what, left, right in checks:
        if left != right:
            sentence = f"one was {what} {left}, the other {right}"
            return Incomparable(trap=trap, sentence=sentence)
    return Comparable()


def median_of(values: Sequence[float]) -> Median:
    """Median of positive values; an outlier lies 3.5 robust deviations away (from 3 values)."""
    middle = statistics.median(values)
    distances = [abs(v - middle) for v in values]
    scale = max(_MAD_TO_SD * statistics.median(distances), _LEAST_DEVIATION * middle)
    far = tuple(i for i, d in enumerate(distances) if d > OUTLIER_SCORE * scale)
    return Median(
        value=middle,
        low=min(values),
        high=max(values),
        count=len(values),
        outliers=far if len(values) >= 3 else (),  # noqa: PLR2004 - two values have no odd one
    )


def mean_of_medians(runs: Sequence[Sequence[float]]) -> float:
    """Mean over cells of the median over repetitions."""
    return statistics.fmean(statistics.median(run) for run in runs)


def ppl_compare(p1: float, se1: float, p2: float, se2: float, *, rho: float = 0.0) -> PplComparison:
    """Compare two perplexities whose errors correlate by ``rho`` (0: unpaired).

    The tool's +- is the error of the perplexity, so relative errors are those of the log.
    """
    s1, s2 = se1 / p1, se2 / p2
    delta = math.log(p2 / p1)
    error = math.sqrt(max(s1 * s1 + s2 * s2 - 2 * rho * s1 * s2, 0.0))
    z = _ratio(delta, error)
    verdict = _verdict(delta, significant=abs(z) >= Z_95)
    return PplComparison(delta_log=delta, se=error, z=z, verdict=verdict)


def compare_quality(a: Quality, b: Quality, *, rho: float = 0.0) -> PplComparison | Incomparable:
    """Compare b with a: paired by chunk where both have chunks, else by their errors.

    Without errors nothing is significant: the verdict is a tie.
    """
    trapped = comparable(a.run, b.run)
    if isinstance(trapped, Incomparable):
        return trapped
    if a.chunk_nll and b.chunk_nll and len(a.chunk_nll) == len(b.chunk_nll) > 1:
        test = paired_t(a.chunk_nll, b.chunk_nll)
        verdict = _verdict(test.mean, significant=test.p < _P_95)
        return PplComparison(delta_log=test.mean, se=test.se, z=test.t, verdict=verdict)
    if a.stderr is None or b.stderr is None:
        delta = math.log(b.value / a.value)
        return PplComparison(delta_log=delta, se=math.inf, z=0.0, verdict=Perplexity.TIE)
    return ppl_compare(a.value, a.stderr, b.value, b.stderr, rho=rho)


def chunk_nll(running: Sequence[float]) -> tuple[float, ...]:
    """Mean negative log likelihood per chunk from the running perplexities of the tool.

    llama-perplexity prints ``exp(nll / count)`` over all chunks so far, and every chunk adds
    the same count of tokens (perplexity.cpp, the second half of each context). So the j-th
    chunk alone has ``j ln P(j) - (j - 1) ln P(j - 1)``.
    """
    sums = [0.0, *(j * math.log(p) for j, p in enumerate(running, start=1))]
    return tuple(now - before for before, now in itertools.pairwise(sums))


def paired_t(a: Sequence[float], b: Sequence[float]) -> PairedT:
    """Paired t test of b - a over at least two pairs."""
    differences = [y - x for x, y in zip(a, b, strict=True)]
    count = len(differences)
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    t = _ratio(mean, error)
    p = 0.0 if math.isinf(t) else t_two_sided_p(t, count - 1)
    return PairedT(mean=mean, se=error, t=t, df=count - 1, p=p)


def _ratio(value: float, error: float) -> float:
    if error == 0.0:
        return math.copysign(math.inf, value) if value else 0.0
    return value / error


def _verdict(delta: float, *, significant: bool) -> Perplexity:
    if not significant:
        return Perplexity.TIE
    return Perplexity.WORSE if delta > 0 else Perplexity.BETTER
