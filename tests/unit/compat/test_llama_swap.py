"""A whole file of llama-swap: ports, names, macros, its own settings, and what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtpd.compat.remarks import MAX_MESSAGE, Kind
from tests.unit.compat.translating import faults, one_model, profile, swap, told

EXAMPLE = Path(__file__).with_name("example.yaml").read_text()
ENVIRONMENT = {"HOME": "/home/u", "KEY": "sk-second"}
TWO = """\
models:
  a:
    cmd: {a}
  b:
    cmd: {b}
"""


def test_the_documented_example_keeps_its_ports_and_names() -> None:
    made = swap(EXAMPLE, ENVIRONMENT)
    assert made.faults == []
    # llama-swap numbers the sorted names, those it starts through other programs included
    assert made.ports == {"docker-llama": 10001, "oss-120b": 10002, "plain": 10003}
    assert set(made.names) == {"oss-120b", "plain", "docker-llama"}
    assert profile(made, "docker-llama")["stop_command"] == ["docker", "stop", "docker-llama"]
    assert profile(made, "oss-120b") == {
        "aliases": ["small-hosted", "oss-120b:high"],
        "model": "gguf/oss-120b.gguf",
        "context": 16384,
        "slots": 1,
        "drafter": {"kind": "none"},
        "title": "OSS 120B",
        "description": "A thinking model",
        "upstream_model": "vendor/oss-120B",
        "filters": {
            "strip": ["temperature", "top_p"],
            "set": {"temperature": 0.7},
            "set_by_name": {
                "oss-120b": {"chat_template_kwargs": {"reasoning_effort": "medium"}},
                "oss-120b:high": {"chat_template_kwargs": {"reasoning_effort": "high"}},
            },
        },
        "ttl_s": 60,
        "loading_state": "off",
        "timeouts": {"connect_s": 30.0},
    }
    assert made.tree["server"] == {
        "ttl_s": 0,
        "preload": ["plain"],
        "loading_state": "reasoning",
    }
    assert profile(made, "plain") == {
        "model": "/home/u/models/plain.gguf",
        "n_gpu_layers": 0,
        "offload": "accept",
        "drafter": {"kind": "none"},
        "unlisted": True,
    }
    assert made.tree["engine"] == {
        "binary": "/opt/llama/llama-server-b11434",
        "ready_timeout_s": 300,
    }


def test_the_documented_example_tells_what_is_lost() -> None:
    lost = [one.partition(": ")[2].partition(": ")[0] for one in told(swap(EXAMPLE, ENVIRONMENT))]
    assert lost == [
        "models.oss-120b.cmd.--temperature",
        "models.oss-120b.env.0",
        "models.oss-120b.metadata.port",
        "models.oss-120b.metadata.note",
        "models.oss-120b.metadata.an_obj",
        "models.plain.cmd",
        "matrix",
        "peers",
    ]


def test_every_key_of_the_example_is_translated_or_told() -> None:
    made = swap(EXAMPLE, ENVIRONMENT)
    notes = told(made, Kind.NOTE)
    for key in ("logLevel", "logToStdout", "metricsMaxInMemory"):
        assert any(f": {key}: " in one for one in notes)
    assert "37: models.oss-120b.proxy: mtpd asks the engine over a private socket" in notes


def test_an_unset_variable_is_a_fault_at_its_line() -> None:
    assert faults(swap(EXAMPLE, {"HOME": "/h"})) == [
        "21: : the environment variable 'KEY' is not set where mtpd runs"
    ]


def test_a_variable_in_a_comment_is_not_needed() -> None:
    assert swap("# ${env.NO}\nmodels: {}\n").faults == []


def test_ports_go_only_to_commands_that_use_them() -> None:
    text = TWO.format(
        a='llama-server --port 9999 -m /a\n    proxy: "http://127.0.0.1:9999"',
        b="llama-server --port ${PORT} -m /b",
    )
    made = swap(text)
    assert made.faults == []
    assert made.ports == {"b": 5800}


def test_the_order_of_ports_is_that_of_the_names() -> None:
    names = ["b", "B", "a", "10", "9"]
    text = "startPort: 7000\nmodels:\n" + "".join(
        f"  '{name}': {{cmd: 'llama-server --port ${{PORT}} -m /x'}}\n" for name in names
    )
    assert swap(text).ports == {"10": 7000, "9": 7001, "B": 7002, "a": 7003, "b": 7004}


@pytest.mark.parametrize(
    ("text", "told_fault"),
    [
        ("", "1: : must be a table with the key 'models'"),
        ("- a\n", "1: : must be a table with the key 'models'"),
        ("models: []\n", "1: models: must be a table of models"),
        ("models: {a: 3}\n", "1: models.a: must be a table"),
        ("models: {a: {}}\n", "1: models.a.proxy: is required where cmd does not use ${PORT}"),
        ("startPort: 0\n", "1: startPort: must be a whole number of at least 1, not 0"),
        ("startPort: true\n", "1: startPort: must be a whole number of at least 1, not True"),
        ("macros: {PORT: 1}\n", "1: macros.PORT: the macro name 'PORT' is reserved"),
        ("mtpd: 3\n", "1: mtpd: must be a table"),
        (
            "mtpd: {models: {}}\n",
            "1: mtpd.models: the settings of a model stand in its metadata.mtpd",
        ),
    ],
)
def test_what_llama_swap_refuses_is_a_fault(text: str, told_fault: str) -> None:
    assert told_fault in faults(swap(text))


@pytest.mark.parametrize(
    ("more", "told_fault"),
    [
        (
            '    name: "${no}"\n',
            "4: models.m.name: there is no macro ${no}: define it under macros",
        ),
        ("    macros: {a b: 1}\n", "4: models.m.macros.\"a b\": 'a b' is not a macro name: "),
        ("    proxy: [1]\n", "4: models.m.proxy: must be text"),
        ("    proxy: 'http://[x'\n", "4: models.m.proxy: is no URL: Invalid IPv6 URL"),
        ("    ttl: -2\n", "4: models.m.ttl: must be a whole number of at least -1, not -2"),
        (
            "    concurrencyLimit: -1\n",
            "4: models.m.concurrencyLimit: must be a whole number of at least 0, not -1",
        ),
        ("    ttl: long\n", "4: models.m.ttl: must be a whole number of at least -1, not 'long'"),
        ("    env: A=1\n", "4: models.m.env: must be a list of NAME=VALUE"),
        ("    env: [A]\n", "4: models.m.env.0: must be NAME=VALUE"),
        ("    aliases: x\n", "4: models.m.aliases: must be a list of names"),
        ("    aliases: [[x]]\n", "4: models.m.aliases.0: must be a name"),
        ("    aliases: [{name: x}]\n", "4: models.m.aliases.0: must be a name"),
        (
            "    metadata: {mtpd: 3}\n",
            "4: models.m.metadata.mtpd: must be a table of settings of a model profile",
        ),
        (
            '    metadata: {mtpd: {context: "${no}"}}\n',
            "4: models.m.metadata.mtpd: there is no macro ${no}: define it under macros",
        ),
    ],
)
def test_what_is_wrong_with_a_model(more: str, told_fault: str) -> None:
    (found,) = faults(one_model("", more))
    assert found.startswith(told_fault)


def test_an_unknown_macro_of_a_command_is_named() -> None:
    assert faults(one_model("${nothing} ${PID}")) == [
        "3: models.m.cmd: there is no macro ${nothing}: define it under macros",
        "3: models.m.cmd: there is no macro ${PID}: define it under macros",
    ]


def test_a_command_that_cannot_be_split_is_a_fault() -> None:
    assert faults(one_model("'open")) == [
        "3: models.m.cmd: cannot be split into words: No closing quotation"
    ]
    text = "models: {m: {cmd: '# ${PORT}', proxy: 'http://127.0.0.1:1'}}"
    assert faults(swap(text)) == [
        "1: models.m.cmd: is missing or empty: it must be the command that starts the model"
    ]


def test_a_macro_that_grows_without_bound_is_a_fault() -> None:
    lines = ["macros:", f"  m0: {'x' * 100}"]
    lines += [f"  m{n}: '{f'${{m{n - 1}}}' * 60}'" for n in range(1, 9)]
    text = "\n".join(lines) + "\nmodels: {m: {cmd: '${m8} ${PORT}'}}"
    assert faults(swap(text))[0] == (
        f"{len(lines) + 1}: models.m.cmd: grows beyond 65536 characters with its macros"
    )


def test_ports_end_at_the_last_one() -> None:
    text = "startPort: 65535\n" + TWO.format(
        a="llama-server --port ${PORT} -m /a", b="llama-server --port ${PORT} -m /b"
    )
    assert faults(swap(text)) == ["6: models.b.cmd: no port is left: the next one is 65536"]


def test_a_models_macro_goes_over_that_of_the_file() -> None:
    text = "macros: {c: 1000, flags: '-c ${c}'}\n" + TWO.format(
        a="llama-server --port ${PORT} -m /a ${flags}",
        b="llama-server --port ${PORT} -m /${MODEL_ID} ${flags}\n    macros: {c: 2000}",
    )
    made = swap(text)
    assert profile(made, "a")["context"] == 1000
    assert profile(made, "b")["context"] == 2000
    assert profile(made, "b")["model"] == "/b"


@pytest.mark.parametrize(
    "command",
    [
        "docker run x",
        "/usr/bin/podman run x",
        "vllm serve x",
        "nice -n 5 llama-server -m /x",
        "env -i llama-server -m /x",
    ],
)
def test_other_programs_are_started_as_they_are_written(command: str) -> None:
    made = swap(f"models:\n  m:\n    cmd: {command} ${{PORT}}\n")
    assert profile(made)["command"] == [*command.split(), "5800"]
    (program, *_) = command.split()
    assert told(made, Kind.NOTE) == [
        f"3: models.m.cmd: {program!r} is no llama-server: started as it is written, never tuned"
    ]


def test_env_before_the_command_sets_variables() -> None:
    text = "models:\n  m:\n    cmd: env HIP_VISIBLE_DEVICES=1 llama-server --port ${PORT} -m /m\n"
    assert swap(text).tree["engine"] == {"extra_env": {"HIP_VISIBLE_DEVICES": "1"}}


def test_a_model_without_a_file_is_left_out_and_told() -> None:
    made = swap("models:\n  m:\n    cmd: llama-server --port ${PORT} -hf x\n")
    assert "models" not in made.tree
    assert told(made) == [
        "3: models.m.cmd: names no file with -m and no repository with -hf: this model is left out"
    ]
    made = swap(
        "models:\n  m:\n    cmd: llama-server --port ${PORT} -hf org/x\n"
        "    metadata: {mtpd: {model: /m.gguf}}\n"
    )
    assert profile(made)["model"] == "/m.gguf"


def test_mtpds_own_settings_go_over_the_command() -> None:
    more = (
        "    metadata:\n      mtpd:\n        context: 8192\n        tags: [fast]\n"
        "        drafter: {max_depth: 5}\n"
    )
    made = one_model("-c 4096 --spec-type draft-mtp --spec-draft-n-max 2", more)
    found = profile(made)
    assert found["context"] == 8192
    assert found["drafter"] == {"kind": "mtp", "max_depth": 5, "depth": 2}
    assert found["tags"] == ["fast"]
    assert made.lines["models", "m", "context"] == 6
    assert made.keys["models", "m", "context"] == ("models", "m", "metadata", "mtpd", "context")
    assert made.lines["models", "m", "tags", 0] == 7


def test_macros_in_mtpds_own_settings_keep_their_type() -> None:
    more = '    macros: {n: 8192}\n    metadata: {mtpd: {context: "${n}"}}\n'
    assert profile(one_model("", more))["context"] == 8192


def test_the_settings_of_the_daemon() -> None:
    made = swap(
        "mtpd:\n  server:\n    listen: 127.0.0.1:9000\n  tuning: {mode: idle}\nmodels: {}\n"
    )
    assert made.tree == {"server": {"listen": "127.0.0.1:9000"}, "tuning": {"mode": "idle"}}
    assert made.lines["server", "listen"] == 3
    assert made.keys["server", "listen"] == ("mtpd", "server", "listen")
    assert told(made) == []


@pytest.mark.parametrize(
    ("more", "kind", "key"),
    [
        ("    ttl: 60\n", None, ""),
        ("    ttl: 0\n", None, ""),
        ("    ttl: -1\n", None, ""),
        ("    cmdStop: kill ${PID}\n", None, ""),
        ("    unloadTimeout: 20\n", None, ""),
        ("    unlisted: true\n", None, ""),
        ("    name: Small\n    description: A model\n    useModelName: v/m\n", None, ""),
        ("    capabilities: {tools: true}\n", Kind.NOT_HONOURED, "capabilities"),
        ("    unlisted: false\n", None, ""),
        ("    concurrencyLimit: 0\n", None, ""),
        ("    concurrencyLimit: 4\n", None, ""),
        ("    filters: {strip_params: temperature}\n", None, ""),
        ("    checkEndpoint: /health\n", None, ""),
        ("    checkEndpoint: none\n", Kind.NOTE, "checkEndpoint"),
        ('    proxy: "http://localhost:${PORT}"\n', None, ""),
        ('    proxy: "http://localhost:9"\n', Kind.NOTE, "proxy"),
        ('    proxy: "http://10.0.0.1:${PORT}"\n', Kind.NOT_HONOURED, "proxy"),
        ('    proxy: "http://localhost:${PORT}/v1"\n', Kind.NOT_HONOURED, "proxy"),
        ("    bogus: 1\n", Kind.NOT_HONOURED, "bogus"),
        ("    metadata: {a: 1}\n", Kind.NOT_HONOURED, "metadata.a"),
    ],
)
def test_keys_of_a_model(more: str, kind: Kind | None, key: str) -> None:
    made = one_model("-c 1 -np 1", more)
    assert made.faults == []
    found = [
        f"{one.kind} {'.'.join(map(str, one.key[2:]))}"
        for one in made.remarks
        if "--port" not in one.key
    ]
    assert found == ([] if kind is None else [f"{kind} {key}"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("globalTTL: 0\n", None),
        ("globalTTL: 300\n", None),
        ("includeAliasesInList: true\n", None),
        ("sendLoadingState: true\n", None),
        ("apiKeys: []\n", None),
        ("apiKeys: [k]\n", Kind.CHANGED),
        ("performance: {every: 5s}\n", Kind.NOTE),
        ("x-common: &c {a: 1}\n", Kind.NOTE),
        ("bogus: 1\n", Kind.NOT_HONOURED),
    ],
)
def test_keys_of_the_file(text: str, kind: Kind | None) -> None:
    found = [(one.kind, one.line) for one in swap(text).remarks]
    assert found == ([] if kind is None else [(kind, 1)])


def test_a_message_is_short_whatever_the_file_holds() -> None:
    word = "x" * 5000
    made = one_model(f"--{word} -c {word}")
    messages = [one.message for one in made.remarks]
    messages += [one.message for one in (*made.faults, *swap(f"a: !{word} 1").faults)]
    assert len(messages) >= 3
    assert max(map(len, messages)) == MAX_MESSAGE


def test_a_secret_is_never_repeated() -> None:
    made = swap("apiKeys: [sk-secret]\n" + EXAMPLE.replace("apiKeys", "selectors"), ENVIRONMENT)
    assert not any("sk-" in one.message for one in made.remarks)


def test_a_model_through_an_anchor() -> None:
    text = (
        "x-base: &base\n  cmd: llama-server --port ${PORT} -m /${MODEL_ID}\n"
        "models:\n  a: *base\n  b:\n    <<: *base\n    capabilities: {a: 1}\n"
    )
    made = swap(text)
    assert profile(made, "a")["model"] == "/a"
    assert profile(made, "b")["model"] == "/b"
    assert told(made) == ["7: models.b.capabilities: is not shown in /v1/models yet"]


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("globalTTL: 300\n", {"ttl_s": 300}),
        ("globalTTL: 0\n", {"ttl_s": 0}),
        ("includeAliasesInList: true\n", {"list_aliases": True}),
        ("includeAliasesInList: false\n", None),
    ],
)
def test_keys_of_the_file_that_the_server_has(text: str, settings: dict[str, object]) -> None:
    made = swap(text + "models: {}\n")
    assert made.faults == []
    assert made.tree.get("server") == settings


def test_a_ttl_of_0_is_said_and_one_of_minus_1_is_not() -> None:
    assert profile(one_model("-c 1 -np 1", "    ttl: 0\n"))["ttl_s"] == 0
    assert "ttl_s" not in profile(one_model("-c 1 -np 1", "    ttl: -1\n"))


def test_a_limit_of_requests_at_once_is_kept_and_the_default_is_the_queue() -> None:
    limited = profile(one_model("-c 1 -np 1", "    concurrencyLimit: 4\n"))
    assert limited["concurrency_limit"] == 4
    default = profile(one_model("-c 1 -np 1", "    concurrencyLimit: 0\n"))
    assert "concurrency_limit" not in default


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("globalTTL: -1\n", "1: globalTTL: must be a whole number of at least 0, not -1"),
        ("globalTTL: x\n", "1: globalTTL: must be a whole number of at least 0, not 'x'"),
    ],
)
def test_a_key_of_the_file_that_cannot_be_meant(text: str, fault: str) -> None:
    assert faults(swap(text + "models: {}\n")) == [fault]


def test_a_switch_that_is_neither_on_nor_off() -> None:
    made = one_model("-c 1", "    unlisted: maybe\n")
    assert faults(made) == ["4: models.m.unlisted: must be true or false, not 'maybe'"]


def test_a_table_of_metadata_takes_the_place_of_what_is_no_table() -> None:
    made = swap(
        "models:\n  m:\n    cmd: llama-server --port ${PORT} -m /m.gguf\n"
        "    aliases: [small]\n    metadata: {mtpd: {aliases: {a: 1}, drafter: 3}}\n"
    )
    assert profile(made, "m")["aliases"] == {"a": 1}
    assert profile(made, "m")["drafter"] == 3
