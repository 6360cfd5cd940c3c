"""Which of two arms is faster, and whether that is more than a tie.

Covers the tie rule and the interval of a speed ratio: paired by prompt where the texts are
equal, unpaired over many prompts where they are not, refused otherwise. Works on
summaries (``tuner.summary``); memory and quality are not its business.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.compare import Comparable, Incomparable, TextRun, Trap, comparable
from tuner.special import t_quantile
from tuner.throughput import p_beats
from tuner.types import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.summary import ArmSummary, CellSummary

__all__ = [
    "RUN_NOISE",
    "TIE_RATIO",
    "UNPAIRED_PROMPTS",
    "SpeedComparison",
    "assumed_interval",
    "compare_speeds",
    "ratio_text",
    "speed_interval",
]

TIE_RATIO = 0.02
"""Arms within 2 % tokens per second tie."""

UNPAIRED_PROMPTS = 8
"""Prompts per arm from which arms with different texts may be compared without pairing."""

RUN_NOISE = 0.03
"""Relative noise of one run, assumed where nothing was repeated."""

_LEVEL = 0.95
_Z_95 = 1.96
_MEDIAN_LOSS = math.pi / 2
"""Variance of a median over that of a mean, for normal noise and many values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedComparison:
    """Speed of the first arm over that of the second.

    Attributes:
        ratio: Ratio of the means over the compared prompts (mean over workloads).
        interval: 95 % interval of the mean ratio, from logs; None if nothing repeats.
        cells: Prompts compared.
        paired: Whether the texts are equal, prompt by prompt.
    """

    ratio: float
    interval: Interval | None
    cells: int
    paired: bool

    @property
    def faster(self) -> bool:
        """Whether the first arm beats the second by the tie rule."""
        return self.ratio > 1 + TIE_RATIO and (self.interval is None or self.interval.low > 1)

    @property
    def slower(self) -> bool:
        """Whether the second arm beats the first by the tie rule."""
        clear = self.interval is None or self.interval.high < 1
        return self.ratio < 1 / (1 + TIE_RATIO) and clear

    @property
    def p_faster(self) -> float:
        """Chance that the first arm is more than the tie ratio faster; normal in the log.

        Without an interval the noise of one run of each arm is assumed.
        """
        sd = RUN_NOISE * math.sqrt(2)
        if self.interval is not None:
            sd = math.log(self.interval.high / self.interval.low) / (2 * _Z_95)
        return p_beats(math.log(self.ratio), sd, 0.0, 0.0, eps=TIE_RATIO)

    @property
    def tie(self) -> bool:
        """Whether neither beats the other."""
        return not (self.faster or self.slower)

    @property
    def hidden(self) -> bool:
        """Whether they are more than a tie apart and only the noise makes it one."""
        close = 1 / (1 + TIE_RATIO) <= self.ratio <= 1 + TIE_RATIO
        return self.tie and not close


def compare_speeds(
    a: ArmSummary, b: ArmSummary, *, own_texts: bool = False
) -> SpeedComparison | Incomparable:
    """Compare a with b over the prompts that both answered.

    Args:
        a: Numerator.
        b: Denominator.
        own_texts: The arms are different models, which make different texts by nature:
            pair by prompt and do not ask for equal texts or fingerprints.
    """
    theirs = {(c.workload, c.prompt): c for c in b.cells}
    shared = [(c, theirs[c.workload, c.prompt]) for c in a.cells if _key(c) in theirs]
    if not shared:
        return Incomparable(trap=Trap.CELLS, sentence=f"{a.arm} and {b.arm} share no prompt")
    if own_texts:
        return _paired(shared)
    if a.fingerprint is None or a.fingerprint != b.fingerprint:
        sentence = f"{a.arm} and {b.arm} were not measured under one fingerprint"
        return Incomparable(trap=Trap.FINGERPRINT, sentence=sentence)
    equal = [(x, y) for x, y in shared if _same_text(x, y)]
    if 2 * len(equal) >= len(shared):
        return _paired(equal)
    if len(shared) >= UNPAIRED_PROMPTS:
        return _unpaired([x for x, _ in shared], [y for _, y in shared])
    sentence = (
        f"{a.arm} and {b.arm} generated different texts for {len(shared) - len(equal)} of "
        f"{len(shared)} prompts; {UNPAIRED_PROMPTS} prompts are needed to compare them unpaired"
    )
    return Incomparable(trap=Trap.TEXT, sentence=sentence)


def speed_interval(row: ArmSummary) -> Interval | None:
    """95 % interval of an arm's mean tokens per second; None if unmeasured.

    Where no prompt has a sibling in its workload the noise of one run is assumed.
    """
    if row.tps is None:
        return None
    estimate = _stratified([(c.workload, math.log(c.tps)) for c in row.cells])
    if estimate is None:
        return assumed_interval(row.tps)
    half = t_quantile(_LEVEL, estimate[1]) * math.sqrt(estimate[0])
    return Interval(low=row.tps * math.exp(-half), mid=row.tps, high=row.tps * math.exp(half))


