"""What is asked of a model or a pool, before anything was told. Pure.

Covers the task of each profile of a plan, and its members as a pool compares them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.control.deciding import MODEL_BASED, SWEEP, DepthInputs, Member, PoolInputs
from mtpd.control.memory_rows import notes as memory_notes
from mtpd.types import NotApplicable
from tuner.compare import PerplexityRun, Quality
from tuner.cost import RowCost
from tuner.design import SHORT_STEPS
from tuner.plan import ATTEMPTS, Ask
from tuner.pools import Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.config.model import HardwareProfile, Pool, Profile
    from mtpd.control.limits import Limits
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.tuning import TuningPlan
    from tuner.plan import History
    from tuner.types import Arm

__all__ = [
    "depth_task",
    "member_of",
    "most_starts",
    "not_started",
    "pool_rules",
    "pool_task",
    "quality_of",
]

STORED = "stored"
"""The method of a comparison that measures nothing itself."""

SEARCH_STARTS = 6
"""Engine starts of one model that a search may use; it needs two on average."""


def depth_task(
    plan: TuningPlan,
    profile: Profile,
    depths: Sequence[int],
    forecast: MemoryForecast,
    limits: Limits,
    *,
    hardware: HardwareProfile | None,
) -> DepthInputs:
    """What is asked of one profile, before anything was told.

    Depths that are certain not to fit are not asked for; where the prediction is certain of
    all the others, too, the design says so itself, and needs no witness for them.
    """
    wanted = tuple(profile.arm(depth) for depth in depths)
    deepest, out = forecast.deepest, {one.arm for one in forecast.out}
    accept_offload = profile.offload.value == "accept"
    if accept_offload:
        deepest, out = None, set()  # a depth that evicts may be wanted all the same
    arms = wanted if deepest is not None else tuple(arm for arm in wanted if arm not in out)
    return DepthInputs(
        subject=profile.name,
        method=plan.method,
        applied=plan.apply,
        notes=memory_notes(forecast, [arm for arm in wanted if arm in out]),
        memory_bytes={arm: size for arm, size in forecast.memory_bytes.items() if arm in wanted},
        deepest=deepest,
        row_cost=_row_cost(hardware, forecast),
        arms=arms or wanted,
        workloads=plan.workloads,
        repetitions=plan.repetitions,
        short_steps=0 if plan.method == SWEEP else SHORT_STEPS,
        budget=limits.budget(max_starts=most_starts(plan.method, arms)),
        accept_offload=accept_offload,
    )


def most_starts(method: str, arms: Sequence[Arm]) -> int:
    """Engine starts that a model needs at most, where no limit says less."""
    return SEARCH_STARTS if method == MODEL_BASED else ATTEMPTS * len(arms)


def not_started(inputs: DepthInputs) -> list[str]:
    """Depths that were asked for and not started, each with why, shallow to deep."""
    last = inputs.design.ask(inputs.history)
    if isinstance(last, Ask):
        return []
    started = {one.arm for one in inputs.history.starts}
    return [f"{one.arm} {one.reason}" for one in last.rejected if one.arm not in started]


def _row_cost(hardware: HardwareProfile | None, forecast: MemoryForecast) -> RowCost | None:
    """What the card's profile says of a row; an engine on the host does not run on that card."""
    if hardware is None or hardware.row_cost is None:
        return None
    if isinstance(forecast.budget, NotApplicable):
        return None
    return RowCost(
        c=hardware.row_cost,
        sd=hardware.row_cost_sd,
        source=f"the hardware profile {hardware.name}",
    )


def pool_task(plan: TuningPlan, pool: Pool, notes: tuple[str, ...]) -> PoolInputs:
    """What is asked of a pool, before its members were measured."""
    return replace(pool_rules(pool), method=plan.method, applied=plan.apply, notes=notes)


def pool_rules(pool: Pool) -> PoolInputs:
    """What a pool asks of its members, whatever measured them."""
    return PoolInputs(
        subject=pool.name,
        method=STORED,
        applied=True,
        objective=Objective(pool.objective.value),
        require=frozenset(pool.require_tags),
        accept_offload=pool.offload.value == "accept",
        least_context_tokens=pool.min_context or 0,
        quality_bound=pool.quality_bound,
    )


def member_of(profile: Profile, arm: Arm, history: History, forecast: MemoryForecast) -> Member:
    """A candidate of a pool; its short steps play no role between models."""
    return Member(
        arm=arm,
        history=replace(history, short_steps=()),
        quality=quality_of(profile),
        tags=frozenset(profile.tags),
        context_tokens=profile.context // profile.slots,
        memory_bytes=forecast.memory_bytes.get(arm),
    )


def quality_of(profile: Profile) -> Quality | None:
    """The perplexity that a profile declares, as the tuner compares it."""
    measured = profile.quality
    if measured is None:
        return None
    return Quality(
        value=measured.perplexity,
        stderr=measured.stderr,
        run=PerplexityRun(corpus=measured.corpus, chunks=measured.chunks),
    )
