"""What the observations of an arm amount to: the rows of the depth table.

Covers medians per prompt, the mean over workloads, acceptance with intervals, tokens and
seconds per step, residency of all starts, and what was left out and why. Does not
compare arms (``tuner.speed``) and does not choose (``tuner.select``).
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuner.acceptance import (
    PositionCounts,
    alpha_intervals,
    counts_of,
    distinct_texts,
    phi_for,
    pool_counts,
    steps_from_timings,
)
from tuner.compare import median_of
from tuner.drafts import OCCASIONAL, draft_rate, per_decode_step, trusted
from tuner.types import (
    Arm,
    Evicted,
    Interval,
    Observation,
    Residency,
    Spilled,
    Start,
    Unknown,
    depth_order,
    passes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "ArmSummary",
    "CellSummary",
    "Excluded",
    "decode_steps",
    "not_usable",
    "summarise",
]

_CUT_AT_ENDS = 0.1
"""Share of draft tokens that the ends of replies may cut: 0.2 and 0.7 % of those of replies of
192 tokens at depth 2 and 3 of the tiny models."""

_NOTHING_MEASURED: Final = Unknown("nothing was measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """Repetitions of one prompt on one arm.

    Attributes:
        workload: Name of the workload.
        prompt: Index of the prompt.
        digest: Digest of the text, or None if the repetitions made different texts.
        tps: Median tokens per second.
        all_tps: Every repetition's tokens per second, sorted.
        outliers: How many of them are marked as outliers; they stay in the median.
        step_s: Median seconds per decode step, or None where accepted tokens are not known.
        token_j: Median joules per token, or None where those of a repetition are not known.
    """

    workload: str
    prompt: int
    digest: str | None
    tps: float
    all_tps: tuple[float, ...]
    outliers: int
    step_s: float | None
    token_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """Observations left out for one reason."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """One row of the depth table.

    Attributes:
        arm: The arm.
        residency: The worst verdict of its starts.
        failure: Why it never became ready, or None.
        fingerprint: Of all used observations; None if there are none or several.
        cells: One per prompt, ordered by workload and prompt.
        workload_tps: Tokens per second per workload: mean over prompts of the medians.
        tps: Mean over workloads; None if nothing usable was measured.
        spread: Largest (max - min) / median of a cell, or None.
        outliers: Marked repetitions over all cells.
        expected: Tokens per decode step over all texts, or None where not known.
        alphas: Conditional acceptance per position with intervals, or why unknown.
        counts: What ``alphas`` rests on.
        step_s: Seconds per decode step: mean over workloads and prompts, or None.
        token_j: Joules per generated token, averaged as ``tps``, or why not known.
        same_text: Whether all texts equal those of the shallowest measured arm of the
            profile; None if there is nothing to compare with.
        used: Observations used.
        excluded: Observations left out, by reason.
    """

    arm: Arm
    residency: Residency
    failure: str | None = None
    fingerprint: str | None = None
    cells: tuple[CellSummary, ...] = ()
    workload_tps: tuple[tuple[str, float], ...] = ()
    tps: float | None = None
    spread: float | None = None
    outliers: int = 0
    expected: float | None = None
    alphas: tuple[Interval, ...] | Unknown = _NOTHING_MEASURED
    counts: PositionCounts | Unknown = _NOTHING_MEASURED
    step_s: float | None = None
    token_j: float | Unknown = _NOTHING_MEASURED
    same_text: bool | None = None
    used: int = 0
    excluded: tuple[Excluded, ...] = ()

    @property
    def tokens_per_joule(self) -> float | Unknown:
        """Tokens per joule of all that the card drew while it decoded, or why not known."""
        return self.token_j if isinstance(self.token_j, Unknown) else 1 / self.token_j

    @property
    def trusted(self) -> PositionCounts | Unknown:
        """The counts, or why the positions cannot be told: drafts were cut short."""
        return self.counts if isinstance(self.counts, Unknown) else trusted(self.counts)

    @property
    def draft_rate(self) -> float | None:
        """Share of the decode steps that had a draft; None of a drafter that always has one."""
        steps = self._decode_steps
        if self.arm.drafter not in OCCASIONAL or steps is None or isinstance(self.counts, Unknown):
            return None
        return draft_rate(min(self.counts.steps, steps), steps)

    @property
    def earning(self) -> PositionCounts | Unknown:
        """The counts per decode step: what drafts earn goes with the time of all steps."""
        steps = self._decode_steps
        if self.draft_rate is None or steps is None or isinstance(self.trusted, Unknown):
            return self.trusted
        return per_decode_step(self.trusted, steps)

    @property
    def _decode_steps(self) -> int | None:
        """All steps of the counted texts: A accepted tokens are A / (E - 1) steps."""
        if isinstance(self.counts, Unknown) or self.expected is None or self.expected <= 1:
            return None
        return round(sum(self.counts.accepted) / (self.expected - 1)) or None

    @property
    def shown_alphas(self) -> tuple[tuple[int, Interval], ...]:
        """Positions that full drafts tell and that a step reached, with their acceptance."""
        if isinstance(self.alphas, Unknown) or isinstance(self.trusted, Unknown):
            return ()
        offered = (self.trusted.steps, *self.trusted.accepted)
        return tuple(
            (place, alpha) for place, alpha in enumerate(self.alphas, start=1) if offered[place - 1]
        )

    @property
    def full_step_s(self) -> float | None:
        """``step_s`` where it is that of as many rows as the depth says; None if drafts were cut.

        Those that only the end of a reply cuts hardly change it, and a build that does not count
        its drafts is believed.
        """
        if isinstance(self.counts, Unknown) or not self.arm.depth:
            return self.step_s
        full = self.counts.steps * self.arm.depth
        return self.step_s if self.counts.cut <= _CUT_AT_ENDS * full else None


def not_usable(one: Observation) -> str | None:
    """Why an observation cannot be timed, or None."""
    if one.excluded is not None:
        return one.excluded
    if one.tokens < 2:  # noqa: PLR2004 - the first token comes with the prompt
        return "fewer than two tokens were generated"
    return None if one.decode_s > 0 else "the engine reported no decode time"


def summarise(
    observations: Iterable[Observation], starts: Iterable[Start] = ()
) -> tuple[ArmSummary, ...]:
    """Summarise per arm, ordered by arm; independent of the order of the arguments.

    Args:
        observations: All repetitions, excluded ones too.
        starts: Engine starts; needed for arms that never measured anything, so that
            they keep a row that says why.
    """
    by_arm: dict[Arm, list[Observation]] = {}
    for one in observations:
        by_arm.setdefault(one.arm, []).append(one)
    starts_of: dict[Arm, list[Start]] = {}
    for start in starts:
        starts_of.setdefault(start.arm, []).append(start)
    rows = [
        _arm(arm, _canonical(by_arm.get(arm, [])), starts_of.get(arm, []))
        for arm in sorted({*by_arm, *starts_of}, key=depth_order)
    ]
    return tuple(replace(row, same_text=_same_text(row, rows)) for row in rows)


def _canonical(observations: list[Observation]) -> list[Observation]:
    found = sorted(observations, key=_place)
    # What has the same place is rare, and dear to tell apart.
    return [
        one for _, same in itertools.groupby(found, key=_place) for one in _told_apart(list(same))
    ]


def _place(one: Observation) -> tuple[str, int, str, int]:
    return one.workload, one.prompt, one.start_id, one.repetition


def _told_apart(same: list[Observation]) -> list[Observation]:
    return sorted(same, key=repr) if len(same) > 1 else same


def _arm(arm: Arm, observations: list[Observation], starts: list[Start]) -> ArmSummary:
    used = [o for o in observations if not_usable(o) is None]
    reasons = Counter(reason for o in observations if (reason := not_usable(o)) is not None)
    failures = sorted(s.failure for s in starts if s.failure is not None)
    fingerprints = {o.fingerprint for o in used}
    empty = ArmSummary(
        arm=arm,
        residency=_residency(observations, starts),
        failure=failures[0] if failures and not used else None,
        fingerprint=fingerprints.pop() if len(fingerprints) == 1 else None,
        used=len(used),
        excluded=tuple(Excluded(reason=r, count=n) for r, n in sorted(reasons.items())),
    )
    return _measured(empty, used) if used else empty


def _measured(row: ArmSummary, used: list[Observation]) -> ArmSummary:
    groups = itertools.groupby(used, key=lambda o: (o.workload, o.prompt))
    cells = tuple(_cell(list(group)) for _, group in groups)
    counts = pool_counts(used)
    each = [c for o in distinct_texts(used) if not isinstance(c := counts_of(o), Unknown)]
    alphas = counts if isinstance(counts, Unknown) else alpha_intervals(counts, phi=phi_for(each))
    workloads = _per_workload([(c.workload, c.tps) for c in cells])
    steps = [(c.workload, c.step_s) for c in cells if c.step_s is not None]
    return replace(
        row,
        cells=cells,
        workload_tps=workloads,
        tps=statistics.fmean(tps for _, tps in workloads),
        spread=max((c.all_tps[-1] - c.all_tps[0]) / c.tps for c in cells),
        outliers=sum(c.outliers for c in cells),
        expected=_expected(used),
        alphas=alphas,
        counts=counts,
        step_s=statistics.fmean(s for _, s in _per_workload(steps))
        if len(steps) == len(cells)
        else None,
        token_j=_token_j(cells),
    )


def _token_j(cells: Sequence[CellSummary]) -> float | Unknown:
    """Mean over workloads; a part of the prompts would speak for other texts than ``tps``."""
    known = [(c.workload, c.token_j) for c in cells if c.token_j is not None]
    if len(known) < len(cells):
        missing = len(cells) - len(known)
        return Unknown(f"the energy of {missing} of {len(cells)} prompts was not measured")
    mean = statistics.fmean(joules for _, joules in _per_workload(known))
    return mean if mean > 0 else Unknown("the card reported no power while it worked")


def _cell(group: list[Observation]) -> CellSummary:
    first = group[0]
    digests = {o.digest for o in group}
    speeds = median_of([o.decode_tps for o in group])
    steps = [decode_steps(o) for o in group]
    times = [o.decode_s / n for o, n in zip(group, steps, strict=True) if n is not None]
    joules = [o.joules_per_token for o in group if o.joules_per_token is not None]
    return CellSummary(
        workload=first.workload,
        prompt=first.prompt,
        digest=first.digest if len(digests) == 1 else None,
        tps=speeds.value,
        all_tps=tuple(sorted(o.decode_tps for o in group)),
        outliers=len(speeds.outliers),
        step_s=statistics.median(times) if len(times) == len(group) else None,
        token_j=statistics.median(joules) if len(joules) == len(group) else None,
    )


def decode_steps(one: Observation) -> int | None:
    """Decode steps of a reply, drafting or plain; None where accepted tokens are not known."""
    if one.arm.depth == 0:
        return one.tokens - 1
    if one.accepted is None:
        return None
    steps = steps_from_timings(one.tokens, one.accepted)
    return steps if steps > 0 else None


def _expected(used: list[Observation]) -> float | None:
    tokens = total = 0
    for one in distinct_texts(used):
        steps = decode_steps(one)
        if steps is None:
            return None
        tokens += one.tokens - 1
        total += steps
    return tokens / total


def _per_workload(values: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Mean per workload of values ordered by workload."""
    groups = itertools.groupby(values, key=lambda pair: pair[0])
    return tuple((name, statistics.fmean(v for _, v in group)) for name, group in groups)


