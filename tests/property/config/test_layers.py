"""Laying trees over each other: the upper one wins, and every value keeps its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.layers import Origin, Origins, Tree, merge, prune

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.config.locate import Path

names = st.sampled_from("abc")
trees = st.recursive(
    st.dictionaries(names, st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2), max_size=3),
    lambda inner: st.dictionaries(names, inner | st.integers(0, 3), max_size=3),
    max_leaves=8,
)


def leaves(value: object, at: Path = ()) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*at, key))
    elif at:
        yield at, value


def origins(tree: Tree, file: str) -> dict[Path, Origin]:
    paths = {path[:end] for path, _ in leaves(tree) for end in range(len(path) + 1)}
    return {path: Origin(file=file, line=1, path=path, folder="/") for path in paths}


def lookup(tree: object, path: Path) -> object:
    for part in path:
        tree = tree[part] if isinstance(tree, dict) and part in tree else None
    return tree


@given(st.lists(trees, min_size=1, max_size=4))
def test_the_last_layer_that_says_anything_wins_and_is_named(layers: list[Tree]) -> None:
    merged: Tree = {}
    known = Origins()
    for number, layer in enumerate(layers):
        merge(merged, known, layer, origins(layer, str(number)))
    for path, value in leaves(merged):
        if value == {}:
            continue
        origin = known.at[path]
        assert lookup(layers[int(origin.file)], path) == value
        for later in layers[int(origin.file) + 1 :]:
            assert lookup(later, path) in (None, {})


@given(st.lists(trees, min_size=1, max_size=4))
def test_only_what_is_there_has_an_origin(layers: list[Tree]) -> None:
    merged: Tree = {}
    known = Origins()
    for number, layer in enumerate(layers):
        merge(merged, known, layer, origins(layer, str(number)))
    assert all(lookup(merged, path) is not None for path in known.at)


def test_a_table_that_two_layers_share_stands_where_the_lower_one_wrote_it() -> None:
    merged: Tree = {}
    known = Origins()
    for number, layer in enumerate(({"t": {"a": 1}}, {"t": {"b": 2}})):
        merge(merged, known, dict(layer), origins(dict(layer), str(number)))
    files = {path: origin.file for path, origin in known.at.items()}
    assert files == {(): "0", ("t",): "0", ("t", "a"): "0", ("t", "b"): "1"}


@given(trees, trees)
def test_merging_never_changes_the_layers(lower: Tree, upper: Tree) -> None:
    before = repr((lower, upper))
    merged: Tree = {}
    known = Origins()
    merge(merged, known, lower, origins(lower, "0"))
    merge(merged, known, upper, origins(upper, "1"))
    for path, _ in list(leaves(merged)):
        prune(merged, path)
    assert repr((lower, upper)) == before


@given(trees)
def test_what_was_pruned_is_gone(tree: Tree) -> None:
    for path, _ in list(leaves(tree)):
        assert prune(tree, path)
        assert lookup(tree, path) is None
        assert not prune(tree, path)
