"""Whatever is asked for, a plan holds nothing that a profile or a workload does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.config.model import Config, Pool, Profile
from mtpd.control.plans import TuneRequest, probe_plan, tune_plan
from mtpd.errors import MtpdError
from tests.unit.control.made import config, profile, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.control.tuning import TuningPlan

NAMES = ("one", "two", "three")
WORKLOADS = ("short", "prose", "code", "mine")


@st.composite
def configs(draw: st.DrawFn) -> Config:
    models: list[Profile] = [
        profile(name, max_depth=draw(st.integers(0, 5)))
        for name in NAMES[: draw(st.integers(1, len(NAMES)))]
    ]
    members = draw(
        st.lists(st.sampled_from([m.name for m in models]), min_size=1, unique=True).map(tuple)
    )
    named = draw(st.lists(st.sampled_from(WORKLOADS), unique=True))
    return config(
        *models,
        pools=(Pool(name="pool", members=members),),
        workloads=tuple(workload(name, draw(st.integers(1, 5))) for name in named),
    )


def none_or(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | values


def some(values: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...] | None]:
    return st.none() | st.lists(values, max_size=4).map(tuple)


REQUESTS = st.builds(
    TuneRequest,
    subject=st.sampled_from([*NAMES, "pool", "nobody"]),
    method=st.sampled_from(["sweep", "model-based"]),
    depths=some(st.integers(-1, 7)),
    workloads=st.none() | st.lists(st.sampled_from([*WORKLOADS, "x"]), max_size=3).map(tuple),
    prompts=none_or(st.integers(1, 9)),
    repetitions=none_or(st.integers(1, 4)),
    max_tokens=none_or(st.integers(2, 64)),
    apply=st.booleans(),
)


def planned(make: Callable[[], TuningPlan]) -> TuningPlan | None:
    """The plan, or None for a refusal that says why and what to do."""
    refusal: MtpdError
    try:
        return make()
    except MtpdError as error:
        refusal = error
    assert str(refusal)
    assert refusal.hint
    return None


def check(plan: TuningPlan, configured: Config) -> None:
    assert len(plan.depths) == len(plan.profiles) > 0
    for one, depths in zip(plan.profiles, plan.depths, strict=True):
        assert depths
        assert list(depths) == sorted(set(depths))
        # Profile.arm raises for a depth that the profile does not allow.
        assert [one.arm(depth).depth for depth in depths] == list(depths)
    assert plan.workloads
    assert len({one.name for one in plan.workloads}) == len(plan.workloads)
    for used in plan.workloads:
        assert 1 <= used.prompts <= len(configured.workloads[used.name].prompts)
    assert plan.repetitions >= 1


@settings(max_examples=60)
@given(configs(), REQUESTS)
def test_a_plan_never_holds_what_its_models_and_workloads_do_not_allow(
    configured: Config, request: TuneRequest
) -> None:
    plan = planned(lambda: tune_plan(configured, request))
    if plan is None:
        return
    check(plan, configured)
    for one, depths in zip(plan.profiles, plan.depths, strict=True):
        asked = set(request.depths or range(one.drafter.max_depth + 1))
        allowed = set(range(one.drafter.max_depth + 1))
        assert set(depths) == asked & allowed
        if plan.pool is None:
            assert asked <= allowed
    if plan.pool is not None and request.depths is not None:
        assert set(request.depths) == set().union(*plan.depths)


@settings(max_examples=60)
@given(configs(), st.sampled_from([*NAMES, "pool", "nobody"]), st.integers(-1, 7))
def test_a_probe_never_holds_a_depth_that_its_model_does_not_allow(
    configured: Config, model: str, depth: int
) -> None:
    plan = planned(lambda: probe_plan(configured, model, depth))
    if plan is None:
        return
    check(plan, configured)
    assert plan.depths == ((0, depth),)
    assert not plan.apply
