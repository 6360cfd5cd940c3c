"""What the latest choice took, from what the journal holds of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mtpd.control.spent import spent_on
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping


def history(starts: int, spent_s: float) -> dict[str, Any]:
    return {"starts": [{"start_id": str(one)} for one in range(starts)], "spent_s": spent_s}


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"method": "model-based", "history": history(3, 12.5)}, (3, 12.5)),
        (
            {
                "method": "sweep",
                "members": [{"history": history(2, 1)}, {"history": history(4, 2)}],
            },
            (6, 3.0),
        ),
        ({"method": "stored", "members": [{"history": history(2, 1)}]}, (0, 0.0)),
        ({"method": "sweep", "members": [{"history": history(2, 1)}, {}]}, None),
        ({}, None),
    ],
)
def test_starts_and_seconds_are_those_of_its_measurements(
    inputs: Mapping[str, Any], told: tuple[int, float] | None
) -> None:
    assert spent_on(inputs) == told


@pytest.mark.slow
async def test_the_status_tells_what_the_latest_choice_took() -> None:
    async with home(Script()) as place, daemon_at(place) as (running, _):
        assert (await running.control.status()).spent is None
        asked = await running.control.tune(
            subject="both",
            method="sweep",
            depths=(0, 1),
            workloads=None,
            prompts=1,
            repetitions=1,
            max_tokens=16,
            apply=True,
            idempotency_key=None,
        )
        assert (await run_operation(running, asked)).state == "done"
        status = await running.control.status()
        chosen = {one.subject: one for one in status.choices}
        assert status.spent is not None
        assert status.spent.subject == "both"
        assert status.spent.decision_id == chosen["both"].decision_id
        taken = await running.control.measurements(
            model=None, depth=None, workload=None, operation_id=asked.id, ids=None, limit=1000
        )
        starts = {one.start_id for one in taken}
        assert status.spent.starts >= len(starts) > 1
        assert status.spent.seconds > 0
        assert status.spent == (await running.control.status()).spent
