"""Flags of llama-server as keys of a profile: what each becomes, and what is told."""

from __future__ import annotations

from typing import Any

import pytest

from mtpd.compat.drafter import DEFAULT_DEPTH
from mtpd.compat.flag_table import BY_NAME
from mtpd.compat.remarks import Kind
from tests.unit.compat.translating import faults, model, one_model, profile, swap, told

NOT_PASSED = "mtpd does not pass this to its engines yet"
NOTHING = {"model": "/m.gguf", "drafter": {"kind": "none"}}


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("", {}),
        ("-c 8192 -np 2", {"context": 8192, "slots": 2}),
        ("--ctx_size 8192", {"context": 8192}),
        ("-c 1 -c 2", {"context": 2}),
        ("-c 0", {}),
        ("-np -1", {}),
        ("-t 4 -b 512 -ub 256 -s 7", {"threads": 4, "batch": 512, "ubatch": 256, "seed": 7}),
        ("-t -1 -s -1", {}),
        ("-t 0 -s 0", {"seed": 0}),
        ("-b 512 -ub 1024", {"batch": 512, "ubatch": 512}),
        ("-ctk q8_0 -ctv q8_0", {"kv_type": "q8_0"}),
        ("-ctk q8_0", {"kv_type": "f16"}),
        ("-ctk q4_0 -ctv q8_0", {"kv_type": "q8_0"}),
        ("-ctk q8_0 -ctv q4_0", {"kv_type": "q8_0"}),
        ("-ctv f32", {"kv_type": "f32"}),
        ("-ngl 99", {}),
        ("-ngl 999", {}),
        ("-ngl all", {}),
        ("-ngl auto", {}),
        ("-ngl 20", {"n_gpu_layers": 20, "offload": "accept"}),
        ("-ngl 0", {"n_gpu_layers": 0, "offload": "accept"}),
        ("-fit off", {"fit": "off"}),
        ("-fit on", {"fit": "engine"}),
        ("-fa", {"flash_attention": "on"}),
        ("-fa -c 4096", {"flash_attention": "on", "context": 4096}),
        ("-fa off", {"flash_attention": "off"}),
        ("-fa 1", {"flash_attention": "on"}),
        ("--flash-attn auto", {"flash_attention": "auto"}),
        ("-dev ROCm0", {"device": "ROCm0"}),
        ("-dev ROCm0,ROCm1", {}),
    ],
)
def test_keys_of_the_profile(flags: str, keys: dict[str, Any]) -> None:
    assert model(flags) == NOTHING | keys


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("--spec-type none", {"kind": "none"}),
        ("--spec-type draft-mtp", {"kind": "mtp", "max_depth": 3, "depth": 3}),
        (
            "--spec-type draft-mtp --spec-draft-n-max 2 --spec-draft-p-min 0.5",
            {"kind": "mtp", "max_depth": 2, "depth": 2, "p_min": 0.5},
        ),
        ("--spec-type mtp --draft-max 4", {"kind": "mtp", "max_depth": 4, "depth": 4}),
        (
            "--spec-type draft-mtp -md /head.gguf",
            {"kind": "mtp-file", "model": "/head.gguf", "max_depth": 3, "depth": 3},
        ),
        (
            "-md /d.gguf --draft 5",
            {"kind": "draft-model", "model": "/d.gguf", "max_depth": 5, "depth": 5},
        ),
        (
            "--spec-type draft-eagle3 -md /e.gguf --spec-draft-n-max 99",
            {"kind": "eagle3", "model": "/e.gguf", "max_depth": 16, "depth": 16},
        ),
        (
            "--spec-type ngram-simple --spec-ngram-simple-size-m 8",
            {"kind": "ngram", "max_depth": 8, "depth": 8},
        ),
        (
            "--spec-type ngram-mod,draft-mtp --spec-draft-n-max 1",
            {"kind": "mtp", "max_depth": 1, "depth": 1},
        ),
        ("--spec-type draft-dflash", {"kind": "none"}),
        ("--spec-draft-n-max 2", {"kind": "none"}),
        ("--spec-type draft-simple", {"kind": "none"}),
        (
            "--spec-type ngram-simple -md /d.gguf --spec-ngram-simple-size-m 4",
            {"kind": "ngram", "max_depth": 4, "depth": 4},
        ),
    ],
)
def test_the_drafter(flags: str, keys: dict[str, Any]) -> None:
    assert model(flags) == NOTHING | {"drafter": keys}


