"""What a recipe is worth: which depths become resident by it, on the study's card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.control import recipes
from mtpd.control.memory import Budget, MemoryForecast, Shape, forecast
from mtpd.control.memory_rows import depth_memory
from mtpd.engine.b2 import B2
from mtpd.engine.gguf_types import GgufTensor
from mtpd.errors import ConflictError
from mtpd.types import NotApplicable
from tests.unit.control.made import profile
from tuner.geometry import KvType
from tuner.memory import QWEN35_27B_B2, assumed
from tuner.types import Unknown

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
OUTPUT = 248320 * 5120
Q4_0 = replace(QWEN35_27B_B2, output_bytes=OUTPUT // 256 * 210)
"""The study's Q4_0 file: the B2 file with its output tensor in Q6_K."""

CHANGE = B2(
    tensor=GgufTensor(
        name="output.weight",
        shape=(5120, 248320),
        type_name="Q6_K",
        offset=0,
        n_bytes=Q4_0.output_bytes,
    ),
    gained_bytes=Q4_0.output_bytes - KvType.Q4_0.size(OUTPUT),
)


def planned(free_mib: int | None) -> MemoryForecast:
    return forecast(
        profile("q", context=16384, kv_type="q8_0", max_depth=3),
        Shape(geometry=Q4_0, calibration=assumed(Q4_0)),
        Budget(
            free_bytes=None if free_mib is None else free_mib * MIB,
            headroom_bytes=256 * MIB,
            source="a test",
        ),
        margin_bytes=None,
    )


def said(before: MemoryForecast) -> str:
    depths = recipes._depths(before, recipes._after(before))
    return recipes._reason("q", CHANGE, depths)


def test_the_gain_is_the_tensor_and_no_more() -> None:
    before = planned(16368)
    after = recipes._after(before)
    for old, new in zip(before.arms, after.arms, strict=True):
        assert not isinstance(old.predicted, Unknown)
        assert not isinstance(new.predicted, Unknown)
        assert old.predicted.total - new.predicted.total == CHANGE.gained_bytes
    assert CHANGE.gained_bytes // MIB == 312


@pytest.mark.parametrize(
    ("free_mib", "end"),
    [
        (40000, "; every depth fits already, so it gains speed and room, not residency"),
        (9000, "; no depth fits even then: mtpctl models q says what else would help"),
    ],
)
def test_far_from_the_edge_no_residency_is_promised(free_mib: int, end: str) -> None:
    assert said(planned(free_mib)) == (
        f"output.weight of q in Q4_0 instead of Q6_K is 313 MiB smaller{end}"
    )


def test_at_the_edge_the_depths_that_it_wins_are_named() -> None:
    edges = {said(planned(free)) for free in range(14000, 18000, 50)}
    assert any(": depth 0 then stays on the device, which it does not now" in one for one in edges)
    assert any("then stays on the device" in one and "depths" in one for one in edges)


def test_without_a_device_or_a_reading_the_reason_is_said() -> None:
    before = planned(None)
    assert said(before).endswith(depth_memory(before.arms[0]).reason)
    nowhere = replace(before, budget=NotApplicable("there is no GPU"))
    again = forecast(nowhere.profile, nowhere.shape, nowhere.budget, margin_bytes=None)
    assert said(again).endswith("smaller; there is no GPU")
    unknown = forecast(before.profile, Unknown("no header"), before.budget, margin_bytes=None)
    assert recipes._after(unknown) == unknown


def test_a_name_that_was_taken_meanwhile_is_left_alone(tmp_path: Path) -> None:
    part, target = tmp_path / "part", tmp_path / "m-B2.gguf"
    part.write_bytes(b"made")
    target.write_bytes(b"somebody's")
    with pytest.raises(ConflictError, match="was made by somebody else meanwhile"):
        recipes._publish(part, target)
    assert target.read_bytes() == b"somebody's"
    target.unlink()
    recipes._publish(part, target)
    assert target.read_bytes() == b"made"
    assert not part.exists()
