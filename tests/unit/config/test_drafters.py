"""A model that is compared with several drafters: its profiles, its pool, and mistakes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.files import problems_of
from mtpd.config.load import load
from mtpd.config.model import DrafterConfig, Objective, Offload
from mtpd.errors import ConfigError
from tests.unit.config.writing import write
from tuner.types import Drafter

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.config.model import Config

HEAD = """[models.m]
model = "m.gguf"
context = 8192
tags = ["big"]
offload = "accept"
"""
THREE = f"""{HEAD}[[models.m.drafters]]
kind = "mtp"
max_depth = 3
[[models.m.drafters]]
kind = "mtp"
max_depth = 3
p_min = 0.75
[[models.m.drafters]]
name = "small"
kind = "draft-model"
model = "d.gguf"
max_depth = 2
depth = 1
[[models.m.drafters]]
kind = "ngram-mod"
max_depth = 8
"""
NAMES = ("m+mtp", "m+mtp-p0.75", "m+small", "m+ngram-mod")


def loaded(folder: Path, text: str) -> Config:
    return load(write(folder / "mtpd.toml", text))


def test_every_drafter_is_a_profile_and_the_model_is_the_pool_of_them(tmp_path: Path) -> None:
    config = loaded(tmp_path, THREE)
    assert tuple(config.profiles) == NAMES
    (pool,) = config.pools.values()
    assert (pool.name, pool.members, pool.is_model) == ("m", NAMES, True)
    assert (pool.objective, pool.offload) == (Objective.SPEED, Offload.ACCEPT)
    for one in config.profiles.values():
        assert (one.context, one.tags, one.unlisted) == (8192, ("big",), True)
    drafters = [one.drafter for one in config.profiles.values()]
    file = str(tmp_path / "d.gguf")
    assert drafters == [
        DrafterConfig(kind=Drafter.MTP, max_depth=3),
        DrafterConfig(kind=Drafter.MTP, max_depth=3, p_min=0.75),
        DrafterConfig(kind=Drafter.DRAFT_MODEL, max_depth=2, depth=1, model=file),
        DrafterConfig(kind=Drafter.NGRAM, ngram="mod", max_depth=8),
    ]


def test_a_pool_and_a_group_that_list_the_model_have_all_its_drafters(tmp_path: Path) -> None:
    more = '[models.n]\nmodel = "n.gguf"\n[pools.p]\nmembers = ["n", "m"]\n'
    more += '[groups.g]\nmembers = ["m"]\n[server]\npreload = ["m", "m+small"]\n'
    config = loaded(tmp_path, THREE + more)
    assert config.pools["p"].members == ("n", *NAMES)
    assert config.groups["g"].members == NAMES
    assert not config.pools["p"].is_model


def test_values_and_files_are_told_where_they_are_written(tmp_path: Path) -> None:
    config = loaded(tmp_path, THREE)
    file = f"{tmp_path / 'mtpd.toml'}"
    assert config.origins['models."m+small".drafter.model'] == f"{file}:16"
    assert config.origins['models."m+small".context'] == f"{file}:3"
    assert config.origins['models."m+mtp".kv_type'] == "default"
    told = problems_of(config, "m+small")
    assert told[1].startswith(f'{file}:16: models."m+small".drafter.model: ')


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (
            'drafters = [{ kind = "mtp" }]\n',
            "6: models.m.drafters.0.max_depth: must be at least 1 where kind is 'mtp'",
        ),
        (
            'drafters = [{ kind = "eagle3", max_depth = 1 }]\n',
            "6: models.m.drafters.0.kind: 'eagle3' needs the key 'model', the file of the drafter",
        ),
        (
            'drafters = [{ kind = "mtp", max_depth = 1 }, { kind = "mtp", max_depth = 2 }]\n',
            "6: models.m.drafters.1: there are two drafters 'mtp': give one of them another 'name'",
        ),
        (
            'drafters = [{ kind = "mtp", max_depth = 1, name = "a b" }]\n',
            "6: models.m.drafters.0.name: 'a b' is not a name: letters, digits and . _ -",
        ),
        (
            'drafters = [{ kind = "mtp", max_depth = 1 }]\ndrafter = { kind = "none" }\n',
            "7: models.m.drafter: is one of 'drafters' where those are listed: move it there",
        ),
        (
            'drafters = [{ kind = "mtp", max_depth = 1 }]\naliases = ["x"]\n',
            (
                "7: models.m.aliases: clients ask for 'm' itself where drafters are listed:"
                " leave it out"
            ),
        ),
        (
            'drafters = [{ kind = "mtp", max_depth = 1 }]\n[models."m+mtp"]\nmodel = "x"\n',
            "6: models.m.drafters.0: its name 'm+mtp' is already taken",
        ),
        (
            'purpose = "embedding"\ndrafters = [{ kind = "mtp", max_depth = 1 }]\n',
            (
                "7: models.m.drafters: must be 'none' where purpose is 'embedding': no text is"
                " drafted"
            ),
        ),
        (
            'drafters = [{ kind = "ngram-mo", max_depth = 1 }]\n',
            "not 'ngram-mo'; did you mean 'ngram-mod'?",
        ),
    ],
)
def test_a_mistake_in_a_drafter_is_told_at_its_line(
    tmp_path: Path, rest: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, HEAD + rest)
    assert expected in str(caught.value)
