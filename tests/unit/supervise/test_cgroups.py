"""Where control groups of our own may be made, and what is done to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.supervise.cgroups import Cgroup, Cgroups

if TYPE_CHECKING:
    from pathlib import Path

DELEGATED = {"MTPD_CGROUP": "delegated"}
UNIT = "app.slice/mtpd.service"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The process files of a daemon that has the group UNIT of a mount below the folder."""
    folder = tmp_path / "proc/self"
    folder.mkdir(parents=True)
    mounted = tmp_path / "cgroup"
    group = mounted / UNIT
    group.mkdir(parents=True)
    (group / "cgroup.kill").touch()
    (folder / "cgroup").write_text(f"4:memory:/x\n0::/{UNIT}\n")
    (folder / "mountinfo").write_text(
        "24 1 0:22 / /proc rw - proc proc rw\n"
        f"31 1 0:26 / {mounted} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    )
    return tmp_path / "proc"


def test_they_are_made_below_the_units_group(proc: Path) -> None:
    groups = Cgroups.delegated(DELEGATED, proc)
    assert groups is not None
    group = groups.make("abc")
    assert group is not None
    assert group.path == proc.parent / "cgroup" / UNIT / "engine-abc"
    assert groups.make("abc") is None, "it exists already"
    group.remove()
    assert not group.path.exists()


@pytest.mark.parametrize("environment", [{}, {"MTPD_CGROUP": "no"}])
def test_a_group_that_nobody_delegated_is_not_divided(
    proc: Path, environment: dict[str, str]
) -> None:
    assert Cgroups.delegated(environment, proc) is None


def test_an_old_kernel_and_a_machine_without_them_have_none(proc: Path, tmp_path: Path) -> None:
    (proc.parent / "cgroup" / UNIT / "cgroup.kill").unlink()
    assert Cgroups.delegated(DELEGATED, proc) is None
    (proc / "self/mountinfo").write_text("24 1 0:22 / /proc rw - proc proc rw\n")
    assert Cgroups.delegated(DELEGATED, proc) is None
    assert Cgroups.delegated(DELEGATED, tmp_path / "nowhere") is None


def test_one_lives_while_a_process_is_in_it(tmp_path: Path) -> None:
    group, events = Cgroup(tmp_path), tmp_path / "cgroup.events"
    assert not group.lives()
    events.write_text("populated 1\nfrozen 0\n")
    assert group.lives()
    events.write_text("populated 0\nfrozen 0\n")
    assert not group.lives()
    group.kill()
    assert (tmp_path / "cgroup.kill").read_text() == "1"