@pytest.mark.parametrize(
    ("flags", "draft"),
    [
        ("-ctk q8_0 -ctv q8_0", "f16"),
        ("-ctk q8_0 -ctv q8_0 -ctkd q8_0 -ctvd q8_0", None),
        ("-ctkd q4_0 -ctvd q4_0", "q4_0"),
        ("", None),
    ],
)
def test_the_draft_context_keeps_its_own_type(flags: str, draft: str | None) -> None:
    assert model(f"--spec-type draft-mtp {flags}").get("draft_kv_type") == draft


@pytest.mark.parametrize(
    ("flags", "key", "message"),
    [
        ("--temp 0.7", "--temp", NOT_PASSED),
        ("--no-jinja", "--no-jinja", NOT_PASSED),
        ("-nkvo", "-nkvo", NOT_PASSED),
        ("--host 0.0.0.0", "--host", "the engine is reached through mtpd alone, not at '0.0.0.0'"),
        (
            "--api-key k",
            "--api-key",
            "mtpd keeps the engine private; clients need access tokens: mtpd token add",
        ),
        ("-mm /p.gguf", "-mm", "models with images are not served yet"),
        ("-hf org/x", "-hf", "mtpd downloads nothing: name the file with -m"),
        ("-fitt 512", "-fitt", "set [budget] headroom_mib, which holds for every model"),
        ("-kvu", "-kvu", "mtpd gives each slot its own part of the context"),
        ("-cram 0", "-cram", "mtpd bounds the prompt cache itself"),
        ("--rpc h:1", "--rpc", "mtpd starts engines that open no connection and download nothing"),
        ("--tools all", "--tools", "mtpd starts engines that run no other program"),
        ("--path /x", "--path", "mtpd passes no flag that serves files or secrets"),
        ("--slot-save-path /x", "--slot-save-path", "mtpd passes no flag that writes files"),
        (
            "--spec-synth-rates 0.9",
            "--spec-synth-rates",
            "mtpd passes no flag that changes what is measured or logged",
        ),
        ("--models-max 2", "--models-max", "mtpd decides itself which model is loaded"),
        ("-dt 0.1", "-dt", "it has been removed from llama-server"),
        ("--version", "--version", "it prints something and ends"),
        ("-dev a,b", "-dev", "an engine has one device here"),
        ("--bogus 3", "--bogus", "'--bogus …' is no flag of llama-server b11434"),
        ("--bogus --metrics", "--bogus", "'--bogus' is no flag of llama-server b11434"),
        ("--ctx-size=5", "--ctx-size=…", "'--ctx-size=…' is no flag of llama-server b11434"),
        ("stray", "stray", "'stray' is no flag of llama-server b11434"),
        (
            "-ctk q8_0",
            "-ctk",
            "keys and values have one type here: f16, the one with more bits",
        ),
        (
            "--spec-type draft-mtp --spec-draft-n-max 20",
            "--spec-draft-n-max",
            "the deepest draft here is 16",
        ),
        ("--spec-type draft-mtp --spec-draft-n-min 1", "--spec-draft-n-min", NOT_PASSED),
        (
            "--spec-type ngram-cache",
            "--spec-type",
            "of 'ngram-cache' mtpd can drive one drafter at a time: none",
        ),
        (
            "--spec-type draft-eagle3 --spec-draft-n-max 2",
            "--spec-type",
            "'--spec-type draft-eagle3' needs a file, and none is named with -md: no speculation",
        ),
        (
            "--spec-type ngram-simple -md /d.gguf",
            "-md",
            "a drafter of kind 'ngram' has no file here",
        ),
        (
            "--spec-type draft-mtp -ctkd q8_0",
            "-ctkd",
            "keys and values of the draft context have one type here: q8_0",
        ),
        ("--control-vector-layer-range 1 2", "--control-vector-layer-range", NOT_PASSED),
    ],
)
def test_what_is_not_honoured(flags: str, key: str, message: str) -> None:
    assert told(one_model(flags)) == [f"3: models.m.cmd.{dotted_key(key)}: {message}"]


