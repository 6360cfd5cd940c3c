"""The B2 recipe on a whole daemon, with a scripted llama-quantize as a real process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.decode import decode
from mtpd.engine.gguf import read_header
from mtpd.errors import BinaryError, ConflictError, InvalidError
from mtpd.quality_views import PplComparisonView, RecipeView
from tests.fakes.gguf_files import MIXED, write_gguf
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tests.fakes.perplexities import BASE_B2, UNCENSORED_B2
from tests.fakes.tools import fake_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.app import Daemon
    from mtpd.views import OperationView

pytestmark = pytest.mark.slow


@asynccontextmanager
async def running(**knobs: object) -> AsyncIterator[tuple[Daemon, Path]]:
    """A daemon whose model is a mixed Q4_0 file in a folder of its own."""
    async with home() as place:
        models = place.root / "models"
        models.mkdir()
        model = write_gguf(models / "m-Q4_0.gguf", MIXED)
        write_config(place, binary=str(place.root / "llama-server"), model=model)
        fake_tool(place.root, "llama-quantize", **knobs)
        known = {"m-Q4_0.gguf": BASE_B2, "m-Q4_0-B2.gguf": UNCENSORED_B2}
        fake_tool(place.root, "llama-perplexity", perplexity=known)
        (place.root / "text.raw").write_text("In 1933 the river was dammed .\n" * 64)
        async with daemon_at(place) as (daemon, _):
            yield daemon, models


async def make(daemon: Daemon, corpus: str | None = None) -> OperationView:
    return await daemon.control.make_b2(
        model="alpha", corpus=corpus, chunks=32, context=512, idempotency_key=None
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_the_plan_says_what_it_is_worth_and_writes_nothing() -> None:
    async with running() as (daemon, models):
        view = await daemon.control.recipe_b2("first")
        assert (view.tensor, view.before_type, view.after_type) == (
            *("output.weight", "Q6_K", "Q4_0"),
        )
        assert view.output == str(models / "m-Q4_0-B2.gguf")
        assert view.size_bytes == (models / "m-Q4_0.gguf").stat().st_size - view.gained_bytes
        assert view.free_bytes is not None
        assert "--output-tensor-type q4_0" in view.command
        assert any("acceptance" in one for one in view.forbids)
        assert "engines run on the host" in view.reason
        assert names(models) == ["m-Q4_0.gguf"]


async def test_the_file_is_made_beside_the_original_and_both_are_measured() -> None:
    async with running() as (daemon, models):
        before = (models / "m-Q4_0.gguf").read_bytes()
        operation = await make(daemon, str(models.parent / "text.raw"))
        ended = await run_operation(daemon, operation)
        assert ended.state == "done", ended.error
        assert names(models) == ["m-Q4_0-B2.gguf", "m-Q4_0.gguf"]
        assert (models / "m-Q4_0.gguf").read_bytes() == before
        view = decode(RecipeView, (ended.result or {})["recipe"])
        made = read_header(models / "m-Q4_0-B2.gguf")
        assert made.file_size == view.size_bytes
        assert {t.type_name for t in made.tensors if t.name == "output.weight"} == {"Q4_0"}
        pair = decode(PplComparisonView, (ended.result or {})["comparison"])
        assert pair.reason.startswith("alpha-B2 has +1.2 % perplexity against alpha")
        with pytest.raises(ConflictError, match="is there already, and nothing is written over"):
            await make(daemon)


async def test_a_file_with_another_change_gets_no_name() -> None:
    async with running(spoil="blk.0.attn_q.weight") as (daemon, models):
        ended = await run_operation(daemon, await make(daemon))
        assert ended.state == "failed"
        assert "not as wanted: blk.0.attn_q.weight" in str((ended.error or {})["detail"])
        assert names(models) == ["m-Q4_0.gguf"]


async def test_a_cancelled_recipe_leaves_nothing_behind() -> None:
    async with running(hang=True) as (daemon, models):
        operation = await make(daemon)
        async with asyncio.timeout(50), daemon.control.subscribe(("", 0)) as events:
            async for _ in events:
                now = await daemon.control.operation(operation.id)
                assert now is not None
                assert now.ended_at is None, now.error
                if now.progress.done:
                    break
        assert len(names(models)) == 2
        await daemon.control.cancel(operation.id)
        assert (await run_operation(daemon, operation)).state == "cancelled"
        assert names(models) == ["m-Q4_0.gguf"]


async def test_what_cannot_be_made_is_refused_at_once() -> None:
    async with running() as (daemon, models):
        with pytest.raises(InvalidError, match="there is no file /nowhere"):
            await make(daemon, "/nowhere")
        (models.parent / "llama-quantize").unlink()
        assert (await daemon.control.recipe_b2("alpha")).command.startswith("llama-quantize ")
        with pytest.raises(BinaryError, match="llama-quantize was not found"):
            await make(daemon)
        write_gguf(models / "m-Q4_0.gguf", {**MIXED, "output.weight": ((256, 64), "Q4_0")})
        with pytest.raises(InvalidError, match="B2 does nothing for alpha: its output tensor"):
            await daemon.control.recipe_b2("alpha")
        (models / "m-Q4_0.gguf").write_bytes(b"no model")
        with pytest.raises(InvalidError, match="GGUF"):
            await daemon.control.recipe_b2("alpha")
