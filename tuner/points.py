"""Which rows of a depth table show together what a verification row costs.

Only step times of one fingerprint lie on one line, and only those of resident arms. Covers the
choice of the rows; the line is ``tuner.cost``'s.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tuner.cost import StepPoint
from tuner.types import passes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.summary import ArmSummary

__all__ = ["step_points"]


def step_points(rows: Sequence[ArmSummary], *, cut: bool = False) -> list[StepPoint]:
    """Step times of the resident rows of the most frequent fingerprint, in their order.

    Args:
        rows: Of one profile.
        cut: Whether arms whose drafts were cut count as well: then the points tell their step
            times, but not what a row costs.
    """
    timed = [
        (row.fingerprint, StepPoint(depth=row.arm.depth, step_s=step_s))
        for row in rows
        if (step_s := row.step_s if cut else row.full_step_s) is not None and passes(row.residency)
    ]
    counts = Counter(name for name, _ in timed if name is not None)
    main = min(counts, key=lambda name: (-counts[name], name), default=None)
    return [point for name, point in timed if name is not None and name == main]
