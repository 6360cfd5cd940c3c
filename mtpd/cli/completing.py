"""What a shell completes of the running daemon: names, numbers, ids.

A daemon that is not reachable, or not within ``DEADLINE_S``, completes nothing and says
nothing: whoever presses a key wants neither an error nor to wait.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from click.shell_completion import CompletionItem

from mtpd.cli.client import Client
from mtpd.cli.session import Connection
from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import click

    Completed = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

__all__ = [
    "DEADLINE_S",
    "decisions",
    "event_types",
    "models",
    "operations",
    "quarantined",
    "subjects",
    "workloads",
]

DEADLINE_S: Final = 1.0
"""For each silence of the daemon; an answer takes some milliseconds."""
_KEY: Final = re.compile(r'(models|pools)\.("?)(.+)\2\.(aliases|members)')
_LATEST: Final = 50


def models(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Models and their aliases."""
    return _fitting(begun, _names(ctx, pools=False))


def subjects(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Pools, models and their aliases."""
    return _fitting(begun, _names(ctx, pools=True))


def decisions(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The latest decisions by number, each with its reason."""
    found = _rows(ctx, f"/decisions?limit={_LATEST}", "decisions")
    return _fitting(begun, ((str(one["id"]), str(one["reason"])) for one in found))


def operations(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The latest operations by id, each with what it is."""
    found = _rows(ctx, f"/operations?limit={_LATEST}", "operations")
    return _fitting(begun, ((str(one["id"]), f"{one['kind']} {one['state']}") for one in found))


def quarantined(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Requests that are refused, each with why."""
    found = _rows(ctx, "/quarantine", "quarantine")
    return _fitting(begun, ((str(one["id"]), str(one["reason"])) for one in found))


def workloads(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Workloads of which something was measured lately."""
    found = _rows(ctx, f"/measurements?limit={_LATEST}", "measurements")
    return _fitting(begun, ((str(one["workload"]), "") for one in found))


def event_types(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """Types of events; of a list the last one."""
    from mtpd.events import EVENT_TYPES  # noqa: PLC0415

    before, comma, last = begun.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{name}") for name in EVENT_TYPES if name.startswith(last)
    ]


def _fitting(begun: str, found: Iterator[tuple[str, str]]) -> list[CompletionItem]:
    """Those that begin so, each once, in the order in which they were told."""
    try:
        told = dict(found)
    except (MtpdError, OSError, ValueError, LookupError, TypeError):
        return []
    return [
        CompletionItem(name, help=says or None)
        for name, says in told.items()
        if name.startswith(begun)
    ]


def _names(ctx: click.Context, *, pools: bool) -> Iterator[tuple[str, str]]:
    """Read from the configuration: looking at the models would measure their files."""
    for one in _rows(ctx, "/config", "config"):
        match = _KEY.fullmatch(str(one["key"]))
        if match is not None and (pools or match[1] == "models"):
            yield match[3], "pool" if match[1] == "pools" else ""
        if match is not None and match[4] == "aliases":
            yield from ((str(alias), f"= {match[3]}") for alias in one["value"])


def _rows(ctx: click.Context, path: str, member: str) -> Iterator[dict[str, Any]]:
    target = Connection.given(ctx.params, ctx.parent).target()
    answer: Any = Client(target, answer_s=DEADLINE_S).get(path).data
    yield from answer[member]
