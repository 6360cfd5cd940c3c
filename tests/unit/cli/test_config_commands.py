from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from mtpd.cli import config_commands
from mtpd.cli.config_commands import check, config, plan
from mtpd.errors import EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE, ConfigError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    import click


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any configuration, on a machine without a llama-server."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(config_commands, "SYSTEM_ENGINE_CONFIG", tmp_path / "no.ini")
    return tmp_path


POOL = '[pools.p]\nmembers = ["tiny-chained"]\n'
"""A shipped model takes part where the configuration refers to it."""


def run(command: click.Command, *args: str) -> Result:
    return CliRunner().invoke(command, args)


def write(folder: Path, text: str) -> str:
    path = folder / "mtpd.toml"
    path.write_text(text)
    return str(path)


def test_check_says_ok_with_a_summary(home: Path) -> None:
    result = run(check)
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["ok"] == "no file, the defaults"
    assert lines["models"] == "tiny-chained, tiny-unchained"
    assert lines["engine"].startswith("the embedded engine (xllamacpp ")
    assert result.stderr == ""


def test_check_tells_every_problem_and_ends_with_78(home: Path) -> None:
    path = write(home, "[server]\nlistn = 1\n[tuning]\nmode = 2\n")
    result = run(check, "--config", path)
    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == EXIT_CONFIG
    assert result.exception.problems == (
        f"{path}:2: server.listn: unknown key; did you mean 'listen'?",
        f"{path}:4: tuning.mode: must be 'off', 'observe' or 'idle', not 2",
    )


def test_check_tells_missing_models_and_a_missing_engine_together(home: Path) -> None:
    path = write(home, '[engine]\nbinary = "/no/server"\n[models.m]\nmodel = "m.gguf"\n')
    result = run(check, "--config", path, "--json")
    assert result.exit_code == EXIT_CONFIG
    told = json.loads(result.stdout)
    assert told["ok"] is False
    assert told["problems"] == [
        f"{path}:4: models.m.model: {home}/m.gguf does not exist",
        (
            f"{path}:2: engine.binary: There is no llama-server at /no/server: the file does not"
            " exist. (name another one as binary under [engine], or 'embedded')"
        ),
    ]


def test_check_as_json_is_the_summary(home: Path) -> None:
    path = write(
        home, '[budget]\nhardware = "gfx906-16g-150w"\n[pools.p]\nmembers = ["tiny-chained"]\n'
    )
    told = json.loads(run(check, "--config", path, "--json").stdout)
    assert (told["ok"], told["problems"], told["files"]) == (True, [], [path])
    assert (told["hardware"], told["pools"]) == ("gfx906-16g-150w", ["p"])


def test_the_users_file_is_found_without_an_option(home: Path) -> None:
    folder = home / ".config" / "mtpd"
    folder.mkdir(parents=True)
    path = write(folder, POOL)
    assert f"ok        {path}" in run(check).stdout


def test_shipped_models_are_served_only_where_the_file_refers_to_them(home: Path) -> None:
    path = write(home, POOL)
    assert json.loads(run(check, "--config", path, "--json").stdout)["models"] == ["tiny-chained"]


def test_a_configuration_without_a_model_is_a_problem(home: Path) -> None:
    told = json.loads(run(check, "--config", write(home, ""), "--json").stdout)
    assert told["ok"] is False
    assert told["problems"][0].startswith("no model is configured: add [models.NAME]")


def test_the_engines_own_system_file_is_warned_about(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ini = home / "config.ini"
    ini.write_text("")
    monkeypatch.setattr(config_commands, "SYSTEM_ENGINE_CONFIG", ini)
    for result in (run(check), run(plan, "tiny-chained")):
        assert result.exit_code == 0
        assert result.stderr.startswith(f"warning: {ini} exists")


def test_show_tells_values_and_with_origin_their_place(home: Path) -> None:
    path = write(home, "[server]\nmax_waiting = 3\n")
    plain = run(config, "show", "--config", path).stdout.splitlines()
    assert "server.max_waiting = 3" in plain
    assert "engine.threads = (not set)" in plain
    told = run(config, "show", "--config", path, "--origin").stdout.splitlines()
    (line,) = (one for one in told if one.startswith("server.max_waiting"))
    assert line.split() == ["server.max_waiting", "=", "3", "#", f"{path}:2"]


def test_show_as_json_is_a_list_of_values(home: Path) -> None:
    views = json.loads(run(config, "show", "--json").stdout)
    assert {"key": "tuning.mode", "value": "observe", "origin": "default"} in views


def test_plan_prints_a_command_that_can_be_pasted(home: Path) -> None:
    result = run(plan, "tiny-chained", "--depth", "2")
    assert result.exit_code == 0, result.output
    head, _, shell = result.stdout.partition("\n\n")
    told = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert told["depth"] == "2: asked for with --depth"
    assert told["endpoint"] == f"unix:{home}/.local/state/mtpd/run/plan-tiny-chained.sock"
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


@pytest.mark.parametrize("command", [check, config, plan])
def test_each_command_explains_itself(command: click.Command) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert len(result.stdout) > 150


def test_a_card_that_is_named_while_the_embedded_engine_runs_is_warned_about(home: Path) -> None:
    text = f'[engine]\nbinary = "embedded"\n[budget]\nhardware = "gfx906-16g-150w"\n{POOL}'
    path = write(home, text)
    for result in (run(check, "--config", path), run(plan, "tiny-chained", "--config", path)):
        assert "warning: the hardware profile gfx906-16g-150w is named, but" in result.stderr
    bare = write(home, f'[engine]\nbinary = "embedded"\n{POOL}')
    assert "hardware profile" not in run(check, "--config", bare).stderr
