from __future__ import annotations

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.toml_text import toml_text

scalars = (
    st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=8)
)
inline = st.dictionaries(st.text(max_size=5), scalars, max_size=2)
values = scalars | st.lists(scalars | inline, max_size=3)
tables = st.recursive(
    st.dictionaries(st.text(max_size=5), values, max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=5), values | inner, max_size=3),
    max_leaves=6,
)


@given(tables)
def test_what_is_written_is_read_again(table: dict[str, object]) -> None:
    assert tomli.loads(toml_text(table)) == table


def test_values_come_before_tables() -> None:
    table = {"a": {"b": 1}, "c": [True, "x"], "d": {"e": {"f": 0.5}}}
    assert toml_text(table) == 'c = [true, "x"]\n[a]\nb = 1\n[d.e]\nf = 0.5\n'


def test_a_value_that_toml_does_not_have() -> None:
    with pytest.raises(TypeError):
        toml_text({"a": None})
