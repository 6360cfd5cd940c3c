"""What one probe says: does a depth pay, from two starts and one prompt.

Covers the verdict of ``mtpctl probe``. It chooses nothing: a probe measures less than a
sweep, so its decision is to measure, never to serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.acceptance import expected_tokens
from tuner.cost import CostFit
from tuner.select import cost_of, rejection
from tuner.speed import TIE_RATIO
from tuner.types import Act, Decision, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.summary import ArmSummary

__all__ = ["probe_decision"]


def probe_decision(summaries: Sequence[ArmSummary], *, subject: str) -> Decision:
    """Say whether the deepest measured depth pays against every shallower one.

    The speed at depths between 0 and the probed one is predicted from the acceptance of
    the same text and the row cost that the two starts imply.

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
    cost = cost_of(rows)
    if isinstance(deep.alphas, Unknown):
        why = f"the acceptance per position is not known ({deep.alphas.reason})"
        return _undecided(subject, why, rows)
    if not isinstance(cost, CostFit):
        return _undecided(subject, f"the row cost is not known ({cost.reason})", rows)
    speeds = [
        expected_tokens([a.mid for a in deep.alphas[:depth]]) / cost.step_s(depth)
        for depth in range(deep.arm.depth + 1)
    ]
    alphas = ", ".join(f"alpha{i} {a.mid:.2f}" for i, a in enumerate(deep.alphas, start=1))
    best = max(speeds[:-1])
    gain = speeds[-1] / best - 1
    against = speeds.index(best)
    verdict = "too close to call"
    if abs(gain) > TIE_RATIO:
        verdict = "yes" if gain > 0 else "no"
    return Decision(
        act=Act.MEASURE,
        subject=subject,
        arm=deep.arm,
        reason=f"depth {deep.arm.depth} pays: {verdict} ({gain:+.1%} against depth {against}): "
        f"{alphas}, a verification row costs {cost.c:.2f} of a step here",
        evidence=tuple(
            f"depth {depth}: {speed:.1f} tok/s"
            + ("" if depth in (0, deep.arm.depth) else " (predicted)")
            for depth, speed in enumerate(speeds)
        ),
    )


def _undecided(subject: str, why: str, rows: Sequence[ArmSummary]) -> Decision:
    return Decision(
        act=Act.MEASURE,
        subject=subject,
        arm=rows[-1].arm if rows else None,
        reason=f"whether a deeper draft pays is unknown: {why}",
    )
