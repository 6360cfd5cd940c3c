"""Shows a memory forecast: the table per depth, the advice, what fits together.

Pure of input and output: everything returns something that a rich console prints.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rich.text import Text

from mtpd.cli.cells import NONE, WIDTH, cell, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from mtpd.memory_views import AdviceView, DepthMemoryView, JointView, MemoryView, NeedView

__all__ = ["memory_cells", "memory_parts", "memory_sentence", "need_sentence"]

_MIB = 2**20
_VERDICTS = {
    "fits": "fits",
    "evicts": "does not fit",
    "unknown": "unknown",
    "not_applicable": "not applicable",
}
_SOURCES = {"bound": "upper bound", "misfit": "known not to fit"}
_SHORT = {"fits": "yes", "evicts": "no", "unknown": "unknown", "not_applicable": "n/a"}
_OWN_FIT = {"fits": "stays", "evicts": "evicts", "unknown": "unknown", "not_applicable": NONE}


def memory_parts(view: MemoryView) -> list[RenderableType]:
    """Everything about a model's memory, in the order to print."""
    parts: list[RenderableType] = [_budget(view)]
    if any(one.predicted is not None for one in view.depths):
        parts += [Text(""), *_depths(view)]
    for advice in view.advice:
        parts += [Text(""), Text(advice.reason)]
        parts += [Text(""), *_options(advice)]
    if view.joint:
        parts += [Text(""), *_joint(view.joint)]
    if view.best is not None:
        parts += [Text(""), Text(view.best)]
    return parts


def memory_sentence(one: DepthMemoryView, others: Mapping[str, int | None] | None = None) -> str:
    """One depth and the budget in one line: ``15082 of 15100 MiB predicted, fits: 18 MiB left``.

    Args:
        one: The depth, against the memory that one engine may take which is alone.
        others: The engines that are on the same card, with what each holds; None where that
            is not known.
    """
    verdict = f"{_VERDICTS[one.verdict]}: {one.reason}"
    if one.predicted is None:
        return f"not predicted, {verdict}"
    total = one.predicted.total_bytes
    budget = "" if one.left_bytes is None else f" of {_mib(total + one.left_bytes)}"
    if others and one.left_bytes is not None:
        verdict = _beside(one, one.left_bytes, others)
    return f"{_mib(total)}{budget} MiB predicted, {verdict}"


def _beside(one: DepthMemoryView, left_bytes: int, others: Mapping[str, int | None]) -> str:
    """The verdict, and what the others on the card leave of what would be left."""
    said = f"{_VERDICTS[one.verdict]}: "
    names = ", ".join(
        f"{name} (not known)" if held is None else f"{name} ({_mib(held)} MiB)"
        for name, held in others.items()
    )
    if left_bytes < 0:
        return f"{said}{one.reason}, even without {names}"
    rest = left_bytes - sum(held for held in others.values() if held is not None)
    if rest < 0:
        return f"{said}{one.reason} if alone; beside {names} {_mib(-rest)} MiB too many"
    most = "at most " if None in others.values() else ""
    return f"{said}{most}{_mib(rest)} MiB left beside {names}"


def need_sentence(one: NeedView) -> str:
    """What an engine takes beside others in one line, e.g. ``812 MiB (measured: …)``."""
    if one.count_bytes is None:
        return f"not known: {one.reason}"
    return f"{_mib(one.count_bytes)} MiB ({_SOURCES.get(one.source, one.source)}: {one.reason})"


def memory_cells(one: DepthMemoryView | None) -> tuple[Text, Text]:
    """Predicted MiB and whether they fit, for two narrow columns."""
    if one is None or one.predicted is None:
        return cell(NONE), cell("unknown" if one is None else _SHORT[one.verdict])
    return cell(_mib(one.predicted.total_bytes)), cell(_SHORT[one.verdict])


def _budget(view: MemoryView) -> Text:
    if view.headroom_bytes is None:
        said = f"memory    not applicable: {view.source}"
        return Text(textwrap.fill(said, WIDTH, subsequent_indent=" " * 10))
    free = "an unknown amount" if view.free_bytes is None else f"{_mib(view.free_bytes)} MiB"
    forecast = "a forecast: " if view.forecast else ""
    fit = "the engine's fit is off"
    if view.margin_bytes is not None:
        fit = f"the engine's fit is told to keep {_mib(view.margin_bytes)} MiB"
    lines = [
        f"memory    {forecast}{free} free before a start",
        f"          {view.source}",
        f"          {_mib(view.headroom_bytes)} MiB must stay free; {fit}",
    ]
    if all(one.predicted is None for one in view.depths):
        lines.append(f"          nothing is predicted: {view.depths[0].reason}")
    return Text("\n".join(lines))


def _depths(view: MemoryView) -> list[RenderableType]:
    device = view.headroom_bytes is not None
    where = "" if device else ", as on a card"
    made = table(f"predicted device memory{where}, MiB", dense=True)
    for head in ("depth", "weights", "KV", "state\nrows", "draft", "com-\npute", "driver", "sum"):
        made.add_column(head, justify="right")
    if device:
        made.add_column("left", justify="right")
        made.add_column("verdict")
        made.add_column("own fit")
    for one in view.depths:
        said = (_left(one), _VERDICTS[one.verdict], _OWN_FIT[one.engine_fit]) if device else ()
        made.add_row(cell(str(one.depth)), *_sizes(one), *map(cell, said))
    notes = [f"compute buffers: {view.calibration}; state rows: slots x (1 + depth)"]
    if device:
        notes += [
            f"depth {one.depth}: {one.reason}" for one in view.depths if one.verdict == "unknown"
        ]
        notes.append("own fit: what the engine's fit would do by itself, keeping 1024 MiB free")
    return [made, Text("\n".join(notes))]


def _sizes(one: DepthMemoryView) -> list[Text]:
    found = one.predicted
    if found is None:
        return [cell(NONE)] * 7
    sizes = (
        found.weights_bytes,
        found.kv_bytes,
        found.recurrent_bytes,
        found.draft_bytes,
        found.compute_bytes,
        found.overhead_bytes,
        found.total_bytes,
    )
    return [cell(_mib(size)) for size in sizes]


def _left(one: DepthMemoryView) -> str:
    return NONE if one.left_bytes is None else _mib(one.left_bytes)


def _options(advice: AdviceView) -> list[RenderableType]:
    made = table(f"what would make depth {advice.depth} fit, the cheapest first", dense=True)
    made.add_column("change", overflow="fold")
    made.add_column("MiB", justify="right")
    made.add_column("enough")
    made.add_column("tok/s", justify="right")
    made.add_column("what it costs", overflow="fold")
    for option in advice.options:
        ratio = option.tps_ratio
        made.add_row(
            cell(option.setting),
            cell(_mib(option.gained_bytes)),
            cell("yes" if option.enough else "no"),
            cell(NONE if ratio is None else f"x{ratio:.2f}"),
            cell(option.cost),
        )
    note = f"tok/s: predicted, over those of depth {advice.depth} if it were resident"
    return [made, Text(note)]


def _joint(joint: tuple[JointView, ...]) -> list[RenderableType]:
    made = table("what fits together", dense=False)
    for head in ("slots", "context", "depth", "MiB left"):
        made.add_column(head, justify="right")
    for one in sorted(joint, key=lambda load: (load.slots, load.context, load.depth)):
        made.add_row(
            cell(str(one.slots)),
            cell(str(one.context)),
            cell(str(one.depth)),
            cell(_mib(one.left_bytes)),
        )
    note = "the largest among up to 2 slots (or the profile's) and up to twice its context"
    return [made, Text(note)]


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f}"
