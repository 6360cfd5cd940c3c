"""The ledger of engine processes: intent before the spawn, pid after it, end after the end.

Covers the rows; what becomes of them while the disk takes none is the business of
``mtpd.store.backlog``. Finding and ending what a killed daemon left behind is the business
of ``mtpd.supervise.orphans``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.clock import rfc3339
from mtpd.errors import StoreError
from mtpd.faults import NoFaults
from mtpd.store import rows
from mtpd.store.backlog import Backlog
from mtpd.store.start_notes import NoNotes
from mtpd.types import HttpEndpoint, UnixEndpoint
from tuner.types import Unknown

if TYPE_CHECKING:
    import sqlite3

    from mtpd.clock import Clock
    from mtpd.faults import Faults
    from mtpd.store.db import Database
    from mtpd.store.start_notes import Noted, StartNotes
    from mtpd.types import Endpoint, Verdict
    from mtpd.units import DeviceKey, EngineId
    from tuner.types import Arm

__all__ = ["Ledger", "LedgerRow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One engine start.

    Attributes:
        boot_id: The kernel's boot id; a row of another boot has no process.
        endpoint: ``unix:PATH`` or ``tcp:HOST:PORT``; never the key.
        pid: None between the intent and the spawn.
        start_ticks: Field 22 of /proc/PID/stat, which tells a reused pid apart.
        exit_code: None unless the process ended by itself.
        signal: The signal that ended it, or None.
        residency: Label of the verdict, None until judged.
        room_bytes: Device memory that was there for it, None where that is not known.
        taken_bytes: Memory that it was measured to take, None where that is not known.
    """

    engine_id: EngineId
    boot_id: str
    profile: str
    device: DeviceKey
    arm: Arm
    argv_digest: str
    endpoint: str
    fingerprint: str
    intent_at: str
    pid: int | None
    start_ticks: int | None
    ended_at: str | None
    exit_code: int | None
    signal: int | None
    residency: str | None
    residency_reason: str | None
    room_bytes: int | None
    taken_bytes: int | None


_COLUMNS = (
    "engine_id, boot_id, profile, device, arm, argv_digest, endpoint, fingerprint, intent_at, "
    "pid, start_ticks, ended_at, exit_code, signal, residency, residency_reason, "
    "room_bytes, taken_bytes"
)


