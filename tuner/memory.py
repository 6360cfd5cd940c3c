"""What fits into device memory: depths, slots and contexts, before anything is started.

Covers the verdict on one load, the engine's own verdict with its margin, which loads are
feasible together, and the recurrent rows, which are what grows with the draft depth. The
prediction itself is ``tuner.footprint``, the shape of a model ``tuner.geometry``; what to
do about a load that does not fit is ``tuner.advisor``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuner.footprint import Calibration, Predicted, Printed, Term, assumed, calibrated, predict
from tuner.geometry import (
    QWEN35_27B,
    QWEN35_27B_B2,
    Geometry,
    KvType,
    LoadPlan,
    RecurrentGeometry,
    from_gguf,
)
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "ENGINE_MARGIN_BYTES",
    "QWEN35_27B",
    "QWEN35_27B_B2",
    "Calibration",
    "DepthMemory",
    "Evicts",
    "Feasible",
    "Fits",
    "Geometry",
    "KvType",
    "LoadPlan",
    "Predicted",
    "Printed",
    "RecurrentGeometry",
    "Term",
    "Verdict",
    "assumed",
    "calibrated",
    "engine_fit",
    "feasible",
    "feasible_loads",
    "fit",
    "from_gguf",
    "largest",
    "predict",
    "rs_mib",
]

_MIB = 2**20

ENGINE_MARGIN_BYTES: Final = 1024 * _MIB
"""What the engine's ``--fit`` keeps free by default (``-fitt``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Every layer can be on the device.

    Attributes:
        left_bytes: Device memory that remains beyond the headroom.
    """

    left_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicts:
    """Layers would have to run on the CPU.

    Attributes:
        missing_bytes: Device memory that is lacking.
    """

    missing_bytes: int


Verdict = Fits | Evicts | Unknown


def fit(predicted: Predicted | Unknown, free_bytes: int | None, headroom_bytes: int) -> Verdict:
    """Whether a load fits; Unknown where the error of the prediction decides.

    Args:
        predicted: The prediction, or why there is none.
        free_bytes: Free device memory before the start, or None if it cannot be read.
        headroom_bytes: What stays free.
    """
    if isinstance(predicted, Unknown):
        return predicted
    if free_bytes is None:
        return Unknown("the free device memory is not known")
    usable = free_bytes - headroom_bytes
    if predicted.high <= usable:
        return Fits(left_bytes=usable - predicted.total)
    if predicted.low > usable:
        return Evicts(missing_bytes=predicted.total - usable)
    spread = max(predicted.total - predicted.low, predicted.high - predicted.total)
    return Unknown(
        f"the prediction of {predicted.total / _MIB:.0f} MiB is within its error "
        f"({spread / _MIB:.0f} MiB) of the {usable / _MIB:.0f} MiB that may be used"
    )


def engine_fit(
    predicted: Predicted | Unknown,
    free_bytes: int | None,
    margin_bytes: int = ENGINE_MARGIN_BYTES,
) -> Verdict:
    """What the engine's ``--fit`` would do with a load.

    The engine compares its own sums, without the driver's overhead, with the free memory
    less the margin. It evicts layers to keep a margin that nothing needs: depth 3 of the
    27B model needs 15.6 of 16 GiB, and the default margin makes it run at a third.
    """
    if isinstance(predicted, Unknown):
        return predicted
    bare = replace(predicted, overhead=Term(size=0, source="the engine does not count it"))
    return fit(bare, free_bytes, margin_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasible:
    """A load with its prediction and verdict."""

    plan: LoadPlan
    predicted: Predicted
    verdict: Verdict


def feasible_loads(
    geometry: Geometry,
    calibration: Calibration,
    plan: LoadPlan,
    *,
    free_bytes: int | None,
    headroom_bytes: int,
    contexts: Iterable[int],
    slots: Iterable[int],
    depths: Iterable[int],
) -> tuple[Feasible, ...]:
    """Every combination of context, slots and depth with its verdict.

    They are chosen jointly, because one slot less buys depth: a slot costs one row per
    draft token and one more.

    Args:
        geometry: The model.
        calibration: The card and build.
        plan: All other options.
        free_bytes: Free device memory, or None if it cannot be read.
        headroom_bytes: What stays free.
        contexts: Tokens of context over all slots.
        slots: Parallel requests.
        depths: Draft depths.
    """
    out: list[Feasible] = []
    for context, parallel, depth in itertools.product(
        sorted(set(contexts)), sorted(set(slots)), sorted(set(depths))
    ):
        load = replace(plan, context=context, slots=parallel, depth=depth)
        predicted = predict(geometry, load, calibration)
        verdict = fit(predicted, free_bytes, headroom_bytes)
        out.append(Feasible(plan=load, predicted=predicted, verdict=verdict))
    return tuple(out)


def largest(loads: Sequence[Feasible]) -> tuple[Feasible, ...]:
    """The loads that fit and than which no other one that fits is larger in every way."""
    able = [load for load in loads if isinstance(load.verdict, Fits)]
    sizes = {_size(load) for load in able}
    return tuple(
        load
        for load in able
        if not any(
            other != _size(load) and all(a >= b for a, b in zip(other, _size(load), strict=True))
            for other in sizes
        )
    )


def _size(load: Feasible) -> tuple[int, int, int]:
    return load.plan.context, load.plan.slots, load.plan.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthMemory:
    """Whether a depth fits.

    Attributes:
        depth: Draft depth.
        need_mib: All device memory that it needs.
        left_mib: What remains of the free memory; negative by how much it is missed.
    """

    depth: int
    need_mib: float
    left_mib: float

    @property
    def fits(self) -> bool:
        """Whether it fits."""
        return self.left_mib >= 0


def rs_mib(geometry: RecurrentGeometry, *, slots: int, depth: int) -> float:
    """MiB of recurrent state: every slot keeps one row and one more per draft token."""
    return slots * (1 + depth) * geometry.row_mib


def feasible(
    depths: Iterable[int],
    *,
    geometry: RecurrentGeometry,
    slots: int,
    rest_mib: float,
    drafter_mib: float,
    free_mib: float,
) -> tuple[DepthMemory, ...]:
    """Memory per depth from one measured sum, shallow to deep.

    If a depth does not fit, no deeper one does. Use it where the model's header is not at
    hand; ``feasible_loads`` needs no sum.

    Args:
        depths: Depths of interest.
        geometry: Shape of the recurrent state.
        slots: Parallel slots.
        rest_mib: Weights, KV cache and compute buffers without drafting.
        drafter_mib: What drafting adds at any depth above 0: the head's KV and buffers.
        free_mib: Device memory that may be used, after any margin.
    """
    out: list[DepthMemory] = []
    for depth in sorted(set(depths)):
        need = rest_mib + rs_mib(geometry, slots=slots, depth=depth)
        if depth:
            need += drafter_mib
        out.append(DepthMemory(depth=depth, need_mib=need, left_mib=free_mib - need))
    return tuple(out)
