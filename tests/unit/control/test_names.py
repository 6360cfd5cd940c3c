"""What clients' model names mean at this moment."""

from __future__ import annotations

from mtpd.config.model import Pool
from mtpd.control.choices import Choices
from mtpd.control.names import names
from tests.unit.control.made import arm, chose, config, profile

POOL = Pool(name="both", members=("alpha", "beta"))
CONFIG = config(profile("alpha", aliases=("first", "a")), profile("beta"), pools=(POOL,))


def test_names_and_aliases_mean_their_profile() -> None:
    found = names(CONFIG, Choices(config=CONFIG), None)
    assert found.profiles == {"alpha": "alpha", "beta": "beta", "first": "alpha", "a": "alpha"}
    assert (found.pools["both"].now.profile, found.serving) == ("alpha", None)


def test_a_pool_means_the_member_that_is_chosen_now() -> None:
    held = Choices(config=CONFIG)
    held.adopt(chose(arm("beta", 2), subject="both"))
    assert names(CONFIG, held, None).pools["both"].now.profile == "beta"


def test_what_serves_answers_requests_that_name_no_model() -> None:
    assert names(CONFIG, Choices(config=CONFIG), None).serving is None
    assert names(CONFIG, Choices(config=CONFIG), arm("beta", 1)).serving == "beta"
