"""The journal of decisions: each with its evidence, its inputs and, later, its outcome.

Covers the rows. Taking decisions is the tuner's business, acting on them control's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.clock import rfc3339
from mtpd.errors import NotFoundError
from mtpd.faults import NoFaults
from mtpd.store import rows
from mtpd.views import ArmView, DecisionView

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from mtpd.clock import Clock
    from mtpd.faults import Faults
    from mtpd.store.db import Database
    from mtpd.views import Json
    from tuner.types import Decision

__all__ = ["DECISION_SCHEMA", "SNAPSHOT", "DecisionFilter", "Journal"]

DECISION_SCHEMA = 2
"""Version of a decision's JSON columns; grows when their shape changes. Since 2 the inputs of
a calibration's decision hold all that is needed to take it again (docs/store.md)."""

SNAPSHOT = "snapshot"
"""Where the inputs of a decision say what the snapshot held that brought it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions; None does not restrict.

    Attributes:
        since_id: Only rows after this one.
        limit: At most so many rows: the first after ``since_id``, else the newest.
    """

    subject: str | None = None
    act: str | None = None
    operation_id: str | None = None
    since_id: int | None = None
    limit: int | None = None


_COLUMNS = (
    "d.id, d.at, d.act, d.subject, d.arm, d.previous, d.predicted, d.reason, d.evidence,"
    " d.operation_id, d.outcome,"
    " (SELECT json_group_array(measurement_id) FROM (SELECT measurement_id"
    "  FROM decision_measurements WHERE decision_id = d.id ORDER BY position)) AS measured,"
    " (SELECT o.actor FROM operations o WHERE o.id = d.operation_id) AS actor"
)