def dotted_key(key: str) -> str:
    return f'"{key}"' if "=" in key else key


@pytest.mark.parametrize(
    "flags",
    [
        "--jinja -cb --warmup --cache-prompt --no-context-shift --mmproj-auto --no-mmproj",
        "--load-mode auto --reasoning-format auto",
        "--metrics --slots -lv 4 --no-ui -to 600 -a name --offline --host 127.0.0.1 -v",
        "-c 4096 -np 1 -ngl 99 -fa on",
        "-c 4096 --spec-draft-n-max 3",
    ],
)
def test_what_mtpd_does_anyway_is_not_refused(flags: str) -> None:
    assert told(one_model(flags)) == []


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        ("--no-mmap", "'--no-mmap' is read as '--load-mode none'"),
        ("--mmap", "'--mmap' is read as '--load-mode mmap'"),
        ("--mlock", "'--mlock' is read as '--load-mode mlock'"),
        ("--spec-type mtp --draft-max 2", "'--draft-max 2' is read as '--spec-draft-n-max 2'"),
        ("-dio", "'-dio' is read as '--load-mode dio'"),
        ("-fa", "'-fa' is read as '-fa on'"),
        ("--draft-max 2", "'--draft-max 2' is read as '--spec-draft-n-max 2'"),
        ("--draft_n 2", "'--draft_n 2' is read as '--spec-draft-n-max 2'"),
        ("--draft-min 1", "'--draft-min 1' is read as '--spec-draft-n-min 1'"),
    ],
)
def test_removed_flags_are_translated_with_the_difference(flags: str, change: str) -> None:
    (found,) = rewritten(flags)
    word = change.removeprefix("'").replace("'", " ").partition(" ")[0]
    expected = f"3: models.m.cmd.{word}: {change}: llama-server b11434 does not take the former"
    assert found.partition(";")[0] == expected


def rewritten(flags: str) -> list[str]:
    made = one_model(flags)
    return [one for kind in Kind for one in told(made, kind) if "is read as" in one]


@pytest.mark.parametrize(
    ("flags", "word", "kind", "end"),
    [
        ("--mlock", "--mlock", Kind.NOT_HONOURED, NOT_PASSED),
        ("--draft 1", "--draft", Kind.NOTE, "without a --spec-type that drafts"),
        (
            "--spec-type mtp --draft 20",
            "--draft",
            Kind.NOT_HONOURED,
            "the deepest draft here is 16",
        ),
        ("--spec-type mtp --draft 2", "--draft", Kind.CHANGED, ""),
    ],
)
def test_a_removed_flag_has_one_remark(flags: str, word: str, kind: Kind, end: str) -> None:
    (found,) = [one for one in one_model(flags).remarks if one.key[-1] == word]
    assert found.kind is kind
    assert found.message.partition("; ")[2].startswith(end)


def test_the_translations_are_flags_of_the_build() -> None:
    for flags in ("--mlock", "--draft 1", "--draft-min 1", "--spec-ngram-size-n 1"):
        (found,) = rewritten(flags)
        new = found.split("is read as '")[1].split("'")[0].split()[0]
        assert BY_NAME[new].purpose != "deny_removed"


def test_defaults_that_differ_are_told() -> None:
    context, slots = told(one_model(""), Kind.CHANGED)
    assert context == (
        "2: models.m.-c: no context means the whole context of the model to llama-server"
    )
    assert slots == "2: models.m.-np: no number of slots means up to four to llama-server"
    assert told(one_model("-c 4096 -np 1"), Kind.CHANGED) == []
    assert f"default of {DEFAULT_DEPTH}" in told(one_model("--spec-type mtp"), Kind.CHANGED)[-1]


