"""Alerts, runbooks, dashboard and documentation name only metrics and labels that exist."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli
from mtpd.config.data import prometheus_dir
from mtpd.metrics.catalogue import BUCKETS, METRICS, Kind
from tests.unit.metrics.promql import misnamed, named

DOCS = Path(__file__).parents[3] / "docs"
RULES: list[dict[str, Any]] = yaml.safe_load((prometheus_dir() / "alerts.yml").read_text())[
    "groups"
][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((prometheus_dir() / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RUNBOOKS = (DOCS / "runbooks.md").read_text(encoding="utf-8")
SEVERITIES = {"critical", "warning", "info"}


# The catalogue ----------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_a_name_ends_as_prometheus_conventions_ask(name: str) -> None:
    spec = METRICS[name]
    assert re.fullmatch(r"mtpd_[a-z]+(_[a-z]+)*", name)
    assert name.endswith("_total") is (spec.kind is Kind.COUNTER)
    assert name.endswith("_info") is (spec.kind is Kind.INFO)
    assert (spec.kind is Kind.STATES) is bool(spec.words)
    stem = name.removesuffix("_total")
    for unit in ("seconds", "bytes", "joules", "watts", "celsius", "hertz", "ratio"):
        assert (spec.unit == unit) is stem.endswith(f"_{unit}")
    assert not re.search(r"_(ms|mib|kib|percent|minutes|mhz)(_|$)", name)


def test_every_histogram_has_buckets_that_grow() -> None:
    assert set(BUCKETS) == {spec.name for spec in METRICS.values() if spec.kind is Kind.HISTOGRAM}
    for bounds in BUCKETS.values():
        assert all(low < high for low, high in itertools.pairwise(bounds))


# Queries ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "legend", "wrong"),
    [
        ("mtpd_requests_waiting", "", []),
        ("mtpd_requests_waitng", "", ["mtpd_requests_waitng"]),
        ("rate(mtpd_queue_wait_seconds[5m])", "", ["mtpd_queue_wait_seconds"]),
        ("rate(mtpd_queue_wait_seconds_bucket[5m])", "", []),
        ("mtpd_requests_waiting_count", "", ["mtpd_requests_waiting_count"]),
        ('mtpd_gpu_state{stat="gone"} == 1', "", ["stat"]),
        ("sum by (device, colour) (mtpd_gpu_power_watts)", "", ["colour"]),
        ("mtpd_gpu_power_watts", "{{profile}}", ["profile"]),
        ('up{job="mtpd"}', "{{instance}}", []),
    ],
)
def test_a_query_that_names_what_does_not_exist_is_found(
    query: str, legend: str, wrong: list[str]
) -> None:
    assert misnamed(query, legend) == wrong


def test_every_query_in_the_documentation_names_what_exists() -> None:
    pages = [DOCS / name for name in ("metrics.md", "runbooks.md", "live.md", "security.md")]
    code = [one for page in pages for one in re.findall(r"`([^`\n]+)`", page.read_text())]
    queries = [one.replace("\\|", "|") for one in code if "mtpd_" in one and "Histogram" not in one]
    bare = {name for name, spec in METRICS.items() if spec.kind is Kind.HISTOGRAM}
    assert {one: wrong for one in queries if one not in bare and (wrong := misnamed(one))} == {}
    assert len(queries) > len(METRICS)


# Alerts -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_metrics_that_exist_and_has_a_runbook(rule: dict[str, Any]) -> None:
    assert misnamed(rule["expr"], json.dumps(rule["annotations"]).replace("$labels.", "")) == []
    assert named(rule["expr"]) or rule["alert"] == "MtpdDown"
    assert rule["labels"]["severity"] in SEVERITIES
    assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == ("docs/runbooks.md", rule["alert"].lower())


def test_a_state_that_an_alert_waits_for_can_be() -> None:
    waited = [
        (name, word)
        for rule in RULES
        for name, word in re.findall(r'(mtpd_\w+)\{\w+="(\w+)"\}', rule["expr"])
    ]
    assert {(name, word) for name, word in waited if word not in METRICS[name].words} == set()
    assert len(waited) > 3


def test_every_runbook_is_of_an_alert_and_says_what_to_look_at_and_to_do() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOKS, re.MULTILINE | re.DOTALL))
    assert set(sections) == {rule["alert"] for rule in RULES}
    for name, text in sections.items():
        for part in ("**Meaning.**", "**Users see.**", "**Look.**", "**Mend.**"):
            assert text.count(part) == 1, (name, part)
        look, mend = text.partition("**Look.**")[2].split("**Mend.**")
        assert "\n$ " in look, name
        assert "\n$ " in mend, name


def test_every_command_of_ours_in_a_runbook_exists() -> None:
    programs = {"mtpd": cli, "mtpctl": mtpctl}
    called = re.findall(r"^\$ (?:sudo )?(mtpd|mtpctl) ([a-z-]+)", RUNBOOKS, re.MULTILINE)
    assert {(p, word) for p, word in called if word not in programs[p].commands} == set()
    assert len(set(called)) > 10


# Dashboard --------------------------------------------------------------------------


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        query = target["expr"]
        assert named(query), query
        assert misnamed(query, target["legendFormat"]) == []
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_the_dashboard_can_be_imported() -> None:
    assert {"uid", "title", "schemaVersion", "time", "templating", "panels"} <= set(DASHBOARD)
    assert "id" not in DASHBOARD, "an id belongs to one Grafana"
    assert DASHBOARD["schemaVersion"] >= 36
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for one in ("profile", "device"):
        assert (
            misnamed(
                re.sub(
                    r"label_values\((\w+), (\w+)\)",
                    r"sum by (\2) (\1)",
                    variables[one]["definition"],
                )
            )
            == []
        )
    used = set(re.findall(r"\$(\w+)|\$\{(\w+)\}", json.dumps(DASHBOARD["panels"])))
    words = {first or second for first, second in used} - {"__rate_interval"}
    assert words == set(variables)


def test_panels_have_ids_of_their_own_and_do_not_lie_on_each_other() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


# The command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "file"), [("alerts", "alerts.yml"), ("dashboard", "grafana.json")]
)
def test_what_ships_is_printed_as_it_is(what: str, file: str) -> None:
    said = CliRunner().invoke(cli, ["prometheus", what])
    assert said.exit_code == 0
    assert said.output == (prometheus_dir() / file).read_text()
