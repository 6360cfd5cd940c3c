"""The rows of long-running operations, so that a restart knows what it interrupted.

Covers the rows. Running, cancelling and telling about operations is the business of
``mtpd.operations``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.store import rows
from mtpd.views import OperationView, ProgressView

if TYPE_CHECKING:
    import sqlite3

    from mtpd.store.db import Database
    from mtpd.views import Json

__all__ = ["OperationRows"]


class OperationRows:
    """Writes and reads ``operations``."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def insert(self, view: OperationView, *, key: str | None) -> OperationView:
        """Store a new operation, or return the one that already has this idempotency key."""

        def insert(conn: sqlite3.Connection) -> OperationView:
            taken = conn.execute(
                "SELECT * FROM operations WHERE idempotency_key = ?", (key,)
            ).fetchone()
            if taken is not None:
                return _view(taken)
            conn.execute(
                "INSERT INTO operations (id, kind, params, created_at, idempotency_key, state,"
                " progress_done, progress_total, progress_note, started_at, ended_at, result,"
                " error, actor) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    view.id,
                    view.kind,
                    rows.dump(view.params),
                    view.created_at,
                    key,
                    *_changing(view),
                    view.actor,
                ),
            )
            return view

        return await self._db.write(insert)

    async def update(self, *views: OperationView) -> None:
        """Store the state, progress, times, result and error of operations."""

        def update(conn: sqlite3.Connection) -> None:
            conn.executemany(
                "UPDATE operations SET state = ?, progress_done = ?, progress_total = ?,"
                " progress_note = ?, started_at = ?, ended_at = ?, result = ?, error = ?"
                " WHERE id = ?",
                [(*_changing(view), view.id) for view in views],
            )

        await self._db.write(update)

    async def get(self, operation_id: str) -> OperationView | None:
        """One operation, or None."""

        def select(conn: sqlite3.Connection) -> OperationView | None:
            row = conn.execute("SELECT * FROM operations WHERE id = ?", (operation_id,)).fetchone()
            return None if row is None else _view(row)

        return await self._db.read(select)

    async def list(self, *, limit: int | None = None) -> tuple[OperationView, ...]:
        """The newest operations, in the order they were created."""

        def select(conn: sqlite3.Connection) -> tuple[OperationView, ...]:
            cursor = conn.execute(
                "SELECT * FROM (SELECT * FROM operations ORDER BY number DESC LIMIT ?)"
                " ORDER BY number",
                (-1 if limit is None else limit,),
            )
            return tuple(_view(row) for row in cursor)

        return await self._db.read(select)

    async def unfinished(self) -> tuple[OperationView, ...]:
        """Every operation that is queued or running according to its row."""

        def select(conn: sqlite3.Connection) -> tuple[OperationView, ...]:
            cursor = conn.execute("SELECT * FROM operations WHERE ended_at IS NULL ORDER BY number")
            return tuple(_view(row) for row in cursor)

        return await self._db.read(select)


def _changing(view: OperationView) -> tuple[str | int | None, ...]:
    return (
        view.state,
        view.progress.done,
        view.progress.total,
        view.progress.note,
        view.started_at,
        view.ended_at,
        None if view.result is None else rows.dump(view.result),
        None if view.error is None else rows.dump(view.error),
    )


def _object(text: str | None) -> dict[str, Json] | None:
    return None if text is None else rows.load_object(text)


def _view(row: sqlite3.Row) -> OperationView:
    return OperationView(
        id=row["id"],
        kind=row["kind"],
        state=row["state"],
        params=rows.load_object(row["params"]),
        progress=ProgressView(
            done=row["progress_done"], total=row["progress_total"], note=row["progress_note"]
        ),
        created_at=row["created_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        result=_object(row["result"]),
        error=_object(row["error"]),
        actor=row["actor"],
    )
