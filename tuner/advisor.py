"""What to change about a load that does not fit, the cheapest change first.

Covers loads that the device cannot hold, and loads that it can hold but that the engine's
own fit margin would evict. Predicts memory and, for another depth or for evicted layers,
speed, and says from what; it starts and changes nothing. Which depth pays is
``tuner.design`` and ``tuner.select``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.acceptance import expected_tokens
from tuner.eviction import fewest_layers, slowdown
from tuner.levers import Device, Lever, Load, changes, cost, named
from tuner.memory import (
    Calibration,
    Evicts,
    Fits,
    Geometry,
    LoadPlan,
    Predicted,
    Verdict,
)
from tuner.plan import Elimination, Rejected

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tuner.eviction import LayerCost, Slowdown
    from tuner.types import Arm

__all__ = ["Advice", "Device", "Lever", "Load", "Option", "Speed", "advise", "rejected"]

_MIB = 2**20
_AS_FAST = frozenset({Lever.MARGIN, Lever.SLOTS, Lever.CONTEXT})
"""Levers that leave the work of a step as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What is known of the speed at other depths.

    Attributes:
        alphas: Conditional acceptance per position.
        row_cost: Cost of one verification row as a share of a plain step, on this card.
    """

    alphas: tuple[float, ...]
    row_cost: float

    def gain(self, depth: int) -> float | None:
        """Tokens per second at a depth over those without drafting; None if not known."""
        if len(self.alphas) < depth:
            return None
        return expected_tokens(self.alphas[:depth]) / (1 + self.row_cost * depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One change, as small as it can be to make the load fit, or else as large as it gets.

    Attributes:
        lever: What is changed.
        load: Model, start-up options and device after the change.
        gained_bytes: Device memory that becomes usable.
        verdict: Whether the load then stays on the device.
        tps_ratio: Predicted tok/s over those of the unchanged load if it were resident;
            None where nothing measured says.
        cost: What it costs in quality or capability, one sentence.
    """

    lever: Lever
    load: Load
    gained_bytes: int
    verdict: Verdict
    tps_ratio: float | None
    cost: str

    @property
    def enough(self) -> bool:
        """Whether the load then fits for sure."""
        return isinstance(self.verdict, Fits)

    def __str__(self) -> str:
        """The changed setting in a few words."""
        return named(self.lever, self.load)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a load needs and what would make it fit.

    Attributes:
        plan: The load asked about.
        predicted: Its device memory.
        holds: Whether the device can hold it.
        stays: Whether it stays there under the engine's margin, too.
        options: Single changes that gain something, cheapest first; empty if it stays.
        together: The first option that is enough, or the changes that are enough only
            together, each on top of those before; empty if it stays or nothing is enough.
        slowdown: How much slower the unchanged load is predicted to run for its evicted
            layers; None if it stays or no layer cost is known.
        reason: One sentence.
    """

    plan: LoadPlan
    predicted: Predicted
    holds: Verdict
    stays: Verdict
    options: tuple[Option, ...]
    together: tuple[Option, ...]
    slowdown: Slowdown | None
    reason: str


def advise(
    geometry: Geometry,
    plan: LoadPlan,
    calibration: Calibration,
    device: Device,
    *,
    speed: Speed | None = None,
    allowed: Collection[Lever] = tuple(Lever),
    layer_cost: LayerCost | None = None,
    evicted_layers: int | None = None,
) -> Advice:
    """Rank what would keep a load on the device.

    Args:
        geometry: The model.
        plan: The load that is wanted.
        calibration: The card and build.
        device: Free memory and margins.
        speed: What is known of the speed; None leaves other depths unpredicted.
        allowed: What may be changed.
        layer_cost: What a layer on the CPU costs on this host; None predicts no slowdown.
        evicted_layers: How many a log counted of this load; None predicts the fewest.
    """
    load = Load(geometry=geometry, plan=plan, device=device, calibration=calibration)
    stays = load.stays
    levers = [] if isinstance(stays, Fits) else [one for one in Lever if one in allowed]
    tried = (_option(lever, load, speed) for lever in levers)
    options = tuple(option for option in tried if option is not None)
    enough = next((option for option in options if option.enough), None)
    together = (enough,) if enough else _combined(levers, load, speed)
    slow = _slowdown(load, layer_cost, evicted_layers)
    return Advice(
        plan=plan,
        predicted=load.predicted,
        holds=load.holds,
        stays=stays,
        options=options,
        together=together,
        slowdown=slow,
        reason=_reason(load, options, together) + ("" if slow is None else f"; {slow}"),
    )


def rejected(arm: Arm, advice: Advice) -> Rejected | None:
    """The arm as out because it does not fit, or None; it never says "does not pay"."""
    if not isinstance(advice.stays, Evicts):
        return None
    why = f"does not fit ({advice.reason})"
    return Rejected(arm=arm, verdict=Elimination.DOES_NOT_FIT, reason=why)


def _slowdown(load: Load, cost: LayerCost | None, counted: int | None) -> Slowdown | None:
    stays = load.stays
    if cost is None or not isinstance(stays, Evicts):
        return None
    if counted is not None:
        return slowdown(counted, cost, counted=True)
    layers = fewest_layers(load.geometry, stays.missing_bytes)
    return slowdown(layers, cost, counted=False)


def _option(lever: Lever, load: Load, speed: Speed | None) -> Option | None:
    last, gained = load, 0
    for changed in changes(lever, load):
        last, gained = changed, _gained(load, changed)
        if isinstance(changed.stays, Fits):
            break
    if gained <= 0:
        return None
    return Option(
        lever=lever,
        load=last,
        gained_bytes=gained,
        verdict=last.stays,
        tps_ratio=_tps_ratio(lever, load.plan.depth, last.plan.depth, speed),
        cost=cost(lever, load, last),
    )


def _gained(before: Load, after: Load) -> int:
    """Usable bytes that a change brings; one slot less can need more, for longer slots."""
    margins = (before.device.margin_bytes or 0) - (after.device.margin_bytes or 0)
    return before.predicted.total - after.predicted.total + margins


def _combined(levers: Sequence[Lever], load: Load, speed: Speed | None) -> tuple[Option, ...]:
    """Changes on top of each other, cheapest first, until the load fits."""
    out: list[Option] = []
    for lever in levers:
        option = _option(lever, load, speed)
        if option is not None:
            out.append(option)
            load = option.load
            if option.enough:
                return tuple(out)
    return ()


def _tps_ratio(lever: Lever, before: int, after: int, speed: Speed | None) -> float | None:
    if lever in _AS_FAST:
        return 1.0
    if lever is not Lever.DEPTH or speed is None:
        return None
    now, then = speed.gain(before), speed.gain(after)
    return None if now is None or then is None else then / now


def _reason(load: Load, options: Sequence[Option], together: Sequence[Option]) -> str:
    stays = load.stays
    need = f"{load.plan} needs {load.predicted.total / _MIB:.0f} MiB"
    if isinstance(stays, Fits):
        return f"{need} and fits with {stays.left_bytes / _MIB:.0f} MiB to spare"
    margin = load.device.margin_bytes
    if not isinstance(stays, Evicts):
        head = f"whether {load.plan} fits is not known: {stays.reason}"
    elif isinstance(load.holds, Fits) and margin is not None:
        head = (
            f"{need}, which the device holds, but {stays.missing_bytes / _MIB:.0f} MiB too many "
            f"for the engine's fit margin of {margin / _MIB:.0f} MiB"
        )
    else:
        head = f"{need}, {stays.missing_bytes / _MIB:.0f} MiB too many for the device"
    if alone := [str(option) for option in options if option.enough]:
        return f"{head}; enough is {' or '.join(alone)}"
    if together:
        return f"{head}; enough is only {' with '.join(map(str, together))}"
    return f"{head}; no change allowed here is enough"
