"""What Prometheus' own tools and a real Prometheus say of the metrics and the alerts."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from mtpd.config.data import prometheus_dir
from mtpd.metrics.catalogue import METRICS, Kind
from tests.fakes import sysfs
from tests.fakes.house import daemon_at, home
from tests.fakes.prometheus import scraping
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from mtpd.app import Daemon

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

DOCS = Path(__file__).parents[3] / "docs"
ALERTS = prometheus_dir() / "alerts.yml"
TESTS = Path(__file__).with_name("alerts.test.yml")
CARD = f'device="{sysfs.FIRST}"'


def promtool(*words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("/usr/bin/env", "promtool", *words),
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


@asynccontextmanager
async def serving(tree: sysfs.Tree) -> AsyncIterator[tuple[Daemon, aiohttp.ClientSession]]:
    """A daemon on a fake card that has answered two requests and refused one."""
    async with home(Script(device=Device(), machine=str(tree.root))) as place:
        declared = '[budget]\nhardware = "gfx906-16g-150w"\n'
        place.config.write_text(place.config.read_text() + declared)
        async with daemon_at(place, machine=tree.root) as (running, client):
            for _ in range(2):
                body = {"model": "alpha", "prompt": "x", "n_predict": 4}
                async with client.post("/completion", json=body) as reply:
                    assert reply.status == 200, await reply.text()
            async with client.get("/metrics", headers={"Origin": "http://elsewhere"}) as reply:
                assert reply.status == 403
            yield running, client


async def test_promtool_has_nothing_to_say_of_a_live_scrape(tmp_path: Path) -> None:
    async with serving(sysfs.build(tmp_path, "idle")) as (_running, client):
        async with client.get("/metrics") as reply:
            assert reply.content_type == "text/plain"
            text = await reply.text()
    said = promtool("check", "metrics", given=text)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    wrong = promtool("check", "metrics", given=text.replace("_seconds_total", "_ms_total"))
    assert wrong.returncode != 0


def test_the_alerts_are_rules_and_pass_their_tests() -> None:
    said = promtool("check", "rules", ALERTS)
    assert (said.returncode, said.stderr) == (0, "")
    said = promtool("test", "rules", TESTS)
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_alert_is_tested_firing_and_silent() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    cases = [
        case
        for one in yaml.safe_load(TESTS.read_text())["tests"]
        for case in one["alert_rule_test"]
    ]
    for state in (True, False):
        tested = {case["alertname"] for case in cases if bool(case["exp_alerts"]) is state}
        assert tested == {rule["alert"] for rule in rules}


def test_every_query_of_the_dashboard_and_of_the_documentation_is_promql(tmp_path: Path) -> None:
    board = json.loads((prometheus_dir() / "grafana.json").read_text())
    queries = [one["expr"] for panel in board["panels"] for one in panel.get("targets", ())]
    table = (DOCS / "metrics.md").read_text().partition("## Queries")[2].partition("## What")[0]
    queries += [one.replace("\\|", "|") for one in re.findall(r"\| `(.*)` \|", table)]
    assert len(queries) > 40
    rules = [
        {"record": f"checked:{number}", "expr": one.replace("$__rate_interval", "5m")}
        for number, one in enumerate(queries)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    said = promtool("check", "rules", file)
    assert said.returncode == 0, said.stdout + said.stderr


def test_the_documented_configuration_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "metrics.md").read_text(), re.DOTALL)
    (tmp_path / "token").write_text("mtpd_x")
    (tmp_path / "mtpd-alerts.yml").write_text(ALERTS.read_text())
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/etc/prometheus/mtpd.token", str(tmp_path / "token")))
    said = promtool("check", "config", file)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "8 rules found" in said.stdout


async def test_a_real_prometheus_scrapes_it_and_its_alerts_wait_for_what_is_wrong(
    tmp_path: Path,
) -> None:
    tree = sysfs.build(tmp_path / "machine", "idle")
    async with serving(tree) as (running, _client):
        async with scraping(running.url.removeprefix("http://"), tmp_path) as prometheus:
            await prometheus.until('up{job="mtpd"}', 1)
            await prometheus.until('mtpd_requests_total{profile="alpha",outcome="complete"}', 2)
            for query, wanted in {
                'mtpd_generated_tokens_total{profile="alpha"}': 8,
                f'mtpd_engine_residency{{{CARD},profile="alpha",residency="resident"}}': 1,
                f'mtpd_engine_residency{{{CARD},profile="alpha",residency="evicted"}}': 0,
                f"mtpd_gpu_vram_total_bytes{{{CARD}}}": sysfs.VRAM_TOTAL,
                f"mtpd_gpu_power_cap_watts{{{CARD}}}": 150,
                f'mtpd_gpu_power_cap_state{{{CARD},state="declared"}}': 1,
                "mtpd_queue_wait_seconds_count": 2,
                "sum(mtpd_http_refusals_total)": 1,
            }.items():
                await prometheus.until(query, wanted)
            # Before the first scrape there is no target to be up.
            await prometheus.until("absent(ALERTS)", 1)
            assert await prometheus.value(f"mtpd_engine_evicted_layers{{{CARD}}}") is None

            (group,) = (await prometheus.get("rules"))["groups"]
            assert {rule["health"] for rule in group["rules"]} == {"ok"}
            told = await prometheus.get("targets/metadata")
            types = {one["metric"]: one["type"] for one in told if "mtpd_" in one["metric"]}
            assert len(types) > 50
            assert types == {name: _type(name) for name in types}

            tree.sensors(cap_w=190)
            alert = await prometheus.until_alert("MtpdPowerCapWrong")
            assert alert["state"] == "pending"
            assert alert["labels"]["device"] == sysfs.FIRST
            assert sysfs.FIRST in alert["annotations"]["summary"]
            tree.sensors(cap_w=150)
            await prometheus.until(f'mtpd_gpu_power_cap_state{{{CARD},state="wrong"}}', 0)


async def test_a_daemon_that_is_gone_is_told(tmp_path: Path) -> None:
    async with serving(sysfs.build(tmp_path / "machine", "idle")) as (running, _client):
        target = running.url.removeprefix("http://")
    async with scraping(target, tmp_path) as prometheus:
        await prometheus.until('up{job="mtpd"}', 0)
        assert (await prometheus.until_alert("MtpdDown"))["labels"]["severity"] == "critical"


def _type(name: str) -> str:
    kind = METRICS[name].kind
    return kind.value if kind in {Kind.COUNTER, Kind.HISTOGRAM} else "gauge"
