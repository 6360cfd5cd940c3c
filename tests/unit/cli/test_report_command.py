"""``mtpctl report`` and ``mtpctl measurements --id`` against a scripted daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.decode import decode
from mtpd.report_views import ReportView
from tests.fakes import study
from tests.fakes.backend import ScriptedBackend, Served, served_in_thread
from tests.unit.cli.support import Mtpctl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Served]:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        yield served


@pytest.fixture
def mtpctl(daemon: Served, capsys: pytest.CaptureFixture[str]) -> Mtpctl:
    return Mtpctl(capsys, daemon.socket)


def test_without_options_it_is_markdown_on_the_terminal(mtpctl: Mtpctl) -> None:
    ran = mtpctl("report", "default")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("# What was measured: default\n")
    assert "## The measurement matrix" in ran.out
    assert "![" not in ran.out, "there are no files beside a terminal"


@pytest.mark.parametrize("args", [("--json",), ("--format", "json")])
def test_json_is_the_answer_of_the_api(mtpctl: Mtpctl, args: tuple[str, ...]) -> None:
    ran = mtpctl("report", *args)
    assert decode(ReportView, json.loads(ran.out)) == study.report()


@pytest.mark.parametrize(
    ("form", "begins"), [("csv", "model,tags,size_bytes"), ("html", "<!DOCTYPE html>")]
)
def test_other_forms_go_to_the_terminal_or_to_a_file(
    mtpctl: Mtpctl, tmp_path: Path, form: str, begins: str
) -> None:
    shown = mtpctl("report", "--format", form).out
    assert shown.startswith(begins)
    file = tmp_path / f"r.{form}"
    ran = mtpctl("report", "--output", str(file))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"wrote {file}\n"
    assert file.read_bytes().decode() == shown
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]


def test_markdown_in_a_file_has_its_drawings_beside_it(mtpctl: Mtpctl, tmp_path: Path) -> None:
    file = tmp_path / "r.md"
    ran = mtpctl("report", "--output", str(file))
    assert ran.code == 0
    names = {one.name for one in tmp_path.glob("*.svg")}
    assert "r-matrix.svg" in names
    assert "r-qwen3.6-27b-b2-acceptance.svg" in names
    text = file.read_text(encoding="utf-8")
    assert all(f"]({name})" in text for name in names)
    assert ran.err.splitlines()[-1] == f"wrote {file}", "after all that it shows"
    assert (tmp_path / "r-matrix.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_what_cannot_be_done_is_said(mtpctl: Mtpctl, tmp_path: Path) -> None:
    both = mtpctl("report", "--json", "--format", "csv")
    assert both.code == 2
    assert "--json and --format csv exclude each other" in both.err
    gone = mtpctl("report", "--output", str(tmp_path / "no" / "r.md"))
    assert gone.code == 1
    assert "cannot be written: No such file or directory" in " ".join(gone.err.split())
    unknown = mtpctl("report", "nobody")
    assert unknown.code == 1
    assert "nobody" in unknown.err


def test_the_ids_of_a_report_print_their_measurements(daemon: Served, mtpctl: Mtpctl) -> None:
    ran = mtpctl("measurements", "--id", "1-2,4", "--json")
    assert [one["id"] for one in json.loads(ran.out)["measurements"]] == [1, 2, 4]
    name, asked = daemon.backend.calls[-1]
    assert (name, asked["ids"], asked["limit"]) == ("measurements", (1, 2, 4), 3)
    mtpctl("measurements")
    assert daemon.backend.calls[-1][1]["limit"] == 50


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ("x", "'x' is not a list of ids such as 1-12,17"),
        ("0", "'0' is not a range within 1-"),
        ("5-4", "'5-4' is not a range within 1-"),
        ("1-900", "names more than 400 ids"),
    ],
)
def test_ids_that_are_none_are_refused(mtpctl: Mtpctl, ids: str, said: str) -> None:
    ran = mtpctl("measurements", "--id", ids)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())
