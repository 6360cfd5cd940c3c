"""What clients' model names mean at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.config.model import Pool
from mtpd.control.choices import Choices
from mtpd.control.names import names
from tests.unit.control.made import arm, chose, config, profile

if TYPE_CHECKING:
    from mtpd.config.model import Profile
    from mtpd.engine_views import EngineView

POOL = Pool(name="both", members=("alpha", "beta"))
CONFIG = config(profile("alpha", aliases=("first", "a")), profile("beta"), pools=(POOL,))


def nothing() -> None:
    """Nothing serves."""


def test_names_and_aliases_mean_their_profile() -> None:
    found = names(CONFIG, Choices(config=CONFIG), nothing, tuple)
    assert found.profiles == {"alpha": "alpha", "beta": "beta", "first": "alpha", "a": "alpha"}
    assert found.resolve("both") == "alpha"
    assert found.serving() is None


def test_a_pool_means_the_member_that_is_chosen_now() -> None:
    held = Choices(config=CONFIG)
    held.adopt(chose(arm("beta", 2), subject="both"))
    assert names(CONFIG, held, nothing, tuple).resolve("both") == "beta"


def test_what_serves_answers_requests_that_name_no_model() -> None:
    found = names(CONFIG, Choices(config=CONFIG), lambda: arm("beta", 1), tuple)
    assert found.serving() == "beta"


def test_a_model_that_is_asked_for_by_its_name_costs_no_look_at_anything_else() -> None:
    looked: list[str] = []

    def files(one: Profile) -> None:
        looked.append(one.name)

    def engines() -> tuple[EngineView, ...]:
        looked.append("engines")
        return ()

    def serving() -> None:
        looked.append("serving")

    held = Choices(CONFIG, files)
    for model, subject in (("alpha", "alpha"), ("beta", "both")):
        held.adopt(chose(arm(model), subject=subject))
    looked.clear()
    assert names(CONFIG, held, serving, engines).resolve("first") == "alpha"
    assert looked == ["alpha"]
    assert names(CONFIG, held, serving, engines).resolve("both") == "beta"
    assert "engines" in looked
