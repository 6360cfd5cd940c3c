"""The command lines of the tools: what of a profile reaches them, and what compares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.model import BudgetConfig, Config, EngineConfig
from mtpd.engine import tool_command
from mtpd.engine.flags import parse_help
from mtpd.engine.tool_command import Machine, ToolCommand
from mtpd.errors import BinaryError
from tests.fakes.tool_process import HELP
from tests.unit.control.made import BINARY, profile

if TYPE_CHECKING:
    from mtpd.types import EngineBinary

MACHINE = Machine(device_present=True, device_env={"HIP_VISIBLE_DEVICES": "1"}, home="/h")
CONFIG = Config(engine=EngineConfig(threads=6), budget=BudgetConfig(headroom_mib=300))


def tool(name: str, *without: str) -> EngineBinary:
    flags, _ = parse_help("\n".join(line.strip() for line in HELP[name].splitlines()))
    return replace(BINARY, argv=(f"/b/{name}",), flags=flags - set(without), label=name)


def perplexity(*without: str, machine: Machine = MACHINE, **changes: Any) -> ToolCommand:
    return tool_command.perplexity(
        tool("llama-perplexity", *without),
        profile(**changes),
        config=CONFIG,
        machine=machine,
        corpus="/t.raw",
        chunks=32,
        context=512,
    )


def bench(**changes: Any) -> ToolCommand:
    return tool_command.bench(
        tool("llama-bench"),
        profile(**changes),
        config=CONFIG,
        machine=MACHINE,
        prompt_tokens=512,
        gen_tokens=64,
        repetitions=3,
    )


def test_a_perplexity_is_measured_as_the_model_is_served() -> None:
    made = perplexity(kv_type="q8_0", flash_attention="on", ubatch=256, threads=4)
    assert made.flags == (
        *("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--ubatch-size", "256"),
        *("--flash-attn", "on"),
    )
    assert made.command.argv == (
        "/b/llama-perplexity",
        *made.flags,
        *("--model", "/models/tiny.gguf", "--file", "/t.raw", "--ctx-size", "512"),
        *("--chunks", "32", "--log-colors", "off", "--threads", "4", "--fit-target", "300"),
    )
    assert made.command.env["HIP_VISIBLE_DEVICES"] == "1"
    assert made.command.env["HOME"] == "/h"
    assert "LLAMA_API_KEY" not in made.command.env


def test_what_changes_no_result_is_not_compared() -> None:
    one, other = perplexity(threads=4), perplexity(threads=8, n_gpu_layers=12)
    assert one.flags == other.flags
    assert one.command.argv != other.command.argv


def test_an_old_build_without_fit_gets_all_layers() -> None:
    argv = perplexity("--fit", "--fit-target", "-fit", "-fitt").command.argv
    assert argv[-2:] == ("--n-gpu-layers", "99")


def test_without_a_device_no_layer_is_asked_for() -> None:
    argv = perplexity(machine=replace(MACHINE, device_present=False)).command.argv
    assert argv[-2:] == ("--fit", "off")


def test_a_profile_that_the_tool_cannot_load_is_refused() -> None:
    with pytest.raises(BinaryError, match="does not know --cache-type-k"):
        perplexity("--cache-type-k", "-ctk", kv_type="q8_0")


def test_a_bench_takes_sizes_and_the_model_as_it_is_served() -> None:
    made = bench(kv_type="q8_0", flash_attention="off", n_gpu_layers=30, device="ROCm0")
    assert made.flags == (
        *("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--device", "ROCm0"),
        *("--flash-attn", "0"),
    )
    assert made.command.argv[len(made.flags) + 1 :] == (
        *("--model", "/models/tiny.gguf", "--n-prompt", "512", "--n-gen", "64"),
        *("--repetitions", "3", "--output", "json", "--progress"),
        *("--threads", "6", "--n-gpu-layers", "30"),
    )
    assert "HIP_VISIBLE_DEVICES" not in made.command.env  # the profile chooses the device
    assert "--n-gpu-layers" not in bench().command.argv


@pytest.mark.parametrize(("threads", "last"), [(4, "4"), (None, "6")])
def test_a_file_is_written_with_as_many_threads_as_an_engine_gets(
    threads: int | None, last: str
) -> None:
    made = tool_command.quantize(
        tool("llama-quantize"),
        profile(threads=threads),
        config=CONFIG,
        machine=MACHINE,
        arguments=("--allow-requantize", "/a", "/b", "Q4_0"),
    )
    assert made.argv == ("/b/llama-quantize", "--allow-requantize", "/a", "/b", "Q4_0", last)
