"""Limits within which nothing could be measured are refused before anything is stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.control.beforehand import need_cells, need_energy
from mtpd.control.limits import Limits
from mtpd.errors import InvalidError
from tests.fakes.devices import card, field
from tests.fakes.house import daemon_at, home
from tuner.design import WorkloadPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.gpu.views import DeviceView

WORKLOADS = (WorkloadPlan(name="a", prompts=3), WorkloadPlan(name="b", prompts=2))
JOULES = Limits(max_joules=1.0)


def test_a_limit_in_cells_must_hold_one_depth() -> None:
    need_cells(Limits(), WORKLOADS)
    need_cells(Limits(max_cells=5), WORKLOADS)
    with pytest.raises(
        InvalidError, match="limit of 4 cells measures nothing: one depth has 5"
    ) as error:
        need_cells(Limits(max_cells=4), WORKLOADS)
    assert error.value.hint is not None
    assert error.value.hint.startswith("allow 5 cells or more")


def meters(**values: float | str | None) -> Sequence[DeviceView]:
    """A card whose fields have a value, or a reason why not."""
    fields = tuple(
        field(name, None, "", reason=value) if isinstance(value, str) else field(name, value, "")
        for name, value in values.items()
    )
    return [replace(card(), fields=fields)]


def test_a_limit_in_joules_needs_energy_or_power() -> None:
    need_energy(JOULES, meters(energy_j="no counter", power_w=90.0))
    need_energy(JOULES, meters(energy_j=7.0, power_w="no sensor"))
    need_energy(JOULES, meters(energy_j="x", power_w="the card is asleep; reading would wake it"))
    need_energy(Limits(max_cells=1), meters(energy_j="x", power_w="y"))
    said = "cannot be read \\(no sensor\\)"
    with pytest.raises(InvalidError, match=said):
        need_energy(JOULES, meters(edge_c=40.0, power_w="no sensor"))
    with pytest.raises(InvalidError, match="there is no card"):
        need_energy(JOULES, [])


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"max_joules": 5.0}, {"max_cells": 1}])
async def test_what_cannot_be_kept_starts_no_operation(limit: dict[str, float]) -> None:
    async with home() as place, daemon_at(place) as (running, _):
        with pytest.raises(InvalidError, match=r"joules cannot be kept|measures nothing"):
            await running.control.tune(
                subject="alpha",
                method="sweep",
                depths=None,
                workloads=None,
                prompts=None,
                repetitions=None,
                max_tokens=None,
                apply=True,
                idempotency_key=None,
                max_cells=int(limit["max_cells"]) if "max_cells" in limit else None,
                max_joules=limit.get("max_joules"),
            )
        assert await running.control.operations(9) == ()
