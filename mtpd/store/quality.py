"""Stored perplexities and kernel-level speeds of model files.

Covers writing and finding rows. A result belongs to a path with a size and a time of change,
as a hash does: whoever asks says which file lies there now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.clock import rfc3339
from mtpd.errors import StoreError
from mtpd.quality_views import BaselineView, BenchRowView, PerplexityView
from mtpd.store import rows
from mtpd.views import encode

if TYPE_CHECKING:
    import sqlite3

    from mtpd.clock import Clock
    from mtpd.store.db import Database
    from mtpd.views import Json

__all__ = ["MeasuredFile", "QualityRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFile:
    """The file that a result is about."""

    path: str
    size: int
    mtime_ns: int


class QualityRows:
    """Writes and reads ``quality`` and ``baselines``."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add_perplexity(self, view: PerplexityView, file: MeasuredFile) -> PerplexityView:
        """Store a perplexity; the one that is returned has its number and time."""
        at = rfc3339(self._clock.utc())

        def insert(conn: sqlite3.Connection) -> PerplexityView:
            cursor = conn.execute(
                "INSERT INTO quality (at, operation_id, profile, file, size, mtime_ns, sha256,"
                " perplexity, stderr, corpus, corpus_sha256, chunks, context, flags, tool_digest,"
                " running, note) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(at, view.operation_id, view.model, file.path, file.size, file.mtime_ns),
                    *(view.sha256, view.perplexity, view.stderr, view.corpus),
                    *(view.corpus_sha256, view.chunks, view.context),
                    *(rows.dump(list(view.flags)), view.tool_digest),
                    *(rows.dump(list(view.running)), view.note),
                ),
            )
            return replace(view, id=_number(cursor), at=at)

        return await self._db.write(insert)

    async def perplexities(
        self, *, file: MeasuredFile | None = None, limit: int = 1000
    ) -> tuple[PerplexityView, ...]:
        """Newest first; None for every file."""
        return await self._db.read(
            lambda conn: tuple(_perplexity(row) for row in _select(conn, "quality", file, limit))
        )

    async def add_baseline(self, view: BaselineView, file: MeasuredFile) -> BaselineView:
        """Store a run of llama-bench, likewise."""
        at = rfc3339(self._clock.utc())

        def insert(conn: sqlite3.Connection) -> BaselineView:
            cursor = conn.execute(
                "INSERT INTO baselines (at, operation_id, profile, file, size, mtime_ns, flags,"
                " tool_digest, tests) VALUES (?,?,?,?,?,?,?,?,?)",
                (
                    *(at, view.operation_id, view.model, file.path, file.size, file.mtime_ns),
                    *(rows.dump(list(view.flags)), view.tool_digest, rows.dump(encode(view.rows))),
                ),
            )
            return replace(view, id=_number(cursor), at=at)

        return await self._db.write(insert)

    async def baselines(
        self, *, file: MeasuredFile | None = None, limit: int = 1000
    ) -> tuple[BaselineView, ...]:
        """Newest first; None for every file."""
        return await self._db.read(
            lambda conn: tuple(_baseline(row) for row in _select(conn, "baselines", file, limit))
        )


def _select(
    conn: sqlite3.Connection, table: str, file: MeasuredFile | None, limit: int
) -> list[sqlite3.Row]:
    named: tuple[str | int, ...] = ()
    where = ""
    if file is not None:
        where = " WHERE (file, size, mtime_ns) = (?, ?, ?)"
        named = (file.path, file.size, file.mtime_ns)
    # Both names are ours.
    query = f"SELECT * FROM {table}{where} ORDER BY id DESC LIMIT ?"  # noqa: S608
    return conn.execute(query, (*named, limit)).fetchall()


def _number(cursor: sqlite3.Cursor) -> int:
    if cursor.lastrowid is None:
        msg = "a row was stored without a number"
        raise StoreError(msg, hint="this is a defect of mtpd; report it with the log")
    return cursor.lastrowid


def _perplexity(row: sqlite3.Row) -> PerplexityView:
    return PerplexityView(
        id=row["id"],
        at=row["at"],
        operation_id=row["operation_id"],
        model=row["profile"],
        file=row["file"],
        sha256=row["sha256"],
        perplexity=row["perplexity"],
        stderr=row["stderr"],
        corpus=row["corpus"],
        corpus_sha256=row["corpus_sha256"],
        chunks=row["chunks"],
        context=row["context"],
        flags=rows.load_strings(row["flags"]),
        tool_digest=row["tool_digest"],
        running=rows.load_numbers(row["running"]),
        note=row["note"],
    )


def _baseline(row: sqlite3.Row) -> BaselineView:
    tests = rows.load(row["tests"])
    return BaselineView(
        id=row["id"],
        at=row["at"],
        operation_id=row["operation_id"],
        model=row["profile"],
        file=row["file"],
        flags=rows.load_strings(row["flags"]),
        tool_digest=row["tool_digest"],
        rows=tuple(_test(one) for one in (tests if isinstance(tests, list) else [])),
    )


def _test(found: Json) -> BenchRowView:
    match found:
        case {
            "name": str(name),
            "prompt_tokens": int(prompt),
            "gen_tokens": int(generated),
            "depth": int(depth),
            "tps": float() | int() as tps,
            "tps_sd": float() | int() | None as spread,
            "samples": list() as samples,
            "build": str(build),
            "backends": str(backends),
        }:
            return BenchRowView(
                name=name,
                prompt_tokens=prompt,
                gen_tokens=generated,
                depth=depth,
                tps=tps,
                tps_sd=spread,
                samples=rows.load_numbers(rows.dump(samples)),
                build=build,
                backends=backends,
            )
        case _:
            msg = "a stored test of llama-bench cannot be read back"
            raise StoreError(msg, hint="the database was changed by another program")
