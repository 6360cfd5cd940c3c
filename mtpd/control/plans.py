"""Checks what an operator asked to measure and turns it into a plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from mtpd.calibrate import Sampling
from mtpd.control.beforehand import need_cells
from mtpd.control.choices import never_tuned
from mtpd.control.limits import Limits
from mtpd.control.tuning import TuningPlan
from mtpd.errors import InvalidError, NotFoundError
from mtpd.views import encode
from tuner.design import WorkloadPlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.config.live import Configuration
    from mtpd.config.model import Pool, Profile
    from mtpd.views import Json

__all__ = [
    "TuneRequest",
    "find_file",
    "find_profile",
    "need_workload",
    "plan_params",
    "probe_plan",
    "tune_plan",
]

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
    limits: Limits = field(default_factory=Limits)


def find_profile(config: Configuration, name: str) -> Profile:
    """The profile with this name or alias.

    Raises:
        NotFoundError: There is none; the hint names what is close.
    """
    profile = config.profile_for(name)
    if profile is None:
        raise _unknown("model", name, _models(config))
    return profile


def find_file(config: Configuration, name: str) -> Profile:
    """The profile whose model file is meant; all drafters of a model draft for the same one.

    Raises:
        NotFoundError: There is none; the hint names what is close.
    """
    pool = config.pools.get(name)
    return find_profile(config, pool.members[0] if pool is not None and pool.is_model else name)


def need_workload(config: Configuration, name: str) -> None:
    """Refuse the name of a workload that is not configured.

    Raises:
        NotFoundError: There is none; the hint names what is close.
    """
    if name not in config.workloads:
        raise _unknown("workload", name, config.workloads)


def tune_plan(config: Configuration, request: TuneRequest) -> TuningPlan:
    """Plan a sweep or a model-based tuning of a pool or a model.

    Raises:
        NotFoundError: No such pool, model or workload.
        InvalidError: A depth that a model, or every member of a pool, does not allow, or a
            limit within which no depth could be measured.
    """
    pool = config.pools.get(request.subject)
    if pool is not None:
        profiles = tuple(config.profiles[name] for name in pool.members)
    elif (profile := config.profile_for(request.subject)) is not None:
        profiles = (profile,)
    else:
        raise _unknown("pool or model", request.subject, [*config.pools, *_models(config)])
    _measurable(profiles)
    _some_member(pool, profiles, request.depths)
    workloads = _workloads(config, request)
    need_cells(request.limits, workloads)
    return TuningPlan(
        subject=pool.name if pool is not None else profiles[0].name,
        profiles=profiles,
        pool=pool,
        depths=tuple(_depths(profile, request.depths, pool) for profile in profiles),
        method=request.method,
        workloads=workloads,
        repetitions=request.repetitions or REPETITIONS,
        sampling=Sampling(max_tokens=request.max_tokens),
        apply=request.apply,
        limits=request.limits,
    )


def plan_params(plan: TuningPlan) -> dict[str, Json]:
    """A plan as an operation's params show it."""
    return {
        "subject": plan.subject,
        "method": plan.method,
        "models": [p.name for p in plan.profiles],
        "depths": [list(d) for d in plan.depths],
        "workloads": {w.name: w.prompts for w in plan.workloads},
        "repetitions": plan.repetitions,
        "max_tokens": plan.sampling.max_tokens,
        "limits": encode(plan.limits),
        "apply": plan.apply,
    }


def probe_plan(config: Configuration, model: str, depth: int) -> TuningPlan:
    """Plan a probe: depth 0 and one depth, one prompt.

    Raises:
        NotFoundError: No such model, or no workload.
        InvalidError: The model does not allow the depth, or the depth is 0.
    """
    profile = find_profile(config, model)
    _measurable((profile,))
    if depth == 0:
        msg = "depth 0 drafts nothing that a probe could measure"
        raise InvalidError(msg, hint="probe depth 1 or more")
    name = (
        PROBE_WORKLOAD if PROBE_WORKLOAD in config.workloads else next(iter(config.workloads), "")
    )
    if not name:
        raise _no_workload()
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


def _measurable(profiles: tuple[Profile, ...]) -> None:
    """Refuse what does not decode on llama-server."""
    for profile in profiles:
        why = never_tuned(profile)
        if why is not None:
            hint = "name a model that generates text on llama-server: only decoding is measured"
            msg = f"{profile.name} {why}: there is nothing to tune"
            raise InvalidError(msg, hint=hint)


def _depths(profile: Profile, asked: tuple[int, ...] | None, pool: Pool | None) -> tuple[int, ...]:
    """Depths to measure; in a pool each member takes those that it allows."""
    deepest = profile.drafter.max_depth
    if asked is None:
        return tuple(range(deepest + 1))
    if not asked:
        raise InvalidError("no depth is named", hint="name depths, or none to measure all")
    allowed = tuple(sorted({d for d in asked if 0 <= d <= deepest}))
    if pool is not None and allowed:
        return allowed
    if refused := sorted(set(asked) - set(allowed)):
        msg = f"{profile.name} allows depths 0 to {deepest}, not {refused[0]}"
        raise InvalidError(msg, hint="raise drafter.max_depth in its profile, or ask for less")
    return allowed


def _some_member(
    pool: Pool | None, profiles: tuple[Profile, ...], asked: tuple[int, ...] | None
) -> None:
    """Refuse a depth that no member of a pool allows."""
    if pool is None or asked is None:
        return
    deepest = max(profile.drafter.max_depth for profile in profiles)
    if refused := sorted({d for d in asked if not 0 <= d <= deepest}):
        msg = f"no member of {pool.name} allows depth {refused[0]}, at most {deepest}"
        raise InvalidError(msg, hint="raise drafter.max_depth in a profile, or ask for less")


def _workloads(config: Configuration, request: TuneRequest) -> tuple[WorkloadPlan, ...]:
    default = (name for name in WORKLOADS if name in config.workloads)
    # A workload that is named twice is measured once.
    names = tuple(dict.fromkeys(request.workloads or default))
    if not names:
        raise _no_workload()
    for name in names:
        need_workload(config, name)
    wanted = request.prompts or PROMPTS
    return tuple(
        WorkloadPlan(name=name, prompts=min(wanted, len(config.workloads[name].prompts)))
        for name in names
    )


def _models(config: Configuration) -> tuple[str, ...]:
    """Every name of a model."""
    aliases = (alias for profile in config.profiles.values() for alias in profile.aliases)
    return (*config.profiles, *aliases)


def _no_workload() -> NotFoundError:
    msg = "there is no workload to measure with"
    return NotFoundError(msg, hint="put one into profiles/workloads beside the configuration")


def _unknown(kind: str, name: str, known: Iterable[str]) -> NotFoundError:
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"
    return NotFoundError(f"there is no {kind} named {name!r}", hint=hint)
