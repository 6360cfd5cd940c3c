from __future__ import annotations

import pytest

from mtpd.config.locate import dotted, locate, parse_key

DOCUMENT = '''\
top = 1
[a."b.c"]          # a quoted key with a dot
inner.deep = """
two
lines = [1]
"""
list = [
  1,
  { name = "x", n = 2 },
]
[[routes]]
port = 1
[routes.extra]
on = true
[[routes]]
port = 2
'literal key' = 3
"es\\tcaped" = '\\no'
after = "]"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 1),
        (("a",), 2),
        (("a", "b.c"), 2),
        (("a", "b.c", "inner", "deep"), 3),
        (("a", "b.c", "list"), 7),
        (("a", "b.c", "list", 0), 8),
        (("a", "b.c", "list", 1), 9),
        (("a", "b.c", "list", 1, "n"), 9),
        (("routes",), 11),
        (("routes", 0), 11),
        (("routes", 0, "port"), 12),
        (("routes", 0, "extra"), 13),
        (("routes", 0, "extra", "on"), 14),
        (("routes", 1), 15),
        (("routes", 1, "port"), 16),
        (("routes", 1, "literal key"), 17),
        (("routes", 1, "es\tcaped"), 18),
        (("routes", 1, "after"), 19),
    ],
)
def test_every_kind_of_key_is_found_on_its_line(path: tuple[str | int, ...], line: int) -> None:
    assert locate(DOCUMENT)[path] == line


def test_an_explicit_header_beats_an_earlier_implicit_mention() -> None:
    assert locate("[a.b]\nx = 1\n[a]\ny = 2\n")[("a",)] == 3


def test_a_text_that_is_not_toml_gives_what_was_found_before_it() -> None:
    assert locate("a = 1\n= = =\nb = 2\n") == {("a",): 1}


@pytest.mark.parametrize("text", ["", "[", "[[a", 'a = "', 'a = """', "a = [1,", "a = {b", "a ="])
def test_an_unfinished_text_raises_nothing(text: str) -> None:
    locate(text)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("server.listen", ("server", "listen")),
        ('models."qwen3.6".context', ("models", "qwen3.6", "context")),
        ("models.'a b' . c", ("models", "a b", "c")),
    ],
)
def test_a_dotted_key_is_split_as_toml_splits_it(text: str, keys: tuple[str, ...]) -> None:
    assert parse_key(text) == keys


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", "a b", "a=1", '"open'])
def test_a_malformed_key_is_none(text: str) -> None:
    assert parse_key(text) is None


def test_a_path_is_written_with_quotes_only_where_toml_needs_them() -> None:
    assert dotted(("models", "qwen3.6-27b", "aliases", 1)) == 'models."qwen3.6-27b".aliases.1'
