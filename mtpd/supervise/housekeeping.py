"""What is put in order before a daemon's first engine and after its last one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import anyio

from mtpd.supervise import old_sockets, orphans
from mtpd.supervise.identity import house_of
from mtpd.units import EngineId

if TYPE_CHECKING:
    from collections.abc import Collection

    from mtpd.config.directories import Directories
    from mtpd.supervise.cgroups import Cgroups
    from mtpd.supervise.orphans import Survivor

__all__ = ["Housekeeping"]

LEAVE_S = 0.5
"""After SIGTERM, and again after SIGKILL; engines have had all of their time before."""


class Housekeeping:
    """Names the engines of one state directory, and ends what is left of them.

    Args:
        directories: Of the daemon; they exist.
        sole: Whether no other daemon can have its state directory.
        groups: Makes control groups for its processes, None where it may have none.
    """

    def __init__(self, directories: Directories, *, sole: bool, groups: Cgroups | None) -> None:
        self.groups = groups
        self._house, self._sole = house_of(directories.state), sole
        self._sockets = directories.runtime

    def new_id(self) -> EngineId:
        """An id for a start, by which all that belongs to it is known as this directory's."""
        return EngineId(self._house + uuid.uuid4().hex[len(self._house) :])

    async def before(self, survivors: Collection[Survivor]) -> None:
        """End what a killed daemon left and the ledger does not tell of; remove its sockets.

        Args:
            survivors: What the ledger tells of, and cannot be ended: not waited for again.
        """
        if self._sole:
            await orphans.end_house(self._house, spare={one.pid for one in survivors})
        old_sockets.sweep(self._sockets)

    async def after(self) -> None:
        """End what is left of ours, last of all and in bounded time."""
        if self._sole:
            with anyio.move_on_after(4 * LEAVE_S, shield=True):
                await orphans.end_house(self._house, grace_s=LEAVE_S)
