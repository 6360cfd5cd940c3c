"""Stored measurements: one row per repetition of a cell, with its fingerprint.

Covers writing and finding rows. What they mean is the tuner's business; what may be
compared with what is ``tuner.compare``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mtpd.clock import rfc3339
from mtpd.store import rows
from mtpd.views import ArmView, MeasurementView
from tuner.power import token_j
from tuner.types import Observation

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from mtpd.clock import Clock
    from mtpd.store.db import Database
    from mtpd.views import Json

__all__ = ["Conditions", "MeasurementFilter", "Measurements"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The card's state around a repetition; None is unknown or not applicable.

    Attributes:
        edge_start_c: Edge temperature before, degrees Celsius.
        edge_end_c: Edge temperature after.
        junction_max_c: Highest junction temperature seen.
        power_mean_w: Mean board power, watts.
        power_cap_w: Cap that was declared, watts.
        power_idle_w: What the board draws while it computes nothing, watts.
    """

    edge_start_c: float | None = None
    edge_end_c: float | None = None
    junction_max_c: float | None = None
    power_mean_w: float | None = None
    power_cap_w: float | None = None
    power_idle_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFilter:
    """Which measurements; None does not restrict.

    Attributes:
        ids: Exactly these rows.
        since_id: Only rows after this one.
        limit: At most so many rows: the first after ``since_id``, else the newest.
    """

    profile: str | None = None
    depth: int | None = None
    workload: str | None = None
    operation_id: str | None = None
    fingerprint: str | None = None
    start_id: str | None = None
    ids: tuple[int, ...] | None = None
    since_id: int | None = None
    limit: int | None = None


_COLUMNS = (
    "at",
    "operation_id",
    "start_id",
    "fingerprint",
    "profile",
    "drafter",
    "depth",
    "p_min",
    "workload",
    "prompt",
    "prompt_digest",
    "repetition",
    "tokens",
    "decode_s",
    "steps",
    "drafted",
    "accepted",
    "accepted_per_position",
    "offered_per_position",
    "acceptance_source",
    "digest",
    "residency",
    "residency_layers",
    "residency_bytes",
    "residency_reason",
    "excluded",
    "edge_start_c",
    "edge_end_c",
    "junction_max_c",
    "power_mean_w",
    "power_cap_w",
    "power_idle_w",
)
_INSERT = (
    f"INSERT INTO measurements ({', '.join(_COLUMNS)})"  # noqa: S608 - constant names
    f" VALUES ({', '.join('?' * len(_COLUMNS))})"
)


class Measurements:
    """Writes and reads ``measurements`` and ``fingerprints``."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add(
        self,
        observation: Observation,
        *,
        acceptance_source: str,
        operation_id: str | None = None,
        prompt_digest: str | None = None,
        conditions: Conditions | None = None,
        fingerprint_fields: Mapping[str, Json] | None = None,
    ) -> int:
        """Store one repetition durably and return its number.

        Args:
            observation: What was measured; at least one token and a decode time above 0.
            acceptance_source: Where steps, drafted and accepted come from: metrics, timings,
                log or none.
            operation_id: The operation that measured; it must be stored already.
            prompt_digest: SHA-256 of the prompt text.
            conditions: The card's state.
            fingerprint_fields: What the fingerprint stands for, where known. Names that are
                not stored yet join those that are; a stored value stays.

        Raises:
            StoreError: The disk refuses, or the values contradict the schema.
        """
        around = conditions or Conditions()
        at = rfc3339(self._clock.utc())
        values = (
            *(at, operation_id, *_subject(observation, prompt_digest)),
            *_counted(observation, acceptance_source),
            *(observation.digest, *rows.residency_columns(observation.residency)),
            *(observation.excluded, around.edge_start_c, around.edge_end_c),
            *(around.junction_max_c, around.power_mean_w),
            *(around.power_cap_w, around.power_idle_w),
        )
        fields = None if fingerprint_fields is None else rows.dump(dict(fingerprint_fields))

        def insert(conn: sqlite3.Connection) -> int:
            conn.execute(
                "INSERT INTO fingerprints VALUES (?, ?) ON CONFLICT (digest)"
                " DO UPDATE SET fields = excluded.fields",
                (observation.fingerprint, _joined(conn, observation.fingerprint, fields)),
            )
            number = conn.execute(_INSERT, values).lastrowid
            assert number is not None  # noqa: S101 - an INSERT that did not raise has a rowid
            return number

        return await self._db.write(insert)

    async def list(self, where: MeasurementFilter | None = None) -> tuple[MeasurementView, ...]:
        """The matching measurements as the API shows them, in the order they were taken."""
        return await self._select(where, _view)

    async def observations(self, where: MeasurementFilter | None = None) -> tuple[Observation, ...]:
        """The matching measurements as the tuner takes them, in the order they were taken."""
        return await self._select(where, _observation)

    async def get(self, number: int) -> MeasurementView | None:
        """One measurement, or None."""
        found = await self.list(MeasurementFilter(ids=(number,)))
        return found[0] if found else None

    async def conditions(self, number: int) -> Conditions | None:
        """The card's state around a measurement, or None if there is no such measurement."""
        found = await self._select(MeasurementFilter(ids=(number,)), _conditions)
        return found[0] if found else None

    async def fingerprint(self, digest: str) -> dict[str, Json] | None:
        """What a fingerprint stands for; None where only its digest is known."""

        def select(conn: sqlite3.Connection) -> dict[str, Json] | None:
            row = conn.execute(
                "SELECT fields FROM fingerprints WHERE digest = ?", (digest,)
            ).fetchone()
            return None if row is None or row["fields"] is None else rows.load_object(row["fields"])

        return await self._db.read(select)

    async def _select(
        self, where: MeasurementFilter | None, convert: Callable[[sqlite3.Row], T]
    ) -> tuple[T, ...]:
        wanted = where or MeasurementFilter()
        columns = {
            "profile": wanted.profile,
            "depth": wanted.depth,
            "workload": wanted.workload,
            "operation_id": wanted.operation_id,
            "fingerprint": wanted.fingerprint,
            "start_id": wanted.start_id,
        }
        conditions = ["id > :since_id"]
        conditions += filter(None, [rows.matching(columns)])
        if wanted.ids is not None:
            conditions.append("id IN (SELECT value FROM json_each(:ids))")
        parameters = {
            **columns,
            "ids": rows.dump(list(wanted.ids or ())),
            "since_id": wanted.since_id or 0,
            "limit": -1 if wanted.limit is None else wanted.limit,
        }
        order = "DESC" if wanted.since_id is None else "ASC"
        query = (
            f"SELECT * FROM (SELECT * FROM measurements WHERE {' AND '.join(conditions)}"  # noqa: S608 - constants
            f" ORDER BY id {order} LIMIT :limit) ORDER BY id"
        )

        def select(conn: sqlite3.Connection) -> tuple[T, ...]:
            cursor = conn.execute(query, parameters)
            return tuple(convert(row) for row in cursor)

        return await self._db.read(select)


