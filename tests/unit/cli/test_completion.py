"""Completion in real shells, and what it asks of a daemon."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.cli import completing
from mtpd.views import ConfigValueView
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, ServedInThread, served_in_thread
from tests.unit.cli.offline import write
from tests.unit.cli.support import Mtpctl

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(sys.executable).parent
PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin"
BASH = r"""
source /dev/stdin <<'SCRIPT'
{source}
SCRIPT
COMP_WORDS=({words} "{begun}")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_{program}_completion {program}
printf '%s\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedInThread]:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        yield served


@functools.cache
def source(program: str) -> str:
    """What ``completion bash`` prints."""
    ran = subprocess.run(
        [BIN / program, "completion", "bash"], capture_output=True, text=True, check=True
    )
    return ran.stdout


def bash(words: str, begun: str, **environment: str) -> tuple[list[str], str]:
    """What bash offers, and what was said on standard error."""
    program = words.split(maxsplit=1)[0]
    script = BASH.format(program=program, source=source(program), words=words, begun=begun)
    ran = subprocess.run(
        ["/usr/bin/env", "bash", "--norc", "-c", script],
        env={**os.environ, "PATH": PATH, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.stdout.split(), ran.stderr


@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [
        ("mtpctl", "sta", ["status"]),
        ("mtpctl operations", "ca", ["cancel"]),
        ("mtpctl tune --socket SOCKET", "def", ["default"]),
        ("mtpctl --socket SOCKET explain", "1", ["17", "16"]),
        ("mtpctl --socket SOCKET quarantine clear", "", [views.quarantined().id]),
        ("mtpctl events --types", "decision,engine.t", ["decision,engine.transition"]),
        ("mtpctl completion", "", ["bash", "zsh", "fish"]),
    ],
)
def test_bash_offers_what_there_is(
    words: str, begun: str, offered: list[str], daemon: ServedInThread
) -> None:
    assert bash(words.replace("SOCKET", str(daemon.socket)), begun) == (offered, "")


def test_names_come_from_the_configuration_of_the_daemon(daemon: ServedInThread) -> None:
    daemon.backend.config = lambda: (  # type: ignore[method-assign]  # the script of this test
        *views.config_values(),
        ConfigValueView(key='models."a.b".aliases', value=["first"], origin="x"),
        ConfigValueView(key="models.c.aliases", value=[], origin="x"),
    )
    there = {"MTPD_SOCKET": str(daemon.socket)}
    assert bash("mtpctl load", "", **there) == (["a.b", "first", "c"], "")
    assert bash("mtpctl tune", "", **there) == (["default", "a.b", "first", "c"], "")


def test_operations_and_workloads_are_offered(
    daemon: ServedInThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Mtpctl(capsys, daemon.socket)("load", "default").code == 0
    there = {"MTPD_SOCKET": str(daemon.socket)}
    assert bash("mtpctl operations show", "op", **there) == (["op-0001"], "")
    assert bash("mtpctl measurements --workload", "s", **there) == (["short"], "")


@pytest.mark.parametrize("words", ["mtpctl switch", "mtpctl operations show"])
def test_without_a_daemon_nothing_is_offered_and_nothing_said(words: str, tmp_path: Path) -> None:
    assert bash(words, "", MTPD_SOCKET=str(tmp_path / "none")) == ([], "")
    assert bash(f"{words} --url ftp://x", "") == ([], "")


def test_a_daemon_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "deaf"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        assert bash("mtpctl switch", "", MTPD_SOCKET=str(path)) == ([], "")
    assert completing.DEADLINE_S <= 1.0


def test_mtpd_offers_what_its_files_have(home: Path) -> None:
    path = write(home, '[models.small]\nmodel = "bundled:tiny-chained.gguf"\n')
    assert bash(f"mtpd plan --config {path}", "sm") == (["small"], "")
    state = home / "state"
    subprocess.run(
        [BIN / "mtpd", "token", "add", "laptop", "--state-dir", state],
        check=True,
        capture_output=True,
    )
    assert bash(f"mtpd token revoke --state-dir {state}", "") == (["laptop"], "")


@pytest.mark.shells
@pytest.mark.parametrize(
    ("program", "shell"), [("mtpd", "bash"), ("mtpctl", "zsh"), ("mtpctl", "fish")]
)
def test_every_shell_takes_the_script(program: str, shell: str, tmp_path: Path) -> None:
    made = subprocess.run([BIN / program, "completion", shell], capture_output=True, check=True)
    script = tmp_path / "script"
    script.write_bytes(made.stdout)
    flag = "--no-execute" if shell == "fish" else "-n"
    checked = subprocess.run(
        ["/usr/bin/env", shell, flag, script], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.shells
def test_fish_offers_with_a_sentence(daemon: ServedInThread) -> None:
    ran = subprocess.run(
        [
            "/usr/bin/env",
            "fish",
            "--no-config",
            "-c",
            "mtpctl completion fish | source; complete -C 'mtpctl explain 1'",
        ],
        env={**os.environ, "PATH": PATH, "MTPD_SOCKET": str(daemon.socket)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert sorted(line.split("\t")[0] for line in ran.stdout.splitlines()) == ["16", "17"]
    assert "Depth 2 gives" in ran.stdout


@pytest.mark.shells
def test_zsh_defines_the_completion() -> None:
    script = (
        "autoload -Uz compinit && compinit -u -D; source <(mtpctl completion zsh);"
        " print -r -- $_comps[mtpctl]"
    )
    ran = subprocess.run(
        ["/usr/bin/env", "zsh", "-f", "-c", script],
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.strip() == "_mtpctl_completion"
