"""A measured choice that still holds, beside a measurement that a limit cut short. Pure.

What was left out because a limit was reached says nothing against it. So the cells that the
standing choice rests on are joined with those of the shorter measurement: both are compared,
and the standing choice gives way only to an arm that is proven to be faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtpd.control.limits import Limits
from mtpd.control.tasks import most_starts
from tuner.plan import Ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.control.deciding import DepthInputs
    from mtpd.views import Json, MeasurementView
    from tuner.plan import History

__all__ = ["CUT_SHORT", "Standing", "cut_short", "joined"]

CUT_SHORT = "cut short by "


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a choice that holds now rests on.

    Attributes:
        decision_id: Its row in the journal.
        told: All that was told to it.
        measurements: The stored repetitions in it.
        verdicts: Residency of each of its starts with its evidence, as recorded.
    """

    decision_id: int
    told: History
    measurements: tuple[MeasurementView, ...]
    verdicts: Mapping[str, Json] = field(default_factory=dict)

    def beside(self, history: History) -> bool:
        """Whether its cells and those of ``history`` are of one fingerprint."""
        own = {one.fingerprint for one in self.told.observations}
        return len(own | {one.fingerprint for one in history.observations}) == 1


def cut_short(inputs: DepthInputs, limits: Limits) -> str | None:
    """Which limits ended a measurement that would have gone on, or None.

    Args:
        inputs: What was asked, and all that was told.
        limits: What was left of the limits when this model's turn came.
    """

    def ends(one: Limits) -> bool:
        budget = one.budget(max_starts=most_starts(inputs.method, inputs.arms))
        return not isinstance(replace(inputs, budget=budget).design.ask(inputs.history), Ask)

    if ends(Limits()):
        return None
    each = {
        "--max-starts": Limits(max_starts=limits.max_starts),
        "--max-cells": Limits(max_cells=limits.max_cells),
        "--max-minutes": Limits(max_seconds=limits.max_seconds),
        "--max-joules": Limits(max_joules=limits.max_joules),
    }
    return " and ".join(flag for flag, one in each.items() if ends(one)) or None


def joined(inputs: DepthInputs, by: str, standing: Standing | None) -> DepthInputs:
    """The inputs of a measurement that was cut short, with what stood before where it compares.

    Args:
        inputs: Of the measurement.
        by: The limits that ended it.
        standing: The choice that holds now, or None.
    """
    if standing is None or not standing.beside(inputs.history):
        return replace(inputs, notes=(*inputs.notes, f"{CUT_SHORT}{by}"))
    said = f"{CUT_SHORT}{by}: what decision {standing.decision_id} measured is compared, too"
    return replace(inputs, notes=(*inputs.notes, said), standing=standing.told)
