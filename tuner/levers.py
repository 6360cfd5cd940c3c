"""The changes that make a load smaller: what each can do and what it costs.

Covers one lever at a time, from its mildest setting to its strongest. Which one to pull is
``tuner.advisor``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuner.memory import (
    ENGINE_MARGIN_BYTES,
    Calibration,
    Evicts,
    Fits,
    Geometry,
    KvType,
    LoadPlan,
    Predicted,
    Verdict,
    engine_fit,
    fit,
    predict,
)
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Device", "Lever", "Load", "changes", "cost", "named"]

_MIB = 2**20
_CELL_PAD = 256
_LEAST_SLOT_CONTEXT = 1024
"""Tokens below which a slot is of no use."""
_SMALLER: Final = (KvType.Q8_0, KvType.Q4_0)


class Lever(enum.StrEnum):
    """What can be changed, ordered by what it costs."""

    MARGIN = "fit margin"
    SLOTS = "slots"
    DRAFT_KV = "draft KV type"
    KV = "KV type"
    CONTEXT = "context"
    OUTPUT = "output tensor"
    DEPTH = "depth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Device memory and who guards it.

    Attributes:
        free_bytes: Free before the start, or None if it cannot be read.
        headroom_bytes: What must stay free.
        margin_bytes: What the engine's ``--fit`` keeps free (``-fitt``); None with fit off.
    """

    free_bytes: int | None
    headroom_bytes: int
    margin_bytes: int | None = ENGINE_MARGIN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A model with its start-up options on a device."""

    geometry: Geometry
    plan: LoadPlan
    device: Device
    calibration: Calibration

    @property
    def predicted(self) -> Predicted:
        """Its device memory."""
        return predict(self.geometry, self.plan, self.calibration)

    @property
    def holds(self) -> Verdict:
        """Whether the device can hold it."""
        return fit(self.predicted, self.device.free_bytes, self.device.headroom_bytes)

    @property
    def stays(self) -> Verdict:
        """Whether the engine also leaves it there; the worse of both verdicts."""
        margin = self.device.margin_bytes
        if margin is None:
            return self.holds
        both = (self.holds, engine_fit(self.predicted, self.device.free_bytes, margin))
        missing = [v.missing_bytes for v in both if isinstance(v, Evicts)]
        if missing:
            return Evicts(missing_bytes=max(missing))
        if doubts := [v for v in both if isinstance(v, Unknown)]:
            return doubts[0]
        return Fits(left_bytes=min(v.left_bytes for v in both if isinstance(v, Fits)))


@dataclass(frozen=True, slots=True)
class _Kind:
    changes: Callable[[Load], Iterator[Load]]
    named: Callable[[Load], str]
    cost: Callable[[Load, Load], str]


def changes(lever: Lever, load: Load) -> Iterator[Load]:
    """What a lever can do to a load, the mildest first; nothing if it is at its end."""
    return _KINDS[lever].changes(load)


def named(lever: Lever, load: Load) -> str:
    """The setting of a lever in a few words."""
    return _KINDS[lever].named(load)


def cost(lever: Lever, before: Load, after: Load) -> str:
    """What a change costs in quality or capability, one sentence."""
    return _KINDS[lever].cost(before, after)


def _margins(load: Load) -> Iterator[Load]:
    margin, headroom = load.device.margin_bytes, load.device.headroom_bytes
    if margin is not None and margin > headroom:
        yield replace(load, device=replace(load.device, margin_bytes=headroom))


def _slots(load: Load) -> Iterator[Load]:
    for slots in range(load.plan.slots - 1, 0, -1):
        yield _planned(load, replace(load.plan, slots=slots))


def _draft_kv(load: Load) -> Iterator[Load]:
    plan = load.plan
    if plan.depth:
        for kind in _smaller(plan.draft_kv_type_k, plan.draft_kv_type_v):
            yield _planned(load, replace(plan, draft_kv_type_k=kind, draft_kv_type_v=kind))


def _kv(load: Load) -> Iterator[Load]:
    for kind in _smaller(load.plan.kv_type_k, load.plan.kv_type_v):
        yield _planned(load, replace(load.plan, kv_type_k=kind, kv_type_v=kind))


def _contexts(load: Load) -> Iterator[Load]:
    plan = load.plan
    share = 1 if plan.unified else plan.slots
    for cells in range(plan.slot_cells - _CELL_PAD, _LEAST_SLOT_CONTEXT - 1, -_CELL_PAD):
        yield _planned(load, replace(plan, context=cells * share))


def _output(load: Load) -> Iterator[Load]:
    smaller = load.geometry.with_output(KvType.Q4_0)
    if smaller.output_bytes < load.geometry.output_bytes:
        yield replace(load, geometry=smaller)


def _depths(load: Load) -> Iterator[Load]:
    for depth in range(load.plan.depth - 1, -1, -1):
        yield _planned(load, replace(load.plan, depth=depth))


def _planned(load: Load, plan: LoadPlan) -> Load:
    return replace(load, plan=plan)


def _smaller(keys: KvType, values: KvType) -> tuple[KvType, ...]:
    """Types that make a cache smaller, the mildest first."""
    now = keys.size(_CELL_PAD) + values.size(_CELL_PAD)
    return tuple(kind for kind in _SMALLER if 2 * kind.size(_CELL_PAD) < now)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_KINDS: Final = {
    Lever.MARGIN: _Kind(
        _margins,
        lambda load: f"a fit margin of {load.device.headroom_bytes // _MIB} MiB",
        lambda _, after: (
            "Costs nothing but a reserve that nothing needs: -fitt "
            f"{after.device.headroom_bytes // _MIB}, or -fit off with an explicit -ngl."
        ),
    ),
    Lever.SLOTS: _Kind(
        _slots,
        lambda load: _count(load.plan.slots, "slot"),
        lambda before, after: (
            f"Serves {_count(after.plan.slots, 'request')} at once instead of "
            f"{before.plan.slots}; others wait."
        ),
    ),
    Lever.DRAFT_KV: _Kind(
        _draft_kv,
        lambda load: f"a draft KV in {load.plan.draft_kv_type_k}",
        lambda _, after: (
            f"The drafter's cache in {after.plan.draft_kv_type_k} can lower the acceptance; the "
            "model itself is untouched."
        ),
    ),
    Lever.KV: _Kind(
        _kv,
        lambda load: f"a KV in {load.plan.kv_type_k}",
        lambda _, after: (
            f"A cache in {after.plan.kv_type_k} needs flash attention and changes the text; its "
            "perplexity has to be measured again."
        ),
    ),
    Lever.CONTEXT: _Kind(
        _contexts,
        lambda load: f"a context of {load.plan.context}",
        lambda before, after: (
            f"A request can hold {after.plan.slot_cells} tokens instead of "
            f"{before.plan.slot_cells}."
        ),
    ),
    Lever.OUTPUT: _Kind(
        _output,
        lambda _: "an output tensor in q4_0",
        lambda *_: (
            "A new file with its output tensor in q4_0: perplexity rose by 0.6 to 1.4 % in study "
            "000, and the text changes."
        ),
    ),
    Lever.DEPTH: _Kind(
        _depths,
        lambda load: f"depth {load.plan.depth}",
        lambda before, after: (
            f"Drafts {_count(after.plan.depth, 'token')} per step instead of {before.plan.depth}."
        ),
    ),
}
