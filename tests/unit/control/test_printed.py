"""The parts of device memory that a real start has listed, as the API shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mtpd.control.memory_rows import printed_memory
from mtpd.control.printed import StartSums
from mtpd.control.shapes import logged_sums
from mtpd.memory_views import PrintedMemoryView
from mtpd.units import MIB

LOG = Path(__file__).parents[2] / "corpus" / "gpu_logs" / "free_b2_n3.log"


def test_every_part_is_what_the_log_lists_of_the_card() -> None:
    assert printed_memory(logged_sums(LOG)) == PrintedMemoryView(
        weights_bytes=round(14007.69 * MIB),
        kv_bytes=136 * MIB,
        recurrent_bytes=1197 * MIB,
        draft_bytes=round((16 + 134.02) * MIB),
        compute_bytes=round(134.28 * MIB),
    )


def test_a_line_that_is_missing_is_not_zero() -> None:
    shown = printed_memory(replace(StartSums(), weights_mib=3.0))
    assert shown is not None
    assert shown.compute_bytes is None


@pytest.mark.parametrize("sums", [None, StartSums(compute_mib=0.0)], ids=["unheard", "on the host"])
def test_nothing_on_a_device_is_nothing_to_show(sums: StartSums | None) -> None:
    assert printed_memory(sums) is None
