"""Runs llama.cpp's tools for a model: finds the program, builds its command, reads its answer.

Covers one run; that the device is free for it is ``mtpd.control.quality``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine import tool_command
from mtpd.engine.tool_output import bench_done, read_bench, read_perplexity, tensors_done
from mtpd.engine.tools import Tool, find_tool
from mtpd.errors import UpstreamError
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.engine.tool_command import ToolCommand
    from mtpd.engine.tool_output import BenchRow, PerplexityOutput
    from mtpd.supervise.tool_run import ToolRunner
    from mtpd.types import EngineBinary

__all__ = ["Toolbox"]


class Toolbox:
    """The tools of one machine.

    Args:
        config: Where they are, and how models are loaded.
        planner: Knows the engine and the device.
        runner: Runs them.
    """

    def __init__(
        self, *, config: Configuration, planner: LaunchPlanner, runner: ToolRunner
    ) -> None:
        self._config, self._planner, self._runner = config, planner, runner

    async def find(self, tool: Tool) -> EngineBinary:
        """The tool, asked what it can do.

        Raises:
            BinaryError: It is not there, or is no such program.
        """
        engine = self._config.now.engine
        return await find_tool(
            tool,
            tools_dir=engine.tools_dir,
            engine=self._planner.binary,
            path_env=self._planner.machine.search,
            extra_env=dict(engine.extra_env),
        )

    async def perplexity(
        self,
        tool: EngineBinary,
        profile: Profile,
        *,
        corpus: str,
        chunks: int,
        context: int,
        heard: Callable[[PerplexityOutput], None],
    ) -> tuple[PerplexityOutput, ToolCommand]:
        """Measure a perplexity; ``heard`` is told what was printed whenever there is more.

        Raises:
            EngineError: The tool failed.
            UpstreamError: It ended well and did not print what it should.
        """
        made = tool_command.perplexity(
            tool,
            profile,
            config=self._config.now,
            machine=self._planner.machine,
            corpus=corpus,
            chunks=chunks,
            context=context,
        )
        texts = await self._runner.run(
            made.command,
            name=Tool.PERPLEXITY,
            on_text=lambda now: heard(read_perplexity(now)),
        )
        return _whole(read_perplexity(texts)), made

    async def bench(
        self,
        tool: EngineBinary,
        profile: Profile,
        *,
        prompt_tokens: int,
        gen_tokens: int,
        repetitions: int,
        heard: Callable[[tuple[int, int]], None],
    ) -> tuple[tuple[BenchRow, ...], ToolCommand]:
        """Time prompt processing and generation; ``heard`` is told how many tests are over.

        Raises:
            EngineError: The tool failed.
            UpstreamError: It ended well and did not print what it should.
        """
        made = tool_command.bench(
            tool,
            profile,
            config=self._config.now,
            machine=self._planner.machine,
            prompt_tokens=prompt_tokens,
            gen_tokens=gen_tokens,
            repetitions=repetitions,
        )

        def on_text(now: tuple[str, ...]) -> None:
            if (done := bench_done(now)) is not None:
                heard(done)

        texts = await self._runner.run(made.command, name=Tool.BENCH, on_text=on_text)
        rows = read_bench(texts)
        if isinstance(rows, Absent):
            message = f"the answer of {Tool.BENCH} cannot be used: {rows.reason}"
            raise UpstreamError(message, hint="use the one of a newer llama.cpp")
        return rows, made

    async def quantize(
        self,
        tool: EngineBinary,
        profile: Profile,
        *,
        arguments: tuple[str, ...],
        heard: Callable[[int], None],
    ) -> None:
        """Write a model file anew; ``heard`` is told how many tensors are over.

        Raises:
            EngineError: The tool failed.
        """
        command = tool_command.quantize(
            tool,
            profile,
            config=self._config.now,
            machine=self._planner.machine,
            arguments=arguments,
        )

        def on_text(now: tuple[str, ...]) -> None:
            heard(tensors_done(now))

        await self._runner.run(command, name=Tool.QUANTIZE, on_text=on_text)


def _whole(out: PerplexityOutput) -> PerplexityOutput:
    """The output, if it has every chunk that was announced."""
    got = len(out.running)
    if got == 0:
        message = f"{Tool.PERPLEXITY} ended without a perplexity that is a number"
        hint = "the text may be shorter than two contexts, or the model is damaged"
        raise UpstreamError(message, hint=hint)
    if not isinstance(out.chunks, Absent) and out.chunks != got:
        message = f"{Tool.PERPLEXITY} gave {got} of {out.chunks} chunks a perplexity"
        raise UpstreamError(message, hint="a value beyond is no number: the model is damaged")
    return out
