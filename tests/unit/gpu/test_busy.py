"""Whether other work makes speeds measured on the processor doubtful."""

from __future__ import annotations

import pytest

from mtpd.gpu.host import busy_note, busy_now


@pytest.mark.parametrize(("load", "cores"), [(0.0, 1), (0.5, 1), (1.0, 2), (8.0, 16)])
def test_half_of_the_cores_may_be_in_use(load: float, cores: int) -> None:
    assert busy_note(load=load, cores=cores) is None


def test_a_busy_machine_is_told_with_its_load() -> None:
    note = busy_note(load=3.04, cores=2)
    assert note is not None
    assert note.startswith("the machine was busy when this began (load 3.0 on 2 cores)")


def test_this_machine_can_be_asked() -> None:
    note = busy_now()
    assert note is None or "cores" in note
