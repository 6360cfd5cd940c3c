"""The power cap: whether the declared one is in force, and how it is set.

The driver's own answer is only what was asked of it: it ignores what the firmware said,
and forgets the cap at every boot, resume and reset (vega20_hwmgr.c). So a cap is believed
fully only once a busy card was seen to keep it. Setting needs root and is done by the
``mtpd powercap`` command; the daemon only reads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.errors import MtpdError
from mtpd.gpu.files import reason_of
from mtpd.types import Absent, NotApplicable, Value
from tuner.types import Unknown

if TYPE_CHECKING:
    from mtpd.gpu.base import PowerCap
    from mtpd.gpu.layered import LayeredProvider
    from mtpd.units import DeviceKey
    from tuner.power import CapHeld

__all__ = ["CapError", "CapNotAppliedError", "CapState", "CapVerdict", "apply", "judge"]

WHOLE_WATT: Final = 0.5
"""The driver keeps whole watts."""


class CapError(MtpdError):
    """The cap that was asked for cannot be set."""


class CapNotAppliedError(CapError):
    """The cap was written and is not what is read back."""


class CapState(enum.StrEnum):
    """How far the declared cap can be trusted."""

    NOT_APPLICABLE = "not_applicable"
    """There is no card."""
    UNSUPPORTED = "unsupported"
    """The driver has no power limit for this card."""
    UNKNOWN = "unknown"
    """The limit cannot be read now."""
    UNDECLARED = "undeclared"
    """No hardware profile says what it should be."""
    WRONG = "wrong"
    """It is another one, or the card draws more than it allows."""
    DECLARED = "declared"
    """The driver has it."""
    OBSERVED = "observed"
    """A busy card was seen to keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapVerdict:
    """A cap's state with the sentence that says why."""

    state: CapState
    reason: str

    @property
    def comparable(self) -> bool:
        """Whether speeds measured under it may be compared with others'."""
        return self.state in {CapState.NOT_APPLICABLE, CapState.DECLARED, CapState.OBSERVED}


def judge(
    cap: PowerCap, *, wanted_w: float | None, held: CapHeld | Unknown | None = None
) -> CapVerdict:
    """How far a cap can be trusted.

    Args:
        cap: What the driver says.
        wanted_w: What the hardware profile declares, or None.
        held: What a busy window showed, or None where none was looked at.
    """
    current = cap.current_w
    if isinstance(current, NotApplicable):
        return CapVerdict(state=CapState.NOT_APPLICABLE, reason=current.reason)
    if cap.supported is False:
        reason = "the driver has no power limit for this card"
        return CapVerdict(state=CapState.UNSUPPORTED, reason=reason)
    if isinstance(current, Absent):
        return CapVerdict(
            state=CapState.UNKNOWN, reason=f"the power cap is unknown: {current.reason}"
        )
    if wanted_w is None:
        return CapVerdict(
            state=CapState.UNDECLARED,
            reason=f"the power cap is {current.value:g} W, and no hardware profile declares one",
        )
    return _declared(current, wanted_w, held)


def _declared(current: Value[float], wanted_w: float, held: CapHeld | Unknown | None) -> CapVerdict:
    if abs(current.value - wanted_w) > WHOLE_WATT:
        reason = f"the power cap is {current.value:g} W, not the {wanted_w:g} W that are configured"
        return CapVerdict(state=CapState.WRONG, reason=reason)
    if held is None or isinstance(held, Unknown):
        reason = f"the power cap is {current.value:g} W"
        return CapVerdict(state=CapState.DECLARED, reason=reason)
    seen = f"{held.mean_w:.0f} W on average and {held.peak_w:.0f} W at most while busy"
    if not held.held:
        reason = f"the card drew {seen}: the cap of {wanted_w:g} W is not in force"
        return CapVerdict(state=CapState.WRONG, reason=reason)
    reason = f"the power cap is {current.value:g} W, and the card drew {seen}"
    return CapVerdict(state=CapState.OBSERVED, reason=reason)


def apply(provider: LayeredProvider, key: DeviceKey, watts: float) -> PowerCap:
    """Set a card's power cap in whole watts, and read it back.

    Args:
        provider: Reads and writes the card.
        key: Which card.
        watts: The cap.

    Returns:
        The limits as they are then.

    Raises:
        CapError: The cap is out of range, or may not be set by this user.
        CapNotAppliedError: The driver took it and shows another one.
    """
    whole = round(watts)
    before = provider.power_cap(key)
    _check(before, whole)
    try:
        provider.write_cap_w(key, whole)
    except PermissionError as error:
        message = f"the power cap of {key} may not be set: {error}"
        raise CapError(message, hint="setting a power cap needs root") from error
    except OSError as error:
        message = f"the power cap of {key} cannot be set: {reason_of(error)}"
        raise CapError(message) from error
    after = provider.power_cap(key)
    current = after.current_w
    if isinstance(current, Value) and abs(current.value - whole) <= WHOLE_WATT:
        return after
    seen = f"reads {current.value:g} W" if isinstance(current, Value) else current.reason
    message = f"the power cap of {key} was set to {whole} W, but {seen}"
    raise CapNotAppliedError(message, hint="look at the kernel log for the driver's answer")


def _check(cap: PowerCap, watts: int) -> None:
    if isinstance(cap.current_w, NotApplicable):
        message = f"there is no power cap to set: {cap.current_w.reason}"
        raise CapError(message)
    if watts < 1:
        message = "the driver takes a power cap of 0 W as: restore the default"
        raise CapError(message, hint="name the cap in whole watts")
    if isinstance(cap.max_w, Value) and watts > cap.max_w.value:
        message = f"{watts} W is above the highest power cap of the card, {cap.max_w.value:g} W"
        raise CapError(message)
    if isinstance(cap.min_w, Value) and watts < cap.min_w.value:
        message = f"{watts} W is below the lowest power cap of the card, {cap.min_w.value:g} W"
        raise CapError(message)
