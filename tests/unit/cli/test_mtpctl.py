"""Every command of ``mtpctl`` against a scripted daemon on real sockets."""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.api.routes import PREFIX
from mtpd.cli.decode import decode
from mtpd.explanation_views import ExplanationView
from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView, RecipeView
from mtpd.views import (
    ConfigValueView,
    DecisionView,
    MeasurementView,
    ModelView,
    OperationView,
    StatusView,
)
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, Served, served_in_thread
from tests.fakes.values import operation_view
from tests.unit.cli.support import Mtpctl, check_golden

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


def body_of(served: Served, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    try:
        connection.request("GET", PREFIX + path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_before_the_first_operation_there_is_a_sentence(
    mtpctl: Mtpctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # only a terminal's width may count
    ran = mtpctl("operations")
    assert (ran.code, ran.err) == (0, "")
    check_golden("operations_none", ran.out)


@pytest.mark.parametrize(
    ("args", "path"),
    [
        (["status"], "/status"),
        (["models"], "/models"),
        (["models", "default"], "/models/default"),
        (["measurements", "--depth", "2", "--limit", "1"], "/measurements?depth=2&limit=1"),
        (["decisions", "--subject", "default"], "/decisions?subject=default&limit=20"),
        (["explain", "16"], "/explain?id=16"),
        (["explain", "--subject", "default"], "/explain?subject=default"),
        (["config"], "/config"),
        (["operations"], "/operations?limit=20"),
        (["operations", "list"], "/operations"),
    ],
)
def test_json_is_the_apis_body_byte_for_byte(
    args: list[str], path: str, mtpctl: Mtpctl, daemon: Served
) -> None:
    expected = body_of(daemon, path)
    for given in (["--json", *args], [*args, "--json"]):
        ran = mtpctl(*given)
        assert (ran.code, ran.out, ran.err) == (0, expected, "")


@pytest.mark.parametrize(
    ("args", "member", "kind"),
    [
        (["status"], None, StatusView),
        (["models"], "models", ModelView),
        (["models", "default"], None, ModelView),
        (["measurements"], "measurements", MeasurementView),
        (["decisions"], "decisions", DecisionView),
        (["explain"], None, ExplanationView),
        (["config"], "config", ConfigValueView),
        (["switch", "default"], None, OperationView),
        (["load", "default"], None, OperationView),
        (["unload"], None, OperationView),
        (["reload"], None, OperationView),
        (["reload", "--detach"], None, OperationView),
        (["tune", "default"], None, OperationView),
        (["sweep", "default"], None, OperationView),
        (["probe", "default"], None, OperationView),
        (["probe", "default", "--detach"], None, OperationView),
        (["ppl"], "perplexities", PerplexityView),
        (["ppl", "default", "v"], None, PplComparisonView),
        (["ppl", "default", "--corpus", "/t"], None, OperationView),
        (["bench"], "baselines", BaselineView),
        (["bench", "default"], None, OperationView),
        (["recipe", "b2", "default"], None, RecipeView),
        (["recipe", "b2", "default", "--run"], None, OperationView),
    ],
)
def test_json_has_exactly_the_members_of_its_view(
    args: list[str], member: str | None, kind: type[Any], mtpctl: Mtpctl
) -> None:
    ran = mtpctl("--json", *args)
    data = json.loads(ran.out)
    items = [data] if member is None else data[member]
    assert ran.code == 0
    assert items
    for item in items:
        decode(kind, item)
        assert list(item) == list(kind.__dataclass_fields__)


@pytest.mark.parametrize(
    ("args", "kind", "params"),
    [
        (
            ["switch", "default", "--depth", "2", "--force"],
            "switch",
            {"model": "default", "depth": 2, "force": True},
        ),
        (["switch", "default"], "switch", {"model": "default", "depth": None, "force": False}),
        (
            ["switch", "default", "--measured"],
            "switch",
            {"model": "default", "depth": None, "force": False, "measured": True},
        ),
        (["load", "default"], "load", {"model": "default"}),
        (["unload"], "unload", {"model": None}),
        (["reload"], "reload", {}),
        (["unload", "default"], "unload", {"model": "default"}),
        (["probe", "default", "--depth", "3"], "probe", {"model": "default", "depth": 3}),
    ],
)
def test_a_command_asks_for_what_was_said(
    args: list[str], kind: str, params: object, mtpctl: Mtpctl, daemon: Served
) -> None:
    assert mtpctl(*args).code == 0
    assert daemon.backend.calls == [(kind, params)]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["tune"], {"subject": "default", "method": "model-based", "depths": None, "apply": True}),
        (
            ["tune", "x", "--method", "sweep", "--depths", "0-2,4", "--no-apply"],
            {"subject": "x", "method": "sweep", "depths": [0, 1, 2, 4], "apply": False},
        ),
        (
            ["sweep", "x"],
            {"subject": "x", "method": "sweep", "depths": None, "apply": False},
        ),
    ],
)
def test_tuning_asks_for_what_was_said(
    args: list[str], expected: dict[str, object], mtpctl: Mtpctl, daemon: Served
) -> None:
    assert mtpctl(*args).code == 0
    [(kind, params)] = daemon.backend.calls
    assert kind == "tune"
    assert {name: params[name] for name in expected} == expected


