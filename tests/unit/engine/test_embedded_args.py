from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.embedded_args import Action, RefusedError, help_text, parse
from mtpd.engine.embedded_flags import DEFAULTS, FLAGS
from mtpd.engine.embedded_values import EnumValue
from mtpd.engine.flags import can_listen_on_unix_socket, parse_help
from tests.fakes.arguments import HELP

DOCS = Path(__file__).parents[3] / "docs" / "embedded_engine.md"
SPELLINGS = [name for flag in FLAGS for name in (*flag.names, *flag.off)]
M = ("-m", "x.gguf")


def settings(*argv: str, **environ: str) -> dict[str, Any]:
    return {setting.field: setting.value for setting in parse((*M, *argv), environ).settings}


def refusal(*argv: str) -> str:
    with pytest.raises(RefusedError) as refused:
        parse(argv, {})
    return str(refused.value)


def test_every_spelling_stands_once_and_is_one_of_llama_servers() -> None:
    theirs, _ = parse_help(HELP)

    assert len(SPELLINGS) == len(set(SPELLINGS))
    assert set(SPELLINGS) <= theirs | {"--usage"}


def test_the_parser_for_llama_servers_help_reads_this_help_too() -> None:
    flags, types = parse_help(help_text())

    assert flags == set(SPELLINGS)
    ngrams = {"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod"}
    assert types == {"none", "draft-simple", "draft-mtp", *ngrams}
    assert can_listen_on_unix_socket(help_text())


def test_the_help_has_llama_servers_layout() -> None:
    ours = {line for line in help_text().splitlines() if line.startswith("-")}
    theirs = set(HELP.splitlines())
    same_left = [line for line in ours if any(line[:40] == other[:40] for other in theirs)]

    assert len(same_left) > len(ours) * 0.9


