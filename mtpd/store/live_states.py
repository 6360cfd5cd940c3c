"""What is remembered of each model's live traffic: one row per model, replaced as it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.clock import rfc3339

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from mtpd.clock import Clock
    from mtpd.store.db import Database

__all__ = ["LiveStates"]


class LiveStates:
    """Writes and reads ``live_states``."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def put(self, states: Mapping[str, str], *, schema: int) -> None:
        """Replace the states of these models, all or none.

        Args:
            states: JSON objects by model.
            schema: How they are to be read.

        Raises:
            StoreError: The disk refuses.
        """
        at = rfc3339(self._clock.utc())
        values = [(profile, at, schema, state) for profile, state in states.items()]

        def replace(conn: sqlite3.Connection) -> None:
            conn.executemany("INSERT OR REPLACE INTO live_states VALUES (?, ?, ?, ?)", values)

        await self._db.write(replace)

    async def all(self, *, schema: int) -> dict[str, str]:
        """Every state that is to be read so, by model.

        Raises:
            StoreError: The file cannot be read.
        """

        def select(conn: sqlite3.Connection) -> dict[str, str]:
            found = conn.execute(
                "SELECT profile, state FROM live_states WHERE schema_version = ?", (schema,)
            )
            return {row["profile"]: row["state"] for row in found}

        return await self._db.read(select)
