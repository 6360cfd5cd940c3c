"""Profiles as the API and as OpenAI clients list them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.config.model import Pool, Quality
from mtpd.control.choices import Choices
from mtpd.control.models import cards, model_view
from mtpd.views import QualityView
from tests.fakes.views import no_memory
from tests.unit.control.made import config, observation, profile
from tuner.summary import summarise

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.config.model import Config, Profile
    from mtpd.proxy.replies import ModelCard
    from mtpd.views import ModelView


def shown(which: Profile) -> ModelView:
    held = Choices(config=config(which))
    return model_view(
        which,
        summarise([observation()]),
        choice=held.view(which.name, held.of_profile(which)),
        state="stopped",
        sha256="5a" * 32,
        memory=no_memory(),
    )


def test_a_profile_is_shown_with_its_file_and_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"12345")
    quality = Quality(perplexity=5.6553, stderr=0.15, corpus="wikitext-2", chunks=32)
    view = shown(profile("tiny", model=str(file), aliases=("t",), quality=quality, tags=("demo",)))
    assert (view.id, view.aliases, view.tags, view.size_bytes) == ("tiny", ("t",), ("demo",), 5)
    assert view.sha256 == "5a" * 32
    assert (view.drafter, view.max_depth, view.offload, view.state) == (
        "mtp",
        3,
        "refuse",
        "stopped",
    )
    assert view.quality == QualityView(
        perplexity=5.6553, stderr=0.15, corpus="wikitext-2", chunks=32
    )
    assert view.choice is not None
    assert not view.choice.measured
    assert [row.arm.depth for row in view.depths] == [2]


def test_a_file_that_cannot_be_read_has_no_size_and_not_zero() -> None:
    view = shown(profile("tiny"))
    assert view.size_bytes is None
    assert view.quality is None


def mine(*members: str) -> Pool:
    return Pool(name="mine", members=members)


def listed(known: Config) -> tuple[ModelCard, ...]:
    return cards(known, Choices(known))


def test_auto_and_pools_are_listed_with_the_tags_that_may_follow_them() -> None:
    models = profile("a", tags=("safe", "code")), profile("b", tags=("uncensored",)), profile("c")
    other = Pool(name="other", members=("c",))
    found = listed(config(*models, pools=(mine("a", "b"),)))
    told = {card.id: card.tags for card in found}
    assert list(told) == ["auto", "mine", "a", "b", "c"]
    assert told["auto"] == told["mine"] == ("code", "safe", "uncensored")
    assert (told["a"], told["c"]) == (("safe", "code"), ())
    # Between two pools of which none is the default there is nothing that auto stands for.
    assert listed(config(*models, pools=(mine("a", "b"), other)))[0].id == "mine"
    assert [card.id for card in listed(config(*models))] == ["a", "b", "c"]


def test_a_card_gives_the_context_of_one_request(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.touch()
    os.utime(file, (1_700_000_000, 1_700_000_000))
    one = profile("tiny", model=str(file), context=8192, slots=4, aliases=("t",))
    (card,) = listed(config(one))
    assert (card.id, card.context, card.aliases, card.created) == (
        "tiny",
        2048,
        ("t",),
        1_700_000_000,
    )


def test_a_card_shows_the_name_that_clients_know() -> None:
    one = profile("org-tiny", aliases=("org/tiny", "t"), served_as="org/tiny")
    pool, model = listed(config(one, pools=(mine("org-tiny"),)))[1:]
    assert (model.id, model.aliases, model.profile) == ("org/tiny", ("t", "org-tiny"), "org-tiny")
    assert (pool.id, pool.aliases, pool.profile) == ("mine", (), "org-tiny")


def test_a_card_without_its_file_dates_from_the_epoch() -> None:
    (card,) = listed(config(profile("tiny")))
    assert card.created == 0


def test_a_pool_is_listed_as_the_model_it_stands_for_now() -> None:
    one = profile("tiny")
    pool, model = listed(config(one, pools=(mine("tiny"),)))[1:]
    assert (pool.id, pool.profile, pool.context) == ("mine", "tiny", model.context)
    assert (model.id, model.profile) == ("tiny", None)


def test_a_model_is_listed_with_its_title_and_sentence() -> None:
    (card,) = listed(config(profile("tiny", title="Tiny", description="Small.")))
    assert (card.id, card.title, card.description) == ("tiny", "Tiny", "Small.")


def test_an_unlisted_model_is_left_out_and_its_pool_is_not() -> None:
    auto, pool = listed(config(profile("tiny", unlisted=True), pools=(mine("tiny"),)))
    assert (auto.id, pool.id, auto.profile, pool.profile) == ("auto", "mine", "tiny", "tiny")


def test_aliases_are_listed_as_models_where_that_is_wanted() -> None:
    known = config(
        profile("org-a", aliases=("org/a", "fast"), served_as="org/a"),
        profile("b", aliases=("c",), unlisted=True),
    )
    assert [card.id for card in listed(known)] == ["org/a"]
    wanted = replace(known, server=replace(known.server, list_aliases=True))
    first, second = listed(wanted)
    assert (first.id, second.id, second.profile, second.aliases) == ("org/a", "fast", "org-a", ())
