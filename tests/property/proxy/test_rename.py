"""Replacing the model's name changes nothing else of a body."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.rename import renamed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
BLANKS = st.text(alphabet=" \t\r\n", max_size=3)
NAMES = st.text(min_size=1)


@given(st.dictionaries(st.text(), VALUES), NAMES, st.none() | st.integers(0, 4))
def test_the_name_is_replaced_and_all_else_is_the_same(
    fields: dict[str, object], name: str, indent: int | None
) -> None:
    body = json.dumps(fields, indent=indent).encode()
    after = renamed(body, name)
    assert json.dumps(json.loads(after), sort_keys=True) == json.dumps(
        {**fields, "model": name}, sort_keys=True
    )


@given(st.dictionaries(st.text(), VALUES), VALUES, NAMES, BLANKS)
def test_the_bytes_around_the_name_are_the_same(
    fields: dict[str, object], old: object, name: str, blank: str
) -> None:
    fields.pop("model", None)
    inside = json.dumps(fields)[1:-1]
    gap = f"{blank},{blank}" if inside else blank
    head = f'{blank}{{{blank}{inside}{gap}"model"{blank}:{blank}'
    tail = f"{blank}}}{blank}"
    body = f"{head}{json.dumps(old)}{tail}".encode()
    assert renamed(body, name) == f"{head}{json.dumps(name)}{tail}".encode()


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (b"{}", b'{"model":"x"}'),
        (b' { "a":{"model":1} }\n', b' {"model":"x", "a":{"model":1} }\n'),
        (b'{"mod\\u0065l":1,"model":[{}],"b":2}', b'{"mod\\u0065l":"x","model":"x","b":2}'),
        (b'{"a":"\xc3\xa4 model","model":"y"}', b'{"a":"\xc3\xa4 model","model":"x"}'),
    ],
)
def test_a_body(body: bytes, after: bytes) -> None:
    assert renamed(body, "x") == after