def test_the_document_lists_every_flag_with_its_field() -> None:
    table = DOCS.read_text().partition("### common params")[2].partition("Where the wheel")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `-")]

    for flag in FLAGS:
        row = next(row for row in rows if row.startswith(f"| `{flag.names[0]}`"))
        assert set(re.findall(r"`(-[^`]+)`", row.split(" | ")[0])) == {*flag.names, *flag.off}
        assert re.findall(r"`([^`]+)`", row.split(" | ")[1]) == list(flag.fields)
    assert len(rows) == len(FLAGS)


def test_defaults_are_llama_servers_until_a_flag_says_otherwise() -> None:
    assert settings()["port"] == 8080
    assert settings()["n_parallel"] == -1
    assert settings("--port", "0", "-np", "2")["port"] == 0
    assert [setting.field for setting in DEFAULTS] == ["port", "n_parallel"]


def test_the_last_of_two_equal_flags_wins() -> None:
    assert settings("-c", "1", "--ctx-size", "2")["n_ctx"] == 2


def test_an_underscore_in_a_long_flag_reads_as_a_dash() -> None:
    assert settings("--ctx_size", "7")["n_ctx"] == 7
    assert "invalid argument: -ctk_x" in refusal("-ctk_x")


def test_a_switch_and_its_opposite() -> None:
    assert settings("--no-ui")["ui"] is False
    assert settings("--no-webui", "--ui")["ui"] is True
    assert settings("--metrics")["endpoint_metrics"] is True


def test_one_flag_may_set_two_fields() -> None:
    found = settings("--timeout", "30")

    assert (found["timeout_read"], found["timeout_write"]) == (30, 30)


def test_values_become_what_the_wheel_takes() -> None:
    found = settings(
        *("-ctk", "q8_0", "-fa", "on", "-a", "one,two", "-s", "-1", "-ngl", "all"),
        *(
            "--spec-type",
            "draft-mtp",
            "--spec-synth-rates",
            "0.9,0.5",
            "-fitt",
            "256",
            "-fit",
            "off",
        ),
    )

    assert found["cache_type_k"] == EnumValue("ggml_type", "GGML_TYPE_Q8_0")
    assert found["flash_attn_type"].member == "LLAMA_FLASH_ATTN_TYPE_ENABLED"
    assert found["model_alias"] == ("one", "two")
    assert found["sampling.seed"] == 2**32 - 1
    assert found["n_gpu_layers"] == -2
    assert found["speculative.types"][0].member == "COMMON_SPECULATIVE_TYPE_DRAFT_MTP"
    assert found["speculative.synth_rates"] == (0.9, 0.5)
    assert found["fit_params_target"] == (256 * 1024**2,) * 128
    assert found["fit_params"] is False


def test_margins_for_some_devices_leave_the_default_to_the_rest() -> None:
    margins = settings("-fitt", "1,2")["fit_params_target"]

    assert margins[:3] == (1024**2, 2 * 1024**2, 1024 * 1024**2)
    assert len(margins) == 128


def test_the_device_none_is_taken_and_changes_nothing() -> None:
    assert settings("-dev", "none") == settings()
    assert "invalid device: Vulkan7" in refusal(*M, "-dev", "Vulkan7")


def test_the_key_comes_from_the_environment_and_a_flag_wins() -> None:
    assert settings(LLAMA_API_KEY="k")["api_keys"] == ("k",)
    assert settings("--api-key", "other", LLAMA_API_KEY="k")["api_keys"] == ("other",)
    assert "api_keys" not in settings(LLAMA_API_KEY="", LLAMA_ARG_CTX_SIZE="5")


def test_an_unknown_flag_is_refused_in_llama_servers_words_with_a_hint() -> None:
    first, hint = refusal(*M, "--no-such-flag").splitlines()

    assert first == "error: invalid argument: --no-such-flag"
    assert hint.startswith("hint: the embedded engine takes the flags that --help lists")


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("-c", "abc"), "expected a whole number from 0 to 2147483647, got 'abc'"),
        (("-c", "-1"), "expected a whole number from 0"),
        (("-c",), "expected value for argument"),
        (("--port", "65536"), "expected a whole number from 0 to 65535, got '65536'"),
        (("-b", "0"), "expected a whole number from 1"),
        (("-fa", "yes"), "unknown value 'yes', expected one of: on, off, auto"),
        (("-fit", "auto"), "unknown value 'auto', expected one of: on, off"),
        (("-ctv", "q3"), "Unsupported cache type: q3"),
        (("--spec-type", "none,mtp"), "unknown speculative type: mtp"),
        (("--spec-draft-p-min", "1.5"), "expected a number from 0 to 1, got '1.5'"),
        (("--spec-draft-p-min", "nan"), "expected a number from 0 to 1, got 'nan'"),
        (("--spec-synth-rates", "0.9,x"), "expected a number from 0 to 1, got 'x'"),
        (("-s", "-2"), "expected a whole number from -1 to 4294967295"),
        (("-ngl", "some"), "expected a whole number from 0"),
        (("-fitt", ",".join("1" * 129)), "got 129 values, but the engine knows 128 devices"),
        (("--host", ","), "expected a comma-separated list, got ','"),
        (("--model", ""), "expected a value that is not empty"),
    ],
)
def test_a_bad_value_is_refused_with_the_flag_and_its_usage(
    argv: tuple[str, ...], why: str
) -> None:
    text = refusal(*M, *argv)

    assert text.startswith(f'error while handling argument "{argv[0]}": {why}')
    assert "\n\nusage:\n" in text
    assert text.endswith("to show complete usage, run with -h")


def test_depth_0_is_refused_because_the_engine_would_abort_later() -> None:
    text = refusal(*M, "--spec-draft-n-max", "0")

    assert "0 would abort the engine at its first request" in text
    assert "leave --spec-type out" in text


def test_a_draft_model_is_needed_where_the_engine_would_silently_not_draft() -> None:
    simple = ("--spec-type", "draft-simple")

    assert "needs --spec-draft-model" in refusal(*M, *simple)
    assert settings(*simple, "-md", "d.gguf")["speculative.draft.mparams.path"] == "d.gguf"


def test_without_a_model_there_is_nothing_to_serve() -> None:
    assert refusal("-c", "1").startswith("error: no model is given: -m FNAME is required")


def test_help_and_version_need_no_model() -> None:
    assert parse(("--help",), {}).action is Action.HELP
    assert parse(("-h", "-c", "1"), {}).action is Action.HELP
    assert parse(("--version", "--no-such-flag"), {}).action is Action.VERSION


@given(st.lists(st.sampled_from([*SPELLINGS, "x.gguf", "1", "0.5", "on", "none"]) | st.text()))
def test_any_command_line_is_read_or_refused(argv: list[str]) -> None:
    try:
        invocation = parse(argv, {})
    except RefusedError as error:
        assert str(error).startswith("error")  # noqa: PT017 - both outcomes are right
    else:
        assert invocation.action in Action
