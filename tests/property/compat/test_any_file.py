"""Whatever a foreign file says: a configuration, or problems with their lines."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtpd.cli.import_command import import_
from mtpd.compat import llama_swap, yaml_text
from mtpd.compat.flag_table import BY_NAME
from mtpd.compat.remarks import Fault
from mtpd.compat.swap_keys import MODEL_KEYS, TOP_KEYS
from mtpd.config.load import load
from mtpd.config.model import may_set_for_engine
from mtpd.errors import ConfigError

if TYPE_CHECKING:
    from mtpd.config.model import Config

ENVIRONMENT = {"HOME": "/home/u"}

flags = st.sampled_from(sorted(BY_NAME))
loose = st.sampled_from(
    [
        "0", "1", "-1", "99", "16384", "2.5", "on", "off", "auto", "q8_0", "f16", "draft-mtp",
        "draft-simple,ngram-simple", "/m.gguf", "m.gguf", "'", '"', "\\", "--bogus", "${PORT}",
        "${MODEL_ID}", "${a}", "${no}", "${env.HOME}", "${env.NO}", "x=y", "\u00e9", "\x7f",
    ]
)  # fmt: skip
commands = st.lists(flags | loose, max_size=8).map(
    lambda words: " ".join(["llama-server --port ${PORT} -m /m.gguf", *words])
)
programs = commands | st.sampled_from(
    ["", "docker run x ${PORT}", "env A=1", "env HSA_X=1 llama-server ${PORT}"]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70_000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    loose,
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
names = st.sampled_from(["m", "n", "org/m", "m q", "auto", "", "\u00e9", "a" * 200])
profile_keys = st.sampled_from(
    ["context", "slots", "drafter", "tags", "aliases", "model", "offload", "kv_type", "bogus"]
)
models = st.fixed_dictionaries(
    {"cmd": programs},
    optional={
        "env": st.lists(st.sampled_from(["A=1", "HSA_X=1", "LLAMA_ARG_CTX_SIZE=512", "x"]))
        | values,
        "aliases": st.lists(names) | values,
        "macros": st.dictionaries(st.sampled_from("ab"), values),
        "metadata": st.fixed_dictionaries({"mtpd": st.dictionaries(profile_keys, values) | values})
        | values,
        "filters": st.fixed_dictionaries({"setParamsByID": st.dictionaries(names, values)})
        | values,
        "proxy": st.sampled_from(["http://[", "http://localhost:${PORT}", "//x:y"]) | values,
        **dict.fromkeys(MODEL_KEYS, values),
    },
)
groups = st.fixed_dictionaries({"members": st.lists(names) | values})
sections = st.sampled_from(["server", "engine", "tuning", "pools", "models"])
files = st.fixed_dictionaries(
    {"models": st.dictionaries(names, models | values, max_size=3) | values},
    optional={
        "macros": st.dictionaries(st.sampled_from("ab"), values) | values,
        "groups": st.dictionaries(st.sampled_from("gh"), groups | values),
        "routing": values,
        "mtpd": st.dictionaries(sections, values) | values,
        "startPort": values,
        **dict.fromkeys(TOP_KEYS, values),
    },
)  # fmt: skip

yaml_words = st.sampled_from(
    ["a", "models", ": ", "- ", "\n", "  ", "\t", "&x ", "*x", "<<", "|", ">", "'", '"', "{", "}",
     "[", "]", ",", "#", "!!str ", "!x ", "---", "...", "%YAML 1.2", "? ", "\\U", "\x00", "cmd"]
)  # fmt: skip
yaml_texts = st.lists(yaml_words, max_size=30).map("".join)

ini_keys = st.sampled_from(sorted(name.lstrip("-") for name in BY_NAME)) | st.sampled_from(
    ["model", "draft-max", "mmap", "version", "LLAMA_ARG_MODEL", "load-on-startup", " model", "x y"]
)
ini_lines = st.one_of(
    st.builds("[{}]".format, names | st.sampled_from(["*", "default", "a:b", "a]b"])),
    st.builds("{} = {}".format, ini_keys, loose),
    st.text(max_size=10),
)
ini_texts = st.lists(ini_lines, max_size=12).map("\n".join)


GOOD_FLAGS = (
    ("-c", "1024"), ("--ctx-size", "4096"), ("-np", "2"), ("-ctk", "q8_0"), ("-ctv", "q4_0"),
    ("-ngl", "99"), ("-ngl", "3"), ("-t", "2"), ("-b", "512"), ("-ub", "64"), ("-s", "5"),
    ("-fit", "off"), ("-fa", "on"), ("-dev", "ROCm0"), ("--temp", "0.5"), ("--draft-max", "2"),
    ("--spec-type", "draft-mtp"), ("--spec-type", "ngram-simple"), ("--spec-type", "draft-eagle3"),
    ("-ub", "1024"), ("-md", "d.gguf"),
    ("--spec-draft-p-min", "0.5"), ("-ctkd", "q8_0"), ("--metrics", ""), ("--no-mmap", ""),
    ("-hf", "org/x"), ("--api-key", "k"), ("--host", "10.0.0.1"), ("-m", "other.gguf"),
)  # fmt: skip
good_flags = st.lists(st.sampled_from(GOOD_FLAGS), max_size=6)
good_models = st.fixed_dictionaries(
    {"cmd": good_flags.map(lambda pairs: f"{GOOD} {' '.join(' '.join(pair) for pair in pairs)}")},
    optional={
        "env": st.lists(st.sampled_from(["A=1", "HSA_X=1", "LLAMA_ARG_CTX_SIZE=512"])),
        "ttl": st.integers(-1, 3),
        "metadata": st.just({"mtpd": {"tags": ["x"], "slots": 1}}) | st.just({"a": "${w}"}),
        "filters": st.just({"setParamsByID": {"${MODEL_ID}": {}}}),
        "macros": st.just({"w": 9}),
    },
)
GOOD = "${server} --port ${PORT} -m ${w}.gguf"
good_files = st.fixed_dictionaries(
    {
        "macros": st.just({"server": "llama-server", "w": 7}),
        "models": st.dictionaries(st.sampled_from(["a", "b", "c-d", "c/d", "é"]), good_models),
    },
    optional={
        "groups": st.just({"g": {"swap": False, "members": ["a"]}}),
        "mtpd": st.just({"server": {"max_waiting": 3}, "tuning": {"mode": "off"}}),
        "globalTTL": st.integers(0, 2),
    },
)
good_sections = st.dictionaries(
    st.sampled_from(["*", "default", "a", "b:q4", "c/d"]), good_flags, min_size=1
)


def loaded_again(suffix: str, data: bytes) -> None:
    """The file is used, and its import loads as the same configuration."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"config{suffix}")
        path.write_bytes(data)
        config = loaded(path)
        assert not isinstance(config, tuple), config
        imported_again(path, config)


