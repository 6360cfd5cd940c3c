"""``mtpd import``, and the other commands on a file of another program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mtpd.access import digest_of
from mtpd.cli.config_commands import check, config
from mtpd.cli.import_command import import_
from mtpd.config.data import bundled_model
from mtpd.config.load import load
from mtpd.errors import EXIT_CONFIG, EXIT_USAGE, ConfigError, MtpdError

if TYPE_CHECKING:
    import click
    from click.testing import Result

ROOT = Path(__file__).parents[3]
SWAP = """\
models:
  small:
    cmd: bin/llama-server --port ${PORT} -m models/tiny.gguf -c 1024 -np 1
    aliases: [org/small]
    metadata: {mtpd: {drafter: {kind: mtp, max_depth: 3}}}
  draft:
    cmd: bin/llama-server --port ${PORT} -m ${env.HOME}/x.gguf -md d.gguf -c 512 -np 1 --draft 2
    capabilities: {tools: true}
mtpd:
  pools: {both: {members: [small, draft]}}
  server: {control_socket: run/c.sock}
"""
NO_SERVER = "models: {m: {cmd: 'llama-server --port ${PORT} -hf x'}}\n"
PRESET = "[m]\nmodel = tiny.gguf\nctx-size = 1024\nparallel = 1\ntemp = 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "config.yaml").write_text(SWAP)
    (tmp_path / "preset.ini").write_text(PRESET)
    return tmp_path


def run(command: click.Command, *args: str) -> Result:
    return CliRunner().invoke(command, args)


def serve(*args: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: serving sets up the log of its process."""
    command = [sys.executable, "-m", "mtpd.cli.mtpd", "serve", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=30
    )


def test_an_import_writes_the_files_and_lists_the_rest(folder: Path) -> None:
    result = run(import_, "config.yaml", "--out", "made")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "wrote made/mtpd.toml",
        "wrote made/profiles/models/draft.toml",
        "wrote made/profiles/models/small.toml",
        "port 5800 was draft's; mtpd reaches the engine on a private socket",
        "port 5801 was small's; mtpd reaches the engine on a private socket",
        "listens on 127.0.0.1:8080",
        "serve them with --config made/mtpd.toml; config.yaml reads none of them",
    ]
    assert (
        "config.yaml:8: models.draft.capabilities: not honoured: is not shown in /v1/models yet\n"
        in (result.stderr)
    )
    profile = (folder / "made/profiles/models/small.toml").read_text()
    assert profile.startswith("# Imported from config.yaml, line 2.\naliases")


def test_what_is_not_there_is_told_in_the_terms_of_the_file(folder: Path) -> None:
    program = folder / "bin/llama-server"
    said = (
        f"config.yaml:7: models.draft.cmd: There is no llama-server at {program}: the file does not"
        " exist. (correct the path there, or write mtpd: {engine: {binary: PATH}} at the top of"
        " the file; 'embedded' as PATH is the engine that mtpd brings along)"
    )
    result = run(import_, "config.yaml", "--out", "made")
    assert result.exit_code == 0, "the files are written all the same"
    lines = result.stderr.splitlines()
    missing = lines[lines.index("Not there yet, and needed to serve:") + 1 :]
    assert missing[0] == said
    assert (
        f"config.yaml:3: models.small.cmd.-m: {folder}/models/tiny.gguf does not exist" in missing
    )
    told = json.loads(run(import_, "config.yaml", "--out", "made", "--json", "--force").stdout)
    assert told["missing"] == missing
    checked = json.loads(run(check, "--config", "config.yaml", "--json").stdout)
    assert set(missing) == set(checked["problems"])


