"""What the tests of the dashboard do to a daemon without the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.clock import SystemClock
from mtpd.store.token_file import TokenFile
from tests.fakes.house import run_operation

if TYPE_CHECKING:
    from mtpd.access import Scope
    from mtpd.app import Daemon
    from tests.fakes.house import Home

__all__ = ["served", "switch", "token"]


def token(place: Home, name: str, *scopes: Scope) -> str:
    place.directories.create()
    file = TokenFile(place.directories.state, SystemClock())
    return file.add(name, frozenset(scopes), expires=None)[0]


async def switch(running: Daemon, model: str, depth: int) -> None:
    asked = await running.control.switch(
        model=model, depth=depth, force=False, idempotency_key=None
    )
    assert (await run_operation(running, asked)).state == "done"


async def served(running: Daemon) -> tuple[str, int, str]:
    """Model, depth and verdict as the API says."""
    (engine,) = (await running.control.status()).engines
    assert engine.arm is not None
    return engine.arm.profile, engine.arm.depth, engine.residency.state
