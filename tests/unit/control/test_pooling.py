"""Who answers for a pool: its choice, what serves, and what the tags behind its name leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.config.live import LiveConfig
from mtpd.config.model import Config, Offload, Pool, Profile
from mtpd.control.choices import Choices
from mtpd.control.deciding import Member, PoolInputs
from mtpd.control.names import names
from mtpd.proxy.route import Asked, Meaning, Names, UnknownModel
from mtpd.views import ArmView
from tests.fakes.views import engine, residency
from tests.unit.control.made import arm, chose, config, observation, profile
from tuner.plan import History
from tuner.pools import Objective
from tuner.types import Resident, Start

if TYPE_CHECKING:
    from mtpd.engine_views import EngineView

MODELS = (
    profile("alpha", tags=("safe",)),
    profile("beta", tags=("safe", "uncensored")),
    profile("gamma", tags=("uncensored", "code")),
)
POOL = Pool(name="default", members=("alpha", "beta", "gamma"))
CONFIG = config(*MODELS, pools=(POOL,))


def runs(
    profile_name: str, depth: int = 0, *, state: str = "ready", place: str = "resident"
) -> EngineView:
    shown = ArmView.of(arm(profile_name, depth))
    return replace(engine(state), profile=profile_name, arm=shown, residency=residency(place))


def measured(name: str, decode_s: float) -> Member:
    told = observation(arm(name), decode_s=decode_s, residency=Resident())
    start = Start(arm=told.arm, start_id=told.start_id, residency=Resident())
    return Member(arm=told.arm, history=History(observations=(told,), starts=(start,)))


FASTEST_LAST = PoolInputs(
    subject="default",
    method="sweep",
    applied=True,
    objective=Objective.SPEED,
    members=(measured("alpha", 3.0), measured("beta", 2.0), measured("gamma", 1.0)),
)


def nothing() -> None:
    """Nothing serves."""


def compared(known: Config = CONFIG, inputs: PoolInputs = FASTEST_LAST) -> Choices:
    held = Choices(known)
    held.adopt(chose(arm("gamma"), subject="default", reason="gamma is the fastest"), inputs)
    return held


def asks(name: str, *engines: EngineView, held: Choices | None = None) -> Meaning:
    found = names(CONFIG, held or compared(), nothing, lambda: engines).meaning(name)
    assert isinstance(found, Meaning), found
    return found


def test_auto_and_the_pool_are_answered_by_what_the_measurements_chose() -> None:
    for name in ("auto", "default", ""):
        assert asks(name) == Meaning("gamma", "gamma is the fastest", Asked("default"))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [("safe", "beta"), ("uncensored", "gamma"), ("safe,uncensored", "beta"), ("code", "gamma")],
)
def test_tags_leave_the_fastest_of_the_members_that_have_them(tags: str, expected: str) -> None:
    for pool in ("auto", "default"):
        assert asks(f"{pool}:{tags}").profile == expected


def test_the_sentence_says_what_would_be_chosen_without_the_tag() -> None:
    why = asks("auto:safe").why
    assert why.startswith("R2 speed: beta@0 (")
    assert "without the tag safe it would be gamma@0" in why


def test_tags_that_are_not_measured_go_to_the_first_member_that_has_them() -> None:
    found = asks("auto:uncensored", held=Choices(CONFIG))
    assert found == Meaning(
        "beta",
        "the members of default were not compared yet: its first one with the tag uncensored,"
        " until mtpctl tune default has run",
        Asked("default", ("uncensored",)),
    )


def test_a_member_whose_file_is_another_one_by_now_is_not_chosen_by_its_measurements() -> None:
    files = {one.name: 1 for one in MODELS}
    held = Choices(CONFIG, files=lambda one: files[one.name])
    held.adopt(chose(arm("gamma"), subject="default"), FASTEST_LAST)
    assert asks("auto:safe", held=held).profile == "beta"
    files["beta"] = 2
    assert asks("auto:safe", held=held).profile == "alpha"


def test_what_serves_and_meets_the_request_goes_on_serving() -> None:
    found = asks("auto", runs("alpha"))
    assert found.profile == "alpha"
    assert found.why == (
        "alpha serves and is of default: a request does not swap it for gamma, which is loaded"
        " when nothing of default serves (gamma is the fastest)"
    )
    assert asks("auto:safe", runs("alpha")).profile == "alpha"


def test_the_choice_answers_if_it_serves_too() -> None:
    assert asks("auto", runs("alpha"), runs("gamma")).why == "gamma is the fastest"


@pytest.mark.parametrize(
    "serving",
    [
        runs("alpha", state="stopped"),
        runs("alpha", state="failed"),
        runs("alpha", state="draining"),
        runs("alpha", place="evicted"),
        runs("alpha", place="spilled"),
        runs("somebody-else"),
    ],
    ids=["stopped", "failed", "leaving", "evicted", "spilled", "no member"],
)
def test_what_does_not_serve_as_the_pool_asks_is_no_reason_to_stay(serving: EngineView) -> None:
    assert asks("auto", serving).profile == "gamma"


def test_what_serves_without_the_tag_does_not_answer_for_it() -> None:
    assert asks("auto:code", runs("alpha"), runs("beta")).profile == "gamma"


def test_a_member_outside_device_memory_goes_on_where_the_pool_accepts_that() -> None:
    known = config(*MODELS, pools=(replace(POOL, offload=Offload.ACCEPT),))
    held = compared(known)
    found = names(known, held, nothing, lambda: (runs("alpha", place="evicted"),)).meaning("auto")
    assert isinstance(found, Meaning)
    assert found.profile == "alpha"


def test_under_a_bound_of_quality_only_the_chosen_member_is_known_to_do() -> None:
    known = config(*MODELS, pools=(replace(POOL, quality_bound=1.05),))
    found = names(known, compared(known), nothing, lambda: (runs("alpha"),)).meaning("auto")
    assert found == Meaning("gamma", "gamma is the fastest", Asked("default"))


def test_what_the_pool_requires_is_met_before_it_is_measured() -> None:
    for pool in (
        replace(POOL, require_tags=("uncensored",)),
        replace(POOL, min_context=8000),
    ):
        models = (MODELS[0], replace(MODELS[1], context=8192), MODELS[2])
        known = config(*models, pools=(pool,))
        found = names(known, Choices(known), nothing, lambda: (runs("alpha"),)).meaning("default")
        assert isinstance(found, Meaning)
        assert found.profile == "beta"


def test_an_exact_name_means_its_model_whatever_serves_and_was_chosen() -> None:
    found = asks("alpha", runs("gamma"))
    assert found == Meaning(
        "alpha", "not measured yet: no speculation until mtpctl tune alpha has run"
    )


def test_without_a_pool_the_tags_choose_among_all_models() -> None:
    known = config(*MODELS)
    here = names(known, Choices(known), lambda: arm("alpha"), lambda: (runs("alpha"),))
    assert [here.resolve(name) for name in ("auto", "auto:safe", "auto:uncensored")] == [
        "alpha",
        "alpha",
        "beta",
    ]


def unknown(name: str) -> UnknownModel:
    found = names(CONFIG, Choices(CONFIG), nothing, tuple).meaning(name)
    assert isinstance(found, UnknownModel)
    return found


def test_tags_that_nobody_has_are_told_with_those_that_there_are() -> None:
    for tags in (("fast",), ("code", "safe")):
        found = unknown(f"auto:{','.join(tags)}")
        assert (found.pool, found.tags) == ("auto", tags)
        assert found.known_tags == ("code", "safe", "uncensored")
    assert unknown("nobody:safe").pool is None


def test_a_reload_takes_new_tags_of_what_was_measured() -> None:
    live = LiveConfig(CONFIG)
    held = Choices(live)
    held.adopt(chose(arm("gamma"), subject="default"), FASTEST_LAST)

    def here() -> Names:
        return names(live, held, nothing, tuple)

    assert here().resolve("auto:safe") == "beta"
    live.replace(config(replace(MODELS[0], tags=()), *MODELS[1:], pools=(POOL,)))
    assert here().resolve("auto:safe") == "beta"
    renamed: tuple[Profile, ...] = (replace(MODELS[0], tags=("new",)), *MODELS[1:])
    live.replace(config(*renamed, pools=(POOL,)))
    assert here().resolve("auto:new") == "alpha"
    held.forget(("default",))
    assert here().resolve("auto:safe") == "beta"


DRAFTED = tuple(profile(name, tags=("drafted",)) for name in ("delta+mtp", "delta+ngram"))
DELTA = Pool(name="delta", members=("delta+mtp", "delta+ngram"), is_model=True)


def test_a_model_with_several_drafters_is_one_model_to_auto() -> None:
    alone = config(*DRAFTED, pools=(DELTA,))
    held = Choices(alone)
    held.adopt(chose(arm("delta+ngram"), subject="delta", reason="it is the fastest"))
    for name in ("", "auto", "delta"):
        found = names(alone, held, nothing, tuple).meaning(name)
        assert found == Meaning("delta+ngram", "it is the fastest", Asked("delta"))
    beside = config(*DRAFTED, profile("alpha"), pools=(DELTA,))
    assert names(beside, held, lambda: arm("alpha"), tuple).resolve("auto") == "alpha"
    assert names(beside, held, nothing, tuple).resolve("auto") is None
    assert names(beside, held, nothing, tuple).resolve("auto:drafted") == "delta+ngram"
    chosen = config(*DRAFTED, *MODELS, pools=(DELTA, replace(POOL, name="mine")))
    assert names(chosen, held, nothing, tuple).resolve("auto") == "alpha"