@settings(max_examples=100)
@given(good_files)
def test_a_usable_file_of_llama_swap_comes_back(content: dict[str, object]) -> None:
    loaded_again(".yaml", yaml_of(content).encode())


@settings(max_examples=100)
@given(good_sections)
def test_a_usable_preset_file_comes_back(content: dict[str, list[tuple[str, str]]]) -> None:
    lines = ["version = 1"]
    for name, pairs in content.items():
        lines += [f"[{name}]", "model = m.gguf"]
        lines += [f"{flag.lstrip('-')} = {value or '1'}" for flag, value in pairs]
    loaded_again(".ini", "\n".join(lines).encode())


def outcome(suffix: str, data: bytes) -> None:
    """Load, and import what loads: both end as they may end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"config{suffix}")
        path.write_bytes(data)
        config = loaded(path)
        if isinstance(config, tuple):
            assert config
            assert all(re.match(rf"{re.escape(str(path))}:[1-9][0-9]*:", one) for one in config)
            return
        lines = data.decode().replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        assert all(1 <= one.line <= lines and one.file == str(path) for one in config.remarks)
        imported_again(path, config)


def imported_again(path: Path, config: Config) -> None:
    """The import of a usable file loads as what the file itself loads as."""
    with tempfile.TemporaryDirectory() as folder:
        made = CliRunner(env=ENVIRONMENT).invoke(import_, [str(path), "--out", f"{folder}/made"])
        assert made.exit_code == 0, made.output
        again = load(Path(folder, "made", "mtpd.toml"))
        assert again.profiles == config.profiles
        assert again.pools == config.pools
        assert (again.server, again.engine) == (config.server, config.engine)
        assert (again.tuning, again.budget) == (config.tuning, config.budget)


def loaded(path: Path) -> Config | tuple[str, ...]:
    """The configuration, or its problems."""
    try:
        return load(path, environment=ENVIRONMENT)
    except ConfigError as error:
        return error.problems


@pytest.mark.slow
@settings(max_examples=150)
@given(files)
def test_any_file_of_llama_swap(content: dict[str, object]) -> None:
    outcome(".yaml", yaml_of(content).encode())


@settings(max_examples=300)
@given(yaml_texts | st.text(max_size=40))
@example("models: &x\n  a: *x")
def test_any_yaml_text(text: str) -> None:
    outcome(".yaml", text.encode(errors="surrogatepass"))


@settings(max_examples=200)
@given(st.binary(max_size=40), st.sampled_from([".yaml", ".YML", ".ini"]))
def test_any_bytes(data: bytes, suffix: str) -> None:
    outcome(suffix, data)


@settings(max_examples=300)
@given(ini_texts)
def test_any_preset_file(text: str) -> None:
    outcome(".ini", text.encode(errors="surrogatepass"))


@settings(max_examples=150)
@given(files)
def test_nothing_is_dropped_silently(content: dict[str, object]) -> None:
    """Every key of a usable file is translated, told, or asks for nothing."""
    made = llama_swap.translate(
        yaml_of(content), environment=ENVIRONMENT, may_set=may_set_for_engine
    )
    if made.faults:
        return
    told = {one.key[0] for one in made.remarks if one.key}
    empty: tuple[object, ...] = (None, False, 0, "", [], {}, 0.0)
    translated = {"models", "macros", "startPort", "groups", "routing", "mtpd"}
    assert content.keys() - told - translated <= {
        key for key, value in content.items() if any(value == one for one in empty)
    }
    listed = content["models"]
    served = set(made.names)
    for name, table in listed.items() if isinstance(listed, dict) else ():
        keys = {
            one.key[2] for one in made.remarks if one.key[:2] == ("models", name) and one.key[2:]
        }
        assert name in served or "cmd" in keys
        for key in MODEL_KEYS:
            value = table.get(key)
            assert key in keys or any(value == one for one in empty), key


@settings(max_examples=200)
@given(files)
def test_translating_is_pure(content: dict[str, object]) -> None:
    text = yaml_of(content)
    first, second = (
        llama_swap.translate(text, environment=ENVIRONMENT, may_set=may_set_for_engine)
        for _ in range(2)
    )
    assert first == second


@settings(max_examples=300)
@given(st.dictionaries(names, values, max_size=4))
def test_values_come_back_from_yaml(content: dict[str, object]) -> None:
    read = yaml_text.read(yaml_of(content))
    assert not isinstance(read, Fault)
    assert repr(read.value) == repr(content)
    assert all(line >= 1 for line in read.lines.values())


def yaml_of(value: object) -> str:
    """A value as YAML in flow style, which is JSON but for what JSON does not have."""
    match value:
        case dict():
            pairs = (f"{quoted(str(key))}: {yaml_of(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list():
            return f"[{', '.join(map(yaml_of, value))}]"
        case str():
            return quoted(value)
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def quoted(text: str) -> str:
    """Double quotes with an escape for all that is not plain ASCII."""
    made = (
        char
        if char.isascii() and char.isprintable() and char not in '"\\'
        else f"\\U{ord(char):08X}"
        for char in text
    )
    return f'"{"".join(made)}"'