def _joined(conn: sqlite3.Connection, digest: str, fields: str | None) -> str | None:
    """What is stored of a fingerprint, with the names that were learned since."""
    row = conn.execute("SELECT fields FROM fingerprints WHERE digest = ?", (digest,)).fetchone()
    stored = None if row is None else row["fields"]
    if stored is None or fields is None or stored == fields:
        return stored or fields
    both = rows.load_object(fields) | rows.load_object(stored)
    return rows.dump({name: both[name] for name in sorted(both)})


def _subject(
    observation: Observation, prompt_digest: str | None
) -> tuple[str | int | float | None, ...]:
    arm = observation.arm
    return (
        observation.start_id,
        observation.fingerprint,
        arm.profile,
        arm.drafter.value,
        arm.depth,
        arm.p_min,
        observation.workload,
        observation.prompt,
        prompt_digest,
        observation.repetition,
    )


def _counted(observation: Observation, source: str) -> tuple[str | int | float | None, ...]:
    return (
        observation.tokens,
        observation.decode_s,
        observation.steps,
        observation.drafted,
        observation.accepted,
        _array(observation.accepted_per_position),
        _array(observation.offered_per_position),
        source,
    )


def _array(counts: tuple[int, ...] | None) -> str | None:
    return None if counts is None else rows.dump(list(counts))


def _positions(row: sqlite3.Row, column: str = "accepted_per_position") -> tuple[int, ...] | None:
    text = row[column]
    return None if text is None else rows.load_integers(text)


def _arm(row: sqlite3.Row) -> ArmView:
    return ArmView(
        profile=row["profile"], drafter=row["drafter"], depth=row["depth"], p_min=row["p_min"]
    )


def _observation(row: sqlite3.Row) -> Observation:
    return Observation(
        arm=_arm(row).arm(),
        workload=row["workload"],
        prompt=row["prompt"],
        repetition=row["repetition"],
        start_id=row["start_id"],
        fingerprint=row["fingerprint"],
        tokens=row["tokens"],
        decode_s=row["decode_s"],
        steps=row["steps"],
        drafted=row["drafted"],
        accepted=row["accepted"],
        accepted_per_position=_positions(row),
        offered_per_position=_positions(row, "offered_per_position"),
        digest=row["digest"],
        residency=rows.residency_from(
            (
                row["residency"],
                row["residency_layers"],
                row["residency_bytes"],
                row["residency_reason"],
            )
        ),
        excluded=row["excluded"],
        joules_per_token=_token_j(row),
    )


def _view(row: sqlite3.Row) -> MeasurementView:
    idle_w = row["power_idle_w"]
    return MeasurementView(
        id=row["id"],
        at=row["at"],
        operation_id=row["operation_id"],
        start_id=row["start_id"],
        fingerprint=row["fingerprint"],
        arm=_arm(row),
        workload=row["workload"],
        prompt=row["prompt"],
        repetition=row["repetition"],
        tokens=row["tokens"],
        decode_s=row["decode_s"],
        decode_tps=_observation(row).decode_tps,
        steps=row["steps"],
        drafted=row["drafted"],
        accepted=row["accepted"],
        accepted_per_position=_positions(row),
        acceptance_source=row["acceptance_source"],
        digest=row["digest"],
        residency=row["residency"],
        excluded=row["excluded"],
        power_mean_w=row["power_mean_w"],
        joules_per_token=_token_j(row),
        net_joules_per_token=None if idle_w is None else _token_j(row, idle_w=idle_w),
    )


def _token_j(row: sqlite3.Row, *, idle_w: float = 0.0) -> float | None:
    """Energy per token beyond what the idle card would have drawn; None: not measured."""
    return token_j(
        row["power_mean_w"], decode_s=row["decode_s"], tokens=row["tokens"], idle_w=idle_w
    )


def _conditions(row: sqlite3.Row) -> Conditions:
    return Conditions(
        edge_start_c=row["edge_start_c"],
        edge_end_c=row["edge_end_c"],
        junction_max_c=row["junction_max_c"],
        power_mean_w=row["power_mean_w"],
        power_cap_w=row["power_cap_w"],
        power_idle_w=row["power_idle_w"],
    )