class Journal:
    """Writes and reads ``decisions``."""

    def __init__(self, *, db: Database, clock: Clock, faults: Faults | None = None) -> None:
        self._db = db
        self._clock = clock
        self._faults = faults or NoFaults()

    async def append(
        self,
        decision: Decision,
        *,
        measurement_ids: Sequence[int] = (),
        operation_id: str | None = None,
        inputs: Mapping[str, Json] | None = None,
    ) -> DecisionView:
        """Record a decision before its effect; durable when this returns.

        Args:
            decision: What was decided.
            measurement_ids: The stored measurements that it rests on, in order.
            operation_id: The operation within which it was taken.
            inputs: All else that is needed to take it again.

        Raises:
            StoreError: The disk refuses, or a number names no stored measurement.
        """
        values = (
            rfc3339(self._clock.utc()),
            DECISION_SCHEMA,
            decision.act.value,
            decision.subject,
            None if decision.arm is None else rows.arm_json(decision.arm),
            None if decision.previous is None else rows.arm_json(decision.previous),
            None if decision.predicted is None else rows.interval_json(decision.predicted),
            decision.reason,
            rows.dump(list(decision.evidence)),
            operation_id,
            rows.dump(dict(inputs or {})),
        )

        def insert(conn: sqlite3.Connection) -> DecisionView:
            number = conn.execute(
                "INSERT INTO decisions (at, schema_version, act, subject, arm, previous, predicted,"
                " reason, evidence, operation_id, inputs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
            conn.executemany(
                "INSERT INTO decision_measurements VALUES (?, ?, ?)",
                ((number, position, item) for position, item in enumerate(measurement_ids)),
            )
            return _one(conn, number)

        view = await self._db.write(insert)
        self._faults.hit("journal.after_commit")
        return view

    async def outcome(self, number: int, text: str) -> DecisionView:
        """Append what came of a decision to its row; a second text follows after ``; ``.

        Raises:
            NotFoundError: There is no such decision.
        """

        def update(conn: sqlite3.Connection) -> DecisionView:
            conn.execute(
                "UPDATE decisions SET outcome = coalesce(outcome || '; ', '') || ? WHERE id = ?",
                (text, number),
            )
            return _one(conn, number)

        return await self._db.write(update)

    async def list(self, where: DecisionFilter | None = None) -> tuple[DecisionView, ...]:
        """The matching decisions in the order they were taken."""
        wanted = where or DecisionFilter()
        columns = {
            "subject": wanted.subject,
            "act": wanted.act,
            "operation_id": wanted.operation_id,
        }
        conditions = ["id > :since_id"]
        conditions += filter(None, [rows.matching(columns)])
        parameters = {
            **columns,
            "since_id": wanted.since_id or 0,
            "limit": -1 if wanted.limit is None else wanted.limit,
        }
        order = "DESC" if wanted.since_id is None else "ASC"
        query = (
            f"SELECT * FROM (SELECT {_COLUMNS} FROM decisions d"  # noqa: S608 - constants
            f" WHERE {' AND '.join(conditions)} ORDER BY id {order} LIMIT :limit) ORDER BY id"
        )

        def select(conn: sqlite3.Connection) -> tuple[DecisionView, ...]:
            cursor = conn.execute(query, parameters)
            return tuple(_view(row) for row in cursor)

        return await self._db.read(select)

    async def get(self, number: int) -> DecisionView | None:
        """One decision, or None."""

        def select(conn: sqlite3.Connection) -> DecisionView | None:
            row = _find(conn, number)
            return None if row is None else _view(row)

        return await self._db.read(select)

    async def inputs(self, number: int) -> tuple[int, dict[str, Json]] | None:
        """The schema version and the inputs of a decision, for taking it again, or None."""

        def select(conn: sqlite3.Connection) -> tuple[int, dict[str, Json]] | None:
            row = conn.execute(
                "SELECT schema_version, inputs FROM decisions WHERE id = ?", (number,)
            ).fetchone()
            return None if row is None else (row["schema_version"], rows.load_object(row["inputs"]))

        return await self._db.read(select)

    async def latest_choice(
        self, subject: str, fingerprint: str | None = None
    ) -> DecisionView | None:
        """The newest decision that left an arm in place for a pool or profile, or None.

        Args:
            subject: Pool or profile.
            fingerprint: Only decisions that rest on a measurement with this fingerprint,
                or on a snapshot that names it; a choice made under another one may not hold.
        """

        def select(conn: sqlite3.Connection) -> DecisionView | None:
            row = conn.execute(
                f"SELECT {_COLUMNS} FROM decisions d"  # noqa: S608 - constant
                " WHERE subject = :subject AND arm IS NOT NULL"
                " AND act IN ('choose', 'keep', 'switch', 'roll_back')"
                " AND (:fingerprint IS NULL OR EXISTS (SELECT 1 FROM decision_measurements"
                "  JOIN measurements m ON m.id = measurement_id"
                "  WHERE decision_id = d.id AND m.fingerprint = :fingerprint)"
                " OR json_extract(d.inputs, :snapshot) = :fingerprint)"
                " ORDER BY d.id DESC LIMIT 1",
                {
                    "subject": subject,
                    "fingerprint": fingerprint,
                    "snapshot": f"$.{SNAPSHOT}.fingerprint",
                },
            ).fetchone()
            return None if row is None else _view(row)

        return await self._db.read(select)

    async def latest_measured(self, profile: str, fingerprint: str | None = None) -> int | None:
        """The newest decision about a profile's depth that measured several of them, or None.

        Args:
            profile: The profile.
            fingerprint: Only decisions that rest on a measurement with this fingerprint.
        """

        def select(conn: sqlite3.Connection) -> int | None:
            row = conn.execute(
                "SELECT d.id FROM decisions d WHERE subject = :profile"
                " AND json_extract(inputs, '$.history') IS NOT NULL"
                " AND json_extract(inputs, '$.method') <> 'probe'"
                " AND EXISTS (SELECT 1 FROM decision_measurements"
                "  JOIN measurements m ON m.id = measurement_id WHERE decision_id = d.id"
                "  AND (:fingerprint IS NULL OR m.fingerprint = :fingerprint))"
                " ORDER BY d.id DESC LIMIT 1",
                {"profile": profile, "fingerprint": fingerprint},
            ).fetchone()
            return None if row is None else int(row["id"])

        return await self._db.read(select)


def _find(conn: sqlite3.Connection, number: int | None) -> sqlite3.Row | None:
    row: sqlite3.Row | None = conn.execute(
        f"SELECT {_COLUMNS} FROM decisions d WHERE id = ?",  # noqa: S608 - constant
        (number,),
    ).fetchone()
    return row


def _one(conn: sqlite3.Connection, number: int | None) -> DecisionView:
    row = _find(conn, number)
    if row is None:
        msg = f"there is no decision {number}"
        raise NotFoundError(msg, hint="`mtpctl decisions` lists the numbers")
    return _view(row)


def _view(row: sqlite3.Row) -> DecisionView:
    arm, previous, predicted = row["arm"], row["previous"], row["predicted"]
    return DecisionView(
        id=row["id"],
        at=row["at"],
        act=row["act"],
        subject=row["subject"],
        arm=None if arm is None else ArmView.of(rows.arm_from_json(arm)),
        previous=None if previous is None else ArmView.of(rows.arm_from_json(previous)),
        predicted=None if predicted is None else rows.interval_from_json(predicted),
        reason=row["reason"],
        evidence=rows.load_strings(row["evidence"]),
        measurement_ids=rows.load_integers(row["measured"]),
        operation_id=row["operation_id"],
        outcome=row["outcome"],
        actor=row["actor"],
    )
