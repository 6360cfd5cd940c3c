"""``kind = "opaque"``: what it takes, what it refuses, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.files import file_problems
from mtpd.config.load import load
from mtpd.config.origins import leaves
from mtpd.errors import ConfigError
from tests.unit.config.writing import write

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.config.model import Config

HEAD = '[models.w]\nkind = "opaque"\n'
COMMAND = 'command = ["bin/whisper-server", "--port", "${PORT}"]\n'


def loaded(folder: Path, text: str) -> Config:
    return load(write(folder / "mtpd.toml", text))


def told(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return [one.partition("mtpd.toml:")[2] for one in caught.value.problems]


def test_a_program_with_its_defaults(tmp_path: Path) -> None:
    profile = loaded(tmp_path, HEAD + COMMAND).profiles["w"]
    assert profile.opaque is not None
    assert profile.opaque.command == (str(tmp_path / "bin/whisper-server"), "--port", "${PORT}")
    assert profile.opaque.proxy == "http://127.0.0.1:${PORT}"
    assert profile.opaque.check == "/health"
    assert (profile.model, profile.slots, profile.drafter.max_depth) == ("", 10, 0)


def test_a_program_with_everything(tmp_path: Path) -> None:
    text = HEAD + (
        'command = ["docker", "run", "-p", "${PORT}:8080", "image"]\n'
        'proxy = "http://127.0.0.1:${PORT}/api/"\ncheck = "none"\nslots = 2\nvram_mib = 0\n'
        'stop_command = ["docker", "stop", "w"]\nenv = { B = "2", A = "" }\nready_timeout_s = 500\n'
        'stop_timeout_s = 10\nttl_s = 60\ntitle = "W"\nupstream_model = "v/w"\naliases = ["x"]\n'
    )
    profile = loaded(tmp_path, text).profiles["w"]
    assert profile.opaque is not None
    assert profile.opaque.command[0] == "docker"
    assert (profile.opaque.proxy, profile.opaque.check) == ("http://127.0.0.1:${PORT}/api", None)
    assert (profile.opaque.env, profile.vram_mib) == ((("A", ""), ("B", "2")), 0)
    assert (profile.stop_command, profile.slots) == (("docker", "stop", "w"), 2)
    assert (profile.ready_timeout_s, profile.stop_timeout_s) == (500, 10)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD, "1: models.w: the key 'command' is required where kind is 'opaque'"),
        (HEAD + "command = []\n", "1: models.w: the key 'command' is required where kind is"),
        (
            HEAD + COMMAND + 'model = "/m.gguf"\n',
            "4: models.w.model: is for llama-server only; kind is 'opaque'",
        ),
        (HEAD + COMMAND + "context = 4096\n", "4: models.w.context: is for llama-server only"),
        (
            HEAD + COMMAND + 'proxy = "ftp://x"\n',
            "4: models.w.proxy: must be a URL such as 'http://127.0.0.1:8000', not 'ftp://x'",
        ),
        (HEAD + COMMAND + 'proxy = "http://[::1"\n', "4: models.w.proxy: is no URL: "),
        (HEAD + COMMAND + 'proxy = "http://a b:1"\n', "4: models.w.proxy: must be a URL such as"),
        (
            HEAD + COMMAND + 'proxy = "http://a:1${PORT}"\n',
            "4: models.w.proxy: is no URL: Port out",
        ),
        (HEAD + COMMAND + 'check = "health"\n', "4: models.w.check: must be a path such as"),
        (HEAD + COMMAND + 'env = { "1A" = "" }\n', "4: models.w.env.1A: '1A' cannot be the name"),
        (HEAD + 'command = ["a\\u0000"]\n', "3: models.w.command.0: must not hold a NUL"),
        (HEAD + 'command = ["", "${PORT}"]\n', "3: models.w.command.0: must name the program"),
        (
            '[models.m]\nmodel = "/m.gguf"\nstop_command = [""]\n',
            "3: models.m.stop_command.0: must name the program",
        ),
        (HEAD + 'command = ["a"]\n', "1: models.w: ${PORT} does not occur in command: say in"),
        (
            '[models.m]\nmodel = "/m.gguf"\ncommand = ["a"]\n',
            "3: models.m.command: is for programs that are no llama-server: it needs kind",
        ),
        (
            HEAD + COMMAND + '[pools.p]\nmembers = ["w"]\n',
            "5: pools.p.members.0: 'w' is of kind 'opaque', which is never measured",
        ),
        ("[models.m]\nslots = 1\n", "1: models.m: the key 'model' is required"),
    ],
)
def test_a_mistake(tmp_path: Path, text: str, problem: str) -> None:
    assert any(one.startswith(problem) for one in told(tmp_path, text)), told(tmp_path, text)


def test_a_cards_defaults_are_not_for_programs(tmp_path: Path) -> None:
    write(
        tmp_path / "profiles/hardware/card.toml",
        'description = "d"\nisa = "i"\nvram_mib = 1\n[model_defaults]\nkv_type = "q8_0"\n',
    )
    config = loaded(tmp_path, '[budget]\nhardware = "card"\n' + HEAD + COMMAND)
    assert config.profiles["w"].kv_type == "f16"


def test_its_variables_are_not_shown(tmp_path: Path) -> None:
    config = loaded(tmp_path, HEAD + COMMAND + 'env = { KEY = "secret" }\n')
    shown = dict(leaves(config))
    assert shown["models", "w", "env", "KEY"] == "(not shown)"
    assert shown["models", "w", "command"] == [
        str(tmp_path / "bin/whisper-server"), "--port", "${PORT}",
    ]  # fmt: skip


def test_a_program_that_is_not_there_is_a_problem_of_its_files(tmp_path: Path) -> None:
    (problem,) = file_problems(loaded(tmp_path, HEAD + COMMAND))
    program = tmp_path / "bin/whisper-server"
    assert problem.endswith(f"mtpd.toml:3: models.w.command: {program} does not exist")
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert file_problems(loaded(tmp_path, HEAD + COMMAND)) == ()
    (problem,) = file_problems(loaded(tmp_path, HEAD + COMMAND.replace("bin/w", "no-w")))
    assert problem.endswith("no-whisper-server is not on the PATH")


def test_memory_may_be_declared_of_any_model(tmp_path: Path) -> None:
    text = HEAD + COMMAND + '[models.m]\nmodel = "/m.gguf"\nvram_mib = 700\n'
    profiles = loaded(tmp_path, text).profiles
    assert (profiles["w"].vram_mib, profiles["m"].vram_mib) == (None, 700)
    (problem,) = told(tmp_path, '[models.m]\nmodel = "/m.gguf"\nvram_mib = -1\n')
    assert problem.startswith("3: models.m.vram_mib: ")
