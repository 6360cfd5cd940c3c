"""Checks what an operator asked to measure and turns it into a plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from mtpd.calibrate import Sampling
from mtpd.control.tuning import TuningPlan
from mtpd.errors import InvalidError, NotFoundError
from tuner.design import WorkloadPlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.config.model import Config, Pool, Profile

__all__ = ["TuneRequest", "find_profile", "probe_plan", "tune_plan"]

WORKLOADS = ("short", "prose", "code")
"""Measured where nothing else is asked for; long-reasoning takes minutes per cell."""

PROMPTS = 3
"""Per workload. Repetitions of one temperature-0 prompt reduce timing noise only; text
noise needs several prompts."""

REPETITIONS = 3
PROBE_WORKLOAD = "prose"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What was asked for; None is the default."""

    subject: str
    method: str
    depths: tuple[int, ...] | None
    workloads: tuple[str, ...] | None
    prompts: int | None
    repetitions: int | None
    max_tokens: int | None
    apply: bool


def find_profile(config: Config, name: str) -> Profile:
    """The profile with this name or alias.

    Raises:
        NotFoundError: There is none; the hint names what is close.
    """
    profile = config.profile_for(name)
    if profile is None:
        known = [*config.profiles, *(a for p in config.profiles.values() for a in p.aliases)]
        raise _unknown("model", name, known)
    return profile


def tune_plan(config: Config, request: TuneRequest) -> TuningPlan:
    """Plan a sweep or a model-based tuning of a pool or a model.

    Raises:
        NotFoundError: No such pool, model or workload.
        InvalidError: A depth that a model does not allow.
    """
    pool = config.pools.get(request.subject)
    if pool is not None:
        profiles = tuple(config.profiles[name] for name in pool.members)
    elif config.profile_for(request.subject) is None:
        raise _unknown("pool or model", request.subject, [*config.pools, *config.profiles])
    else:
        profiles = (find_profile(config, request.subject),)
    return TuningPlan(
        subject=pool.name if pool is not None else profiles[0].name,
        profiles=profiles,
        pool=pool,
        depths=tuple(_depths(profile, request.depths, pool) for profile in profiles),
        method=request.method,
        workloads=_workloads(config, request),
        repetitions=request.repetitions or REPETITIONS,
        sampling=Sampling(max_tokens=request.max_tokens),
        apply=request.apply,
    )


def probe_plan(config: Config, model: str, depth: int) -> TuningPlan:
    """Plan a probe: depth 0 and one depth, one prompt.

    Raises:
        NotFoundError: No such model, or no workload.
        InvalidError: The model does not allow the depth.
    """
    profile = find_profile(config, model)
    name = PROBE_WORKLOAD if PROBE_WORKLOAD in config.workloads else next(iter(config.workloads))
    return TuningPlan(
        subject=profile.name,
        profiles=(profile,),
        pool=None,
        depths=(_depths(profile, (0, depth), None),),
        method="probe",
        workloads=(WorkloadPlan(name=name, prompts=1),),
        repetitions=REPETITIONS,
        sampling=Sampling(),
        apply=False,
    )


def _depths(profile: Profile, asked: tuple[int, ...] | None, pool: Pool | None) -> tuple[int, ...]:
    """Depths to measure; in a pool each member takes those that it allows."""
    deepest = profile.drafter.max_depth
    if asked is None:
        return tuple(range(deepest + 1))
    allowed = tuple(sorted({d for d in asked if 0 <= d <= deepest}))
    if pool is not None and allowed:
        return allowed
    if refused := sorted(set(asked) - set(allowed)):
        msg = f"{profile.name} allows depths 0 to {deepest}, not {refused[0]}"
        raise InvalidError(msg, hint="raise drafter.max_depth in its profile, or ask for less")
    return allowed


def _workloads(config: Config, request: TuneRequest) -> tuple[WorkloadPlan, ...]:
    names = request.workloads or tuple(n for n in WORKLOADS if n in config.workloads)
    for name in names:
        if name not in config.workloads:
            raise _unknown("workload", name, config.workloads)
    wanted = request.prompts or PROMPTS
    return tuple(
        WorkloadPlan(name=name, prompts=min(wanted, len(config.workloads[name].prompts)))
        for name in names
    )


def _unknown(kind: str, name: str, known: Iterable[str]) -> NotFoundError:
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"
    return NotFoundError(f"there is no {kind} named {name!r}", hint=hint)
