"""``mtpctl reload``, and what the status says of the configuration on the disk."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import EXIT_CONFIG
from mtpd.views import ConfigFileView
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, Served, served_in_thread
from tests.unit.cli.support import Mtpctl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROBLEMS = (
    "/etc/mtpd/mtpd.toml:3: server.max_wating: there is no such key; did you mean max_waiting?",
    "/etc/mtpd/mtpd.toml:9: models.x.context: must be a number",
)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        yield served


@pytest.fixture
def mtpctl(daemon: Served, capsys: pytest.CaptureFixture[str]) -> Mtpctl:
    return Mtpctl(capsys, daemon.socket)


def test_what_is_different_and_what_became_of_the_engines_is_told(mtpctl: Mtpctl) -> None:
    ran = mtpctl("reload")
    assert ran.code == 0
    shown = " ".join(ran.out.split())
    assert shown == (
        "the configuration was read again: other engine settings: qwen"
        " models.qwen.context: 4096 -> 8192 (/etc/mtpd/mtpd.toml:9)"
        " models.qwen.threads: not set -> 4 (/etc/mtpd/mtpd.toml:10)"
        " qwen: restarted with its new settings"
        " old: runs with its old settings until its requests have ended"
        " warning: /etc/mtpd/mtpd.toml:12: models.new.model: /srv/new.gguf does not exist"
    )


def test_a_configuration_with_errors_ends_in_all_of_them_and_its_own_exit_code(
    mtpctl: Mtpctl, daemon: Served
) -> None:
    daemon.backend.refused = PROBLEMS
    ran = mtpctl("reload")
    assert (ran.code, ran.out) == (EXIT_CONFIG, "")
    assert all(problem in ran.err for problem in PROBLEMS)
    assert daemon.backend.calls == []


def test_a_past_reload_is_told_by_its_sentence(mtpctl: Mtpctl) -> None:
    mtpctl("reload")
    assert "other engine settings: qwen" in " ".join(mtpctl("operations").out.split())


def test_the_status_tells_what_of_the_file_is_not_in_force(mtpctl: Mtpctl, daemon: Served) -> None:
    told = ConfigFileView(
        path="/etc/mtpd/mtpd.toml",
        read_at=views.status().started_at,
        watched=True,
        invalid_since="2026-11-29T22:44:27.000Z",
        problems=PROBLEMS,
        needs_restart=("server.listen",),
    )
    daemon.backend.view = dataclasses.replace(views.status(), config=told)
    shown = " ".join(mtpctl("status").out.split())
    assert "on disk is invalid since 11-29 22:44:27" in shown
    assert "did you mean max_waiting?" in shown
    assert "after a restart of the daemon: server.listen" in shown
    good = dataclasses.replace(told, invalid_since=None, problems=(), needs_restart=())
    daemon.backend.view = dataclasses.replace(views.status(), config=good)
    assert "config" not in mtpctl("status").out
