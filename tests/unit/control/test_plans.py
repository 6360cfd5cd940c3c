"""What an operator asked to measure, checked: defaults, refusals, pools, probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.model import Pool
from mtpd.control.plans import TuneRequest, find_file, find_profile, probe_plan, tune_plan
from mtpd.errors import InvalidError, MtpdError, NotFoundError
from tests.unit.control.made import config, profile, workload
from tuner.design import WorkloadPlan

if TYPE_CHECKING:
    from typing import Any

DEEP, SHALLOW = profile("deep", aliases=("default",)), profile("shallow", max_depth=1)
PLAIN = profile("plain", max_depth=0)
BOTH = Pool(name="both", members=("deep", "shallow"))
CONFIG = config(DEEP, SHALLOW, PLAIN, pools=(BOTH,))


def request(subject: str = "deep", **changes: Any) -> TuneRequest:
    plain: dict[str, Any] = {
        "method": "sweep",
        "depths": None,
        "workloads": None,
        "prompts": None,
        "repetitions": None,
        "max_tokens": None,
        "apply": True,
    }
    return TuneRequest(subject=subject, **{**plain, **changes})


def refused(error: type[MtpdError], **asked: Any) -> tuple[str, str | None]:
    with pytest.raises(error) as caught:
        tune_plan(CONFIG, request(**asked))
    return str(caught.value), caught.value.hint


def test_a_sweep_measures_every_depth_over_three_prompts_of_three_workloads() -> None:
    plan = tune_plan(CONFIG, request())
    assert (plan.subject, plan.profiles, plan.pool) == ("deep", (DEEP,), None)
    assert plan.depths == ((0, 1, 2, 3),)
    assert plan.workloads == tuple(
        WorkloadPlan(name=name, prompts=3) for name in ("short", "prose", "code")
    )
    assert (plan.repetitions, plan.sampling.max_tokens, plan.apply) == (3, None, True)
    assert plan.total() == 4 * 3 * 3 * 3


def test_what_is_asked_for_takes_the_place_of_every_default() -> None:
    plan = tune_plan(
        CONFIG,
        request(
            method="model-based",
            depths=(2, 0, 2),
            workloads=("code",),
            prompts=2,
            repetitions=1,
            max_tokens=96,
            apply=False,
        ),
    )
    assert (plan.method, plan.depths, plan.apply) == ("model-based", ((0, 2),), False)
    assert plan.workloads == (WorkloadPlan(name="code", prompts=2),)
    assert (plan.repetitions, plan.sampling.max_tokens) == (1, 96)
    assert plan.total() is None


def test_a_workload_gives_no_more_prompts_than_it_has() -> None:
    small = config(DEEP, workloads=(workload("short", 2), workload("prose", 4)))
    plan = tune_plan(small, request(prompts=9))
    assert plan.workloads == (
        WorkloadPlan(name="short", prompts=2),
        WorkloadPlan(name="prose", prompts=4),
    )


def test_a_workload_that_is_named_twice_is_measured_once() -> None:
    plan = tune_plan(CONFIG, request(workloads=("code", "prose", "code")))
    assert [one.name for one in plan.workloads] == ["code", "prose"]


def test_an_alias_is_planned_under_the_name_of_its_profile() -> None:
    plan = tune_plan(CONFIG, request("default"))
    assert (plan.subject, plan.profiles) == ("deep", (DEEP,))


def test_a_pool_measures_each_member_at_the_depths_that_it_allows() -> None:
    plan = tune_plan(CONFIG, request("both"))
    assert (plan.subject, plan.pool, plan.profiles) == ("both", BOTH, (DEEP, SHALLOW))
    assert plan.depths == ((0, 1, 2, 3), (0, 1))
    assert plan.total() == 6 * 3 * 3 * 3
    assert tune_plan(CONFIG, request("both", depths=(0, 1, 3))).depths == ((0, 1, 3), (0, 1))


def test_a_model_without_a_drafter_is_measured_at_depth_zero() -> None:
    assert tune_plan(CONFIG, request("plain")).depths == ((0,),)


def test_a_depth_that_the_model_does_not_allow_is_refused() -> None:
    message, hint = refused(InvalidError, depths=(0, 7, 9))
    assert message == "deep allows depths 0 to 3, not 7"
    assert hint == "raise drafter.max_depth in its profile, or ask for less"


def test_a_member_that_allows_none_of_the_depths_is_refused_by_name() -> None:
    message, _ = refused(InvalidError, subject="both", depths=(2, 3))
    assert message == "shallow allows depths 0 to 1, not 2"


def test_a_depth_that_no_member_allows_is_not_left_out_silently() -> None:
    message, hint = refused(InvalidError, subject="both", depths=(0, 9))
    assert message == "no member of both allows depth 9, at most 3"
    assert hint


def test_no_depth_at_all_is_refused() -> None:
    assert refused(InvalidError, depths=()) == (
        "no depth is named",
        "name depths, or none to measure all",
    )


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ("deeep", "there is no pool or model named 'deeep'", "did you mean deep?"),
        ("boht", "there is no pool or model named 'boht'", "did you mean both?"),
        ("defualt", "there is no pool or model named 'defualt'", "did you mean default?"),
        (
            "zzz",
            "there is no pool or model named 'zzz'",
            "known: both, deep, default, plain, shallow",
        ),
    ],
)
def test_an_unknown_subject_is_refused_with_what_is_close(
    asked: str, message: str, hint: str
) -> None:
    assert refused(NotFoundError, subject=asked) == (message, hint)


def test_an_unknown_workload_is_refused_with_what_is_close() -> None:
    assert refused(NotFoundError, workloads=("prose", "cod")) == (
        "there is no workload named 'cod'",
        "did you mean code?",
    )


def test_without_any_workload_there_is_nothing_to_measure_with() -> None:
    empty = config(DEEP, workloads=())
    with pytest.raises(NotFoundError, match="no workload to measure with"):
        tune_plan(empty, request())
    with pytest.raises(NotFoundError, match="no workload to measure with"):
        probe_plan(empty, "deep", 2)


def test_a_profile_is_found_by_name_and_by_alias() -> None:
    assert find_profile(CONFIG, "deep") is DEEP
    assert find_profile(CONFIG, "default") is DEEP
    with pytest.raises(NotFoundError, match="no model named 'both'"):
        find_profile(CONFIG, "both")
    with pytest.raises(NotFoundError) as caught:
        find_profile(config(), "deep")
    assert caught.value.hint == "known: none"


def test_a_probe_measures_depth_zero_and_one_depth_on_one_prompt() -> None:
    plan = probe_plan(CONFIG, "default", 2)
    assert (plan.subject, plan.method, plan.pool) == ("deep", "probe", None)
    assert plan.depths == ((0, 2),)
    assert plan.workloads == (WorkloadPlan(name="prose", prompts=1),)
    assert not plan.apply
    assert plan.total() is None, "depth 0 is measured only where single steps cannot be timed"


def test_a_probe_takes_what_workload_there_is() -> None:
    plan = probe_plan(config(DEEP, workloads=(workload("mine"),)), "deep", 1)
    assert plan.workloads == (WorkloadPlan(name="mine", prompts=1),)


@pytest.mark.parametrize(
    ("model", "depth", "message"),
    [
        ("deep", 4, "deep allows depths 0 to 3, not 4"),
        ("plain", 1, "plain allows depths 0 to 0, not 1"),
        ("deep", 0, "depth 0 drafts nothing that a probe could measure"),
        ("deep", -1, "deep allows depths 0 to 3, not -1"),
    ],
)
def test_a_probe_of_what_cannot_be_drafted_is_refused(model: str, depth: int, message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        probe_plan(CONFIG, model, depth)
    assert str(caught.value) == message
    assert caught.value.hint


def test_the_file_of_a_model_with_several_drafters_is_that_of_any() -> None:
    drafted = Pool(name="drafted", members=("shallow", "deep"), is_model=True)
    known = config(DEEP, SHALLOW, pools=(BOTH, drafted))
    assert find_file(known, "drafted") is SHALLOW
    assert find_file(known, "default") is DEEP
    for name in ("both", "drafte"):
        with pytest.raises(NotFoundError):
            find_file(known, name)
