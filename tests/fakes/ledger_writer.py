"""Writes to a state database until it is killed: ``ledger_writer PATH``.

Each round measures, chooses a depth and intends a start, and then acknowledges the number of the
decision on its standard output.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from mtpd.clock import SystemClock
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.ledger import Ledger
from mtpd.store.samples import Measurements
from mtpd.types import UnixEndpoint
from mtpd.units import HOST, EngineId
from tests.fakes.values import observation
from tuner.types import Act, Arm, Decision, Drafter

__all__ = ["FINGERPRINT", "SUBJECT", "arm_of", "engine_of"]

SUBJECT, FINGERPRINT = "tiny", "f" * 64


def arm_of(number: int) -> Arm:
    """The arm that decision ``number`` chose."""
    return Arm(profile=SUBJECT, drafter=Drafter.MTP, depth=1 + number % 3)


def engine_of(number: int) -> EngineId:
    """The engine that was intended after decision ``number``."""
    return EngineId(f"engine-{number}")


async def main() -> None:
    """Write and acknowledge, for ever."""
    clock = SystemClock()
    async with await Database.open(Path(sys.argv[1]), clock) as db:
        journal, measurements = Journal(db=db, clock=clock), Measurements(db=db, clock=clock)
        ledger = Ledger(db=db, clock=clock, boot_id="b")
        latest = await journal.latest_choice(SUBJECT)
        number = 0 if latest is None else latest.id
        while True:
            number += 1
            measured = replace(observation(), arm=arm_of(number), fingerprint=FINGERPRINT)
            cell = await measurements.add(measured, acceptance_source="metrics")
            chosen = Decision(act=Act.CHOOSE, subject=SUBJECT, arm=arm_of(number), reason="faster")
            view = await journal.append(chosen, measurement_ids=(cell,))
            assert view.id == number
            await ledger.intend(
                engine_of(number),
                profile=SUBJECT,
                device=HOST,
                arm=arm_of(number),
                argv_digest="0" * 64,
                endpoint=UnixEndpoint("/run/x.sock"),
                fingerprint=FINGERPRINT,
            )
            sys.stdout.write(f"ack {number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
