"""The snapshot's codec: what is written comes back, and nothing else is believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mtpd.store.snapshot import Good, decode, encode
from mtpd.types import Absent
from mtpd.views import ArmView

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ARMS = st.one_of(
    st.builds(ArmView, profile=TEXT, drafter=st.just("none"), depth=st.just(0), p_min=st.just(0.0)),
    st.builds(
        ArmView,
        profile=TEXT,
        drafter=st.just("mtp"),
        depth=st.integers(1, 16),
        p_min=st.floats(0, 1, exclude_max=True),
    ),
)
GOODS = st.lists(
    st.builds(
        Good,
        subject=TEXT,
        arm=ARMS,
        fingerprint=TEXT,
        reason=TEXT,
        decision_id=st.none() | st.integers(1, 2**40),
        at=TEXT,
    ),
    max_size=5,
)


@given(GOODS)
def test_choices_come_back_unchanged(choices: list[Good]) -> None:
    assert decode(encode(choices)) == tuple(choices)


@given(GOODS, st.data())
def test_a_changed_byte_is_noticed_or_changes_nothing(
    choices: list[Good], data: st.DataObject
) -> None:
    content = bytearray(encode(choices))
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    found = decode(bytes(content))
    assert isinstance(found, Absent) or found == tuple(choices)


@given(st.binary(max_size=200))
def test_junk_is_no_snapshot(content: bytes) -> None:
    assert isinstance(decode(content), Absent)
