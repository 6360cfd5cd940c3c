"""Commands of llama-swap that start no llama-server; how models end, what loads at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.compat.remarks import Kind
from mtpd.config.load import load
from mtpd.config.remarks import not_honoured
from tests.unit.compat.translating import faults, one_model, profile, swap, told

if TYPE_CHECKING:
    from pathlib import Path

WHISPER = """\
models:
  w:
    cmd: /usr/bin/whisper-server --port ${PORT} -m '/srv/large v3.bin'
"""


def test_a_program_is_started_as_it_is_written() -> None:
    assert profile(swap(WHISPER), "w") == {
        "kind": "opaque",
        "command": ["/usr/bin/whisper-server", "--port", "5800", "-m", "/srv/large v3.bin"],
        "proxy": "http://localhost:5800",
        "stop_timeout_s": 10,
    }
    assert told(swap(WHISPER)) == []


def test_a_container_with_everything_that_goes_with_it() -> None:
    made = swap(
        "startPort: 9000\nmodels:\n  vision:\n    cmd: |\n      # a comment\n"
        "      docker run --rm --name ${MODEL_ID} -p ${PORT}:8000 vllm\n"
        "    cmdStop: docker stop ${MODEL_ID} ${PID}\n    proxy: http://127.0.0.1:${PORT}/api\n"
        "    checkEndpoint: ready\n    env: [HF_TOKEN=x=y]\n    unloadTimeout: 30\n"
        "    useModelName: Qwen/VL\n    aliases: [v]\n    ttl: 5\n    name: Vision\n"
    )
    assert profile(made, "vision") == {
        "aliases": ["v"],
        "kind": "opaque",
        "command": ["docker", "run", "--rm", "--name", "vision", "-p", "9000:8000", "vllm"],
        "proxy": "http://127.0.0.1:9000/api",
        "check": "/ready",
        "env": {"HF_TOKEN": "x=y"},
        "stop_command": ["docker", "stop", "vision", "${PID}"],
        "stop_timeout_s": 30,
        "title": "Vision",
        "upstream_model": "Qwen/VL",
        "ttl_s": 5,
    }
    assert told(made) == []
    assert made.ports == {"vision": 9000}


@pytest.mark.parametrize(
    ("more", "settings"),
    [
        ("    checkEndpoint: none\n", {"check": "none"}),
        ("    checkEndpoint: /\n", {"check": "/"}),
        ('    checkEndpoint: ""\n', {}),
        ("    unloadTimeout: 0\n", {"stop_timeout_s": 10}),
        ("    metadata: {mtpd: {vram_mib: 900, slots: 1}}\n", {"vram_mib": 900, "slots": 1}),
    ],
)
def test_a_key_of_a_program(more: str, settings: dict[str, object]) -> None:
    plain = profile(swap(WHISPER), "w")
    assert profile(swap(WHISPER + more), "w") == {**plain, **settings}


def test_a_relative_program_is_looked_for_beside_the_file() -> None:
    made = swap("models:\n  w:\n    cmd: bin/w ${PORT}\n    cmdStop: bin/stop\n")
    assert told(made, Kind.CHANGED) == [
        "3: models.w.cmd: 'bin/w' is looked for beside this file, not in the working directory",
        (
            "4: models.w.cmdStop: "
            "'bin/stop' is looked for beside this file, not in the working directory"
        ),
    ]


def test_an_engine_is_stopped_by_its_own_command_and_in_its_own_time() -> None:
    made = one_model("-c 1 -np 1", "    cmdStop: kill -INT ${PID}\n    unloadTimeout: 20\n")
    found = profile(made)
    assert (found["stop_command"], found["stop_timeout_s"]) == (["kill", "-INT", "${PID}"], 20)
    assert faults(one_model("-c 1", "    cmdStop: a 'b\n")) == [
        "4: models.m.cmdStop: cannot be split into words: No closing quotation"
    ]
    assert faults(one_model("-c 1", "    unloadTimeout: -1\n")) == [
        "4: models.m.unloadTimeout: must be a whole number of at least 0, not -1"
    ]


@pytest.mark.parametrize(
    ("text", "section", "settings"),
    [
        ("unloadTimeout: 20\n", "engine", {"stop_timeout_s": 20}),
        ("unloadTimeout: 0\n", "engine", None),
        ("healthCheckTimeout: 500\n", "engine", {"ready_timeout_s": 500}),
        ("healthCheckTimeout: 3\n", "engine", {"ready_timeout_s": 15}),
        ("hooks: {on_startup: {preload: [w, other]}}\n", "server", {"preload": ["w", "other"]}),
        ("hooks: {on_startup: {preload: []}}\n", "server", None),
        ("hooks: {}\n", "server", None),
    ],
)
def test_a_key_of_the_file(text: str, section: str, settings: dict[str, object] | None) -> None:
    models = WHISPER + "  x/y:\n    cmd: w ${PORT}\n    aliases: [other]\n"
    made = swap(text + models)
    assert made.faults == []
    assert made.tree.get(section) == settings
    assert told(made) == []


def test_hooks_that_cannot_be_followed_are_told() -> None:
    made = swap("hooks: {on_startup: {preload: [gone, w], run: x}, on_stop: y}\n" + WHISPER)
    assert made.tree["server"] == {"preload": ["w"]}
    assert told(made) == [
        "1: hooks.on_startup.run: this key is not known",
        "1: hooks.on_stop: this key is not known",
        "1: hooks.on_startup.preload.0: there is no model 'gone' to load",
    ]
    assert faults(swap("hooks: {on_startup: {preload: w}}\n" + WHISPER)) == [
        "1: hooks.on_startup.preload: must be a list of models"
    ]


def test_such_a_file_is_a_configuration_that_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("hooks: {on_startup: {preload: [w]}}\nhealthCheckTimeout: 60\n" + WHISPER)
    config = load(path)
    assert not_honoured(config) == ()
    assert config.profiles["w"].opaque is not None
    assert config.server.preload == ("w",)