def test_a_sweep_says_how_far_it_is_and_ends_with_the_table(mtpctl: Mtpctl) -> None:
    ran = mtpctl("sweep", views.QWEN)
    assert ran.code == 0
    check_golden("sweep", ran.out)
    said = ran.err.splitlines()
    assert said, "a long operation without a terminal says how far it is"
    assert said.pop(0).startswith("requests wait until this ends, each at most queue_timeout_s")
    assert all(line.startswith(("queued", "running")) for line in said)
    assert len(set(said)) == len(said)


def test_operations_are_listed_shown_and_cancelled(mtpctl: Mtpctl, daemon: Served) -> None:
    daemon.backend.held = {"tune"}
    assert mtpctl("tune", "default", "--detach").code == 0
    assert re.search(r"^op-0001  tune  (queued|running)", mtpctl("operations").out)
    assert "op-0001: tune" in mtpctl("operations", "show", "op-0001").out
    cancelled = mtpctl("operations", "cancel", "op-0001", "--json")
    assert json.loads(cancelled.out)["state"] == "cancelled"
    again = mtpctl("operations", "cancel", "op-0001")
    assert again.out.startswith("It had ended before: cancelled. Nothing was cancelled.")
    assert mtpctl("tune", "default", "--detach").code == 0
    assert mtpctl("operations", "cancel", "op-0002").out.startswith("It has ended.")


def test_a_failed_operation_ends_with_its_sentence_and_hint(mtpctl: Mtpctl, daemon: Served) -> None:
    daemon.backend.failing = {"switch"}
    ran = mtpctl("switch", "default")
    assert ran.code == 1
    assert "ran out of device memory" in ran.err
    assert "smaller context" in ran.err
    as_json = mtpctl("switch", "default", "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["state"] == "failed"


def test_a_cancelled_operation_is_a_failure_for_the_one_who_waits(
    mtpctl: Mtpctl, daemon: Served
) -> None:
    backend = daemon.backend
    step = backend._step

    def cancel_soon(found: OperationView) -> None:
        step(found)
        if found.state == "running":
            note = "cancelled by request; alpha@3 serves again"
            now = dataclasses.replace(found.progress, note=note)
            backend._move(found, state="cancelled", progress=now)

    backend._step = cancel_soon  # type: ignore[method-assign]  # the script of this test
    ran = mtpctl("tune", "default")
    assert (ran.code, "op-0001 was cancelled: cancelled by request; alpha@3" in ran.err) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("args", "sentence", "hint"),
    [
        (["models", "nobody"], "There is no model 'nobody'.", "mtpctl models lists them."),
        (["switch", "nobody"], "There is no model 'nobody'.", "mtpctl models lists them."),
        (["switch", "default", "--depth", "9"], "at most 5 tokens, not 9", "what a model can do"),
        (["explain", "3"], "No decision has been made", "mtpctl decisions"),
        (["operations", "show", "a/b"], "There is no operation 'a/b'.", "mtpctl operations"),
    ],
)
def test_a_refusal_is_one_sentence_with_a_hint(
    args: list[str], sentence: str, hint: str, mtpctl: Mtpctl
) -> None:
    ran = mtpctl(*args)
    assert (ran.code, ran.out) == (1, "")
    assert sentence in ran.err
    assert hint in ran.err
    problem = mtpctl("--json", *args)
    assert problem.code == 1
    assert json.loads(problem.out)["type"].startswith("urn:mtpd:problem:")


