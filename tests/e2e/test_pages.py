"""What the first pages tell a newcomer to type is typed here, as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.config.data import bundled_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = r"^```{kind}\n(.*?)^```$"
SMALL = """
[server]
listen = "127.0.0.1:0"
[engine]
binary = "embedded"
threads = 1
"""
"""What a test adds: a port that is free, and an engine for a machine with few cores."""

pytestmark = [pytest.mark.real_engine, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def place() -> Iterator[Path]:
    """A home of one's own, short enough for sockets, with the model where the pages have it."""
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        yield Path(folder)


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of code of a page, with a model file that is here."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(BLOCK.format(kind=kind), text, re.MULTILINE | re.DOTALL)
    return [
        re.sub(r"/srv/models/\w+\.gguf", str(bundled_model("tiny-chained.gguf")), b) for b in found
    ]


def commands(page: str) -> list[str]:
    """The lines of a page that run one of the two programs, or ask the model."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if re.match(r'mtpd |mtpctl |curl .*"model": "mine"', line)]


def name_of(line: str) -> str:
    """The command of a line, or "curl"."""
    return "curl" if line.startswith("curl ") else line.split()[1]


def environment(place: Path) -> dict[str, str]:
    """Nothing of whoever runs the test but the programs."""
    programs = Path(sys.executable).parent
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(place)}


async def typed(place: Path, line: str) -> tuple[int, str]:
    """The exit code of a line and all that it printed."""
    ended = await anyio.run_process(
        ["bash", "-c", line],
        cwd=place,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return ended.returncode, ended.stdout.decode()


@asynccontextmanager
async def serving(place: Path, line: str) -> AsyncIterator[None]:
    """The daemon that a line starts, from when it answers until it was told to end."""
    with (place / "serve.log").open("wb") as log:
        process = await anyio.open_process(
            line.split(),
            cwd=place,
            env=environment(place),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            with anyio.fail_after(60):
                while (await typed(place, "mtpctl status"))[0] != 0:
                    assert process.returncode is None, (place / "serve.log").read_text()
            yield
            process.terminate()
            with anyio.fail_after(20):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()


async def test_five_minutes_lead_to_a_tuned_model_that_says_why(place: Path) -> None:
    (place / "mtpd.toml").write_text(blocks("start.md", "toml")[0] + SMALL)
    lines = commands("start.md")
    serve = next(line for line in lines if line.startswith("mtpd serve"))
    before, after = lines[: lines.index(serve)], lines[lines.index(serve) + 1 :]
    assert [name_of(line) for line in lines] == [
        "check", "plan", "serve", "curl", "status", "tune", "probe", "explain", "doctor",
    ]  # fmt: skip
    said = {name_of(line): await typed(place, line) for line in before}
    async with serving(place, serve):
        listens = json.loads((await typed(place, "mtpctl status --json"))[1])["listen"]
        for line in after:
            here = line.replace("http://127.0.0.1:8080", listens)
            said[name_of(line)] = await typed(place, here)
        said["status again"] = await typed(place, "mtpctl status")
    failed = {name: told for name, (code, told) in said.items() if code and name != "doctor"}
    assert failed == {}
    assert "not measured yet: no speculation until mtpctl tune mine" in flat(said["status"][1])
    assert "(measured, decision " in said["status again"][1]
    assert '"role":"assistant"' in said["curl"][1]
    assert re.search(r"mine@\d", said["tune"][1])
    assert "depth 2 pays: " in flat(said["probe"][1])
    assert "the same decision" in said["explain"][1]
    assert "Traceback" not in said["doctor"][1]


def flat(text: str) -> str:
    """Text without the breaks of its lines."""
    return " ".join(text.split())


async def test_a_file_of_llama_swap_is_taken_as_the_page_has_it(place: Path) -> None:
    (place / "config.yaml").write_text(blocks("from_llama_swap.md", "yaml")[0])
    code, told = await typed(place, "mtpd check --config config.yaml")
    assert (code, "ok " in told, "qwen27" in told) == (0, True, True), told
    assert "not honoured" not in told


async def test_a_line_of_flags_becomes_a_profile_as_the_page_has_it(place: Path) -> None:
    (block,) = blocks("from_flags.md", "sh")
    code, told = await typed(place, f"set -e\n{block}")
    assert code == 0, told
    profile = (place / "mtpd-config/profiles/models/mine.toml").read_text()
    assert "max_depth = 2" in profile
    assert "--spec-draft-n-max 2" in told
