"""Perplexities and kernel-level speeds: operations that have the device alone, and stored rows.

Covers the way from a request to a stored row. Requests are drained, every engine is stopped
while a tool runs, and what served comes back, however it ends. No text is ever downloaded.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.control.compared import compare, newest_pair
from mtpd.control.measured_file import CORPUS_HINT, file_of, need_file, read_corpus
from mtpd.control.plans import find_file
from mtpd.control.tuning import bring_back
from mtpd.engine.launch import size_and_time
from mtpd.engine.tools import Tool
from mtpd.errors import GateClosedError, InvalidError
from mtpd.quality_views import BaselineView, BenchRowView, PerplexityView
from mtpd.types import Absent
from mtpd.views import encode
from tuner.compare import Incomparable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.measured_file import Corpus
    from mtpd.control.toolbox import Toolbox
    from mtpd.control.tuning import DeviceHold
    from mtpd.engine.tool_output import PerplexityOutput
    from mtpd.operations import Operations, Progress
    from mtpd.quality_views import PplComparisonView
    from mtpd.store.quality import QualityRows
    from mtpd.types import EngineBinary, GateResult
    from mtpd.views import Json, OperationView
    from tuner.types import Arm

__all__ = ["PerplexityRequest", "QualityDesk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityRequest:
    """What is to be measured.

    Attributes:
        models: One, or a base and its variant.
        corpus: Path of the text on the daemon's machine.
        chunks: At most so many.
        context: Tokens per chunk.
    """

    models: tuple[str, ...]
    corpus: str
    chunks: int
    context: int


class QualityDesk:
    """Measures, stores and compares.

    Args:
        config: The models.
        toolbox: Runs the tools.
        rows: Where results are kept.
        operations: The lane of device operations.
        hold: Gives the device.
        serving: What serves now.
        gate: Waits until a speed may be measured.
        sha256: The hash of a model file, where it is known.
        awake: Does not return where the machine was suspended since an operation began.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        toolbox: Toolbox,
        rows: QualityRows,
        operations: Operations,
        hold: Callable[[str], AbstractAsyncContextManager[DeviceHold]],
        serving: Callable[[], Arm | None],
        gate: Callable[[], Awaitable[GateResult]],
        sha256: Callable[[str], Awaitable[str | None]],
        awake: Callable[[], Awaitable[None]],
    ) -> None:
        self._config, self._toolbox, self._rows = config, toolbox, rows
        self._operations = operations
        self._hold, self._serving, self._gate = hold, serving, gate
        self._sha256, self._awake = sha256, awake

    # What is ordered ----------------------------------------------------------------

    async def measure(
        self, request: PerplexityRequest, *, idempotency_key: str | None
    ) -> OperationView:
        """Begin to measure the perplexity of a model, or of two and their difference.

        Raises:
            NotFoundError: There is no such model.
            InvalidError: It has no model file, or the text cannot be read.
            BinaryError: There is no llama-perplexity.
        """
        profiles = [self._measurable(name) for name in request.models]
        if len({profile.name for profile in profiles}) != len(profiles):
            raise InvalidError("a model is not compared with itself", hint="name two models")
        await self.check(request)

        async def run(progress: Progress) -> dict[str, Json]:
            now = tuple(self._measurable(name) for name in request.models)
            return await self.measured(now, request, progress)

        params: dict[str, Json] = {
            "models": [profile.name for profile in profiles],
            "corpus": request.corpus,
            "chunks": request.chunks,
            "context": request.context,
        }
        return await self._operations.start(
            "perplexity", params, run, idempotency_key=idempotency_key
        )

    async def check(self, request: PerplexityRequest) -> None:
        """Refuse what could not be measured.

        Raises:
            InvalidError: There is no such text.
            BinaryError: There is no llama-perplexity.
        """
        if size_and_time(request.corpus) is None:
            message = f"there is no file {request.corpus} on the daemon's machine"
            raise InvalidError(message, hint=CORPUS_HINT)
        await self._toolbox.find(Tool.PERPLEXITY)

    async def bench(
        self,
        *,
        model: str,
        prompt_tokens: int,
        gen_tokens: int,
        repetitions: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to time the model body alone.

        Raises:
            NotFoundError: There is no such model.
            InvalidError: It has no model file.
            BinaryError: There is no llama-bench.
        """
        name = self._measurable(model).name
        await self._toolbox.find(Tool.BENCH)
        params: dict[str, Json] = {
            "model": name,
            "prompt_tokens": prompt_tokens,
            "gen_tokens": gen_tokens,
            "repetitions": repetitions,
        }

        async def run(progress: Progress) -> dict[str, Json]:
            return await self._baseline(
                name,
                progress,
                prompt_tokens=prompt_tokens,
                gen_tokens=gen_tokens,
                repetitions=repetitions,
            )

        return await self._operations.start("bench", params, run, idempotency_key=idempotency_key)

    # What is stored -----------------------------------------------------------------

    async def perplexities(self, model: str | None, limit: int) -> tuple[PerplexityView, ...]:
        """Newest first: of a model's file as it lies there now; None for every row."""
        if model is None:
            return await self._rows.perplexities(limit=limit)
        file = file_of(find_file(self._config, model))
        return () if file is None else await self._rows.perplexities(file=file, limit=limit)

    async def baselines(self, model: str | None, limit: int) -> tuple[BaselineView, ...]:
        """Likewise of llama-bench."""
        if model is None:
            return await self._rows.baselines(limit=limit)
        file = file_of(find_file(self._config, model))
        return () if file is None else await self._rows.baselines(file=file, limit=limit)

    async def latest(self, profile: Profile) -> tuple[PerplexityView | None, BaselineView | None]:
        """The newest perplexity and baseline of the file that lies there now."""
        if profile.opaque is not None or (file := file_of(profile)) is None:
            return None, None
        measured = await self._rows.perplexities(file=file, limit=1)
        timed = await self._rows.baselines(file=file, limit=1)
        return next(iter(measured), None), next(iter(timed), None)

    async def comparison(self, base: str, variant: str) -> PplComparisonView:
        """The newest comparable pair of stored perplexities.

        Raises:
            NotFoundError: There is no such model.
            InvalidError: One was not measured, or they must not be compared.
        """
        names = [self._measurable(name).name for name in (base, variant)]
        again = f"mtpctl ppl {names[0]} {names[1]} --corpus FILE measures both alike"
        found = [await self.perplexities(name, limit=1000) for name in names]
        for name, rows in zip(names, found, strict=True):
            if not rows:
                message = f"no perplexity of {name}'s file, as it lies there now, is stored"
                raise InvalidError(message, hint=again)
        compared = newest_pair(found[0], found[1])
        if isinstance(compared, Incomparable):
            message = (
                f"{names[0]} and {names[1]} must not be compared ({compared.trap.value}): "
                f"{compared.sentence}"
            )
            raise InvalidError(message, hint=again)
        return compared

    # While an operation runs ----------------------------------------------------------

    async def measured(
        self, profiles: tuple[Profile, ...], request: PerplexityRequest, progress: Progress
    ) -> dict[str, Json]:
        """Measure and store each profile; the result of an operation."""
        tool = await self._toolbox.find(Tool.PERPLEXITY)
        progress.report(0, None, f"reading {request.corpus}")
        text = await read_corpus(request.corpus)
        views: list[PerplexityView] = []
        async with self._alone(f"perplexity of {' and '.join(request.models)}", progress):
            for profile in profiles:
                done = len(views) * request.chunks
                views.append(
                    await self._perplexity(
                        tool, profile, request, text=text, progress=progress, before=done
                    )
                )
        result: dict[str, Json] = {"rows": [encode(view) for view in views], "comparison": None}
        if len(views) > 1:
            # Measured alike a moment ago, so only a text that changed meanwhile is a trap.
            compared = compare(views[0], views[1])
            if isinstance(compared, Incomparable):
                raise InvalidError(compared.sentence, hint="measure both again")
            result["comparison"] = encode(compared)
        return result

    async def _perplexity(
        self,
        tool: EngineBinary,
        profile: Profile,
        request: PerplexityRequest,
        *,
        text: Corpus,
        progress: Progress,
        before: int,
    ) -> PerplexityView:
        total = len(request.models) * request.chunks
        file = need_file(profile)

        def heard(out: PerplexityOutput) -> None:
            count = len(out.running)
            so_far = f", {out.running[-1]:.4f} so far" if count else ""
            of = request.chunks if isinstance(out.chunks, Absent) else out.chunks
            note = f"{profile.name}: chunk {count} of {of}{so_far}"
            progress.report(before + count, total, note)

        progress.report(before, total, f"{profile.name}: loading")
        out, made = await self._toolbox.perplexity(
            tool,
            profile,
            corpus=text.path,
            chunks=request.chunks,
            context=request.context,
            heard=heard,
        )
        await self._awake()
        count, notes = len(out.running), []
        if count != request.chunks:
            notes.append(f"the text has {count} chunks; {request.chunks} were asked for")
        if isinstance(out.stderr, Absent):
            notes.append(out.stderr.reason)
        view = PerplexityView(
            id=0,
            at="",
            operation_id=progress.operation_id,
            model=profile.name,
            file=profile.model,
            sha256=await self._sha256(profile.model),
            perplexity=out.running[-1] if isinstance(out.perplexity, Absent) else out.perplexity,
            stderr=None if isinstance(out.stderr, Absent) else out.stderr,
            corpus=Path(text.path).name,
            corpus_sha256=text.sha256,
            chunks=count,
            context=request.context if isinstance(out.context, Absent) else out.context,
            flags=made.flags,
            tool_digest=tool.digest,
            running=out.running,
            note="; ".join(notes),
        )
        return await self._rows.add_perplexity(view, file)

    async def _baseline(
        self,
        model: str,
        progress: Progress,
        *,
        prompt_tokens: int,
        gen_tokens: int,
        repetitions: int,
    ) -> dict[str, Json]:
        tool = await self._toolbox.find(Tool.BENCH)
        async with self._alone(f"bench of {model}", progress):
            profile = self._measurable(model)
            file = need_file(profile)
            gate = await self._gate()
            if not gate.passed:
                raise GateClosedError(gate.reason)
            progress.report(0, None, f"{model}: loading")
            rows, made = await self._toolbox.bench(
                tool,
                profile,
                prompt_tokens=prompt_tokens,
                gen_tokens=gen_tokens,
                repetitions=repetitions,
                heard=lambda at: progress.report(*at, f"{model}: test {at[0] + 1} of {at[1]}"),
            )
            await self._awake()
            view = BaselineView(
                id=0,
                at="",
                operation_id=progress.operation_id,
                model=profile.name,
                file=profile.model,
                flags=made.flags,
                tool_digest=tool.digest,
                rows=tuple(
                    BenchRowView(
                        name=row.name,
                        prompt_tokens=row.prompt_tokens,
                        gen_tokens=row.gen_tokens,
                        depth=row.depth,
                        tps=row.tps,
                        tps_sd=row.tps_sd,
                        samples=row.samples,
                        build=row.build,
                        backends=row.backends,
                    )
                    for row in rows
                ),
            )
            return {"baseline": encode(await self._rows.add_baseline(view, file))}

    @asynccontextmanager
    async def _alone(self, reason: str, progress: Progress) -> AsyncIterator[None]:
        """Drain and stop every engine while the block runs; what served comes back."""
        most_s = self._config.server.queue_timeout_s
        progress.report(0, None, f"draining; requests wait until the end, at most {most_s:g} s")
        async with self._hold(reason) as hold:
            before = self._serving()
            try:
                await hold.stop()
                yield
            finally:
                await bring_back(hold, before, progress)

    def _measurable(self, name: str) -> Profile:
        profile = find_file(self._config, name)
        if profile.opaque is not None:
            message = f"{profile.name} is no llama-server: there is no model file to measure"
            raise InvalidError(message)
        return profile
