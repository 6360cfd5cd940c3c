"""What a test may need of the machine beyond Python, said by a marker and really tried.

``pytest.mark.prometheus`` says that a test needs Prometheus. Where it is missing, the run leaves
those tests out and says so in one line with their number and how to get it; it never skips one.
Where ``MTPD_REQUIRE`` names the need (``browser,root``, or ``all``), it is an error instead,
before the first test. A further need is a row of ``NEEDS``, and its packages a line of
``.ci/packages``.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.fakes.memory_group import lack as lack_of_memory_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["NEEDS", "Need", "chromium", "libfaketime", "needs_of", "present"]

_REQUIRE: Final = "MTPD_REQUIRE"
_LEFT_OUT: Final = pytest.StashKey[dict[str, int]]()
_PATHS: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))

_AS_ROOT: Final = """
folder=$1
mount -t tmpfs none "$folder"
truncate --size 4M "$folder/image"
mkfs.ext4 -q "$folder/image"
mkdir "$folder/disk"
mount -o loop "$folder/image" "$folder/disk"
echo written > "$folder/disk/file"
umount "$folder/disk"
"""
"""What tests that need root do: mount, and use a file as a disk, in namespaces of their own."""

_A_FREEZER: Final = """
mount -t cgroup -o freezer cgroup "$1"
mkdir "$1/mtpd-tried-$$"
rmdir "$1/mtpd-tried-$$"
"""
"""What makes a process that not even SIGKILL ends, in a mount namespace."""

_A_SYSTEMD: Final = """
mount --make-rprivate /
umount --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
test -x /lib/systemd/systemd
"""
"""What a systemd inside namespaces stands on."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Something that some tests need and some machines lack."""

    marker: str
    what: str
    """Completes "tests that need"."""
    get: str
    """How to get it: a command, or a sentence."""
    lack: Callable[[], str | None]
    """What is missing, or None."""


def chromium() -> str | None:
    """The browser's path."""
    return shutil.which("chromium", path=_PATHS)


