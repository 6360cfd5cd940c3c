from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.tuner.test_memory_properties import plans
from tuner.advisor import Device, Lever, advise
from tuner.memory import QWEN35_27B_B2, Fits, LoadPlan, assumed

MIB: Final = 2**20
CALIBRATION: Final = assumed(QWEN35_27B_B2)


@st.composite
def devices(draw: st.DrawFn) -> Device:
    return Device(
        free_bytes=draw(st.integers(min_value=12_000, max_value=26_000)) * MIB,
        headroom_bytes=draw(st.integers(min_value=0, max_value=1500)) * MIB,
        margin_bytes=draw(st.none() | st.integers(min_value=0, max_value=2000).map(MIB.__mul__)),
    )


@given(plans(), devices(), st.sets(st.sampled_from(Lever)))
@settings(max_examples=60)
def test_what_is_called_enough_fits_and_is_allowed(
    plan: LoadPlan, device: Device, allowed: set[Lever]
) -> None:
    said = advise(QWEN35_27B_B2, plan, CALIBRATION, device, allowed=allowed)
    if isinstance(said.stays, Fits):
        assert said.options == ()
    for option in said.options:
        assert option.lever in allowed
        assert option.gained_bytes > 0
        assert option.enough == isinstance(option.load.stays, Fits)
        again = advise(option.load.geometry, option.load.plan, CALIBRATION, option.load.device)
        assert isinstance(again.stays, Fits) == option.enough
    if said.together:
        assert isinstance(said.together[-1].load.stays, Fits)
        assert not any(option.enough for option in said.together[:-1])


@given(plans(), devices(), st.integers(min_value=0, max_value=4000))
@settings(max_examples=60)
def test_more_free_memory_never_makes_a_load_leave_the_device(
    plan: LoadPlan, device: Device, more: int
) -> None:
    assert device.free_bytes is not None
    larger = replace(device, free_bytes=device.free_bytes + more * MIB)
    before = advise(QWEN35_27B_B2, plan, CALIBRATION, device)
    after = advise(QWEN35_27B_B2, plan, CALIBRATION, larger)
    if isinstance(before.stays, Fits):
        assert isinstance(after.stays, Fits)
    if before.together:
        assert isinstance(after.stays, Fits) or after.together