@pytest.mark.parametrize(
    "args",
    [
        ["switch"],
        ["nonsense"],
        ["switch", "x", "--depth", "-1"],
        ["switch", "x", "--depth", "1", "--measured"],
        ["probe", "x", "--depth", "0"],
        ["sweep", "x", "--depths", "3-1"],
        ["sweep", "x", "--depths", "0-99"],
        ["sweep", "x", "--depths", "two"],
        ["tune", "--method", "luck"],
        ["explain", "1", "--subject", "x"],
        ["events", "--since", "yesterday"],
        ["--url", "ftp://x", "status"],
        ["--url", "http://localhost:1", "--socket", "x", "status"],
    ],
)
def test_a_wrong_use_is_told_and_asks_nothing(
    args: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    socket = [] if "--url" in args else ["--socket", str(tmp_path / "none")]
    ran = Mtpctl(capsys, tmp_path).bare(*socket, *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


def test_reads_work_over_tcp_and_changes_name_the_control_socket(
    daemon: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ctl = Mtpctl(capsys, tmp_path)
    url = f"http://127.0.0.1:{daemon.port}"
    assert "qwen3.6-27b-b2" in ctl.bare("--url", url, "status").out
    assert ctl.bare("status", "--url", url.removeprefix("http://")).code == 0
    ran = ctl.bare("--url", url, "switch", "default")
    assert ran.code == 1
    assert "control socket" in ran.err
    assert daemon.backend.calls == []


def test_several_pools_without_a_default_must_be_told_apart(mtpctl: Mtpctl, daemon: Served) -> None:
    def pools(*names: str) -> None:
        daemon.backend.config = lambda: tuple(  # type: ignore[method-assign]  # script
            ConfigValueView(key=f"pools.{name}.members", value=[], origin="x") for name in names
        )

    pools("fast", "good")
    ran = mtpctl("tune")
    assert ran.code == 2
    assert "fast, good" in ran.err
    pools("fast")
    assert mtpctl("tune").code == 0
    assert daemon.backend.calls[0][1]["subject"] == "fast"
    pools()
    assert mtpctl("tune").code == 2, "two models and no pool"


def test_quarantined_requests_are_listed_and_released(mtpctl: Mtpctl, daemon: Served) -> None:
    shown = views.quarantined()
    listed = mtpctl("quarantine", "list")
    assert listed.code == 0
    assert shown.id in listed.out
    assert "312 bytes to /v1/chat/completions" in listed.out
    cleared = mtpctl("quarantine", "clear", shown.id)
    assert cleared.out == f"{shown.id} may be asked of {views.QWEN} again\n"
    assert daemon.backend.calls == [("release", {"id": shown.id})]


def test_a_request_that_is_not_quarantined_cannot_be_released(mtpctl: Mtpctl) -> None:
    refused = mtpctl("quarantine", "clear", "other")
    assert refused.code == 1
    assert "no request 'other' is quarantined" in refused.err


def test_the_status_names_what_is_quarantined(mtpctl: Mtpctl, daemon: Served) -> None:
    daemon.backend.view = dataclasses.replace(views.status(), quarantine=(views.quarantined(),))
    assert f"quarantine  {views.quarantined().id}: " in mtpctl("status").out


def test_an_operation_is_named_by_the_beginning_of_its_id(mtpctl: Mtpctl, daemon: Served) -> None:
    ids = ("6e052f66-099b-4daa-bb8e-49e860560339", "6e05ffff-099b-4daa-bb8e-49e860560339")
    for one in ids:
        daemon.backend._operations[one] = operation_view(id=one, state="done")
    assert mtpctl("operations", "show", "6e052").out.split()[1] == f"{ids[0]}:"
    assert "6e052f66  " in mtpctl("operations").out
    assert ids[0] not in mtpctl("operations").out
    several = mtpctl("operations", "show", "6e05")
    assert several.code == 2
    assert "begins 2 operations" in several.err
    assert mtpctl("operations", "show", "7777").code == 1, "the daemon refuses what is unknown"
