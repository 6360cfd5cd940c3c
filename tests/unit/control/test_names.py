"""What clients' model names mean at this moment."""

from __future__ import annotations

from dataclasses import replace

from mtpd.config.model import Pool
from mtpd.control.choices import Choices
from mtpd.control.names import names
from tests.fakes import views
from tests.unit.control.made import arm, chose, config, profile

POOL = Pool(name="auto", members=("alpha", "beta"))
CONFIG = config(profile("alpha", aliases=("first", "a")), profile("beta"), pools=(POOL,))


def test_names_and_aliases_mean_their_profile() -> None:
    found = names(CONFIG, Choices(config=CONFIG), ())
    assert found.profiles == {"alpha": "alpha", "beta": "beta", "first": "alpha", "a": "alpha"}
    assert (found.pools, found.serving) == ({"auto": "alpha"}, None)


def test_a_pool_means_the_member_that_is_chosen_now() -> None:
    held = Choices(config=CONFIG)
    held.adopt(chose(arm("beta", 2), subject="auto"))
    assert names(CONFIG, held, ()).pools == {"auto": "beta"}


def test_only_an_engine_that_is_ready_serves() -> None:
    loading = replace(views.engine("loading"), profile="alpha")
    ready = replace(views.engine("ready"), profile="beta")
    assert names(CONFIG, Choices(config=CONFIG), (loading,)).serving is None
    assert names(CONFIG, Choices(config=CONFIG), (loading, ready)).serving == "beta"
