"""How long the machine slept, and how it is said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mtpd.clock import SystemClock
from mtpd.suspend import LEAST_S, lasted_s, length, sentence


def test_two_clocks_that_are_read_one_after_the_other_are_no_suspend() -> None:
    clock = SystemClock()
    slept = {clock.slept() for _ in range(10_000)}
    assert max(slept) - min(slept) < 0.2
    assert lasted_s(min(slept), max(slept)) == 0.0


@pytest.mark.parametrize(
    ("gone_s", "lasted"),
    [(0.0, 0.0), (LEAST_S, 0.0), (2.1, 2.1), (28_800.0, 28_800.0), (-28_800.0, 0.0)],
)
def test_only_what_is_long_enough_counts(gone_s: float, lasted: float) -> None:
    assert lasted_s(0.0, gone_s) == lasted


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0.4, "0 s"),
        (41.3, "41 s"),
        (28_799.9999, "8 h"),
        (86_399.0, "23 h 59 min"),
        (60, "1 min"),
        (28_800.4, "8 h"),
        (28_860, "8 h 1 min"),
        (28_801, "8 h"),
        (93_600, "1 d 2 h"),
        (86_460, "1 d"),
    ],
)
def test_a_length_has_its_two_largest_units(seconds: float, says: str) -> None:
    assert length(seconds) == says
    assert sentence(seconds) == f"the machine was suspended for {says}"


@pytest.mark.root
@pytest.mark.parametrize("asleep_s", [0, 28_800])
def test_it_is_the_kernels_two_clocks_that_are_compared(asleep_s: int) -> None:
    """A time namespace has clocks with offsets, as a machine has that slept so long."""
    says = "from mtpd.clock import SystemClock; print(SystemClock().slept())"
    offsets = ("--time", "--boottime", str(asleep_s), "--monotonic", "0")
    told = subprocess.run(
        ("/usr/bin/env", "unshare", *offsets, sys.executable, "-c", says),
        capture_output=True,
        check=True,
        text=True,
    )
    assert float(told.stdout) - SystemClock().slept() == pytest.approx(asleep_s, abs=0.5)
