"""How much a body may hold, counted before it is read."""

from __future__ import annotations

import pytest

from mtpd.proxy.json_body import MAX_OBJECTS, MAX_VALUES, BadBody, parse


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": [' + b"{}," * MAX_OBJECTS + b"{}]}",
        b'{"x": [' + b"1," * MAX_VALUES + b"1]}",
        b'{"x": [' + b"[]," * MAX_VALUES + b"[]]}",
        b"[" * (MAX_VALUES + 1),
    ],
)
def test_a_body_of_too_many_values_is_not_read(body: bytes) -> None:
    answer = parse(body)
    assert isinstance(answer, BadBody)
    assert answer.reason.startswith("the body holds too much: ")


@pytest.mark.parametrize(
    "body",
    [
        b'{"x": [' + b"{}," * (MAX_OBJECTS - 2) + b"{}]}",
        b'{"x": [' + b"1," * (MAX_VALUES - 3) + b"1]}",
        # A prompt may be made of such signs: what stands in a text is no value.
        b'{"x": "' + b"{[," * MAX_VALUES + b'"}',
        b'{"x": "' + rb"\"{,\\" * MAX_VALUES + b'"}',
    ],
)
def test_as_many_as_may_be_and_signs_within_a_text_are_read(body: bytes) -> None:
    assert not isinstance(parse(body), BadBody)