def libfaketime() -> str | None:
    """The path of the library that answers with another time."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else None


def _programs(*names: str) -> Callable[[], str | None]:
    def lack() -> str | None:
        absent = [name for name in names if shutil.which(name, path=_PATHS) is None]
        return f"no {', no '.join(absent)} on the PATH" if absent else None

    return lack


def _tried(script: str, *namespaces: str) -> Callable[[], str | None]:
    """Runs a script as root in namespaces; what went wrong is its last line."""

    def lack() -> str | None:
        if os.geteuid() != 0:
            return "not root"
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run(
                ("/usr/bin/env", "unshare", *namespaces, "sh", "-ec", script, "sh", folder),
                env={"PATH": _PATHS, "LANG": "C.UTF-8"},
                capture_output=True,
                text=True,
                check=False,
            )
        if said.returncode == 0:
            return None
        return (said.stderr.strip().splitlines() or [f"exit code {said.returncode}"])[-1]

    return lack


def _both(*tries: Callable[[], str | None]) -> Callable[[], str | None]:
    return lambda: next((said for one in tries if (said := one()) is not None), None)


_IN_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

NEEDS: Final = (
    Need(
        marker="systemd",
        what="systemd's own judgement of units",
        get="apt-get install systemd",
        lack=_programs("systemd-analyze", "systemd-sysusers"),
    ),
    Need(
        marker="nested",
        what="a systemd of their own",
        get="apt-get install systemd curl procps, and root that may mount cgroup2",
        lack=_both(
            _programs("systemctl", "curl", "pgrep"),
            _tried(_A_SYSTEMD, *_IN_NAMESPACES, "--cgroup"),
        ),
    ),
    Need(
        marker="root",
        what="root, namespaces and loop devices",
        get="run as root where mount(8) and losetup(8) work",
        lack=_tried(_AS_ROOT, *_IN_NAMESPACES),
    ),
    Need(
        marker="freezer",
        what="the freezer of cgroup v1",
        get="run as root where mount -t cgroup -o freezer works",
        lack=_tried(_A_FREEZER, "--mount"),
    ),
    Need(
        marker="memory",
        what="a control group with a limit of memory",
        get="run as root where a group with the memory controller can be made",
        lack=lack_of_memory_groups,
    ),
    Need(
        marker="strace",
        what="strace",
        get="apt-get install strace",
        lack=_programs("strace"),
    ),
    Need(
        marker="faketime",
        what="libfaketime",
        get="apt-get install libfaketime",
        lack=lambda: None if libfaketime() else "no libfaketimeMT.so.1 in /usr/lib",
    ),
    Need(
        marker="browser",
        what="Chromium",
        get="apt-get install chromium",
        lack=_programs("chromium"),
    ),
    Need(
        marker="prometheus",
        what="Prometheus",
        get="apt-get install prometheus",
        lack=_programs("prometheus", "promtool"),
    ),
    Need(
        marker="man",
        what="groff and man",
        get="apt-get install groff man-db",
        lack=_programs("groff", "man"),
    ),
    Need(
        marker="shells",
        what="bash, zsh and fish",
        get="apt-get install bash zsh fish",
        lack=_programs("bash", "zsh", "fish"),
    ),
)
_BY_MARKER: Final = {need.marker: need for need in NEEDS}


@functools.cache
def _lack(marker: str) -> str | None:
    return _BY_MARKER[marker].lack()


def present(marker: str) -> bool:
    """Whether this machine has it; tried once in a process."""
    return _lack(marker) is None


def needs_of(item: pytest.Item) -> list[str]:
    """The needs that a test names, in the order of ``NEEDS``."""
    return [need.marker for need in NEEDS if item.get_closest_marker(need.marker) is not None]


def _required() -> list[str]:
    """The needs that must be there.

    Raises:
        pytest.UsageError: The variable names one that does not exist.
    """
    words = [word.strip() for word in os.environ.get(_REQUIRE, "").split(",") if word.strip()]
    if words == ["all"]:
        return list(_BY_MARKER)
    unknown = [word for word in words if word not in _BY_MARKER]
    if unknown:
        known = ", ".join(_BY_MARKER)
        message = f"{_REQUIRE} names {', '.join(unknown)}; there are {known}, or all"
        raise pytest.UsageError(message)
    return words


def _sentence(marker: str) -> str:
    need = _BY_MARKER[marker]
    return f"{need.what} ({_lack(marker)}): {need.get}"


def pytest_configure(config: pytest.Config) -> None:
    for need in NEEDS:
        config.addinivalue_line("markers", f"{need.marker}: needs {need.what}; left out without")
    if not hasattr(config, "workerinput"):
        absent = [marker for marker in _required() if not present(marker)]
        if absent:
            raise pytest.UsageError(
                *(f"required tests need {_sentence(marker)}" for marker in absent)
            )


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: dict[str, int] = {}
    stay = []
    for item in items:
        needs = needs_of(item)
        item.user_properties.append(("needs", " ".join(needs)))
        absent = [marker for marker in needs if not present(marker)]
        if absent:
            left_out[absent[0]] = left_out.get(absent[0], 0) + 1
        else:
            stay.append(item)
    config.stash[_LEFT_OUT] = left_out
    if left_out:
        kept = set(stay)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = stay


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash.get(_LEFT_OUT, {})


class _Workers:
    """Hears what the processes of pytest-xdist left out; each of them collects everything."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        config: pytest.Config = node.config  # type: ignore[attr-defined]
        told = getattr(node, "workeroutput", {}).get("left_out")
        if told is not None:
            config.stash[_LEFT_OUT] = told


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Workers(), "needs-of-workers")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in _told(config.stash.get(_LEFT_OUT, {}).items()):
        terminalreporter.write_line(line, yellow=True)


def _told(left_out: Iterable[tuple[str, int]]) -> list[str]:
    lines = []
    for marker, count in left_out:
        those = "test that needs" if count == 1 else "tests that need"
        lines.append(f"left out: {count} {those} {_sentence(marker)}")
    return lines
