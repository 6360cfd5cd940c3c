"""The B2 recipe: what it is worth on this card, and making the file.

Covers the plan, which only looks, and the operation that writes a new file beside the
original and never over anything. What is changed in the file is ``mtpd.engine.b2``.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mtpd.control import memory
from mtpd.control.memory_rows import depth_memory
from mtpd.control.plans import find_file
from mtpd.control.quality import PerplexityRequest
from mtpd.engine import gguf
from mtpd.engine.b2 import AFTER, arguments, b2, strayed
from mtpd.engine.tools import Tool
from mtpd.errors import BinaryError, ConflictError, InvalidError, UpstreamError
from mtpd.quality_views import RecipeDepthView, RecipeView
from mtpd.types import Absent
from mtpd.units import MIB
from mtpd.views import encode
from tuner.geometry import KvType
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.quality import QualityDesk
    from mtpd.control.toolbox import Toolbox
    from mtpd.engine.b2 import B2
    from mtpd.engine.gguf_types import GgufHeader
    from mtpd.operations import Operations, Progress
    from mtpd.views import Json, OperationView

__all__ = ["Recipes"]

SPARE_BYTES = 64 * MIB
"""What stays free on the disk beside the new file."""

_FORBIDS = (
    (
        "acceptance and speed of the original: other logits make another text, and only runs "
        "with the same text compare (study 000: 88.6 % before, 90.7 % after)"
    ),
    (
        "perplexities, unless text, chunk count, context and flags are equal (study 000: 3 % "
        "that became 0.5 %)"
    ),
    "a declared quality of the original, which says nothing of the new file",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A recipe for one file as it lies there now."""

    profile: Profile
    header: GgufHeader
    change: B2
    target: Path
    view: RecipeView


class Recipes:
    """Plans and makes.

    Args:
        config: The models.
        toolbox: Finds and runs llama-quantize.
        quality: Measures before and after.
        operations: The lane in which files are made.
        forecast: Predicts device memory.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        toolbox: Toolbox,
        quality: QualityDesk,
        operations: Operations,
        forecast: Callable[[Profile], Awaitable[MemoryForecast]],
    ) -> None:
        self._config, self._toolbox, self._quality = config, toolbox, quality
        self._operations, self._forecast = operations, forecast

    async def b2(self, model: str) -> RecipeView:
        """What the recipe would make of a model's file, and what that is worth.

        Raises:
            NotFoundError: There is no such model.
            InvalidError: The recipe does nothing for it.
        """
        return (await self._plan(model)).view

    async def make_b2(
        self,
        *,
        model: str,
        corpus: str | None,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to make the file; with a text, to measure both perplexities afterwards.

        Raises:
            InvalidError: The recipe does nothing, or there is no room or right to write.
            ConflictError: The new file is there already.
            BinaryError: There is no llama-quantize.
        """
        plan = await self._plan(model)
        name = plan.profile.name
        await self._toolbox.find(Tool.QUANTIZE)
        if corpus is not None:
            request = PerplexityRequest(models=(), corpus=corpus, chunks=chunks, context=context)
            await self._quality.check(request)
        await to_thread.run_sync(_need_room, plan)
        params: dict[str, Json] = {
            "recipe": "b2",
            "model": name,
            "corpus": corpus,
            "chunks": chunks,
            "context": context,
        }

        async def run(progress: Progress) -> dict[str, Json]:
            planned = await self._plan(name)
            await self._make(planned, progress)
            result: dict[str, Json] = {"recipe": encode(planned.view)}
            if corpus is not None:
                made = replace(planned.profile, name=f"{name}-B2", model=str(planned.target))
                request = PerplexityRequest(
                    models=(name, made.name), corpus=corpus, chunks=chunks, context=context
                )
                result |= await self._quality.measured((planned.profile, made), request, progress)
            return result

        return await self._operations.start("recipe", params, run, idempotency_key=idempotency_key)

    async def _plan(self, model: str) -> _Plan:
        profile = find_file(self._config, model)
        if profile.opaque is not None:
            message = f"{profile.name} is no llama-server: there is no model file to requantize"
            raise InvalidError(message)
        source = Path(profile.model)
        try:
            header = await to_thread.run_sync(gguf.read_header, source)
        except gguf.GgufError as error:
            raise InvalidError(str(error), hint=error.hint) from error
        change = b2(header)
        if isinstance(change, Absent):
            message = f"B2 does nothing for {profile.name}: {change.reason}"
            raise InvalidError(message)
        target = source.with_name(f"{source.stem}-B2.gguf")
        before = await self._forecast(profile)
        depths = _depths(before, _after(before))
        words = arguments(header, source=str(source), target=str(target))
        view = RecipeView(
            recipe="b2",
            model=profile.name,
            file=str(source),
            output=str(target),
            tensor=change.tensor.name,
            before_type=change.tensor.type_name,
            after_type=AFTER,
            gained_bytes=change.gained_bytes,
            size_bytes=header.file_size - change.gained_bytes,
            free_bytes=await to_thread.run_sync(_free_bytes, source.parent),
            depths=depths,
            command=shlex.join((await self._program(), *words)),
            forbids=_FORBIDS,
            reason=_reason(profile.name, change, depths),
        )
        return _Plan(profile=profile, header=header, change=change, target=target, view=view)

    async def _program(self) -> str:
        try:
            return (await self._toolbox.find(Tool.QUANTIZE)).argv[0]
        except BinaryError:
            return Tool.QUANTIZE.value

    async def _make(self, plan: _Plan, progress: Progress) -> None:
        """Write under a name of its own, look whether it is right, and only then rename."""
        tool = await self._toolbox.find(Tool.QUANTIZE)
        await to_thread.run_sync(_need_room, plan)
        part = plan.target.with_name(f".{plan.target.name}.{progress.operation_id}.part")
        total = len(plan.header.tensors)
        try:
            await to_thread.run_sync(_claim, part)
            progress.report(0, total, f"writing {plan.target.name}; serving goes on")
            await self._toolbox.quantize(
                tool,
                plan.profile,
                arguments=arguments(plan.header, source=plan.view.file, target=str(part)),
                heard=lambda done: progress.report(done, total, f"writing {plan.target.name}"),
            )
            made = await to_thread.run_sync(gguf.read_header, part)
            if (wrong := strayed(plan.header, made)) is not None:
                message = f"{Tool.QUANTIZE} made another file than B2's: {wrong}"
                raise UpstreamError(message, hint="use the llama-quantize of a newer llama.cpp")
            await to_thread.run_sync(_publish, part, plan.target)
        finally:
            with suppress(FileNotFoundError):
                part.unlink()