def _residency(observations: list[Observation], starts: list[Start]) -> Residency:
    """The worst verdict: one evicted start is enough; unknown counts only where used."""
    every = [o.residency for o in observations] + [s.residency for s in starts]
    failed = [r for r in every if isinstance(r, Evicted | Spilled)]
    if failed:
        return min(failed, key=repr)
    relied_on = [o.residency for o in observations if not_usable(o) is None]
    doubtful = [r for r in relied_on or every if isinstance(r, Unknown)]
    if doubtful:
        return min(doubtful, key=lambda r: r.reason)
    return min((r for r in every if passes(r)), key=repr)


def _same_text(row: ArmSummary, rows: Sequence[ArmSummary]) -> bool | None:
    """Compare with the shallowest measured other arm of the profile (or the next one)."""
    others = [r for r in rows if r.arm.profile == row.arm.profile and r.arm != row.arm and r.cells]
    if not others:
        return None
    reference = min(others, key=lambda r: depth_order(r.arm))
    texts = {(c.workload, c.prompt): c.digest for c in reference.cells}
    pairs = [
        (c.digest, texts[c.workload, c.prompt])
        for c in row.cells
        if (c.workload, c.prompt) in texts
    ]
    if not pairs:
        return None
    return all(mine is not None and mine == theirs for mine, theirs in pairs)