class Ledger:
    """Writes and reads ``engine_starts``."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        boot_id: str,
        faults: Faults | None = None,
        notes: StartNotes | None = None,
    ) -> None:
        self._db = db
        self._notes = notes
        self._backlog: Backlog[sqlite3.Connection] = Backlog(db, notes or NoNotes())
        self._unlisted: frozenset[EngineId] = frozenset()
        self._clock = clock
        self._boot_id = boot_id
        self._faults = faults or NoFaults()

    async def intend(
        self,
        engine_id: EngineId,
        *,
        profile: str,
        device: DeviceKey,
        arm: Arm,
        argv_digest: str,
        endpoint: Endpoint,
        fingerprint: str,
    ) -> None:
        """Record that a process is about to be spawned; the next daemon finds it from now on.

        Raises:
            StoreError: It would not.
        """
        values = (
            engine_id,
            self._boot_id,
            profile,
            device,
            rows.arm_json(arm),
            argv_digest,
            _address(endpoint),
            fingerprint,
            rfc3339(self._clock.utc()),
        )

        def insert(conn: sqlite3.Connection) -> None:
            conn.execute(
                "INSERT INTO engine_starts (engine_id, boot_id, profile, device, arm,"
                " argv_digest, endpoint, fingerprint, intent_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

        await self._backlog.begin(engine_id, insert)
        self._faults.hit("ledger.after_commit")

    async def spawned(self, engine_id: EngineId, pid: int, start_ticks: int) -> None:
        """Record which process it became."""
        await self._update(
            engine_id,
            "spawned_at = ?, pid = ?, start_ticks = ?",
            (rfc3339(self._clock.utc()), pid, start_ticks),
        )

    async def judged(self, engine_id: EngineId, verdict: Verdict) -> None:
        """Record the verdict with the lines that decided it, and what was measured."""
        reason = verdict.reason
        if isinstance(verdict.residency, Unknown):
            reason = verdict.residency.reason
        evidence = rows.dump([{"line": item.line, "says": item.says} for item in verdict.evidence])
        await self._update(
            engine_id,
            "residency = ?, residency_reason = ?, evidence = ?, room_bytes = ?,"
            " taken_bytes = coalesce(?, taken_bytes)",
            (verdict.label, reason, evidence, verdict.room_bytes, verdict.taken_bytes),
        )

    async def ended(self, engine_id: EngineId, code: int | None) -> None:
        """Record the end; only the first one counts.

        Args:
            engine_id: The engine start.
            code: Exit status, or minus the signal (the convention of ``Popen.returncode``),
                or None where nobody saw it end.
        """
        if engine_id in self._unlisted and self._notes is not None:
            self._notes.drop(engine_id)
            return
        exit_code = code if code is not None and code >= 0 else None
        signal = -code if code is not None and code < 0 else None
        await self._update(
            engine_id,
            "exit_code = CASE WHEN ended_at IS NULL THEN ? ELSE exit_code END,"
            " signal = CASE WHEN ended_at IS NULL THEN ? ELSE signal END,"
            " ended_at = coalesce(ended_at, ?)",
            (exit_code, signal, rfc3339(self._clock.utc())),
            ended=True,
        )

    async def settle(self) -> None:
        """Write what the disk would not take before.

        Raises:
            StoreError: It still does not.
        """
        await self._backlog.settle()

    async def noted(self) -> tuple[Noted, ...]:
        """Starts of an earlier daemon of this boot that no row tells of."""
        found = () if self._notes is None else self._notes.read()
        left = tuple([one for one in found if await self.get(one.engine_id) is None])
        self._unlisted = frozenset(one.engine_id for one in left)
        return left

    async def open_rows(self) -> tuple[LedgerRow, ...]:
        """Every start that has not been seen to end, of any boot, oldest first."""

        def select(conn: sqlite3.Connection) -> tuple[LedgerRow, ...]:
            cursor = conn.execute(
                f"SELECT {_COLUMNS} FROM engine_starts WHERE ended_at IS NULL"  # noqa: S608 - constant
                " ORDER BY rowid"
            )
            return tuple(_row(values) for values in cursor)

        return await self._db.read(select)

    async def get(self, engine_id: EngineId) -> LedgerRow | None:
        """One engine start, or None."""

        def select(conn: sqlite3.Connection) -> LedgerRow | None:
            values = conn.execute(
                f"SELECT {_COLUMNS} FROM engine_starts WHERE engine_id = ?",  # noqa: S608 - constant
                (engine_id,),
            ).fetchone()
            return None if values is None else _row(values)

        return await self._db.read(select)

    async def judged_arms(self) -> tuple[LedgerRow, ...]:
        """The newest start of each arm under each fingerprint whose residency was judged.

        A start that was judged unknown shows nothing and does not hide an earlier one.
        """
        return await self._newest("residency IN ('resident', 'host', 'evicted', 'spilled')")

    async def measured_arms(self) -> tuple[LedgerRow, ...]:
        """The newest start of each arm under each fingerprint whose memory was measured."""
        return await self._newest("taken_bytes IS NOT NULL")

    async def _newest(self, condition: str) -> tuple[LedgerRow, ...]:
        """Of the starts that meet a condition the newest of each arm under each fingerprint."""

        def select(conn: sqlite3.Connection) -> tuple[LedgerRow, ...]:
            cursor = conn.execute(
                f"SELECT {_COLUMNS} FROM engine_starts WHERE rowid IN"  # noqa: S608 - ours
                f" (SELECT max(rowid) FROM engine_starts WHERE {condition}"
                " GROUP BY fingerprint, arm) ORDER BY rowid"
            )
            return tuple(_row(values) for values in cursor)

        return await self._db.read(select)

    async def _update(
        self,
        engine_id: EngineId,
        assignments: str,
        values: tuple[str | int | None, ...],
        *,
        ended: bool = False,
    ) -> None:
        def update(conn: sqlite3.Connection) -> None:
            cursor = conn.execute(
                f"UPDATE engine_starts SET {assignments} WHERE engine_id = ?",  # noqa: S608 - ours
                (*values, engine_id),
            )
            if cursor.rowcount != 1:
                msg = f"the ledger has no engine start {engine_id!r}"
                raise StoreError(msg, hint="this is a defect of mtpd; report it with the log")

        await self._backlog.change(engine_id, update, ended=ended)


def _address(endpoint: Endpoint) -> str:
    if isinstance(endpoint, UnixEndpoint):
        return f"unix:{endpoint.path}"
    if isinstance(endpoint, HttpEndpoint):
        return endpoint.url
    return f"tcp:{endpoint.host}:{endpoint.port}"


def _row(row: sqlite3.Row) -> LedgerRow:
    return LedgerRow(**{**dict(row), "arm": rows.arm_from_json(row["arm"])})
