"""Where llama.cpp's tools are looked for, and what is said where they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.engine.tools import Tool, find_tool
from mtpd.errors import BinaryError
from tests.fakes.tools import fake_tool
from tests.unit.control.made import BINARY

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.types import EngineBinary

EMBEDDED = replace(BINARY, kind="embedded", argv=("/usr/bin/python3", "-m", "x"))


def server_in(folder: Path) -> EngineBinary:
    folder.mkdir(exist_ok=True)
    return replace(BINARY, argv=(str(folder / "llama-server"),))


async def found(
    tool: Tool, engine: EngineBinary, *, path_env: str = "/nowhere", tools_dir: str | None = None
) -> EngineBinary:
    return await find_tool(
        tool, tools_dir=tools_dir, engine=engine, path_env=path_env, extra_env={}
    )


@pytest.mark.parametrize("tool", Tool)
async def test_a_tool_is_found_and_says_what_it_can(tmp_path: Path, tool: Tool) -> None:
    path = fake_tool(tmp_path, tool)
    one = await found(tool, server_in(tmp_path))
    assert one.argv == (str(path),)
    assert one.label == f"{tool} at {path}"
    assert len(one.digest) == 64


async def test_the_folder_of_the_server_comes_before_the_path(tmp_path: Path) -> None:
    engine = server_in(tmp_path / "build")
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    there = fake_tool(elsewhere, Tool.BENCH)
    assert (await found(Tool.BENCH, engine, path_env=str(elsewhere))).argv == (str(there),)
    beside = fake_tool(tmp_path / "build", Tool.BENCH)
    assert (await found(Tool.BENCH, engine, path_env=str(elsewhere))).argv == (str(beside),)


async def test_a_link_to_the_server_leads_to_the_tools_beside_it(tmp_path: Path) -> None:
    build = tmp_path / "build"
    real = server_in(build).argv[0]
    (build / "llama-server").touch()
    (tmp_path / "llama-server").symlink_to(real)
    tool = fake_tool(build, Tool.PERPLEXITY)
    assert (await found(Tool.PERPLEXITY, server_in(tmp_path))).argv == (str(tool),)


async def test_a_configured_folder_is_the_only_place(tmp_path: Path) -> None:
    fake_tool(tmp_path, Tool.BENCH)
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(BinaryError, match=rf"looked in {own} \(tools_dir under \[engine\]\)\."):
        await found(Tool.BENCH, server_in(tmp_path), path_env=str(tmp_path), tools_dir=str(own))
    tool = fake_tool(own, Tool.BENCH)
    one = await found(Tool.BENCH, EMBEDDED, tools_dir=str(own))
    assert one.argv == (str(tool),)


async def test_where_it_was_looked_for_and_how_to_get_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(BinaryError) as no:
        await found(Tool.QUANTIZE, server_in(tmp_path))
    assert str(no.value) == (f"llama-quantize was not found: looked in {tmp_path}, then the PATH.")
    assert "cmake --build build --target llama-quantize" in (no.value.hint or "")
    assert "tools_dir" in (no.value.hint or "")
    with pytest.raises(BinaryError, match="the embedded engine does not bring it"):
        await found(Tool.QUANTIZE, EMBEDDED)


async def test_another_program_of_that_name_is_no_tool(tmp_path: Path) -> None:
    path = fake_tool(tmp_path, Tool.BENCH)
    path.rename(tmp_path / Tool.PERPLEXITY)
    with pytest.raises(BinaryError, match="its --help does not list --chunks") as no:
        await found(Tool.PERPLEXITY, server_in(tmp_path))
    assert no.value.hint == "use the one of a newer llama.cpp"