def assumed_interval(tps: float) -> Interval:
    """95 % interval of a single figure whose noise is not known."""
    half = _Z_95 * RUN_NOISE
    return Interval(low=tps * math.exp(-half), mid=tps, high=tps * math.exp(half))


def ratio_text(verdict: SpeedComparison) -> str:
    """A ratio; where only the noise makes it a tie, with the interval that says so."""
    interval = verdict.interval
    if not verdict.hidden or interval is None:
        return f"{verdict.ratio:.2f}x"
    return f"{verdict.ratio:.2f}x, but {interval.low:.2f}x to {interval.high:.2f}x is possible"


def _key(cell: CellSummary) -> tuple[str, int]:
    return cell.workload, cell.prompt


def _same_text(x: CellSummary, y: CellSummary) -> bool:
    if x.digest is None or y.digest is None:
        return False
    verdict = comparable(TextRun(digest=x.digest), TextRun(digest=y.digest))
    return isinstance(verdict, Comparable)


def _paired(pairs: Sequence[tuple[CellSummary, CellSummary]]) -> SpeedComparison:
    logs = [(x.workload, math.log(x.tps / y.tps)) for x, y in pairs]
    estimate = _stratified(logs) or _from_repetitions(pairs)
    return SpeedComparison(
        ratio=_mean_tps([x for x, _ in pairs]) / _mean_tps([y for _, y in pairs]),
        interval=_interval(_mean_of_workloads(logs), estimate),
        cells=len(pairs),
        paired=True,
    )


def _unpaired(xs: Sequence[CellSummary], ys: Sequence[CellSummary]) -> SpeedComparison:
    logs_x = [(c.workload, math.log(c.tps)) for c in xs]
    logs_y = [(c.workload, math.log(c.tps)) for c in ys]
    first, second = _stratified(logs_x), _stratified(logs_y)
    estimate = None
    if first is not None and second is not None:
        estimate = (first[0] + second[0], first[1] + second[1])
    return SpeedComparison(
        ratio=_mean_tps(xs) / _mean_tps(ys),
        interval=_interval(_mean_of_workloads(logs_x) - _mean_of_workloads(logs_y), estimate),
        cells=len(xs),
        paired=False,
    )


def _by_workload(values: Sequence[tuple[str, float]]) -> tuple[tuple[float, ...], ...]:
    groups: dict[str, list[float]] = {}
    for workload, value in values:
        groups.setdefault(workload, []).append(value)
    return tuple(tuple(group) for group in groups.values())


def _mean_of_workloads(values: Sequence[tuple[str, float]]) -> float:
    return statistics.fmean(statistics.fmean(group) for group in _by_workload(values))


def _mean_tps(cells: Sequence[CellSummary]) -> float:
    return _mean_of_workloads([(c.workload, c.tps) for c in cells])


def _stratified(values: Sequence[tuple[str, float]]) -> tuple[float, int] | None:
    """Variance of the mean over workloads and its degrees of freedom.

    The workloads are given, the prompts within a workload are a sample of it; None if
    no workload has two prompts.
    """
    groups = _by_workload(values)
    freedom = len(values) - len(groups)
    if freedom == 0:
        return None
    squares = sum((v - statistics.fmean(g)) ** 2 for g in groups for v in g)
    return squares / freedom * sum(1 / len(g) for g in groups) / len(groups) ** 2, freedom


def _from_repetitions(
    pairs: Sequence[tuple[CellSummary, CellSummary]],
) -> tuple[float, int] | None:
    """Variance of the mean log ratio from timing noise alone; None without repetitions."""
    logs = [[math.log(t) for t in cell.all_tps] for pair in pairs for cell in pair]
    freedom = sum(len(group) - 1 for group in logs)
    if min(len(group) for group in logs) == 1:
        return None
    squares = sum((v - statistics.fmean(g)) ** 2 for g in logs for v in g)
    each = _MEDIAN_LOSS * squares / freedom
    weights = _by_workload(
        [(x.workload, 1 / len(x.all_tps) + 1 / len(y.all_tps)) for x, y in pairs]
    )
    total = sum(sum(group) / len(group) ** 2 for group in weights) / len(weights) ** 2
    return each * total, freedom


def _interval(log_ratio: float, estimate: tuple[float, int] | None) -> Interval | None:
    if estimate is None:
        return None
    variance, freedom = estimate
    half = t_quantile(_LEVEL, freedom) * math.sqrt(variance)
    return Interval(
        low=math.exp(log_ratio - half), mid=math.exp(log_ratio), high=math.exp(log_ratio + half)
    )
