"""What is known to be impossible before anything is measured, so that nothing is stopped for it.

Covers the limits of a tuning. What only shows while measuring ends the measurement instead.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mtpd.control.limits import Limits
    from mtpd.gpu.views import DeviceView, FieldView
    from tuner.design import WorkloadPlan

__all__ = ["need_cells", "need_energy"]

_METERS = ("energy_j", "power_w")
_ASLEEP = "the card is asleep"


def need_cells(limits: Limits, workloads: Iterable[WorkloadPlan]) -> None:
    """Refuse a limit in cells that does not hold one depth.

    Raises:
        InvalidError: Nothing could be measured within it.
    """
    one_depth = sum(plan.prompts for plan in workloads)
    if limits.max_cells is not None and limits.max_cells < one_depth:
        msg = f"a limit of {limits.max_cells} cells measures nothing: one depth has {one_depth}"
        hint = f"allow {one_depth} cells or more for each depth, or ask for fewer prompts"
        raise InvalidError(msg, hint=hint)


def need_energy(limits: Limits, devices: Sequence[DeviceView]) -> None:
    """Refuse a limit in joules where nothing counts them.

    A card that is asleep is believed: its sensors answer once it is awake.

    Raises:
        InvalidError: Neither the energy nor the power of a card can be read.
    """
    if limits.max_joules is None:
        return
    fields = [field for device in devices for field in device.fields if field.name in _METERS]
    if not any(_counts(field) for field in fields):
        why = next((field.reason for field in fields if field.reason), "there is no card")
        msg = f"a limit in joules cannot be kept: the card's power cannot be read ({why})"
        raise InvalidError(msg, hint="limit the starts, the minutes or the cells instead")


def _counts(field: FieldView) -> bool:
    return field.value is not None or (field.reason or "").startswith(_ASLEEP)
