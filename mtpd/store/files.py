"""Stored full hashes of model files.

Covers writing and finding rows. A hash belongs to a path with a size and a time of change:
whoever asks says which file lies there now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.clock import rfc3339

if TYPE_CHECKING:
    import sqlite3

    from mtpd.clock import Clock
    from mtpd.store.db import Database

__all__ = ["FileDigests"]


class FileDigests:
    """Writes and reads ``model_files``."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def get(self, path: str, *, size: int, mtime_ns: int) -> str | None:
        """SHA-256 of this path's file in hex, or None where this very file was not hashed."""

        def select(conn: sqlite3.Connection) -> str | None:
            row = conn.execute(
                "SELECT sha256 FROM model_files WHERE (path, size, mtime_ns) = (?, ?, ?)",
                (_text(path), size, mtime_ns),
            ).fetchone()
            return None if row is None else str(row["sha256"])

        return await self._db.read(select)

    async def put(self, path: str, *, size: int, mtime_ns: int, sha256: str) -> None:
        """Store a hash durably; it replaces an earlier one of the same size and time.

        Raises:
            StoreError: The disk refuses, or the values contradict the schema.
        """
        values = (_text(path), size, mtime_ns, sha256, rfc3339(self._clock.utc()))
        await self._db.write(
            lambda conn: conn.execute(
                "INSERT OR REPLACE INTO model_files VALUES (?,?,?,?,?)", values
            )
        )


def _text(path: str) -> str:
    """A file name need not be UTF-8, which a TEXT column must be."""
    return path.encode("utf-8", "backslashreplace").decode()
