"""``mtpd plan``: memory per depth, advice, and the command that would start a model."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from mtpd.cli.plan_command import plan
from mtpd.errors import EXIT_FAILED, EXIT_USAGE, NotFoundError
from mtpd.supervise.logfile import log_path
from tests.fakes.big_model import write_27b
from tests.unit.cli.offline import POOL, run, write

CORPUS = Path(__file__).parents[2] / "corpus"
CARD = "gfx906-16g-150w"
BIG = """
[models.big]
model = "b2.gguf"
context = 4096
slots = 2
kv_type = "q8_0"
draft_kv_type = "f16"
fit = "{fit}"
drafter = {{ kind = "mtp", max_depth = 5, depth = 3, several_slots = "accept" }}
"""


def big(home: Path, *, fit: str = "engine") -> str:
    """A configuration with note 002's model, slots and context."""
    write_27b(home / "b2.gguf")
    return write(home, BIG.format(fit=fit))


def memory_of(path: str, *args: str) -> dict[str, Any]:
    result = run(plan, "big", "--config", path, "--json", *args)
    assert result.exit_code == 0, result.output
    memory: dict[str, Any] = json.loads(result.stdout)["memory"]
    return memory


def test_plan_prints_a_command_that_can_be_pasted(home: Path) -> None:
    result = run(plan, "tiny-chained", "--depth", "2")
    assert result.exit_code == 0, result.output
    head, shell = result.stdout.split("\n\n", 1)[0], result.stdout.split("\n\n")[-1]
    told = dict(line.split(maxsplit=1) for line in head.splitlines() if line[0] != " ")
    assert told["depth"] == "2: asked for with --depth"
    path = f"{home}/.local/state/mtpd/run/plan-tiny-chained.sock"
    assert told["endpoint"] == f"unix:{path} with a key that is new at each start"
    words = shlex.split(shell.replace("\\\n", ""))  # as a shell joins lines
    words = words[words.index("env") :]
    assert words[:2] == ["env", "-i"]
    assert "HOME=" + str(home / ".cache/mtpd/engine") in words
    planned = json.loads(run(plan, "tiny-chained", "--depth", "2", "--json").stdout)
    assert words[2 + len(planned["env"]) :] == planned["argv"]
    assert planned["argv"][planned["argv"].index("--spec-draft-n-max") + 1] == "2"


def test_plan_says_why_this_depth(home: Path) -> None:
    path = write(
        home,
        '[models.none]\nmodel = "m"\n[models.tiny-unchained.drafter]\ndepth = 1\n' + POOL,
    )
    reasons = {
        name: json.loads(run(plan, name, "--config", path, "--json").stdout)
        for name in ("none", "tiny-chained", "tiny-unchained")
    }
    assert {name: (one["depth"], one["reason"]) for name, one in reasons.items()} == {
        "none": (0, "the profile has no drafter"),
        "tiny-chained": (
            0,
            "no speculation until a depth is measured: the profile sets no drafter.depth",
        ),
        "tiny-unchained": (1, "drafter.depth of the profile, until one is measured"),
    }
    assert reasons["none"]["warnings"] == [f"{home}/m does not exist"]


def test_plan_knows_aliases_and_suggests_names(home: Path) -> None:
    path = write(home, '[models.tiny-chained]\naliases = ["small"]\n')
    assert run(plan, "small", "--config", path).stdout.startswith("model     tiny-chained (")
    result = run(plan, "tiny-chaind")
    assert isinstance(result.exception, NotFoundError)
    assert result.exception.exit_code == EXIT_FAILED
    assert str(result.exception) == (
        "There is no model 'tiny-chaind'; did you mean 'tiny-chained'?"
    )


def test_plan_refuses_a_depth_that_the_profile_does_not_allow(home: Path) -> None:
    result = run(plan, "tiny-chained", "--depth", "4")
    assert result.exit_code == EXIT_USAGE
    assert "tiny-chained allows depths 0 to 3, not 4" in result.stderr


def test_plan_for_an_engine_without_unix_sockets_names_a_port_and_shows_no_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    options = ("--ctx-size N", "--model F", "--host H", "--port N", "--parallel N", "-lv N")
    lines = "\n".join((*options, "--metrics", "--n-gpu-layers N"))
    server = home / "server"
    server.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    server.chmod(0o755)
    path = write(home, f'[engine]\nbinary = "{server}"\n{POOL}')
    planned = json.loads(run(plan, "tiny-chained", "--config", path, "--json").stdout)
    assert planned["endpoint"] == "http://127.0.0.1:8081 with a key that is new at each start"
    assert planned["env"]["LLAMA_API_KEY"] == "a-new-key-per-start"
    assert planned["argv"][0] == str(server)


def test_note_002_is_forecast_for_its_card_without_having_it(home: Path) -> None:
    memory = memory_of(big(home), "--hardware", CARD)
    assert memory["forecast"] is True
    assert memory["free_bytes"] == 16368 * 2**20
    verdicts = {one["depth"]: one["verdict"] for one in memory["depths"]}
    assert verdicts == {
        0: "fits",
        1: "fits",
        2: "fits",
        3: "evicts",
        4: "evicts",
        5: "evicts",
    }
    by_depth = {advice["depth"]: advice for advice in memory["advice"]}
    first = by_depth[3]["options"][0]
    assert (first["lever"], first["enough"], first["tps_ratio"]) == ("fit margin", True, 1.0)
    assert [one["lever"] for one in by_depth[3]["options"] if one["enough"]] == [
        "fit margin",
        "slots",
        "depth",
    ]
    assert "does not pay" not in json.dumps(memory)


