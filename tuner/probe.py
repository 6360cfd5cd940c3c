"""What one probe says: does a depth pay, from two starts and one prompt.

Covers the verdict of ``mtpctl probe``. It chooses nothing: a probe measures less than a
sweep, so its decision is to measure, never to serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.acceptance import expected_tokens
from tuner.cost import CostFit
from tuner.economics import economics
from tuner.select import cost_of, rejection
from tuner.speed import TIE_RATIO
from tuner.types import Act, Decision, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.acceptance import PositionCounts
    from tuner.summary import ArmSummary

__all__ = ["BY_MEANS", "probe_decision"]

BY_MEANS: Final = "by the mean step times of both depths"
"""Whence the row cost of the sentence: no single step and nothing known before counts for it."""


def probe_decision(summaries: Sequence[ArmSummary], *, subject: str) -> Decision:
    """Say whether the deepest measured depth pays against every shallower one.

    The speed at depths between 0 and the probed one is predicted from the acceptance of
    the same text and the row cost that the two starts imply. If the positions are not
    known, or too many drafts were cut short to trust them, the tokens per step still are:
    then only the two measured depths are compared.

    Args:
        summaries: Rows of one profile at depth 0 and at the probed depth.
        subject: The profile.
    """
    rows = sorted(summaries, key=lambda row: row.arm.depth)
    deep = rows[-1] if rows else None
    if deep is None or deep.arm.depth == 0:
        return _undecided(subject, "no depth above 0 was probed", rows)
    refused = (f"depth {row.arm.depth} {why}" for row in rows if (why := rejection(row)))
    if (why := next(refused, None)) is not None:
        return _undecided(subject, f"the probe cannot be used: {why}", rows)
    cost = cost_of(rows, cut=True)
    if deep.expected is None:
        return _undecided(subject, "the tokens per step are not known", rows)
    if not isinstance(cost, CostFit):
        return _undecided(subject, f"the row cost is not known ({cost.reason})", rows)
    return _verdict(subject, rows, deep.expected, cost)


def _verdict(subject: str, rows: Sequence[ArmSummary], expected: float, cost: CostFit) -> Decision:
    """The sentence; without trusted positions only the two measured depths are compared."""
    deep = rows[-1]
    counts, rate = deep.trusted, deep.draft_rate or 1.0
    alphas = counts if isinstance(counts, Unknown) else deep.alphas
    if isinstance(alphas, Unknown):
        tokens = {0: 1.0, deep.arm.depth: expected}
        earned = f"{expected:.2f} tokens per step"
        footnote: tuple[str, ...] = (f"the depths between are not predicted: {alphas.reason}",)
    else:
        tokens = {
            d: 1 + rate * (expected_tokens([a.mid for a in alphas[:d]]) - 1)
            for d in range(len(alphas) + 1)
        }
        earned = ", ".join(f"alpha{i} {a.mid:.2f}" for i, a in enumerate(alphas, start=1))
        if deep.draft_rate is not None:
            earned += f", a draft at {rate:.0%} of the steps"
        footnote = _balance(counts, cost, rows, rate)
    speeds = {depth: each / cost.step_s(depth) for depth, each in tokens.items()}
    against = max((d for d in speeds if d < deep.arm.depth), key=lambda d: speeds[d])
    gain = speeds[deep.arm.depth] / speeds[against] - 1
    verdict = "too close to call"
    if abs(gain) > TIE_RATIO:
        verdict = "yes" if gain > 0 else "no"
    row_cost = f", a verification row costs {cost.c / rate:.2f} of a step {BY_MEANS}"
    if deep.full_step_s is None:
        row_cost = ", from drafts that were cut short"
    return Decision(
        act=Act.MEASURE,
        subject=subject,
        arm=deep.arm,
        reason=f"depth {deep.arm.depth} pays: {verdict} ({gain:+.1%} against depth {against}): "
        f"{earned}{row_cost}",
        evidence=(
            *(
                f"depth {depth}: {speed:.1f} tok/s"
                + ("" if depth in (0, deep.arm.depth) else " (predicted)")
                for depth, speed in speeds.items()
            ),
            *footnote,
        ),
    )


def _balance(
    counts: PositionCounts | Unknown, cost: CostFit, rows: Sequence[ArmSummary], rate: float
) -> tuple[str, ...]:
    """E, Cost and their ratio at the probed depth, with the misfit to the measured speed."""
    measured = {row.arm.depth: row.tps for row in rows if row.tps is not None}
    found = (
        counts
        if isinstance(counts, Unknown)
        else economics(counts, cost, measured_tps=measured, draft_rate=rate)
    )
    return () if isinstance(found, Unknown) else (str(found[-1]),)


def _undecided(subject: str, why: str, rows: Sequence[ArmSummary]) -> Decision:
    return Decision(
        act=Act.MEASURE,
        subject=subject,
        arm=rows[-1].arm if rows else None,
        reason=f"whether a deeper draft pays is unknown: {why}",
    )
