"""What a model needs of a device's memory, depth by depth, and whether it fits. Pure.

Covers the way from a profile to the tuner's prediction, the verdict per depth, and the
advice for a depth that does not fit. Where the header, the budget and the sums of earlier
starts come from is ``mtpd.control.shapes``. Without a device nothing has to fit: the verdict
is then "not applicable", never "fits".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.config.model import Fit
from mtpd.types import NotApplicable
from tuner.advisor import advise
from tuner.bound import bound
from tuner.eviction import LAYER_COST_H200
from tuner.geometry import KvType
from tuner.joint import choose_load
from tuner.levers import Device, Load
from tuner.memory import (
    ENGINE_MARGIN_BYTES,
    Calibration,
    Evicts,
    Fits,
    LoadPlan,
    Predicted,
    Verdict,
    engine_fit,
    feasible_loads,
    largest,
    predict,
)
from tuner.types import Drafter, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.model import Profile
    from mtpd.types import EngineBinary
    from tuner.advisor import Advice, Speed
    from tuner.bound import Bound, Outline
    from tuner.joint import JointChoice
    from tuner.memory import Feasible, Geometry
    from tuner.types import Arm

__all__ = [
    "ArmMemory",
    "ArmVerdict",
    "Budget",
    "MemoryForecast",
    "Shape",
    "forecast",
    "load_plan",
    "margin_bytes",
    "most",
]

_MIB = 2**20
_UBATCH = 512
"""Physical batch of an engine that is not told another one."""

PREDICTED = frozenset({Drafter.MTP, Drafter.NGRAM, Drafter.DRAFT_MODEL})
"""Drafters whose memory is predicted; no start with a head in a file of its own, an EAGLE-3 head
or an adapting head was ever compared with a prediction."""

ArmVerdict = Verdict | NotApplicable


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Device memory that one engine may take.

    Attributes:
        free_bytes: Free before a start, or None if that cannot be read.
        headroom_bytes: What stays free.
        source: Who says how much is free, a few words.
        forecast: Whether it is the budget of a card that is not asked, only described.
    """

    free_bytes: int | None
    headroom_bytes: int
    source: str
    forecast: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is known of a model before it is started.

    Attributes:
        geometry: Layers and tensor sizes, from the file's header.
        calibration: What build and card add.
        draft: The same of the draft model's file, why it is not known, or None without one.
    """

    geometry: Geometry
    calibration: Calibration
    draft: Geometry | Unknown | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmMemory:
    """One depth of a profile.

    Attributes:
        arm: The depth.
        predicted: Its device memory by part, or why that is not known.
        verdict: Whether it stays on the device as mtpd would start it.
        engine: What the engine's own fit would do with its default margin.
    """

    arm: Arm
    predicted: Predicted | Unknown
    verdict: ArmVerdict
    engine: ArmVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForecast:
    """Every depth of a profile against one budget.

    Attributes:
        profile: The model and how it is loaded.
        shape: What is known of the model, or why nothing is.
        budget: Memory of the device; NotApplicable where there is none, by design.
        margin_bytes: What the engine's fit keeps free as mtpd starts it; None without fit.
        arms: Shallow to deep.
    """

    profile: Profile
    shape: Shape | Unknown
    budget: Budget | NotApplicable
    margin_bytes: int | None
    arms: tuple[ArmMemory, ...]

    @property
    def out(self) -> tuple[ArmMemory, ...]:
        """The depths that are certain not to fit; depth 0 is left to a start to prove."""
        return tuple(one for one in self.arms if one.arm.depth and isinstance(one.verdict, Evicts))

    @property
    def deepest(self) -> int | None:
        """The deepest depth that is predicted to fit, beyond the prediction's error.

        Every depth where there is no device to fit into. None where it is not certain of
        every depth that is not ``out``: nothing then says that a shallower one fits.
        """
        if isinstance(self.budget, NotApplicable):
            return self.arms[-1].arm.depth
        out = {one.arm for one in self.out}
        rest = [one for one in self.arms if one.arm not in out]
        if not all(isinstance(one.verdict, Fits) for one in rest):
            return None
        return rest[-1].arm.depth

    @property
    def memory_bytes(self) -> Mapping[Arm, int]:
        """Predicted bytes per arm, for the rule that a tie goes to the least memory."""
        return {
            one.arm: one.predicted.total
            for one in self.arms
            if not isinstance(one.predicted, Unknown)
        }

    def at(self, depth: int) -> ArmMemory:
        """One depth that the profile allows."""
        return self.arms[depth]

    def advice(
        self, depth: int, speed: Speed | None = None, *, evicted_layers: int | None = None
    ) -> Advice | None:
        """What would keep a depth on the device; None where nothing can be predicted.

        Args:
            depth: The depth that is wanted.
            speed: What was measured of the acceptance and the row cost, if anything.
            evicted_layers: How many a log counted; None predicts the fewest.
        """
        plan = load_plan(self.profile, depth, self.shape)
        if isinstance(self.shape, Unknown) or isinstance(plan, Unknown):
            return None
        if isinstance(self.budget, NotApplicable):
            return None
        geometry, calibration = self.shape.geometry, self.shape.calibration
        device = _device(self.budget, self.margin_bytes)
        return advise(
            geometry,
            plan,
            calibration,
            device,
            speed=speed,
            layer_cost=LAYER_COST_H200,
            evicted_layers=evicted_layers,
        )

    def joint(self) -> tuple[Feasible, ...]:
        """The largest loads that fit when slots, context and depth are chosen together."""
        asked = self._joint()
        if asked is None:
            return ()
        shape, budget, plan = asked
        loads = feasible_loads(
            shape.geometry,
            shape.calibration,
            plan,
            free_bytes=budget.free_bytes,
            headroom_bytes=budget.headroom_bytes,
            contexts=self._contexts,
            slots=self._slots,
            depths=self._depths,
        )
        return largest(loads)

    def best(self, speed: Speed) -> JointChoice | None:
        """The fastest depth for the profile's slots and context, and better trades.

        Args:
            speed: What was measured of the acceptance and the row cost.
        """
        asked = self._joint()
        if asked is None:
            return None
        shape, budget, plan = asked
        return choose_load(
            shape.geometry,
            plan,
            shape.calibration,
            _device(budget, self.margin_bytes),
            speed,
            depths=self._depths,
            slots=self._slots,
            contexts=self._contexts,
        )

    def _joint(self) -> tuple[Shape, Budget, LoadPlan] | None:
        plan = load_plan(self.profile, 0, self.shape)
        if isinstance(self.shape, Unknown) or isinstance(plan, Unknown):
            return None
        if isinstance(self.budget, NotApplicable):
            return None
        return self.shape, self.budget, plan

    @property
    def _contexts(self) -> list[int]:
        context = self.profile.context
        return [context // 4, context // 2, context, 2 * context]

    @property
    def _slots(self) -> range:
        return range(1, max(self.profile.slots, 2) + 1)

    @property
    def _depths(self) -> list[int]:
        return [one.arm.depth for one in self.arms if isinstance(one.predicted, Predicted)]


def forecast(
    profile: Profile,
    shape: Shape | Unknown,
    budget: Budget | NotApplicable,
    *,
    margin_bytes: int | None,
) -> MemoryForecast:
    """Predict every depth that a profile allows.

    Args:
        profile: The model and how it is loaded.
        shape: What is known of the model, or why nothing is.
        budget: What may be used; NotApplicable where there is no device, by design.
        margin_bytes: What the engine's fit keeps free as mtpd starts it; None without fit.
    """
    return MemoryForecast(
        profile=profile,
        shape=shape,
        budget=budget,
        margin_bytes=margin_bytes,
        arms=tuple(
            _arm(profile, depth, shape, budget, margin_bytes)
            for depth in range(profile.drafter.max_depth + 1)
        ),
    )


def load_plan(profile: Profile, depth: int, shape: Shape | Unknown) -> LoadPlan | Unknown:
    """The start-up options that decide memory, as ``mtpd.engine.command`` passes them.

    Returns:
        Unknown where the prediction does not cover the profile.
    """
    if isinstance(shape, Unknown):
        return shape
    if depth and profile.drafter.kind is Drafter.MTP and not shape.geometry.nextn_layers:
        return Unknown("the file has no MTP block to draft with")
    plan = _options(profile, depth)
    if isinstance(plan, Unknown) or not depth or profile.drafter.kind is Drafter.MTP:
        return plan
    if profile.drafter.kind is Drafter.NGRAM:
        return replace(plan, head=False)
    if shape.draft is None or isinstance(shape.draft, Unknown):
        return shape.draft or Unknown("the draft model was not looked at")
    return replace(plan, head=False, draft=shape.draft)


def most(profile: Profile, depth: int, model: Outline | Unknown) -> Bound | Unknown:
    """What an arm takes at most, by the outline of its file; without drafting only.

    For whether it may run beside others, never for which depth is served.
    """
    if isinstance(model, Unknown):
        return model
    if depth:
        return Unknown("what drafting needs is not bounded")
    plan = _options(profile, depth)
    return plan if isinstance(plan, Unknown) else bound(model, plan)


def _options(profile: Profile, depth: int) -> LoadPlan | Unknown:
    drafter = profile.drafter.kind
    if profile.n_gpu_layers is not None:
        return Unknown("its profile says itself how many layers go to the device")
    if profile.flash_attention == "off":
        return Unknown("the compute buffers without flash attention are not predicted")
    if depth and drafter not in PREDICTED:
        return Unknown(f"what a drafter of kind {drafter.value} needs is not predicted")
    draft_kv_type = KvType(profile.draft_kv_type or profile.kv_type)
    return LoadPlan(
        context=profile.context,
        slots=profile.slots,
        depth=depth,
        kv_type_k=KvType(profile.kv_type),
        kv_type_v=KvType(profile.kv_type),
        draft_kv_type_k=draft_kv_type,
        draft_kv_type_v=draft_kv_type,
        ubatch=profile.ubatch or _UBATCH,
    )


def margin_bytes(profile: Profile, binary: EngineBinary | None, headroom_mib: int) -> int | None:
    """What the engine's fit keeps free when mtpd starts this profile, or None without fit.

    Follows ``mtpd.engine.command``: with ``fit = "auto"`` the engine is told the headroom.

    Args:
        profile: Says who decides how many layers go to the device.
        binary: The engine; None takes one whose fit can be told a margin.
        headroom_mib: MiB of device memory that stay free.
    """
    match profile.fit:
        case Fit.ENGINE:
            return ENGINE_MARGIN_BYTES
        case Fit.OFF:
            return None
        case Fit.AUTO:
            told = binary is None or {"--fit-target", "-fitt"} & binary.flags
            return headroom_mib * _MIB if told else None


def _arm(
    profile: Profile,
    depth: int,
    shape: Shape | Unknown,
    budget: Budget | NotApplicable,
    margin: int | None,
) -> ArmMemory:
    arm, plan = profile.arm(depth), load_plan(profile, depth, shape)
    if isinstance(shape, Unknown):
        return _unpredicted(arm, shape, budget)
    if isinstance(plan, Unknown):
        return _unpredicted(arm, plan, budget)
    predicted = predict(shape.geometry, plan, shape.calibration)
    if isinstance(budget, NotApplicable):
        return ArmMemory(arm=arm, predicted=predicted, verdict=budget, engine=budget)
    load = Load(
        geometry=shape.geometry,
        plan=plan,
        device=_device(budget, margin),
        calibration=shape.calibration,
    )
    return ArmMemory(
        arm=arm,
        predicted=predicted,
        verdict=load.stays,
        engine=engine_fit(predicted, budget.free_bytes),
    )


def _unpredicted(arm: Arm, why: Unknown, budget: Budget | NotApplicable) -> ArmMemory:
    verdict = budget if isinstance(budget, NotApplicable) else why
    return ArmMemory(arm=arm, predicted=why, verdict=verdict, engine=verdict)


def _device(budget: Budget, margin: int | None) -> Device:
    return Device(
        free_bytes=budget.free_bytes,
        headroom_bytes=budget.headroom_bytes,
        margin_bytes=margin,
    )