def test_a_relative_model_is_looked_for_beside_the_file() -> None:
    made = one_model("-m models/x.gguf -c 1 -np 1")
    assert profile(made)["model"] == "models/x.gguf"
    assert told(made, Kind.CHANGED) == [
        (
            "3: models.m.cmd.-m: 'models/x.gguf' is looked for beside this file, not in the"
            " working directory"
        )
    ]


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ("-c many", "-c: must be a whole number, not 'many'"),
        ("-c", "-c: a value must follow"),
        ("-c " + "9" * 30, f"-c: must be a whole number, not '{'9' * 30}'"),
        ("-ngl few", "-ngl: must be a whole number, not 'few'"),
        (
            "--spec-type mtp --spec-draft-n-max 0",
            "--spec-draft-n-max: must be a whole number of at least 1, not '0'",
        ),
        ("--spec-type mtp --draft-p-min x", "--draft-p-min: must be a number, not 'x'"),
    ],
)
def test_what_llama_server_refuses_is_a_fault(flags: str, fault: str) -> None:
    assert faults(one_model(flags)) == [f"3: models.m.cmd.{fault}"]


def test_flags_from_the_environment_come_before_those_of_the_command() -> None:
    more = '    env: ["LLAMA_ARG_CTX_SIZE=1000", "LLAMA_ARG_N_PARALLEL=2"]\n'
    made = one_model("-c 2000", more)
    assert profile(made) == NOTHING | {"context": 2000, "slots": 2}
    assert made.lines["models", "m", "slots"] == 4
    assert made.keys["models", "m", "slots"] == ("models", "m", "env", 1)
    assert profile(one_model("", more))["context"] == 1000


def test_a_switch_from_the_environment() -> None:
    more = '    env: ["LLAMA_ARG_JINJA=0", "LLAMA_ARG_CONT_BATCHING=on"]\n'
    assert told(one_model("", more)) == [
        "4: models.m.env.0: mtpd does not pass this to its engines yet"
    ]


SILENT = {
    *("--jinja", "-cb", "--cont-batching", "--warmup", "--cache-prompt", "--no-context-shift"),
    *("--mmproj-auto", "--no-mmproj", "--no-mmproj-auto", "-kvo", "--kv-offload", "--repack"),
    *("--op-offload", "-e", "--escape", "--no-perf"),
}
"""Switches that say what an engine does anyway."""


@pytest.mark.parametrize("word", sorted(BY_NAME))
def test_every_flag_of_the_build_is_a_setting_or_told(word: str) -> None:
    flag = BY_NAME[word]
    made = one_model(" ".join(["-c 512 -np 1", word, *["7"] * flag.values]))
    assert made.faults == []
    found = [one for one in made.remarks if "'5800'" not in one.message]
    plain = NOTHING | {"context": 512, "slots": 1}
    assert (profile(made) != plain or bool(found)) == (word not in SILENT)


def test_words_of_a_block_have_their_own_lines() -> None:
    text = "models:\n  m:\n    cmd: |\n      # -c 1\n      llama-server --port ${PORT}\n"
    text += "      -m /m.gguf\n      -c 4096 \\\n      --temp 1\n"
    made = swap(text)
    assert made.lines["models", "m", "context"] == 7
    assert told(made) == ["8: models.m.cmd.--temp: mtpd does not pass this to its engines yet"]


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("--embeddings", {"purpose": "embedding"}),
        ("--embedding --pooling cls", {"purpose": "embedding", "pooling": "cls"}),
        ("--reranking", {"purpose": "rerank"}),
        ("--rerank --pooling rank", {"purpose": "rerank"}),
        ("--embedding --pooling rank", {"purpose": "rerank"}),
    ],
)
def test_what_a_model_is_for(flags: str, keys: dict[str, Any]) -> None:
    found = model(flags)
    assert {key: found[key] for key in ("purpose", "pooling") if key in found} == keys


@pytest.mark.parametrize("kind", ["draft-mtp", "draft-mtp-adaptive"])
def test_a_head_with_several_slots_is_taken_over_with_its_danger(kind: str) -> None:
    made = one_model(f"-c 8192 -np 2 --spec-type {kind} --spec-draft-n-max 2")
    assert profile(made)["drafter"]["several_slots"] == "accept"
    assert any("text of one of 2 slots into another's" in one for one in told(made, Kind.CHANGED))


@pytest.mark.parametrize(
    "flags",
    ["-np 1 --spec-type draft-mtp --spec-draft-n-max 2", "-np 4 --spec-type ngram-simple"],
)
def test_other_drafters_and_one_slot_are_not_warned_of(flags: str) -> None:
    made = one_model(f"-c 8192 {flags}")
    assert "several_slots" not in profile(made)["drafter"]
