"""``[models.NAME.filters]``: what it takes, what it refuses, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.diff import diff
from mtpd.config.load import load
from mtpd.config.origins import describe_origins
from mtpd.config.tables import Filters, Setting
from mtpd.errors import ConfigError
from tests.unit.config.writing import write

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '[models.m]\nmodel = "/m.gguf"\naliases = ["m:high"]\n'


def filters(folder: Path, text: str) -> Filters:
    return load(write(folder / "mtpd.toml", HEAD + text)).profiles["m"].filters


def test_a_model_without_filters_changes_nothing(tmp_path: Path) -> None:
    assert filters(tmp_path, "") == Filters()


def test_parameters_are_kept_in_the_order_of_their_names(tmp_path: Path) -> None:
    text = (
        'filters.strip = ["top_k", "a.b"]\nfilters.set = { "top_p?" = 1.0, seed = 7, x = [1] }\n'
        'filters.set_by_name."m:high" = { kwargs = { effort = "high" } }\n'
    )
    assert filters(tmp_path, text) == Filters(
        strip=(("top_k",), ("a", "b")),
        set=(
            Setting(path=("seed",), value="7"),
            Setting(path=("top_p",), value="1.0", soft=True),
            Setting(path=("x",), value="[1]"),
        ),
        by_name=(("m:high", (Setting(path=("kwargs",), value='{"effort": "high"}'),)),),
    )


def test_what_is_always_set_counts_where_both_are_written(tmp_path: Path) -> None:
    text = 'filters.set = { "seed?" = 1, seed = 2 }\n'
    assert filters(tmp_path, text).set == (Setting(path=("seed",), value="2"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('strip = ["model"]', "5: models.m.filters.strip.0: 'model' is protected: the model asked"),
        ('strip = ["a", "b?"]', "5: models.m.filters.strip.1: 'b?' is taken out wherever it is"),
        ('strip = ["a..b"]', "5: models.m.filters.strip.0: 'a..b' is not the name of a parameter"),
        ('set = { "model?" = "x" }', "5: models.m.filters.set.model?: 'model?' is protected"),
        ('set = { "a.0" = 1 }', "5: models.m.filters.set.a.0: 'a.0' is not the name of a"),
        ("set = { a = nan }", "5: models.m.filters.set.a: must be a value that JSON has"),
        ("set = { a = 2020-01-01 }", "5: models.m.filters.set.a: must be a value that JSON has"),
        ("set_by_name = { n = { a = 1 } }", "5: models.m.filters.set_by_name.n: no client can ask"),
        (
            'set_by_name = { "m:high" = { model = 1 } }',
            "5: models.m.filters.set_by_name.m:high.model: 'model' is protected",
        ),
        ("sett = {}", "5: models.m.filters.sett: unknown key; did you mean 'set'?"),
    ],
)
def test_what_cannot_be_filtered(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        filters(tmp_path, f"[models.m.filters]\n{text}\n")
    (told,) = caught.value.problems
    assert told.partition("mtpd.toml:")[2].replace('"', "").startswith(problem)


def test_every_parameter_is_told_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mtpd.toml",
        f'{HEAD}[models.m.filters]\nstrip = ["top_k"]\n[models.m.filters.set]\n"seed?" = 7\n'
        'kwargs = { effort = "low" }\n[models.m.filters.set_by_name."m:high"]\nseed = 8\n',
    )
    told = {view.key: (view.value, view.origin) for view in describe_origins(load(path))}
    assert told["models.m.filters.strip"] == (["top_k"], f"{path}:5")
    assert told['models.m.filters.set."seed?"'] == (7, f"{path}:7")
    assert told["models.m.filters.set.kwargs.effort"] == ("low", f"{path}:8")
    assert told['models.m.filters.set_by_name."m:high".seed'] == (8, f"{path}:10")


def test_another_filter_needs_no_other_engine(tmp_path: Path) -> None:
    old = load(write(tmp_path / "mtpd.toml", HEAD))
    new = load(write(tmp_path / "mtpd.toml", f"{HEAD}filters.set = {{ seed = 7 }}\n"))
    changes = diff(old, new)
    assert (changes.changed, changes.described) == ((), ("m",))
