"""Study 000's resident cells, and the row cost that they imply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.cost import implied_step_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RAW_TPS", "RESIDENT", "ROW_COST", "StudyCell", "implied_row_cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCell:
    """One row of the matrix: conditional acceptances and served tokens per second."""

    name: str
    alphas: tuple[float, ...]
    tps: float


def implied_row_cost(raw_tps: float, cond: Sequence[float], tps: float) -> float:
    """The c of t(k) = t0 * (1 + c * k) that a measured speed implies."""
    return (implied_step_ratio(raw_tps, cond, tps) - 1) / len(cond)


RAW_TPS: Final = 32.4
""" "What matters most", first point: raw speed of the 27B models, tokens/s."""

RESIDENT: Final = (
    StudyCell(name="3.6 B2", alphas=(0.961, 0.885), tps=50.3),
    StudyCell(name="3.8 base B2", alphas=(0.932, 0.735), tps=46.0),
    StudyCell(name="3.8 Uncensored B2", alphas=(0.907, 0.725), tps=45.8),
)
""" "The measurement matrix": the three rows below the residency threshold, columns alpha_1,
alpha_2 and Serving d2. The study prints alpha_2 of 3.6 B2 as 87-90 %; this is the middle."""

ROW_COST: Final = sum(implied_row_cost(RAW_TPS, c.alphas, c.tps) for c in RESIDENT) / len(RESIDENT)
"""0.4114: what the study's resident cells imply. It prints 25 % per row, which its own speeds
contradict by 20 % and more."""
