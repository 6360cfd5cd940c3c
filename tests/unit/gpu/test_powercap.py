"""The power cap: groups 11 and 12 of docs/gpu.md, "What is tested"."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu.base import PowerCap, no_cap
from mtpd.gpu.host import HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.gpu.nvml import NvmlProvider
from mtpd.gpu.powercap import CapError, CapNotAppliedError, CapState, apply, judge
from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import HOST, DeviceKey
from tests.fakes import sysfs
from tests.fakes.bindings import FakeNvml
from tuner.power import CapHeld
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NVIDIA = DeviceKey("0000:3b:00.0")
CAP_FILE = f"{sysfs.hwmon()}/power1_cap"


def _provider(tree: sysfs.Tree) -> LayeredProvider:
    return LayeredProvider((SysfsProvider(files=tree.files()),))


@pytest.mark.parametrize(("asked", "written"), [(140, 140), (139.6, 140), (1, 1), (190, 190)])
def test_a_cap_is_written_in_whole_watts_and_read_back(
    tmp_path: Path, asked: float, written: int
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    assert apply(_provider(tree), sysfs.FIRST, asked).current_w == Value(written, "sysfs")
    assert tree.read(CAP_FILE) == f"{written}000000"


@pytest.mark.parametrize(
    ("watts", "why"),
    [
        (0, "restore the default"),
        (0.4, "restore the default"),
        (-5, "restore the default"),
        (191, "above the highest power cap of the card, 190 W"),
    ],
)
def test_a_cap_that_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, watts: float, why: str
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    with pytest.raises(CapError, match=why):
        apply(_provider(tree), sysfs.FIRST, watts)
    assert tree.read(CAP_FILE) == "150000000\n"


def test_an_empty_minimum_of_older_kernels_is_no_obstacle(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "old_kernel")
    assert apply(_provider(tree), sysfs.FIRST, 120).current_w == Value(120.0, "sysfs")


class Stubborn(SysfsProvider):
    """A driver that takes a cap and shows another."""

    def __init__(self, tree: sysfs.Tree, then: Callable[[sysfs.Tree], None]) -> None:
        super().__init__(files=tree.files())
        self._tree, self._then = tree, then

    def write_cap_w(self, key: DeviceKey, watts: int) -> None:
        self._then(self._tree)


@pytest.mark.parametrize(
    ("then", "seen"),
    [
        (lambda tree: tree.sensors(cap_w=190), "but reads 190 W"),
        (lambda tree: tree.fail(CAP_FILE, errno.EBUSY), "EBUSY"),
        (lambda tree: tree.write(CAP_FILE, "\n"), "holds ''"),
    ],
)
def test_a_cap_that_is_not_read_back_was_not_applied(
    tmp_path: Path, then: Callable[[sysfs.Tree], None], seen: str
) -> None:
    provider = LayeredProvider((Stubborn(sysfs.build(tmp_path, "idle"), then),))
    with pytest.raises(CapNotAppliedError, match=seen):
        apply(provider, sysfs.FIRST, 140)


@pytest.mark.parametrize(("code", "hint"), [(errno.EACCES, "root"), (errno.EPERM, "root")])
def test_without_the_right_to_write_the_hint_is_root(tmp_path: Path, code: int, hint: str) -> None:
    tree = sysfs.build(tmp_path, "idle")
    provider = _provider(tree)
    provider.devices()
    tree.fail(CAP_FILE, code)
    with pytest.raises(CapError) as caught:
        apply(provider, sysfs.FIRST, 140)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_driver_that_refuses_is_quoted(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    provider = _provider(tree)
    provider.devices()
    tree.fail(CAP_FILE, errno.EINVAL)
    with pytest.raises(CapError, match="EINVAL"):
        apply(provider, sysfs.FIRST, 140)


def test_without_a_card_or_a_limit_there_is_nothing_to_set(tmp_path: Path) -> None:
    with pytest.raises(CapError, match="there is no GPU"):
        apply(LayeredProvider((HostProvider(),)), HOST, 140)
    tree = sysfs.build(tmp_path, "idle")
    tree.remove(CAP_FILE)
    with pytest.raises(CapError, match="ENOENT"):
        apply(_provider(tree), sysfs.FIRST, 140)


def test_an_nvidia_card_is_capped_within_its_range() -> None:
    binding = FakeNvml()
    provider = LayeredProvider((NvmlProvider(module=binding),))
    assert apply(provider, NVIDIA, 200).current_w == Value(200.0, "nvml"), "the lowest is allowed"
    assert apply(provider, NVIDIA, 300).current_w == Value(300.0, "nvml")
    assert binding.limit_set == 300_000
    with pytest.raises(CapError, match="below the lowest power cap of the card, 200 W"):
        apply(provider, NVIDIA, 150)
    binding.obeys = False
    with pytest.raises(CapNotAppliedError, match="set to 250 W, but reads 300 W"):
        apply(provider, NVIDIA, 250)
    binding.broken = {"nvmlDeviceSetPowerManagementLimit"}
    with pytest.raises(CapError, match="may not be set"):
        apply(provider, NVIDIA, 300)
    with pytest.raises(CapError, match="gone"):
        apply(provider, sysfs.FIRST, 300)


# --- how far a cap can be trusted ------------------------------------------------------------

HELD = CapHeld(held=True, mean_w=148.0, peak_w=152.0, duration_s=60.0)
BROKEN = CapHeld(held=False, mean_w=171.0, peak_w=175.0, duration_s=60.0)
IDLE = Unknown("the card was not busy")
CAPPED = PowerCap(current_w=Value(150.0, "sysfs"), supported=True)


@pytest.mark.parametrize(
    ("cap", "wanted_w", "held", "state", "comparable"),
    [
        (CAPPED, 150.0, HELD, CapState.OBSERVED, True),
        (CAPPED, 150.0, IDLE, CapState.DECLARED, True),
        (CAPPED, 150.0, None, CapState.DECLARED, True),
        (CAPPED, 150.0, BROKEN, CapState.WRONG, False),
        (CAPPED, 190.0, HELD, CapState.WRONG, False),
        (CAPPED, None, HELD, CapState.UNDECLARED, False),
        (no_cap(Absent("EPERM")), 150.0, None, CapState.UNKNOWN, False),
        (
            PowerCap(current_w=Absent("no file"), supported=False),
            150.0,
            None,
            CapState.UNSUPPORTED,
            False,
        ),
        (no_cap(NotApplicable("there is no GPU")), None, None, CapState.NOT_APPLICABLE, True),
    ],
)
def test_states_of_a_cap(
    cap: PowerCap,
    wanted_w: float | None,
    held: CapHeld | Unknown | None,
    state: CapState,
    comparable: bool,  # noqa: FBT001
) -> None:
    verdict = judge(cap, wanted_w=wanted_w, held=held)
    assert (verdict.state, verdict.comparable) == (state, comparable)
    assert verdict.reason


def test_the_sentences_name_the_watts() -> None:
    assert judge(CAPPED, wanted_w=150.0, held=BROKEN).reason == (
        "the card drew 171 W on average and 175 W at most while busy: "
        "the cap of 150 W is not in force"
    )
    assert "148 W on average" in judge(CAPPED, wanted_w=150.0, held=HELD).reason


def test_a_card_without_the_file_is_unsupported_and_one_asleep_is_unknown(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.remove(CAP_FILE)
    cap = _provider(tree).power_cap(sysfs.FIRST)
    assert judge(cap, wanted_w=150.0).state is CapState.UNSUPPORTED
    tree.write(f"{sysfs.device()}/power/runtime_status", "suspended\n")
    cap = _provider(tree).power_cap(sysfs.FIRST)
    assert judge(cap, wanted_w=150.0).state is CapState.UNKNOWN