def test_what_mtpd_tells_the_fit_holds_a_depth_that_the_engines_own_margin_evicts(
    home: Path,
) -> None:
    memory = memory_of(big(home, fit="auto"), "--hardware", CARD)
    three = memory["depths"][3]
    assert (three["verdict"], three["engine_fit"]) == ("fits", "evicts")
    assert memory["margin_bytes"] == memory["headroom_bytes"] == 256 * 2**20
    assert {(j["slots"], j["depth"]) for j in memory["joint"]} >= {(1, 5), (2, 3)}


def test_the_log_of_an_earlier_start_calibrates_the_forecast(home: Path) -> None:
    path = big(home)
    assumed = memory_of(path, "--hardware", CARD)
    logs = home / ".local/state/mtpd/logs"
    logs.mkdir(parents=True)
    shutil.copy(CORPUS / "gpu_logs" / "free_b2_n3.log", log_path(logs, "big", "host"))
    memory = memory_of(path, "--hardware", CARD)
    assert (assumed["calibration"], memory["calibration"]) == (
        "assumed from other cards",
        "calibrated by a start",
    )
    # What the engine printed of depth 5 on a real card: 16360 MiB with the doubled buffer.
    printed = memory["depths"][5]["predicted"]
    without_driver = printed["total_bytes"] - printed["overhead_bytes"]
    assert without_driver / 2**20 == pytest.approx(16360 - 134.02, abs=5)


def test_a_machine_without_a_device_says_that_nothing_has_to_fit(home: Path) -> None:
    memory = memory_of(big(home))
    assert {one["verdict"] for one in memory["depths"]} == {"not_applicable"}
    assert (memory["free_bytes"], memory["advice"], memory["joint"]) == (None, [], [])
    shown = run(plan, "big", "--config", str(home / "mtpd.toml")).stdout
    assert "memory    not applicable: engines run on the host, by design" in shown
    assert "fits" not in shown
    assert "command " not in shown, "nothing but this machine is spoken of"


def test_without_a_card_the_one_that_the_configuration_names_is_forecast(home: Path) -> None:
    path = big(home)
    asked = memory_of(path, "--hardware", CARD)
    named = write(home, f'[budget]\nhardware = "{CARD}"\n' + BIG.format(fit="engine"))
    assert memory_of(named) == asked
    shown = run(plan, "big", "--config", named).stdout
    assert "memory    a forecast: 16368 MiB free before a start" in shown
    assert "\n\ncommand   for this machine, which has no card\n\nmkdir " in shown


def test_a_file_that_is_not_there_leaves_its_memory_unknown_and_not_zero(home: Path) -> None:
    path = write(home, BIG.format(fit="auto"))
    memory = memory_of(path, "--hardware", CARD)
    assert {one["verdict"] for one in memory["depths"]} == {"unknown"}
    assert [one["predicted"] for one in memory["depths"]] == [None] * 6
    shown = run(plan, "big", "--config", path, "--hardware", CARD).stdout
    assert "nothing is predicted: " in shown
    assert "b2.gguf was not found" in " ".join(shown.split())


def test_the_forecast_is_readable_in_80_columns_and_names_the_numbers(home: Path) -> None:
    shown = run(plan, "big", "--config", big(home), "--hardware", CARD).stdout
    text, _, _ = shown.partition("\nmkdir ")
    tables = text[text.index("memory ") :]
    assert max(map(len, tables.splitlines())) <= 80
    for part in (
        "a forecast: 16368 MiB free before a start",
        f"hardware profile {CARD}, all of its memory free",
        "-281 does not fit evicts",
        "enough is a fit margin of 256 MiB or 1 slot or depth",
        "what would make depth 3 fit, the cheapest first",
        "what fits together",
    ):
        assert part in " ".join(tables.split()), part


def test_an_unknown_card_is_a_mistake_of_the_configuration(home: Path) -> None:
    result = run(plan, "big", "--config", big(home), "--hardware", "gfx909")
    assert result.exit_code != 0
    assert "gfx909" in str(result.exception)


def test_the_documented_forecast_is_what_the_command_prints(home: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "memory.md").read_text(encoding="utf-8")
    block = text[text.index("memory    a forecast") : text.index("```\n\nThen follow")]
    shown = run(plan, "big", "--config", big(home), "--hardware", CARD).stdout
    assert [line.rstrip() for line in block.splitlines()] == [
        line.rstrip() for line in shown[shown.index("memory ") :].splitlines()
    ][: len(block.splitlines())]


def test_a_program_that_is_no_llama_server_is_shown_as_it_is_started(home: Path) -> None:
    text = """
[models.w]
kind = "opaque"
command = ["/bin/sh", "-c", "serve", "--port", "${PORT}"]
check = "none"
env = { HF_TOKEN = "secret" }
stop_command = ["docker", "stop", "w"]
vram_mib = 900
"""
    path = write(home, text)
    result = run(plan, "w", "--config", path)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "/bin/sh -c serve --port 8081"
    told = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if line)
    assert told["endpoint"] == "http://127.0.0.1:8081"
    assert told["stop"] == "docker stop w"
    assert told["memory"] == "900 MiB, said"
    assert "HF_TOKEN" in told["variables"]
    assert "secret" not in result.stdout
    shown = json.loads(run(plan, "w", "--config", path, "--json").stdout)
    assert (shown["kind"], shown["check"], shown["vram_mib"]) == ("opaque", None, 900)


def test_a_head_for_several_slots_is_planned_with_a_warning(home: Path) -> None:
    warnings = json.loads(run(plan, "big", "--config", big(home), "--json").output)["warnings"]
    assert any(
        "big drafts with mtp for 2 slots, which its profile accepts (drafter.several_slots)" in one
        for one in warnings
    )
