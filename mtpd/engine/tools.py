"""Finding llama.cpp's other programs: llama-perplexity, llama-bench, llama-quantize.

Covers where they are looked for and what they can do. What they are told is
``mtpd.engine.tool_command``, what they print ``mtpd.engine.tool_output``.
"""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.engine.binary import digest_of, help_of, on_path
from mtpd.engine.flags import parse_help
from mtpd.errors import BinaryError
from mtpd.types import EngineBinary

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Tool", "find_tool", "tool_at"]


class Tool(enum.StrEnum):
    """A program of llama.cpp beside the server, by its file name."""

    PERPLEXITY = "llama-perplexity"
    BENCH = "llama-bench"
    QUANTIZE = "llama-quantize"


_ESSENTIAL = {
    Tool.PERPLEXITY: "--chunks",
    Tool.BENCH: "--n-gen",
    Tool.QUANTIZE: "--output-tensor-type",
}
"""An option by which each is recognised, and without which it is of no use here."""


def tool_at(
    tool: Tool, *, tools_dir: str | None, engine: EngineBinary, path_env: str
) -> Path | BinaryError:
    """Where a tool lies, or an error that says where it was looked for.

    A configured folder is the only place; else the folder of the configured llama-server
    comes before ``PATH``, so that both are of one build. Looks at the disk.
    """
    if tools_dir is not None:
        looked = [f"{tools_dir} (tools_dir under [engine])"]
        found = on_path(tool, tools_dir)
    else:
        beside = _beside(engine)
        looked = [*beside, "the PATH"]
        found = on_path(tool, os.pathsep.join(beside)) or on_path(tool, path_env)
    if found is not None:
        return found
    embedded = "; the embedded engine does not bring it" if engine.kind == "embedded" else ""
    message = f"{tool} was not found: looked in {', then '.join(looked)}{embedded}."
    hint = (
        f"it comes with llama.cpp (its releases, or cmake --build build --target {tool}): put it "
        "beside llama-server or on the PATH, or name its folder as tools_dir under [engine]"
    )
    return BinaryError(message, hint=hint)


async def find_tool(
    tool: Tool,
    *,
    tools_dir: str | None,
    engine: EngineBinary,
    path_env: str,
    extra_env: Mapping[str, str],
) -> EngineBinary:
    """Find a tool and ask it what it can do.

    Raises:
        BinaryError: It is not there, or is no such program.
    """
    place = await to_thread.run_sync(
        lambda: tool_at(tool, tools_dir=tools_dir, engine=engine, path_env=path_env)
    )
    if isinstance(place, BinaryError):
        raise place
    argv, label = (str(place),), f"{tool} at {place}"
    text = await help_of(argv, {**extra_env, "PATH": path_env}, label, any_code=True)
    # The tools indent their options, which the server does not.
    flags, _ = parse_help("\n".join(line.strip() for line in text.splitlines()))
    if _ESSENTIAL[tool] not in flags:
        message = f"{label} cannot be used: its --help does not list {_ESSENTIAL[tool]}."
        raise BinaryError(message, hint="use the one of a newer llama.cpp")
    return EngineBinary(
        argv=argv,
        kind="external",
        flags=flags,
        spec_types=frozenset(),
        digest=await to_thread.run_sync(digest_of, place),
        label=label,
    )


def _beside(engine: EngineBinary) -> list[str]:
    """The folder of the server's program, and that of the file it is a link to."""
    if engine.kind == "embedded":
        return []
    program = Path(engine.argv[0])
    return list(dict.fromkeys((str(program.parent), str(program.resolve().parent))))
