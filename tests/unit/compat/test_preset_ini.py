"""The preset files of llama.cpp's router, by the rules of its own parser."""

from __future__ import annotations

import pytest

from mtpd.compat.remarks import Kind
from tests.unit.compat.translating import faults, ini, profile, told

PRESET = """\
version = 1
[*]                        ; for all
ctx-size = 32768
parallel = 1

[qwen27]
model = /models/q.gguf
spec-type = draft-mtp
spec-draft-n-max = 2
load-on-startup = true
stop-timeout = 10
[Org/Small:q4_k_m]
m = small.gguf
c = 8192                   # a short spelling
LLAMA_ARG_N_GPU_LAYERS = 10
"""


def test_a_preset_file() -> None:
    made = ini(PRESET)
    assert profile(made, "qwen27") == {
        "model": "/models/q.gguf",
        "context": 32768,
        "slots": 1,
        "stop_timeout_s": 10,
        "drafter": {"kind": "mtp", "max_depth": 2, "depth": 2},
    }
    assert profile(made, "Org-Small:Q4_K_M") == {
        "aliases": ["Org/Small:Q4_K_M"],
        "served_as": "Org/Small:Q4_K_M",
        "model": "small.gguf",
        "context": 8192,
        "slots": 1,
        "n_gpu_layers": 10,
        "offload": "accept",
        "drafter": {"kind": "none"},
    }
    assert made.lines["models", "qwen27", "context"] == 3
    assert made.keys["models", "qwen27", "context"] == ("*", "ctx-size")
    assert told(made) == []
    assert made.tree["server"] == {"preload": ["qwen27"]}
    assert made.keys["server", "preload", 0] == ("qwen27", "load-on-startup")
    assert made.lines["models", "qwen27", "stop_timeout_s"] == 11


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("model = a#b", "a"),
        ("model = a;b", "a"),
        ("model=  /x y/z  ", "/x y/z"),
        ('model = "quoted"', '"quoted"'),
        ("model = a=b", "a=b"),
        ("model\t=\ta", "a"),
        ("LLAMA_ARG_MODEL = a", "a"),
    ],
)
def test_values(line: str, value: str) -> None:
    assert profile(ini(f"[m]\n{line}\n"))["model"] == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[m]\n model = /x\n", "2: : an indented line is refused"),
        (" [m]\nmodel = /x\n", "1: : an indented line is refused"),
        ("[m]\nmodel /x\n", "2: : neither a key nor a section"),
        ("[m] x\n", "1: : neither a key nor a section"),
        ("[]\n", "1: : neither a key nor a section"),
        ("1key = 2\n", "1: : neither a key nor a section"),
        ("[m]\nbogus = 1\n", "2: m.bogus: is no option of llama-server b11434"),
        (
            "[m]\ncontrol-vector-layer-range = 1 2\n",
            "2: m.control-vector-layer-range: an option with two values cannot stand in a preset",
        ),
        ("[m]\nmodel = /x\nctx-size = big\n", "3: m.ctx-size: must be a whole number, not 'big'"),
    ],
)
def test_what_the_router_refuses_is_a_fault(text: str, fault: str) -> None:
    (found,) = faults(ini(text))
    assert found.startswith(fault)


def test_keys_before_any_section_are_the_model_default() -> None:
    assert profile(ini("model = /x\n[m]\nmodel = /y\n"), "default")["model"] == "/x"
    assert ini("version = 1\n").tree == {}


def test_a_section_that_comes_again_takes_the_place_of_the_first() -> None:
    made = ini("[m]\nmodel = /x\nctx-size = 1000\n[m]\nmodel = /y\nnp = 1\n")
    assert profile(made) == {"model": "/y", "slots": 1, "drafter": {"kind": "none"}}
    assert told(made, Kind.CHANGED)[0] == (
        "4: m: takes the place of the section in line 1, as in llama-server"
    )


