from __future__ import annotations

import pytest

from mtpd.compat.macros import (
    MAX_TEXT,
    TooLongError,
    expand,
    left_over,
    name_fault,
    with_environment,
)


def test_a_macro_may_use_those_before_it() -> None:
    macros = (("a", "1"), ("b", "${a}2"), ("c", "${b}3"))
    assert expand("x ${c} ${a}", macros) == "x 123 1"


def test_a_macro_that_uses_a_later_one_keeps_it() -> None:
    assert expand("${a}", (("a", "${b}"), ("b", "2"))) == "${b}"


def test_numbers_keep_their_type_where_they_stand_alone() -> None:
    macros = (("n", 3), ("t", 0.7), ("on", True))
    value = {"x": ["${n}", "a${n}", "${t}"], "y": "${on}", "z": 5}
    assert expand(value, macros) == {"x": [3, "a3", 0.7], "y": True, "z": 5}
    assert expand("${t} ${on}", macros) == "0.7 true"


def test_a_table_is_taken_whole() -> None:
    macros = (("n", 3), ("all", {"depth": "${n}"}))
    assert expand({"x": "${all}"}, macros) == {"x": {"depth": 3}}


def test_growth_is_bounded() -> None:
    macros: tuple[tuple[str, object], ...] = (("m0", "x" * 100),)
    macros += tuple((f"m{n}", f"${{m{n - 1}}}" * 100) for n in range(1, 10))
    with pytest.raises(TooLongError):
        expand("${m9}", macros)
    assert expand("${x}", (("x", "y" * (MAX_TEXT - 4)),)) == "y" * (MAX_TEXT - 4)


def test_the_environment_is_put_in() -> None:
    assert with_environment("${env.A}/${env.B_2}/${A}", {"A": "x", "B_2": "$"}) == "x/$/${A}"
    with pytest.raises(LookupError, match="the environment variable 'A' is not set"):
        with_environment("${env.A}", {})


def test_what_is_left_over() -> None:
    assert list(left_over({"a": ["${x}", 3], "b": "${y} ${env.z} ${}"})) == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ok-1_A", "x", None),
        ("n", 5, None),
        ("t", {"a": 1}, None),
        ("a b", "x", "'a b' is not a macro name: letters, digits, _ and - (at most 63)"),
        ("a" * 64, "x", f"'{'a' * 64}' is not a macro name: letters, digits, _ and - (at most 63)"),
        ("PORT", "x", "the macro name 'PORT' is reserved"),
        ("MODEL_ID", 1, "the macro name 'MODEL_ID' is reserved"),
        ("a", "x ${a}", "the macro 'a' contains itself"),
        ("a", [1], "the macro 'a' must be text, a number, true, false or a table"),
        ("a", None, "the macro 'a' must be text, a number, true, false or a table"),
    ],
)
def test_definitions(name: str, value: object, told: str | None) -> None:
    assert name_fault(name, value) == told
