"""Which arm a name stands for: pinned, chosen, configured, and what makes a choice void."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from mtpd.config.live import LiveConfig
from mtpd.config.model import Opaque, Pool, Purpose
from mtpd.control.choices import Choices
from mtpd.control.ordered import ordered_arm
from mtpd.control.plans import probe_plan
from mtpd.errors import InvalidError, NotFoundError
from mtpd.views import ArmView
from tests.fakes.values import decision_view
from tests.unit.control.made import arm, chose, config, profile

PAIR = Pool(name="both", members=("alpha", "beta"))


def choices() -> Choices:
    return Choices(config=config(profile("alpha"), profile("beta"), pools=(PAIR,)))


def test_an_unmeasured_model_is_served_without_speculation_and_says_so() -> None:
    found = choices().of_profile(profile("alpha"))
    assert (found.arm, found.measured, found.decision_id) == (arm("alpha"), False, None)
    assert found.reason == "not measured yet: no speculation until mtpctl tune alpha has run"


def test_an_unmeasured_model_is_served_at_the_depth_that_its_profile_names() -> None:
    named = profile("alpha", depth=2)
    found = Choices(config=config(named)).of_profile(named)
    assert (found.arm, found.measured) == (arm("alpha", 2), False)
    assert found.reason == (
        "not measured yet: its profile names this depth until mtpctl tune alpha has run"
    )


def test_an_unmeasured_model_without_a_drafter_is_not_told_to_wait_for_speculation() -> None:
    plain = profile("alpha", max_depth=0)
    found = Choices(config=config(plain)).of_profile(plain)
    assert (found.arm, found.measured) == (plain.arm(0), False)
    assert found.reason == (
        "not measured yet: its profile has no drafter, so depth 0 is the only one"
    )


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"purpose": Purpose.EMBEDDING}, "generates no text (purpose = 'embedding')"),
        ({"purpose": Purpose.RERANK}, "generates no text (purpose = 'rerank')"),
        (
            {"opaque": Opaque(command=("whisper",), proxy="http://127.0.0.1:1")},
            "is no llama-server (kind = 'opaque')",
        ),
    ],
)
def test_nobody_is_sent_to_tune_what_cannot_be_tuned(made: dict[str, Any], why: str) -> None:
    beside = dataclasses.replace(profile("beside"), **made)
    found = Choices(config=config(beside)).of_profile(beside)
    assert found.reason == f"nothing is tuned: beside {why}"
    with pytest.raises(InvalidError, match=re.escape(f"beside {why}: there is nothing to tune")):
        probe_plan(config(beside), "beside", depth=1)


def test_an_adopted_choice_is_served_with_its_reason_and_number() -> None:
    held = choices()
    held.adopt(chose(arm("alpha", 2), id=17, reason="depth 2 is faster"))
    found = held.of_profile(profile("alpha"))
    assert (found.arm, found.measured, found.decision_id) == (arm("alpha", 2), True, 17)
    assert found.reason == "depth 2 is faster"
    assert held.arm_for("alpha") == held.measured("alpha") == arm("alpha", 2)
    assert held.arm_for("beta") == arm("beta")
    assert held.measured("beta") is None


def test_a_choice_is_void_while_the_file_that_was_measured_is_not_there() -> None:
    files = {"alpha": (10, 1), "beta": (10, 1)}
    members = profile("alpha"), profile("beta")
    held = Choices(config=config(*members, pools=(PAIR,)), files=lambda which: files[which.name])
    held.adopt(chose(arm("beta", 2), reason="depth 2 is faster"))
    held.adopt(chose(arm("beta", 2), subject="both"))
    files["alpha"] = (11, 2)
    assert held.arm_for("beta") == held.measured("both") == arm("beta", 2)
    files["beta"] = (11, 2)
    found = held.of_profile(members[1])
    assert (found.arm, found.measured) == (arm("beta"), False)
    assert found.reason == (
        "its file has changed since it was measured: no speculation until mtpctl tune beta has run"
    )
    assert held.measured("beta") is held.measured("both") is None
    assert held.pools() == {"both": "alpha"}
    held.pin(arm("beta", 1), reason="an operator asked for it", decision_id=18)
    assert held.arm_for("beta") == arm("beta", 1)
    held.adopt(chose(arm("beta", 3), reason="depth 3 is faster"))
    assert held.arm_for("beta") == held.measured("beta") == arm("beta", 3)


def test_a_pin_is_served_but_is_no_measurement() -> None:
    held = choices()
    held.adopt(chose(arm("alpha", 2)))
    held.pin(arm("alpha", 1), reason="an operator asked for it", decision_id=18)
    found = held.of_profile(profile("alpha"))
    assert (found.arm, found.measured, found.decision_id) == (arm("alpha", 1), False, 18)
    assert held.arm_for("alpha") == arm("alpha", 1)
    assert held.measured("alpha") == arm("alpha", 2)


def test_a_pin_keeps_the_measured_choice_known_and_can_be_taken_back() -> None:
    held, which = choices(), profile("alpha")
    held.pin(arm("alpha", 1), reason="an operator asked for it", decision_id=17)
    unmeasured = held.view("alpha", held.of_profile(which))
    assert (unmeasured.pinned, unmeasured.measured_arm) == (True, None)
    with pytest.raises(InvalidError, match="alpha has no measured choice to go back to"):
        ordered_arm(held, which, None, measured=True)
    held.adopt(chose(arm("alpha", 2)))
    held.adopt(chose(arm("alpha", 2), subject="both"))
    held.pin(arm("alpha", 1), reason="an operator asked for it", decision_id=18)
    for view in held.views()[:2]:
        assert (view.pinned, view.measured, view.arm.depth) == (True, False, 1)
        assert view.measured_arm == ArmView.of(arm("alpha", 2))
    assert ordered_arm(held, which, None, measured=False) == arm("alpha", 1)
    assert ordered_arm(held, which, 3, measured=False) == arm("alpha", 3)
    assert ordered_arm(held, which, None, measured=True) == arm("alpha", 2)
    with pytest.raises(InvalidError, match="exclude each other"):
        ordered_arm(held, which, 1, measured=True)
    held.unpin("alpha")
    held.unpin("beta")
    back = held.view("alpha", held.of_profile(which))
    assert (back.pinned, back.measured, back.arm) == (False, True, back.measured_arm)


def test_the_next_tuning_drops_the_pin() -> None:
    held = choices()
    held.pin(arm("alpha", 1), reason="an operator asked for it", decision_id=18)
    held.pin(arm("beta", 1), reason="an operator asked for it", decision_id=19)
    held.adopt(chose(arm("alpha", 3)))
    assert held.arm_for("alpha") == arm("alpha", 3)
    assert held.arm_for("beta") == arm("beta", 1)


def test_a_decision_without_an_arm_changes_nothing() -> None:
    held = choices()
    held.adopt(chose(arm("alpha", 2)))
    held.adopt(decision_view(subject="alpha", act="reject", arm=None))
    assert held.arm_for("alpha") == arm("alpha", 2)


@pytest.mark.parametrize(
    "wanted",
    [
        ArmView(profile="gone", drafter="mtp", depth=2, p_min=0.0),
        ArmView(profile="alpha", drafter="mtp", depth=4, p_min=0.0),
        ArmView(profile="alpha", drafter="mtp", depth=-1, p_min=0.0),
        ArmView(profile="alpha", drafter="ngram", depth=2, p_min=0.0),
        ArmView(profile="alpha", drafter="a drafter of tomorrow", depth=2, p_min=0.0),
        ArmView(profile="alpha", drafter="mtp", depth=2, p_min=0.5),
    ],
    ids=["model", "depth", "no depth", "drafter", "unknown drafter", "p_min"],
)
def test_an_arm_that_the_configuration_no_longer_makes_is_void(wanted: ArmView) -> None:
    held = choices()
    held.pin(arm("alpha", 1), reason="an operator asked for it", decision_id=18)
    held.adopt(decision_view(subject="alpha", arm=wanted))
    assert held.measured("alpha") is None
    assert held.arm_for("alpha") == arm("alpha", 1)


def test_a_pool_stands_for_its_first_member_until_the_members_were_compared() -> None:
    held = choices()
    held.adopt(chose(arm("alpha", 2)))
    found = held.of_pool(PAIR)
    assert (found.arm, found.measured) == (arm("alpha", 2), False)
    assert found.reason == (
        "the members of both were not compared yet: its first one, until mtpctl tune both has run"
    )
    assert held.pools() == {"both": "alpha"}


def test_a_pool_stands_for_the_member_that_was_chosen() -> None:
    held = choices()
    held.adopt(chose(arm("beta", 1)))
    held.adopt(chose(arm("beta", 1), subject="both", id=5, reason="beta is faster"))
    found = held.of_pool(PAIR)
    assert (found.arm, found.measured, found.decision_id) == (arm("beta", 1), True, 5)
    assert found.reason == "beta is faster"
    assert held.pools() == {"both": "beta"}


def test_a_pool_shows_the_depth_at_which_its_member_is_really_served() -> None:
    held = choices()
    held.adopt(chose(arm("beta", 1)))
    held.adopt(chose(arm("beta", 1), subject="both", id=5, reason="beta is faster"))
    held.pin(arm("beta", 3), reason="an operator asked for beta at depth 3", decision_id=6)
    found = held.of_pool(PAIR)
    assert (found.arm, found.measured) == (held.arm_for("beta"), False)
    assert found.reason == (
        "beta is faster; at depth 3 since: an operator asked for beta at depth 3"
    )
    assert held.measured("both") == arm("beta", 1)


def test_a_pool_forgets_a_member_that_left_it() -> None:
    alone = Pool(name="both", members=("alpha",))
    held = Choices(config=config(profile("alpha"), profile("beta"), pools=(alone,)))
    held.adopt(chose(arm("beta", 1), subject="both"))
    assert held.of_pool(alone).arm == arm("alpha")
    assert held.pools() == {"both": "alpha"}


def test_the_views_name_the_pools_first_and_then_every_model() -> None:
    held = choices()
    held.adopt(chose(arm("beta", 1), id=4))
    shown = held.views()
    assert [view.subject for view in shown] == ["both", "alpha", "beta"]
    assert [view.measured for view in shown] == [False, False, True]
    assert (shown[2].arm, shown[2].decision_id) == (
        ArmView(profile="beta", drafter="mtp", depth=1, p_min=0.0),
        4,
    )


def test_a_name_that_is_no_profile_has_no_arm() -> None:
    with pytest.raises(NotFoundError, match="both is not in the configuration any more"):
        choices().arm_for("both")


def test_an_arm_that_is_known_not_to_fit_is_not_served_but_one_that_was_pinned() -> None:
    reason = "depth 3 does not fit (1 layer runs on the CPU): depth 1"
    members = profile("alpha", depth=3), profile("beta")
    held = Choices(
        config(*members, pools=(PAIR,)),
        instead=lambda _, one: (arm("alpha", 1), reason) if one == arm("alpha", 3) else None,
    )
    found = held.of_profile(members[0])
    assert (found.arm, found.measured) == (arm("alpha", 1), False)
    assert found.reason.startswith(reason)
    held.adopt(chose(arm("alpha", 3), id=17, reason="depth 3 is faster"))
    assert held.arm_for("alpha") == arm("alpha", 1)
    held.adopt(chose(arm("alpha", 3), subject="both", id=18))
    assert held.of_pool(PAIR).arm == arm("alpha", 1)
    assert reason in held.of_pool(PAIR).reason
    held.pin(arm("alpha", 3), reason="an operator forces it", decision_id=19)
    assert held.arm_for("alpha") == arm("alpha", 3)
    assert held.arm_for("beta") == arm("beta")


def test_a_choice_whose_model_is_gone_holds_nowhere_even_before_it_is_forgotten() -> None:
    live = LiveConfig(config(profile("alpha"), profile("beta"), pools=(PAIR,)))
    held = Choices(config=live)
    held.adopt(chose(arm("beta", 2), subject="both"))
    live.replace(config(profile("alpha"), pools=(Pool(name="both", members=("alpha",)),)))
    assert held.measured("both") is None
    assert held.pools() == {"both": "alpha"}


def test_what_is_forgotten_is_unmeasured_and_a_pin_stays_while_it_is_allowed() -> None:
    live = LiveConfig(config(profile("alpha"), profile("beta")))
    held = Choices(config=live)
    held.adopt(chose(arm("alpha", 2)))
    held.pin(arm("alpha", 1), reason="an operator asked", decision_id=3)
    held.pin(arm("beta", 3), reason="an operator asked", decision_id=4)
    live.replace(config(profile("alpha"), profile("beta", max_depth=2)))
    held.forget({"alpha", "beta"})
    assert held.measured("alpha") is None
    assert held.arm_for("alpha") == arm("alpha", 1)
    assert held.arm_for("beta") == arm("beta")


def test_a_choice_that_is_taken_up_again_leaves_what_an_operator_set() -> None:
    held = choices()
    held.pin(arm("alpha", 1), reason="an operator asked", decision_id=3)
    held.adopt(chose(arm("alpha", 2)), keep_pin=True)
    assert held.arm_for("alpha") == arm("alpha", 1)
    assert held.measured("alpha") == arm("alpha", 2)
