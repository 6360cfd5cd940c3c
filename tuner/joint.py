"""Slots, context and draft depth chosen together, because they share the device's memory.

Every slot keeps one recurrent row and one more per draft token: one slot less buys a depth.
Covers which combinations stay on the device, the fastest of them for one request, and what
each slot or context given up would buy. Speeds are predictions from a measured acceptance
and row cost; ``tuner.memory`` says what fits, ``tuner.design`` measures what pays.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.levers import Load
from tuner.memory import Fits
from tuner.speed import TIE_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuner.advisor import Speed
    from tuner.levers import Device
    from tuner.memory import Calibration, Geometry, LoadPlan

__all__ = ["JointChoice", "Offer", "choose_load"]

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A load that stays on the device.

    Attributes:
        plan: The load.
        left_bytes: Device memory that remains beyond headroom and margin.
        gain: Predicted tokens per second of one request over those without drafting.
    """

    plan: LoadPlan
    left_bytes: int
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JointChoice:
    """The best load as wanted, and what giving something up would buy.

    Attributes:
        chosen: The fastest load with the wanted slots and context; None if none stays.
        trades: Faster loads with fewer slots or less context, none of them beaten in
            slots, context and speed by another; the fastest first.
        reason: One sentence.
    """

    chosen: Offer | None
    trades: tuple[Offer, ...]
    reason: str


def choose_load(
    geometry: Geometry,
    plan: LoadPlan,
    calibration: Calibration,
    device: Device,
    speed: Speed,
    *,
    depths: Iterable[int],
    slots: Iterable[int] = (),
    contexts: Iterable[int] = (),
) -> JointChoice:
    """Choose the depth for the wanted slots and context, and look for better trades.

    Within 2 % of the fastest the shallower depth wins, which leaves more memory.

    Args:
        geometry: The model.
        plan: The wanted slots and context, and all other options; its depth is ignored.
        calibration: The card and build.
        device: Free memory and margins.
        speed: Measured acceptance and row cost; depths beyond its positions are not
            considered, because their speed is not known.
        depths: Depths to consider.
        slots: Other numbers of slots to consider.
        contexts: Other contexts (tokens over all slots) to consider.
    """
    offers = [
        offer
        for parallel, context in itertools.product(
            sorted({plan.slots, *slots}), sorted({plan.context, *contexts})
        )
        if (
            offer := _fastest(
                Load(
                    geometry=geometry,
                    plan=replace(plan, slots=parallel, context=context),
                    device=device,
                    calibration=calibration,
                ),
                speed,
                depths,
            )
        )
    ]
    chosen = next((o for o in offers if _size(o) == (plan.slots, plan.context)), None)
    base = 0.0 if chosen is None else chosen.gain * (1 + TIE_RATIO)
    faster = [o for o in offers if o.gain > base and o is not chosen]
    trades = sorted(
        (o for o in faster if not any(_beats(other, o) for other in faster)),
        key=lambda o: (-o.gain, *map(int.__neg__, _size(o))),
    )
    return JointChoice(chosen=chosen, trades=tuple(trades), reason=_reason(plan, chosen, trades))


def _fastest(load: Load, speed: Speed, depths: Iterable[int]) -> Offer | None:
    """The depth of a load that stays on the device and is predicted to be the fastest."""
    offers: list[Offer] = []
    for depth in sorted(set(depths)):
        plan = replace(load.plan, depth=depth)
        stays, gain = replace(load, plan=plan).stays, speed.gain(depth)
        if isinstance(stays, Fits) and gain is not None:
            offers.append(Offer(plan=plan, left_bytes=stays.left_bytes, gain=gain))
    best = max((o.gain for o in offers), default=0.0)
    return next((o for o in offers if o.gain * (1 + TIE_RATIO) >= best), None)


def _size(offer: Offer) -> tuple[int, int]:
    return offer.plan.slots, offer.plan.context


def _beats(a: Offer, b: Offer) -> bool:
    """Whether ``a`` is at least as good in slots, context and speed, and better in one."""
    left, right = (*_size(a), a.gain), (*_size(b), b.gain)
    return left != right and all(x >= y for x, y in zip(left, right, strict=True))


def _reason(plan: LoadPlan, chosen: Offer | None, trades: Sequence[Offer]) -> str:
    if chosen is None:
        head = f"no depth stays on the device with {_given(plan)}"
    else:
        head = (
            f"{chosen.plan} is the fastest that stays on the device, {chosen.gain:.2f}x depth 0 "
            f"(predicted), with {chosen.left_bytes / _MIB:.0f} MiB to spare"
        )
    if not trades:
        return head
    best = trades[0]
    times = "" if chosen is None else f", {best.gain / chosen.gain:.2f}x of that (predicted)"
    return f"{head}; {_given(best.plan)} would buy depth {best.plan.depth}{times}"


def _given(plan: LoadPlan) -> str:
    return f"{plan.slots} slot{'' if plan.slots == 1 else 's'} and a context of {plan.context}"
