"""From a profile to the command lines of llama-perplexity, llama-bench and llama-quantize.

Pure. Every option is typed here, as for the server (``mtpd.engine.command``). What is loaded,
and how, is the profile's: KV types, batches, flash attention, device and layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.engine.command import (
    DEFAULT_PATH,
    Words,
    cache_types,
    device_variables,
    environment,
    given,
    placement,
)
from mtpd.types import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.model import Config, Profile
    from mtpd.types import EngineBinary

__all__ = ["Machine", "ToolCommand", "bench", "perplexity", "quantize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a tool runs.

    Attributes:
        device_present: Whether there is a device that layers can go to.
        device_env: Variables that leave it one card only.
        home: Private directory that it takes for its home.
        search: ``PATH``, in which the tools are looked for.
    """

    device_present: bool
    device_env: Mapping[str, str]
    home: str
    search: str = DEFAULT_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCommand:
    """A command, and what of it changes its result.

    Attributes:
        flags: Without files, threads, the number of layers, and what a row says itself.
    """

    command: Command
    flags: tuple[str, ...]


def perplexity(
    tool: EngineBinary,
    profile: Profile,
    *,
    config: Config,
    machine: Machine,
    corpus: str,
    chunks: int,
    context: int,
) -> ToolCommand:
    """The command that measures a perplexity.

    Raises:
        BinaryError: The tool lacks a flag that the profile needs.
    """
    words = _loading(tool, profile)
    if profile.flash_attention != "auto":
        words.need(("--flash-attn", "-fa"), profile.flash_attention)
    flags = tuple(words.words)
    words.need(("--model", "-m"), profile.model)
    words.need(("--file", "-f"), corpus)
    words.need(("--ctx-size", "-c"), context)
    words.need(("--chunks",), chunks)
    words.want(("--log-colors",), "off")
    _threads(words, profile, config)
    placement(
        words,
        profile,
        device_present=machine.device_present,
        headroom_mib=config.budget.headroom_mib,
        fits=False,
    )
    return ToolCommand(command=_command(words, profile, config, machine), flags=flags)


def bench(
    tool: EngineBinary,
    profile: Profile,
    *,
    config: Config,
    machine: Machine,
    prompt_tokens: int,
    gen_tokens: int,
    repetitions: int,
) -> ToolCommand:
    """The command that times prompt processing and generation without a server.

    Raises:
        BinaryError: The tool lacks a flag that the profile needs.
    """
    words = _loading(tool, profile)
    if profile.flash_attention != "auto":
        words.need(("--flash-attn", "-fa"), int(profile.flash_attention == "on"))
    flags = tuple(words.words)
    words.need(("--model", "-m"), profile.model)
    words.need(("--n-prompt", "-p"), prompt_tokens)
    words.need(("--n-gen", "-n"), gen_tokens)
    words.need(("--repetitions", "-r"), repetitions)
    words.need(("--output", "-o"), "json")
    words.want(("--progress",))
    _threads(words, profile, config)
    given(words, ("--n-gpu-layers", "-ngl"), profile.n_gpu_layers)
    return ToolCommand(command=_command(words, profile, config, machine), flags=flags)


def quantize(
    tool: EngineBinary,
    profile: Profile,
    *,
    config: Config,
    machine: Machine,
    arguments: tuple[str, ...],
) -> Command:
    """The command that writes a model anew; ``arguments`` come from the recipe."""
    words = Words(tool)
    words.words += arguments
    own = profile.threads if profile.threads is not None else config.engine.threads
    words.words += () if own is None else (str(own),)
    return _command(words, profile, config, machine)


def _loading(tool: EngineBinary, profile: Profile) -> Words:
    """How the model is loaded, as far as that changes its results."""
    words = Words(tool)
    cache_types(words, profile)
    given(words, ("--batch-size", "-b"), profile.batch)
    given(words, ("--ubatch-size", "-ub"), profile.ubatch)
    given(words, ("--device", "-dev"), profile.device)
    return words


def _threads(words: Words, profile: Profile, config: Config) -> None:
    own = profile.threads if profile.threads is not None else config.engine.threads
    given(words, ("--threads", "-t"), own)


def _command(words: Words, profile: Profile, config: Config, machine: Machine) -> Command:
    variables = environment(
        words.binary, None, home=machine.home, instance="tool", path_env=DEFAULT_PATH
    )
    variables |= device_variables(profile, config.engine.extra_env, machine.device_env)
    return Command(argv=(*words.binary.argv, *words.words), env=variables)