def _need_room(plan: _Plan) -> None:
    """Refuse what cannot be written, before anything is.

    Raises:
        ConflictError: The new file is there already.
        InvalidError: There is no room, or no right to write there.
    """
    if os.path.lexists(plan.target):
        message = f"{plan.target} is there already, and nothing is written over it"
        raise ConflictError(message, hint="add it as a model, or move it away")
    if not os.access(plan.target.parent, os.W_OK):
        message = f"the daemon may not write to {plan.target.parent}"
        raise InvalidError(message, hint=f"run the command of mtpctl recipe b2 {plan.profile.name}")
    free, need = _free_bytes(plan.target.parent), plan.view.size_bytes + SPARE_BYTES
    if free is not None and free < need:
        message = (
            f"{plan.target.parent} has {free // MIB} MiB free; the new file needs {need // MIB}"
        )
        raise InvalidError(message, hint="make room on that disk")


def _claim(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _publish(part: Path, target: Path) -> None:
    """Give the finished file its name, which nobody else may have taken meanwhile."""
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        _claim(target)
    except FileExistsError as error:
        message = f"{target} was made by somebody else meanwhile"
        raise ConflictError(message, hint="nothing was written over it") from error
    part.replace(target)


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _after(before: MemoryForecast) -> MemoryForecast:
    """The forecast of the same profile with the recipe's file."""
    shape = before.shape
    if isinstance(shape, Unknown):
        return before
    smaller = replace(shape, geometry=shape.geometry.with_output(KvType.Q4_0))
    return memory.forecast(before.profile, smaller, before.budget, margin_bytes=before.margin_bytes)


def _depths(before: MemoryForecast, after: MemoryForecast) -> tuple[RecipeDepthView, ...]:
    return tuple(
        RecipeDepthView(before=depth_memory(old), after=depth_memory(new))
        for old, new in zip(before.arms, after.arms, strict=True)
    )


def _reason(name: str, change: B2, depths: tuple[RecipeDepthView, ...]) -> str:
    head = (
        f"{change.tensor.name} of {name} in {AFTER} instead of {change.tensor.type_name} is "
        f"{change.gained_bytes / MIB:.0f} MiB smaller"
    )
    won = [str(d.after.depth) for d in depths if d.after.verdict == "fits" != d.before.verdict]
    verdicts = {d.after.verdict for d in depths}
    if won:
        word = "depth" if len(won) == 1 else "depths"
        return f"{head}: {word} {', '.join(won)} then stays on the device, which it does not now"
    if verdicts == {"fits"}:
        return f"{head}; every depth fits already, so it gains speed and room, not residency"
    if verdicts == {"evicts"}:
        return f"{head}; no depth fits even then: mtpctl models {name} says what else would help"
    if verdicts <= {"not_applicable", "unknown"}:
        return f"{head}; {depths[0].after.reason}"
    return f"{head}; no depth becomes resident by it"
