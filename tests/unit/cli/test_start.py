"""An interrupt while the programs load: no traceback, and the signal's own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LOADING = """
import sys

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "mtpd.cli.{name}":
            print("loading", flush=True)
            sys.stdin.read()

sys.meta_path.insert(0, Slow())
from mtpd.cli import start
sys.argv = ["{name}", "--version"]
start.{name}()
"""


@pytest.mark.parametrize("name", ["mtpd", "mtpctl"])
def test_an_interrupt_while_it_loads_ends_it_without_a_traceback(name: str) -> None:
    command = [sys.executable, "-c", LOADING.format(name=name)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=15)
    assert (process.returncode, err) == (-signal.SIGINT, "")


@pytest.mark.parametrize("name", ["mtpd", "mtpctl"])
def test_loaded_programs_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADING.format(name=name)],
        input="",
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith(f"{name}, version ")


def test_an_encoding_that_lacks_a_sign_ends_nothing(tmp_path: Path) -> None:
    command = "from mtpd.cli import start; start.mtpctl()"
    done = subprocess.run(
        [sys.executable, "-c", command, "doctor", "--config", "missing.toml"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONIOENCODING": "ascii", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "? " in done.stdout


NEEDED = """
import sys
from mtpd.cli import start
sys.argv = ["mtpd", *{words}]
try:
    start.mtpd()
except SystemExit as end:
    print(end.code)
import mtpd.app
print(*sorted(name for name in sys.modules if name.startswith(("mtpd.cli.", "rich"))))
"""
FOR_A_DAEMON = {"configured", "daemon_commands", "failure", "group", "loading", "mtpd", "start"}


def loaded(*words: str) -> tuple[str, set[str]]:
    """How the program ended, and what is loaded once the daemon is."""
    done = subprocess.run(
        [sys.executable, "-c", NEEDED.format(words=words)],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    *_, code, names = done.stdout.splitlines()
    return code, set(names.split())


def test_a_daemon_loads_no_other_command_and_nothing_that_draws() -> None:
    assert loaded("serve", "--help") == ("0", {f"mtpd.cli.{name}" for name in FOR_A_DAEMON})


def test_a_command_that_draws_loads_what_it_needs() -> None:
    code, names = loaded("token", "list", "--state-dir", "/nowhere")
    assert code == "0"
    assert {"rich.table", "mtpd.cli.token_commands"} <= names
