"""The control socket of a real daemon, asked by other users of the machine.

The daemon is a user of its own, as its unit makes it. It keeps the right to read what is root's, so
that it can run from wherever this checkout lies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.house import home
from tests.fakes.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fakes.serve import Serving

pytestmark = [pytest.mark.root, pytest.mark.slow]

DAEMON, GROUP, STRANGER = 61001, 61002, 61003
READS = "+dac_read_search"
AS_ITSELF = (
    *("setpriv", f"--reuid={DAEMON}", f"--regid={GROUP}", "--clear-groups"),
    *(f"--inh-caps={READS}", f"--ambient-caps={READS}", "--"),
)
CLIENT = """
import os, socket, sys
path, uid, gid, *groups = sys.argv[1:]
os.setgroups([int(group) for group in groups])
os.setgid(int(gid))
os.setuid(int(uid))
with socket.socket(socket.AF_UNIX) as sock:
    try:
        sock.connect(path)
    except OSError as error:
        sys.exit(print(type(error).__name__))
    sock.sendall(b"GET /mtpd/v1/status HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n")
    print(sock.recv(65536).decode().split()[1])
"""


@asynccontextmanager
async def of_another_user() -> AsyncIterator[Serving]:
    """A daemon that is neither root nor whoever asks."""
    async with home() as place:
        for path in (place.root, *place.root.rglob("*")):
            os.chown(path, DAEMON, GROUP)
        async with serve(place, before=AS_ITSELF) as daemon:
            await daemon.until_serving()
            yield daemon
            assert await daemon.end(signal.SIGTERM) == 0


def asked(path: Path, uid: int, gid: int, *groups: int) -> str:
    """What a user is answered: an HTTP status, or why it did not come to that."""
    words = [str(word) for word in (path, uid, gid, *groups)]
    command = [sys.executable, "-I", "-c", CLIENT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


async def test_who_may_not_use_the_control_socket_is_refused_by_its_mode_and_by_its_name() -> None:
    async with of_another_user() as daemon:
        place = daemon.place
        path = place.directories.control_socket(None)
        assert path.stat().st_uid == DAEMON
        assert asked(path, STRANGER, STRANGER) == "PermissionError", "by the directory"
        for folder in (place.root, path.parent):
            folder.chmod(0o755)
        assert path.stat().st_mode & 0o777 == 0o600
        assert asked(path, STRANGER, STRANGER) == "PermissionError", "by the socket's own mode"
        assert asked(path, STRANGER, STRANGER, GROUP) == "PermissionError", "its group, too"
        path.chmod(0o666)
        assert asked(path, STRANGER, STRANGER) == "403", "by what the kernel tells of the peer"
        assert asked(path, STRANGER, STRANGER, GROUP + 50) == "403"
        assert asked(path, DAEMON + 50, GROUP + 50) == "403"


async def test_root_the_daemons_own_user_and_members_of_its_group_are_admitted() -> None:
    async with of_another_user() as daemon:
        place = daemon.place
        path = place.directories.control_socket(None)
        for folder in (place.root, path.parent):
            folder.chmod(0o755)
        path.chmod(0o660)  # as SocketMode= of the socket unit
        assert asked(path, 0, 0) == "200"
        assert asked(path, DAEMON, DAEMON + 50) == "200"
        assert asked(path, STRANGER, GROUP) == "200", "its primary group"
        assert asked(path, STRANGER, STRANGER, GROUP + 50, GROUP) == "200", "one of its others"
        assert asked(path, STRANGER, STRANGER) == "PermissionError"


def doctor(path: Path, config: Path, *, uid: int) -> tuple[int, dict[str, dict[str, str]], str]:
    """What it says to a user: its exit code, what each check saw, and all of it."""
    as_whom: tuple[str, ...] = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    if uid:
        as_whom += (f"--inh-caps={READS}", f"--ambient-caps={READS}")
    code = "from mtpd.cli.mtpctl import main; main()"
    command = [*as_whom, "--", sys.executable, "-c", code, "--socket", str(path)]
    ran = subprocess.run(
        [*command, "--json", "doctor", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    view = json.loads(ran.stdout)
    return ran.returncode, {one["name"]: one for one in view["checks"]}, ran.stdout


async def test_doctor_asks_the_daemon_where_it_keeps_its_files() -> None:
    async with of_another_user() as daemon:
        place = daemon.place
        path = place.directories.control_socket(None)
        code, seen, said = doctor(path, place.config, uid=0)
        assert code == 0, said
        assert str(place.directories.state) in seen["state"]["says"]
        assert seen["tokens"]["says"] == "none, loopback only"


@pytest.mark.parametrize("mode", [0o600, 0o666])
async def test_doctor_says_whose_daemon_does_not_answer_and_blames_nothing_on_it(mode: int) -> None:
    async with of_another_user() as daemon:
        place = daemon.place
        path = place.directories.control_socket(None)
        for folder in (place.root, path.parent):
            folder.chmod(0o755)
        path.chmod(mode)
        code, seen, said = doctor(path, place.config, uid=STRANGER)
        assert code == 1
        told = f"the daemon of {DAEMON} at the socket {path} does not admit {STRANGER}: "
        assert told in said
        assert f"sudo mtpctl --socket {path} doctor" in said
        assert seen["state"]["says"].startswith(f"where {DAEMON} keeps it is not known")
        for check in ("port", "control socket"):
            assert seen[check]["says"].startswith("not looked at: ")


LOOKER = """
import os, sys
from pathlib import Path
from mtpd.cli.client import find_target
from mtpd.config import directories
from mtpd.engine.binary import on_path
closed, other = map(Path, sys.argv[1:])
directories._SYSTEM_CONFIG = closed / "mtpd.toml"
os.setgid(61003)
os.setuid(61003)
environment = {"XDG_RUNTIME_DIR": "/nowhere", "HOME": "/nowhere"}
sockets = (closed / "control.sock", other)
print(find_target(socket_path=None, url=None, environment=environment, system_sockets=sockets))
print(directories.find_config(environment))
print(on_path("sh", f"{closed}:/bin"))
"""


def test_a_directory_that_is_closed_to_us_hides_what_is_in_it_and_ends_nothing() -> None:
    """As /run/mtpd and /etc/mtpd of the service are for everybody else."""
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as name:
        closed, other = Path(name, "closed"), Path(name, "control.sock")
        closed.mkdir(mode=0o700)
        for inside in ("control.sock", "mtpd.toml", "sh"):
            (closed / inside).touch(mode=0o755)
        other.touch()
        Path(name).chmod(0o755)
        command = [sys.executable, "-c", LOOKER, str(closed), str(other)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == [f"the socket {other}", "None", "/bin/sh"], ran.stderr
