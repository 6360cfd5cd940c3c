from __future__ import annotations

import pytest

from mtpd.engine.memory_look import MemoryLook
from mtpd.supervise.creep import Creep
from mtpd.types import Absent, Value
from mtpd.units import MIB


def feed(used_mib: list[int | None], *, every_s: float = 60.0, total: int | None = 16_368) -> Creep:
    """A creep that saw these values, and counted how often it spoke."""
    creep = Creep()
    spoke = 0
    for number, mib in enumerate(used_mib):
        used = Absent("gone") if mib is None else Value(mib * MIB, "sysfs")
        spoke += creep.add(
            MemoryLook(
                at_s=number * every_s,
                vram_total_bytes=Absent("gone") if total is None else Value(total * MIB, "sysfs"),
                vram_used_bytes=used,
                gtt_used_bytes=Absent("gone"),
                processes=Absent("gone"),
            )
        )
    assert spoke == (creep.grown_bytes > 0)
    return creep


def test_memory_that_grows_minute_by_minute_is_found_once_and_says_when_the_card_is_full() -> None:
    creep = feed([14_000 + 10 * minute for minute in range(40)])
    assert creep.grown_bytes == 100 * MIB
    assert creep.window_s == pytest.approx(600.0)
    assert creep.full_in_s == pytest.approx((16_368 - 14_100) / 10 * 60)


def test_looks_within_a_minute_count_as_one() -> None:
    assert feed([14_000 + number for number in range(500)], every_s=1.0).grown_bytes == 0


@pytest.mark.parametrize(
    "used",
    [
        [14_000] * 40,
        [14_000] * 5 + [14_500] * 35,  # one long prompt
        [14_000 + minute for minute in range(40)],  # 10 MiB in ten minutes
        [14_000 + 100 * (minute % 2) for minute in range(40)],
        [14_000 + 20 * minute - 60 * (minute % 5 == 4) for minute in range(40)],  # gives back
        [14_000 + 20 * minute if minute % 5 else None for minute in range(40)],
        [14_000 + 20 * minute for minute in range(10)],
    ],
)
def test_growth_that_is_no_creep_is_not_called_one(used: list[int | None]) -> None:
    assert feed(used).grown_bytes == 0


def test_a_card_of_unknown_size_is_full_at_an_unknown_time() -> None:
    creep = feed([14_000 + 10 * minute for minute in range(12)], total=None)
    assert creep.grown_bytes
    assert creep.full_in_s is None
