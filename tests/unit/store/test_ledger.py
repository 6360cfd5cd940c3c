"""The ledger: intent, spawn, verdict, end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import StoreError
from mtpd.store.db import Database
from mtpd.store.ledger import Ledger
from mtpd.types import Evidence, TcpEndpoint, UnixEndpoint, Verdict
from mtpd.units import DeviceKey, EngineId
from tests.fakes.clock import FakeClock
from tests.fakes.values import DEPTH_2
from tuner.types import Arm, Evicted, Resident, Spilled, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.faults import Faults
    from mtpd.types import Endpoint
    from tuner.types import Residency

ENGINE = EngineId("engine-1")


@asynccontextmanager
async def _ledger(folder: Path, *, faults: Faults | None = None) -> AsyncIterator[Ledger]:
    async with await Database.open(folder / "state.sqlite3", FakeClock()) as db:
        yield Ledger(db=db, clock=FakeClock(), boot_id="boot-1", faults=faults)


async def _intend(
    ledger: Ledger,
    engine_id: EngineId = ENGINE,
    endpoint: Endpoint | None = None,
    *,
    arm: Arm = DEPTH_2,
    fingerprint: str = "f" * 64,
) -> None:
    await ledger.intend(
        engine_id,
        profile="tiny",
        device=DeviceKey("host"),
        arm=arm,
        argv_digest="a" * 64,
        endpoint=endpoint or UnixEndpoint("/run/mtpd/1.sock"),
        fingerprint=fingerprint,
    )


async def test_an_intent_is_open_and_has_no_pid(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        (row,) = await ledger.open_rows()

    assert (row.engine_id, row.boot_id, row.profile) == (ENGINE, "boot-1", "tiny")
    assert (row.device, row.arm, row.endpoint) == ("host", DEPTH_2, "unix:/run/mtpd/1.sock")
    assert (row.pid, row.start_ticks, row.ended_at, row.residency) == (None, None, None, None)


async def test_the_key_of_a_tcp_endpoint_is_not_stored(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger, endpoint=TcpEndpoint("127.0.0.1", 4711, "sekret-key"))
        (row,) = await ledger.open_rows()

    assert row.endpoint == "tcp:127.0.0.1:4711"
    assert b"sekret" not in (tmp_path / "state.sqlite3").read_bytes()


async def test_a_spawned_engine_stays_open_with_its_pid(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        await ledger.spawned(ENGINE, 4242, 99)
        (row,) = await ledger.open_rows()
    assert (row.pid, row.start_ticks) == (4242, 99)


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"), [(0, 0, None), (1, 1, None), (-9, None, 9), (None, None, None)]
)
async def test_an_ended_engine_is_closed_with_how_it_ended(
    tmp_path: Path, code: int | None, exit_code: int | None, signal: int | None
) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        await ledger.spawned(ENGINE, 4242, 99)
        await ledger.ended(ENGINE, code)
        assert await ledger.open_rows() == ()
        row = await ledger.get(ENGINE)
    assert row is not None
    assert row.ended_at is not None
    assert (row.exit_code, row.signal) == (exit_code, signal)


async def test_only_the_first_end_counts(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        await ledger.ended(ENGINE, None)
        await ledger.ended(ENGINE, -9)
        row = await ledger.get(ENGINE)
    assert row is not None
    assert (row.exit_code, row.signal) == (None, None)


async def test_a_verdict_is_kept_with_its_reason(tmp_path: Path) -> None:
    verdict = Verdict(
        residency=Evicted(3),
        evidence=(Evidence("load_tensors: layer 3 CPU", "a layer is on the CPU"),),
        reason="3 layers run on the CPU",
    )
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        await ledger.judged(ENGINE, verdict)
        row = await ledger.get(ENGINE)
    assert row is not None
    assert (row.residency, row.residency_reason) == ("evicted", "3 layers run on the CPU")


async def test_open_rows_are_in_the_order_of_their_intents(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        for name in ("b", "a", "c"):
            await _intend(ledger, EngineId(name))
        await ledger.ended(EngineId("a"), 0)
        assert [row.engine_id for row in await ledger.open_rows()] == ["b", "c"]


async def test_an_engine_id_is_never_used_twice(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        with pytest.raises(StoreError, match="UNIQUE"):
            await _intend(ledger)


async def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    async with _ledger(tmp_path) as ledger:
        with pytest.raises(StoreError, match="no engine start 'engine-1'"):
            await ledger.spawned(ENGINE, 1, 1)


async def test_the_fault_point_lies_after_the_commit(tmp_path: Path) -> None:
    class Faulty:
        def hit(self, point: str) -> None:
            assert point == "ledger.after_commit"
            raise ConnectionAbortedError

    async with _ledger(tmp_path, faults=Faulty()) as ledger:
        with pytest.raises(ConnectionAbortedError):
            await _intend(ledger)
        assert len(await ledger.open_rows()) == 1


async def test_the_newest_verdict_of_each_arm_and_fingerprint_is_found(tmp_path: Path) -> None:
    starts: list[tuple[str, Arm, str, Residency | None]] = [
        ("1", DEPTH_2, "old", Evicted(1)),
        ("2", DEPTH_2, "old", Resident()),
        ("3", DEPTH_2, "old", Unknown("no lines")),
        ("4", DEPTH_2, "new", Spilled(5)),
        ("5", Arm(profile="tiny"), "old", Resident()),
        ("6", Arm(profile="tiny"), "old", None),
    ]
    async with _ledger(tmp_path) as ledger:
        for name, arm, fingerprint, residency in starts:
            await _intend(ledger, EngineId(name), arm=arm, fingerprint=fingerprint)
            if residency is not None:
                await ledger.judged(EngineId(name), Verdict(residency=residency, reason=name))
        rows = await ledger.judged_arms()
        assert [(row.engine_id, row.residency) for row in rows] == [
            ("2", "resident"),
            ("4", "spilled"),
            ("5", "resident"),
        ]
        assert rows[1].residency_reason == "4"


async def test_the_newest_measured_start_of_each_arm_and_fingerprint_is_found(
    tmp_path: Path,
) -> None:
    starts: list[tuple[str, Arm, str, int | None]] = [
        ("1", DEPTH_2, "old", 100),
        ("2", DEPTH_2, "old", 200),
        ("3", DEPTH_2, "old", None),
        ("4", DEPTH_2, "new", 0),
        ("5", Arm(profile="tiny"), "old", None),
    ]
    async with _ledger(tmp_path) as ledger:
        for name, arm, fingerprint, taken in starts:
            await _intend(ledger, EngineId(name), arm=arm, fingerprint=fingerprint)
            await ledger.judged(EngineId(name), Verdict(reason=name, taken_bytes=taken))
        rows = await ledger.measured_arms()
        assert [(row.engine_id, row.taken_bytes) for row in rows] == [("2", 200), ("4", 0)]


async def test_a_later_verdict_that_measured_nothing_keeps_what_was_measured(
    tmp_path: Path,
) -> None:
    async with _ledger(tmp_path) as ledger:
        await _intend(ledger)
        await ledger.judged(ENGINE, Verdict(residency=Resident(), taken_bytes=100))
        await ledger.judged(ENGINE, Verdict(residency=Spilled(5)))
        row = await ledger.get(ENGINE)
    assert row is not None
    assert (row.residency, row.taken_bytes) == ("spilled", 100)