def test_serve_names_the_line_of_a_missing_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run", "state"):
        (folder / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
    anywhere = SWAP.replace("{control_socket", "{listen: '127.0.0.1:0', control_socket")
    (folder / "config.yaml").write_text(anywhere)
    ran = serve("--config", str(folder / "config.yaml"))
    assert ran.returncode != 0
    assert f"{folder}/config.yaml:7: models.draft.cmd: There is no llama-server at" in ran.stderr


def test_keys_of_clients_are_written_nowhere_and_that_is_said(folder: Path) -> None:
    (folder / "config.yaml").write_text("apiKeys: [sk-canary, sk-canary-2]\n" + SWAP)
    result = run(import_, "config.yaml", "--out", "made")
    assert result.exit_code == 0, result.output
    assert "apiKeys: 2 not written" in result.stdout
    assert "mtpd token add NAME" in result.stdout
    told = json.loads(run(import_, "config.yaml", "--out", "again", "--json").stdout)
    assert told["keys_left_out"] == 2
    written = [path for name in ("made", "again") for path in (folder / name).rglob("*.toml")]
    assert len(written) == 6
    digests = [digest_of(key) for key in ("sk-canary", "sk-canary-2")]
    for path in written:
        assert not any(word in path.read_text() for word in ("canary", *digests))


def test_what_is_lost_stands_at_the_head_of_the_file_that_it_concerns(folder: Path) -> None:
    unknown = 'x: 1\n"od\\x7fd": 1\n'
    (folder / "config.yaml").write_text(SWAP + unknown)
    assert run(import_, "config.yaml", "--out", "made").exit_code == 0
    assert (
        (folder / "made/profiles/models/draft.toml")
        .read_text()
        .startswith(
            "# Imported from config.yaml, line 6.\n"
            "# config.yaml:8: models.draft.capabilities: not honoured: "
            "is not shown in /v1/models yet\n"
            "model = "
        )
    )
    assert (
        (folder / "made/mtpd.toml")
        .read_text()
        .startswith(
            "# Imported from config.yaml.\n"
            "# config.yaml:12: x: not honoured: this key is not known\n"
            '# config.yaml:13: "od?d": not honoured: this key is not known\n'
            "[engine]\n"
        )
    )


def test_what_was_imported_loads_as_the_same_configuration(folder: Path) -> None:
    assert run(import_, "config.yaml", "--out", "made").exit_code == 0
    direct = load(folder / "config.yaml", environment={"HOME": "/home/u"})
    made = load(folder / "made" / "mtpd.toml")
    assert made.profiles == direct.profiles
    assert made.pools == direct.pools
    assert (made.server, made.engine) == (direct.server, direct.engine)
    assert made.profiles["small"].model == str(folder / "models/tiny.gguf")
    assert made.profiles["draft"].drafter.model == str(folder / "d.gguf")
    assert made.engine.binary == str(folder / "bin/llama-server")
    assert made.server.control_socket == str(folder / "run/c.sock")
    assert made.remarks == ()


def test_a_name_with_a_slash_is_served_as_it_is(folder: Path) -> None:
    text = SWAP.replace("small:", "org/tiny-b:").replace("[small, draft]", "[org-tiny-b]")
    (folder / "config.yaml").write_text(text)
    assert run(import_, "config.yaml", "--out", "made").exit_code == 0
    for path in (folder / "config.yaml", folder / "made" / "mtpd.toml"):
        profile = load(path, environment={"HOME": "/home/u"}).profiles["org-tiny-b"]
        assert profile.shown_name == "org/tiny-b"
        assert profile.aliases == ("org/tiny-b", "org/small")


def test_a_name_stays_although_other_aliases_are_set(folder: Path) -> None:
    text = "models: {org/b: {cmd: 'llama-server --port ${PORT} -m /m', %s}}\n"
    (folder / "config.yaml").write_text(text % "metadata: {mtpd: {aliases: [x]}}")
    config = load(folder / "config.yaml")
    assert config.profiles["org-b"].aliases == ("org/b", "x")


def test_a_bundled_model_and_a_bare_program_are_no_paths(folder: Path) -> None:
    cmd = "llama-server-hip --port ${PORT} -m bundled:tiny-chained.gguf -c 512 -np 1"
    (folder / "config.yaml").write_text(f"models: {{m: {{cmd: '{cmd}'}}}}\n")
    result = run(import_, "config.yaml", "--out", "made")
    assert "changed" not in result.stderr
    made = load(folder / "made" / "mtpd.toml")
    assert made.engine.binary == "llama-server-hip"
    assert made.profiles["m"].model == str(bundled_model("tiny-chained.gguf"))


def test_nothing_is_written_over_without_force(folder: Path) -> None:
    (folder / "mtpd.toml").write_text("mine")
    result = run(import_, "config.yaml")
    assert isinstance(result.exception, MtpdError)
    assert str(result.exception) == "mtpd.toml is already there"
    assert (folder / "mtpd.toml").read_text() == "mine"
    assert not (folder / "profiles").exists()
    assert run(import_, "config.yaml", "--force").exit_code == 0
    assert (folder / "mtpd.toml").read_text() != "mine"


def test_a_directory_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").write_text("")
    result = run(import_, "config.yaml", "--out", "file/below")
    assert isinstance(result.exception, MtpdError)
    assert "cannot be written: Not a directory" in str(result.exception)


def test_strict_refuses_and_writes_nothing(folder: Path) -> None:
    result = run(import_, "config.yaml", "--strict")
    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == EXIT_CONFIG
    assert result.exception.problems == (
        "config.yaml:8: models.draft.capabilities: not honoured: is not shown in /v1/models yet",
    )
    assert not (folder / "mtpd.toml").exists()


def test_strict_takes_a_file_of_which_nothing_is_lost(folder: Path) -> None:
    (folder / "config.yaml").write_text(SWAP.replace("    capabilities: {tools: true}\n", ""))
    assert run(import_, "config.yaml", "--strict").exit_code == 0


def test_the_report_as_json(folder: Path) -> None:
    told = json.loads(run(import_, "config.yaml", "--json").stdout)
    assert told["ok"] is True
    assert told["written"][0] == "mtpd.toml"
    assert told["listen"] == "127.0.0.1:8080"
    assert told["models"] == {"draft": "draft", "small": "small"}
    assert told["ports"] == {"draft": 5800, "small": 5801}
    assert {
        "kind": "not honoured",
        "file": "config.yaml",
        "line": 8,
        "key": "models.draft.capabilities",
        "message": "is not shown in /v1/models yet",
    } in told["remarks"]


def test_problems_as_json(folder: Path) -> None:
    (folder / "config.yaml").write_text("models: {a: 3}\n")
    result = run(import_, "config.yaml", "--json")
    assert result.exit_code == EXIT_CONFIG
    assert json.loads(result.stdout) == {
        "ok": False,
        "problems": ["config.yaml:1: models.a: must be a table"],
    }
    result = run(import_, "config.yaml")
    assert isinstance(result.exception, ConfigError)


def test_another_kind_of_file_is_a_mistake_in_the_command(folder: Path) -> None:
    assert run(import_, "mtpd.toml").exit_code == EXIT_USAGE


def test_a_preset_file_is_imported(folder: Path) -> None:
    result = run(import_, "preset.ini", "--out", "made")
    assert result.exit_code == 0, result.output
    assert load(folder / "made/mtpd.toml").profiles["m"].model == str(folder / "tiny.gguf")
    assert "preset.ini:5: m.temp: not honoured: " in result.stderr


def test_the_name_of_a_repository_is_imported_as_it_is(folder: Path) -> None:
    (folder / "preset.ini").write_text("[m]\nhf-repo = org/m\nctx-size = 1024\nparallel = 1\n")
    assert run(import_, "preset.ini", "--out", "made").exit_code == 0
    assert load(folder / "made/mtpd.toml").profiles["m"].model == "hf:org/m"


def test_check_tells_all_problems_of_a_foreign_file(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        "models:\n  m:\n    cmd: llama-server --port ${PORT} -m /m -c 16\n    ttl: -5\n"
        "  n:\n    cmd: llama-server --port ${PORT} -m /n -ctk q9 -ctv q9\n"
        "    metadata: {mtpd: {contxt: 1, drafter: {kind: mtp}}}\n"
        "mtpd: {server: {listn: 1}}\nbogus: 1\n"
    )
    result = run(check, "--config", "config.yaml")
    assert isinstance(result.exception, ConfigError)
    assert result.exception.problems == (
        "config.yaml:3: models.m.cmd.-c: must be greater than or equal to 256, not 16",
        "config.yaml:3: models.m.cmd.-m: /m does not exist",
        "config.yaml:4: models.m.ttl: must be a whole number of at least -1, not -5",
        (
            "config.yaml:6: models.n.cmd.-ctk: must be 'f32', 'f16', 'bf16', 'q8_0', 'q4_0',"
            " 'q4_1', 'iq4_nl', 'q5_0' or 'q5_1', not 'q9'"
        ),
        "config.yaml:6: models.n.cmd.-m: /n does not exist",
        ("config.yaml:7: models.n.metadata.mtpd.contxt: unknown key; did you mean 'context'?"),
        (
            "config.yaml:7: models.n.metadata.mtpd.drafter.max_depth: must be at least 1 where"
            " kind is 'mtp'"
        ),
        "config.yaml:8: mtpd.server.listn: unknown key; did you mean 'listen'?",
    )


def test_a_value_out_of_range_is_told_at_its_flag(folder: Path) -> None:
    (folder / "preset.ini").write_text("[m]\nmodel = /m\nc = 16\n")
    result = run(check, "--config", "preset.ini")
    assert isinstance(result.exception, ConfigError)
    assert result.exception.problems == (
        "preset.ini:2: m.model: /m does not exist",
        "preset.ini:3: m.c: must be greater than or equal to 256, not 16",
    )


def test_check_lists_what_is_not_honoured(folder: Path) -> None:
    (folder / "models").mkdir()
    shutil.copy(bundled_model("tiny-chained.gguf"), folder / "models/tiny.gguf")
    text = (
        SWAP.partition("  draft:")[0]
        + "    capabilities: {a: 1}\nmtpd: {engine: {binary: embedded}}\n"
    )
    (folder / "config.yaml").write_text(text)
    result = run(check, "--config", "config.yaml")
    assert result.exit_code == 0, result.output
    assert "config.yaml:6: models.small.capabilities: not honoured: " in result.stderr
    told = json.loads(run(check, "--config", "config.yaml", "--json").stdout)
    assert any(" models.small.capabilities: not honoured: " in one for one in told["remarks"])
    strict = run(check, "--config", "config.yaml", "--strict")
    assert isinstance(strict.exception, ConfigError)


def test_check_tells_first_why_no_model_is_left(folder: Path) -> None:
    (folder / "config.yaml").write_text(NO_SERVER)
    result = run(check, "--config", "config.yaml")
    assert isinstance(result.exception, ConfigError)
    assert "no model is configured" in str(result.exception)
    assert "config.yaml:1: models.m.cmd: not honoured: names no file with -m" in result.stderr


@pytest.mark.slow
def test_serve_tells_first_why_no_model_is_left(folder: Path) -> None:
    (folder / "config.yaml").write_text(NO_SERVER)
    ended = serve("--config", "config.yaml")
    assert ended.returncode == EXIT_CONFIG
    *remarks, told = ended.stderr.partition("no model is configured")[:2]
    assert "config.yaml:1: models.m.cmd: not honoured: names no file with -m" in remarks[0]
    assert told


@pytest.mark.slow
def test_serve_refuses_under_strict(folder: Path) -> None:
    ended = serve("--config", "config.yaml", "--strict")
    assert ended.returncode == EXIT_CONFIG
    assert "config.yaml:8: models.draft.capabilities: not honoured" in ended.stderr


def test_config_show_tells_the_line_in_the_foreign_file(folder: Path) -> None:
    result = run(config, "show", "--config", "config.yaml", "--origin")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "models.small.context = 1024 # config.yaml:3" in lines
    assert "models.small.drafter.max_depth = 3 # config.yaml:5" in lines


def test_a_shipped_profile_of_the_same_name_adds_nothing(folder: Path) -> None:
    cmd = "llama-server --port ${PORT} -m /m.gguf"
    (folder / "config.yaml").write_text(f"models: {{qwen3.6-27b-b2: {{cmd: '{cmd}'}}}}\n")
    profile = load(folder / "config.yaml").profiles["qwen3.6-27b-b2"]
    assert profile.model == "/m.gguf"
    assert profile.quality is None
    assert profile.kv_type == "f16"
    assert profile.drafter.max_depth == 0