def test_two_spellings_of_one_option() -> None:
    made = ini("[m]\nmodel = /x\nctx-size = 1000\nc = 2000\nparallel = 1\n")
    assert profile(made)["context"] == 1000  # the last in the alphabet, as std::map has it
    assert told(made, Kind.CHANGED) == [
        "3: m.ctx-size: is the same option as 'c' and takes its place"
    ]


def test_a_section_goes_over_the_one_for_all_by_option_and_not_by_spelling() -> None:
    made = ini("[*]\nctx-size = 1000\n[m]\nmodel = /x\nc = 2000\n")
    assert profile(made)["context"] == 2000


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("jinja = true", 0),
        ("jinja = 0", 1),
        ("no-jinja = 1", 1),
        ("no-jinja = off", 0),
        ("mmproj = /p", 1),
        ("load-on-startup = false", 0),
        ("host = 0.0.0.0", 0),
        ("api-key = k", 0),
    ],
)
def test_switches_and_what_is_lost(line: str, lost: int) -> None:
    assert len(told(ini(f"[m]\nmodel = /x\n{line}\n"))) == lost


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("draft-max = 2", "spec-draft-n-max = 2"),
        ("no-mmap = 1", "load-mode = none"),
        ("no-mmap = 0", "load-mode = mmap"),
        ("mmap = off", "load-mode = none"),
        ("mlock = on", "load-mode = mlock"),
        ("mlock = off", "load-mode = auto"),
    ],
)
def test_removed_options_are_translated_with_the_difference(line: str, new: str) -> None:
    key = line.split(maxsplit=1)[0]
    made = ini(f"[m]\nmodel = /x\n{line}\n")
    (found,) = [one for kind in Kind for one in told(made, kind) if f"m.{key}:" in one]
    assert found.partition(";")[0] == (
        f"3: m.{key}: '{line}' is read as '{new}': llama-server b11434 does not take the former"
    )


def test_a_section_without_a_file_is_left_out_and_told() -> None:
    made = ini("[m]\nctx-size = 1000\n[n]\nhf-repo = x\n")
    assert made.tree == {}
    assert told(made) == [
        "1: m: names no file with 'model' and no repository: it is left out",
        "3: n: names no file with 'model' and no repository: it is left out",
    ]


def test_a_repository_is_named_by_an_option_or_by_the_section() -> None:
    made = ini("[m]\nhf-repo = org/x:q8_0\n[org/y-GGUF:Q4_0]\nctx-size = 1000\n")
    assert profile(made)["model"] == "hf:org/x:q8_0"
    assert profile(made, "org-y-GGUF:Q4_0")["model"] == "hf:org/y-GGUF:Q4_0"
    assert made.lines["models", "org-y-GGUF:Q4_0", "model"] == 3


def test_every_kind_of_line_end() -> None:
    made = ini("[m]\r\nmodel = /x\rctx-size = 1000\n")
    assert profile(made)["context"] == 1000
    assert made.lines["models", "m", "context"] == 3


def test_what_all_sections_start_from_is_for_the_router_too() -> None:
    made = ini(
        "[*]\nload-on-startup = on\nstop-timeout = 20\n[a]\nmodel = /a\n[org/b]\nmodel = /b\n"
        "stop-timeout = 0\n[c]\nmodel = /c\nload-on-startup = no\nstop-timeout = soon\n"
    )
    assert made.tree["server"] == {"preload": ["a", "org-b"]}
    assert profile(made, "a")["stop_timeout_s"] == 20
    assert profile(made, "org-b")["stop_timeout_s"] == 1
    assert "stop_timeout_s" not in profile(made, "c")
    assert told(made) == ["12: c.stop-timeout: must be a whole number of seconds, not 'soon'"]
    changes = told(made, Kind.CHANGED)
    assert [one for one in changes if one.startswith('8: "org/b".stop-timeout: 0 is taken for 1')]
