from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import tomli

from mtpd.access import Scope
from mtpd.cli import configured
from mtpd.cli.config_commands import check, config
from mtpd.cli.daemon_commands import serve
from mtpd.cli.plan_command import plan
from mtpd.clock import SystemClock
from mtpd.errors import EXIT_CONFIG, ConfigError, NotFoundError
from mtpd.store.token_file import TokenFile
from tests.unit.cli.offline import POOL, run, write

if TYPE_CHECKING:
    from pathlib import Path

    import click


def test_check_says_ok_with_a_summary(home: Path) -> None:
    result = run(check)
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["ok"] == "no file, the defaults (mtpd serve needs a file)"
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


def test_check_tells_missing_models_beside_every_other_problem(home: Path) -> None:
    path = write(
        home,
        '[server]\nlistn = 1\n[models.m]\nmodel = "m.gguf"\ncontxt = 1\n[models.n]\n'
        'model = "~/n.gguf"\n[models.o]\nmodel = "bundled:tiny-chained.gguf"\n'
        '[models.o.drafter]\nkind = "draft-model"\nmax_depth = 1\nmodel = "hf:org/o"\n',
    )
    result = run(check, "--config", path)
    assert isinstance(result.exception, ConfigError)
    told = [one.removeprefix(f"{path}:") for one in result.exception.problems]
    assert told[0] == "2: server.listn: unknown key; did you mean 'listen'?"
    assert told[1] == f"4: models.m.model: {home}/m.gguf does not exist"
    assert told[2].startswith("5: models.m.contxt: unknown key")
    assert told[3].startswith("7: models.n.model: '~' is not expanded here")
    assert told[4].startswith("13: models.o.drafter.model: hf:org/o is not in the cache")
    assert len(told) == 5


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


def test_a_file_in_the_working_folder_that_is_not_read_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "mtpd.toml in this folder is not read: name it with --config mtpd.toml"
    path = write(home, POOL + "[models.mine]\nmodel = 'm'\n")
    assert said not in run(check).stderr
    monkeypatch.chdir(home)
    assert f"warning: {said}\n" in run(check).stderr
    assert json.loads(run(check, "--json").stdout)["warnings"] == [said]
    assert f"warning: {said}\n" in run(config, "show").stderr
    missing = run(plan, "mine").exception
    assert isinstance(missing, NotFoundError)
    assert missing.hint is not None
    assert missing.hint.endswith(f"; {said}")
    unserved = run(serve).exception
    assert isinstance(unserved, ConfigError)
    assert unserved.hint is not None
    assert unserved.hint.endswith(f"; {said}")
    for command, args in ((check, ()), (config, ("show",)), (plan, ("tiny-chained",))):
        assert said not in run(command, *args, "--config", path).stderr
    folder = home / ".config" / "mtpd"
    folder.parent.mkdir()
    folder.symlink_to(home)
    assert said not in run(check).stderr, "it is the user's file"


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
    monkeypatch.setattr(configured, "SYSTEM_ENGINE_CONFIG", ini)
    for result in (run(check), run(plan, "tiny-chained")):
        assert result.exit_code == 0
        assert result.stderr.startswith(f"warning: {ini} exists")


def test_check_tells_that_the_daemon_would_not_start_without_a_token(home: Path) -> None:
    remote = '[server]\nlisten = "0.0.0.0:8080"\nhosts = ["gpu.lan"]\n'
    path = write(home, remote + POOL)
    said = run(check, "--config", path).stderr
    assert f"there is no access token in {home}/.local/state/mtpd/tokens.json" in said
    file = TokenFile(home / ".local/state/mtpd", SystemClock())
    file.add("laptop", frozenset({Scope.INFER}), expires=None)
    assert "token" not in run(check, "--config", path).stderr
    file.path.chmod(0o644)
    assert "is open to other users" in run(check, "--config", path).stderr


def test_show_tells_values_and_with_origin_their_place(home: Path) -> None:
    path = write(home, "[server]\nmax_waiting = 3\n")
    plain = run(config, "show", "--config", path).stdout.splitlines()
    assert "server.max_waiting = 3" in plain
    assert "engine.threads = (not set)" in plain
    told = run(config, "show", "--config", path, "--origin").stdout.splitlines()
    at = next(at for at, one in enumerate(told) if one.startswith("server.max_waiting"))
    shown = " ".join(told[at : at + 2]).split()
    assert shown[:5] == ["server.max_waiting", "=", "3", "#", f"{path}:2"]


def test_show_with_origins_keeps_to_the_window(home: Path) -> None:
    members = ", ".join(f'"model-{number}"' for number in range(4))
    models = "".join(f'[models.model-{number}]\nmodel = "m"\n' for number in range(4))
    path = write(home, f"{models}[pools.p]\nmembers = [{members}]\n")
    lines = run(config, "show", "--config", path, "--origin").stdout.splitlines()
    index = next(i for i, line in enumerate(lines) if line.startswith("pools.p.members"))
    assert lines[index + 1] == f"    # {path}:10"
    with_origin = [line for line in lines if "#" in line and not line.startswith("    #")]
    assert max(map(len, with_origin)) <= 80


def test_a_list_that_the_window_does_not_hold_has_a_line_per_item(home: Path) -> None:
    names = [f"a-model-with-a-long-name-{number}" for number in range(4)]
    models = "".join(f'[models.{name}]\nmodel = "m"\n' for name in names)
    path = write(home, f"{models}[pools.p]\nmembers = {json.dumps(names)}\n")
    shown = run(config, "show", "--config", path, "--origin").stdout
    start = shown.index("pools.p.members = [")
    block = shown[start : shown.index("\n]", start) + 2]
    assert tomli.loads(block)["pools"]["p"]["members"] == names
    assert max(map(len, block.splitlines())) <= 80
    assert shown[start + len(block) :].startswith(f"\n    # {path}:10\n")
    assert block in run(config, "show", "--config", path).stdout


def test_show_as_json_is_a_list_of_values(home: Path) -> None:
    views = json.loads(run(config, "show", "--json").stdout)
    assert {"key": "tuning.mode", "value": "observe", "origin": "default"} in views


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
