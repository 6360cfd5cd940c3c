"""``mtpctl recipe`` against the scripted daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.backend import ScriptedBackend, ServedInThread, served_in_thread
from tests.unit.cli.support import Mtpctl, check_golden

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedInThread]:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        yield served


@pytest.fixture
def mtpctl(daemon: ServedInThread, capsys: pytest.CaptureFixture[str]) -> Mtpctl:
    return Mtpctl(capsys, daemon.socket)


def test_a_plan_changes_nothing(mtpctl: Mtpctl, daemon: ServedInThread) -> None:
    ran = mtpctl("recipe", "b2", "default")
    assert ran.code == 0
    check_golden("recipe_plan", ran.out)
    assert daemon.backend.calls == []


def test_with_run_the_file_is_made_and_measured(mtpctl: Mtpctl, daemon: ServedInThread) -> None:
    ran = mtpctl("recipe", "b2", "default", "--run", "--corpus", "wiki.raw", "--chunks", "16")
    assert ran.code == 0
    check_golden("recipe_made", ran.out)
    text = str(Path.cwd() / "wiki.raw")
    body = {"model": "default", "corpus": text, "chunks": 16, "context": 512}
    assert daemon.backend.calls == [("recipe", body)]


def test_without_a_text_nothing_is_measured(mtpctl: Mtpctl, daemon: ServedInThread) -> None:
    ran = mtpctl("recipe", "b2", "default", "--run")
    assert ran.code == 0
    assert "PPL" not in ran.out
    assert daemon.backend.calls[0][1]["corpus"] is None


def test_a_text_without_run_is_a_usage_error(mtpctl: Mtpctl) -> None:
    ran = mtpctl("recipe", "b2", "default", "--corpus", "wiki.raw")
    assert ran.code == 2
    assert "needs --run" in ran.err


def test_an_unknown_model_is_told(mtpctl: Mtpctl) -> None:
    assert mtpctl("recipe", "b2", "nobody").code == 1
