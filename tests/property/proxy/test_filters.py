"""Filters on any body: what they name is as they say, all else is as it came."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.tables import Filters, Setting
from mtpd.proxy.filters import completed, rewritten, stripped

KEYS = st.sampled_from(["a", "b", "c", 'q"\n', "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(KEYS, VALUES, max_size=5)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)
SETTINGS = st.builds(Setting, path=PATHS, value=VALUES.map(json.dumps), soft=st.booleans())


@given(BODIES, st.lists(PATHS, max_size=3), st.lists(SETTINGS, max_size=3), st.none() | st.just(1))
def test_the_bytes_say_what_the_fields_say(
    fields: dict[str, object],
    strip: list[tuple[str, ...]],
    settings: list[Setting],
    indent: int | None,
) -> None:
    filters = Filters(strip=tuple(strip), set=tuple(settings))
    body = json.dumps(fields, indent=indent, ensure_ascii=False).encode()
    after = completed(stripped(fields, filters), filters, "m")
    # Compared as text: to Python 1 is True.
    told = json.loads(rewritten(body, fields, after))
    assert json.dumps(told, sort_keys=True) == json.dumps(after, sort_keys=True)


@given(BODIES, KEYS, VALUES)
def test_the_values_of_other_members_keep_their_bytes(
    fields: dict[str, object], key: str, value: object
) -> None:
    others = {name: one for name, one in fields.items() if name != key}
    inside = ",".join(f" {json.dumps(name)}\t: {json.dumps(one)} " for name, one in others.items())
    gone = Filters(strip=((key,),))
    body = f"{{{inside}{',' if others else ''}{json.dumps(key)}:{json.dumps(value)}}}".encode()
    whole = {**others, key: value}
    assert rewritten(body, whole, stripped(whole, gone)) == f"{{{inside}}}".encode()


@given(BODIES, st.lists(PATHS, max_size=3), st.lists(SETTINGS, max_size=3))
def test_the_fields_of_the_client_are_not_written_to(
    fields: dict[str, object], strip: list[tuple[str, ...]], settings: list[Setting]
) -> None:
    before = json.dumps(fields)
    filters = Filters(strip=tuple(strip), set=tuple(settings))
    completed(stripped(fields, filters), filters, "m")
    assert json.dumps(fields) == before


@given(BODIES, PATHS)
def test_what_was_taken_out_is_not_there(fields: dict[str, object], path: tuple[str, ...]) -> None:
    left: object = stripped(fields, Filters(strip=(path,)))
    for key in path[:-1]:
        left = left.get(key) if isinstance(left, dict) else None
    assert not isinstance(left, dict) or path[-1] not in left
