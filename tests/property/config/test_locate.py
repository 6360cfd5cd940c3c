"""For any document: the scanner finds exactly the paths that tomli finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.config.locate import dotted, locate, parse_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.config.locate import Path

bare = st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True)
quoted = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\\\"'"),
    max_size=6,
)
keys = bare | quoted.map(lambda text: f'"{text}"') | quoted.map(lambda text: f"'{text}'")
scalars = st.sampled_from(
    [
        "1",
        "-0.5e3",
        "true",
        "2026-01-02T03:04:05Z",
        '"a # b = [c] \\" \\\\"',
        "'\\ ['",
        '"""\nx = 1\n[t]\n"q" \\""""',
        "'''\n[[u]]\n''two'''''",
        '""',
        "''",
    ]
)
blanks = st.sampled_from(["", " ", "  # note = 1\n", "\n", "\n\n# [x]\n"])


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(inner, max_size=3))
    joined = ",".join(f"{draw(blanks)}{item}{draw(blanks)}" for item in items)
    return f"[{joined}{draw(blanks)}]"


@st.composite
def inline_tables(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    names = draw(st.lists(bare, max_size=3, unique=True))
    return "{ " + ", ".join(f"{name} = {draw(inner)}" for name in names) + " }"


values = st.recursive(scalars, lambda inner: arrays(inner) | inline_tables(inner), max_leaves=6)


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(0, 8))):
        name = ".".join(draw(st.lists(keys, min_size=1, max_size=3)))
        match draw(st.integers(0, 4)):
            case 0:
                lines.append(f"[ {name} ] # c")
            case 1:
                lines.append(f"[[{name}]]")
            case _:
                lines.append(f"{name} = {draw(values)}")
        if draw(st.booleans()):
            lines.append("# comment [a] = 1")
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def paths(value: object, at: Path = ()) -> Iterator[Path]:
    if at:
        yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*at, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, (*at, number))


@settings(max_examples=300)
@given(documents())
def test_every_path_of_a_document_has_a_line_within_it(document: str) -> None:
    try:
        tree = tomli.loads(document)
    except ValueError:
        return
    found = locate(document)
    assert set(found) == set(paths(tree))
    assert all(1 <= line <= document.count("\n") + 1 for line in found.values())


@given(st.text(st.sampled_from("[]{}=.,#\"'\\\n ab1"), max_size=60))
def test_no_text_raises(text: str) -> None:
    locate(text)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_a_written_path_is_read_back(path: list[str]) -> None:
    assert parse_key(dotted(tuple(path))) == tuple(path)
