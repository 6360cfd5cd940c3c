"""Perplexities and baselines on a whole daemon, with scripted tools as real processes."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.cli.decode import decode, decode_all
from mtpd.errors import BinaryError, InvalidError, NotFoundError
from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.perplexities import BASE_B2, UNCENSORED_B2
from tests.fakes.tools import fake_tool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mtpd.app import Daemon
    from mtpd.views import OperationView
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

TEXT = "In 1933 the river was dammed .\n" * 64


@asynccontextmanager
async def running(
    *, drafters: tuple[str, ...] = (), **knobs: object
) -> AsyncIterator[tuple[Daemon, Home]]:
    """A daemon with a text, the tools beside its server, and beta's model another file.

    Args:
        drafters: Kinds of beta's drafters, where it has several.
        knobs: Of the tools.
    """
    async with home() as place:
        (place.root / "text.raw").write_text(TEXT)
        config = place.config.read_text()
        whole = config.split('model = "')[1].split('"')[0]
        variant = place.root / "variant.gguf"
        variant.write_bytes(await anyio.Path(whole).read_bytes())
        head, tail = config.split("[models.beta]")
        tail = tail.replace(whole, str(variant))
        if drafters:
            one = '[models.beta.drafter]\nkind = "mtp"\n'
            several = (
                f'[[models.beta.drafters]]\nkind = "{kind}"\nmax_depth = 3\n' for kind in drafters
            )
            tail = tail.replace(f"{one}max_depth = 3\n", "".join(several))
        place.config.write_text(f"{head}[models.beta]{tail}")
        known = {"variant.gguf": UNCENSORED_B2}
        fake_tool(place.root, "llama-perplexity", **{"perplexity": known, **knobs})
        fake_tool(place.root, "llama-bench", **knobs)
        async with daemon_at(place) as (daemon, _):
            yield daemon, place


async def measured(daemon: Daemon, place: Home, *models: str, chunks: int = 32) -> OperationView:
    operation = await daemon.control.perplexity(
        models=models,
        corpus=str(place.root / "text.raw"),
        chunks=chunks,
        context=512,
        idempotency_key=None,
    )
    return await run_operation(daemon, operation)


def told(ended: OperationView) -> str:
    assert ended.error is not None
    return str(ended.error["detail"])


async def test_a_base_and_its_variant_are_measured_stored_and_compared() -> None:
    async with running() as (daemon, place):
        ended = await measured(daemon, place, "first", "beta")
        assert ended.state == "done", ended.error
        assert (ended.kind, ended.params["models"]) == ("perplexity", ["alpha", "beta"])
        assert (ended.progress.done, ended.progress.total) == (64, 64)
        result = ended.result or {}
        rows = decode_all(PerplexityView, result, "rows")
        assert [row.perplexity for row in rows] == [BASE_B2, UNCENSORED_B2]
        assert rows[0].corpus_sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
        assert (rows[0].corpus, rows[0].stderr, rows[0].note) == ("text.raw", 0.15, "")
        assert (rows[0].chunks, len(rows[0].running), rows[0].context) == (32, 32, 512)
        assert rows[0].flags[:2] == ("--cache-type-k", "f16")
        pair = decode(PplComparisonView, result["comparison"])
        assert pair.reason.startswith("beta has +1.2 % perplexity against alpha")
        assert await daemon.control.comparison("alpha", "beta") == pair
        assert await daemon.control.perplexities(model=None, limit=9) == rows[::-1]
        assert await daemon.control.perplexities(model="first", limit=9) == rows[:1]
        model = await daemon.control.model("beta")
        assert model is not None
        assert model.perplexity == rows[1]
        assert model.quality is None


async def test_what_served_is_stopped_while_the_tool_runs_and_comes_back() -> None:
    async with running(hang=True) as (daemon, place):
        switched = await daemon.control.switch(
            model="alpha", depth=2, force=False, idempotency_key=None
        )
        assert (await run_operation(daemon, switched)).state == "done"
        operation = await daemon.control.perplexity(
            models=("beta",),
            corpus=str(place.root / "text.raw"),
            chunks=4,
            context=512,
            idempotency_key=None,
        )
        await reaches(daemon, operation, "beta: chunk 1 of 4")
        status = await daemon.control.status()
        assert [engine.pid for engine in status.engines if engine.pid is not None] == []
        await daemon.control.cancel(operation.id)
        ended = await run_operation(daemon, operation)
        assert ended.state == "cancelled"
        assert ended.progress.note.endswith("alpha@2 serves again")
        status = await daemon.control.status()
        assert [engine.state for engine in status.engines if engine.pid is not None] == ["ready"]
        assert await daemon.control.perplexities(model=None, limit=9) == ()


async def test_another_chunk_count_is_a_trap_that_is_named() -> None:
    async with running() as (daemon, place):
        assert (await measured(daemon, place, "alpha", chunks=16)).state == "done"
        with pytest.raises(InvalidError, match="no perplexity of beta's file") as no:
            await daemon.control.comparison("alpha", "beta")
        assert no.value.hint == "mtpctl ppl alpha beta --corpus FILE measures both alike"
        assert (await measured(daemon, place, "beta")).state == "done"
        with pytest.raises(InvalidError, match=r"\(chunks\): .* chunk count of 16, the other 32"):
            await daemon.control.comparison("alpha", "beta")
        assert (await measured(daemon, place, "alpha")).state == "done"
        assert (await daemon.control.comparison("alpha", "beta")).base.chunks == 32


async def test_a_text_with_fewer_chunks_than_asked_for_is_told() -> None:
    async with running(chunks=6) as (daemon, place):
        ended = await measured(daemon, place, "alpha")
        (row,) = decode_all(PerplexityView, ended.result or {}, "rows")
        assert (row.chunks, row.note) == (6, "the text has 6 chunks; 32 were asked for")


async def test_a_tool_that_fails_ends_the_operation_with_its_own_words() -> None:
    async with running(fail="error: failed to load model") as (daemon, place):
        ended = await measured(daemon, place, "alpha")
        assert ended.state == "failed"
        assert told(ended) == (
            "llama-perplexity ended with exit code 1: error: failed to load model"
        )


async def test_the_body_is_timed_and_shown_beside_the_model() -> None:
    async with running() as (daemon, _):
        operation = await daemon.control.bench(
            model="alpha", prompt_tokens=512, gen_tokens=64, repetitions=3, idempotency_key=None
        )
        ended = await run_operation(daemon, operation)
        assert ended.state == "done", ended.error
        baseline = decode(BaselineView, (ended.result or {})["baseline"])
        assert [(row.name, row.tps, len(row.samples)) for row in baseline.rows] == [
            ("pp512", 410.5, 3),
            ("tg64", 32.4, 3),
        ]
        assert await daemon.control.baselines(model="alpha", limit=9) == (baseline,)
        assert await daemon.control.baselines(model=None, limit=9) == (baseline,)
        model = await daemon.control.model("alpha")
        assert model is not None
        assert model.baseline == baseline


async def test_what_cannot_be_measured_is_refused_before_anything_stops() -> None:
    async with running() as (daemon, place):
        control = daemon.control
        with pytest.raises(InvalidError, match=r"there is no file /nowhere\.txt") as no:
            await control.perplexity(
                models=("alpha",),
                corpus="/nowhere.txt",
                chunks=4,
                context=512,
                idempotency_key=None,
            )
        assert "mtpd downloads none" in (no.value.hint or "")
        with pytest.raises(InvalidError, match="not compared with itself"):
            await measured(daemon, place, "alpha", "first")
        with pytest.raises(NotFoundError, match="alphq"):
            await measured(daemon, place, "alphq")
        (place.root / "llama-perplexity").unlink()
        with pytest.raises(BinaryError, match="llama-perplexity was not found") as missing:
            await measured(daemon, place, "alpha")
        assert str(place.root) in str(missing.value)
        assert "tools_dir" in (missing.value.hint or "")
        fake_tool(place.root, "llama-perplexity")
        folder = await control.perplexity(
            models=("alpha",), corpus=str(place.root), chunks=4, context=512, idempotency_key=None
        )
        ended = await run_operation(daemon, folder)
        assert "not a regular file" in told(ended)


async def reaches(daemon: Daemon, operation: OperationView, note: str) -> None:
    """Wait until an operation says this."""
    async with asyncio.timeout(50), daemon.control.subscribe(("", 0)) as events:
        async for _ in events:
            now = await daemon.control.operation(operation.id)
            assert now is not None
            assert now.ended_at is None, now.error
            if now.progress.note.startswith(note):
                return


async def test_a_model_with_several_drafters_is_measured_under_the_name_that_it_is_known_by() -> (
    None
):
    async with running(drafters=("mtp", "ngram")) as (daemon, place):
        ended = await measured(daemon, place, "alpha", "beta")
        assert ended.state == "done", ended.error
        rows = decode_all(PerplexityView, ended.result or {}, "rows")
        assert [row.perplexity for row in rows] == [BASE_B2, UNCENSORED_B2]
        assert rows[1].model == "beta+mtp"
        for name in ("beta", "beta+ngram"):
            assert await daemon.control.perplexities(model=name, limit=10) == rows[1:]
