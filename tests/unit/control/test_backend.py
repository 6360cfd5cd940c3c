"""How the control API finds what it is asked for, on a whole daemon over a scripted engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.errors import InvalidError, NotFoundError, UnknownNameError
from tests.fakes.house import daemon_at, home, run_operation

if TYPE_CHECKING:
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow


async def test_decisions_are_found_by_number_name_and_alias() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        control = running.control
        ordered = await control.switch(model="first", depth=1, force=False, idempotency_key=None)
        assert (await run_operation(running, ordered)).state == "done"
        (needs,) = (await control.status()).memory
        assert (needs.arm.depth, needs.memory.verdict) == (1, "not_applicable")
        assert needs.memory.predicted is not None
        (decision,) = await control.decisions(subject="alpha", limit=9)
        assert await control.decisions(subject="first", limit=9) == (decision,)
        assert await control.decisions(subject=None, limit=9) == (decision,)
        assert await control.decisions(subject="beta", limit=9) == ()
        with pytest.raises(UnknownNameError, match=r"did you mean .alpha.") as no:
            await control.decisions(subject="alphq", limit=9)
        assert no.value.hint is not None
        assert "beta" in no.value.hint
        for number, subject in (
            (decision.id, None),
            (None, "alpha"),
            (None, "first"),
            (None, None),
        ):
            explained = await control.explain(number, subject)
            assert explained.decision == decision
            assert explained.chain == (
                "no measurement: an operator or the configuration named this",
                "an operator asked for alpha at depth 1",
                "then: ready, host",
            )
        with pytest.raises(InvalidError, match="alpha has no measured choice to go back to"):
            await control.switch(
                model="first", depth=None, force=False, measured=True, idempotency_key=None
            )


async def test_after_a_switch_to_a_depth_the_measured_choice_is_known_and_comes_back() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        control = running.control
        operation = await control.tune(
            subject="alpha",
            method="sweep",
            depths=(0, 2),
            workloads=None,
            prompts=1,
            repetitions=1,
            max_tokens=16,
            apply=True,
            idempotency_key=None,
        )
        assert (await run_operation(running, operation)).state == "done"
        (tuned,) = await control.decisions(subject="alpha", limit=1)
        assert tuned.arm is not None
        await run_operation(
            running,
            await control.switch(model="first", depth=1, force=False, idempotency_key=None),
        )
        pinned = next(c for c in (await control.status()).choices if c.subject == "alpha")
        (ordered,) = await control.decisions(subject="alpha", limit=1)
        back = await run_operation(
            running,
            await control.switch(
                model="first", depth=None, force=False, measured=True, idempotency_key=None
            ),
        )
        now = next(c for c in (await control.status()).choices if c.subject == "alpha")
    assert (pinned.pinned, pinned.arm.depth, pinned.measured_arm) == (True, 1, tuned.arm)
    assert ordered.reason == (
        f"an operator asked for alpha at depth 1; measured choice: depth {tuned.arm.depth}"
    )
    assert back.state == "done"
    assert (now.pinned, now.measured, now.arm, now.decision_id) == (
        False,
        True,
        tuned.arm,
        tuned.id,
    )


async def test_what_is_not_there_is_refused_and_the_rest_is_shown() -> None:
    async with home() as place:
        _lose_the_file_of_beta(place)
        async with daemon_at(place) as (running, _):
            control = running.control
            with pytest.raises(NotFoundError, match=r"^there is no decision yet$") as none:
                await control.explain(None, None)
            with pytest.raises(
                NotFoundError, match=r"^there is no decision about 'alpha' yet$"
            ) as of:
                await control.explain(None, "alpha")
            with pytest.raises(UnknownNameError, match=r"^there is no model or pool 'beta-x'"):
                await control.explain(None, "beta-x")
            with pytest.raises(NotFoundError, match=r"^there is no decision 7$") as seventh:
                await control.explain(7, None)
            assert [one.value.hint for one in (none, of, seventh)] == [
                "mtpctl tune MODEL measures and takes one",
                "mtpctl tune alpha measures and takes one",
                "mtpctl decisions lists them",
            ]
            assert await control.decision(7) is None
            assert await control.operation("nobody") is None
            assert await control.model("nobody") is None
            with pytest.raises(NotFoundError, match="no model named 'alhpa'"):
                await control.measurements(
                    model="alhpa", depth=None, workload=None, operation_id=None, ids=None, limit=1
                )
            sizes = {
                model.id: [one.predicted is not None for one in model.memory.depths]
                for model in await control.models()
            }
            assert sizes == {"alpha": [True] * 4, "beta": [False] * 4}
            with pytest.raises(NotFoundError, match="no workload named 'prosa'") as wrong:
                await control.measurements(
                    model=None, depth=None, workload="prosa", operation_id=None, ids=None, limit=1
                )
            assert wrong.value.hint == "did you mean prose?"
            nothing = await control.measurements(
                model=None, depth=None, workload="prose", operation_id=None, ids=None, limit=1
            )
            assert nothing == ()
            status = await control.status()
            assert running.url == f"http://{status.listen}"
            assert [choice.subject for choice in status.choices] == ["both", "alpha", "beta"]
            assert status.last_decision is None
            gone = place.root / "gone.gguf"
            assert status.unusable == (f"beta: {gone} does not exist",)
            states = {model.id: model.state for model in await control.models()}
            assert (states["alpha"], states["beta"]) == ("stopped", "unavailable")
            operation = await control.load(model="beta", idempotency_key=None)
            ended = await run_operation(running, operation)
    assert ended.state == "failed"
    assert ended.error is not None
    assert "gone.gguf: No such file or directory" in str(ended.error["detail"])


def _lose_the_file_of_beta(place: Home) -> None:
    head, _, tail = place.config.read_text().partition("[models.beta]")
    path = place.root / "gone.gguf"
    lines = [f'model = "{path}"' if x.startswith("model =") else x for x in tail.splitlines()]
    place.config.write_text("\n".join([f"{head}[models.beta]", *lines]))


async def test_a_report_names_the_stored_repetitions_behind_its_numbers() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        control = running.control
        before = await control.report(None)
        assert {row.model for row in before.matrix} >= {"alpha", "beta"}
        assert all(row.decode_tps is None and row.unknown for row in before.matrix)
        operation = await control.tune(
            subject="alpha",
            method="sweep",
            depths=(0, 2),
            workloads=None,
            prompts=1,
            repetitions=1,
            max_tokens=16,
            apply=True,
            idempotency_key=None,
        )
        assert (await run_operation(running, operation)).state == "done"
        found = await control.report("first")
        assert found.subject == "first"
        (row,) = found.matrix
        assert (row.model, row.measured) == ("alpha", True)
        assert row.decode_tps is not None
        assert (found.pairs, found.recommendations) == ((), ())
        (model,) = found.models
        assert [one.row.arm.depth for one in model.depths] == [0, 2]
        (decision,) = await control.decisions(subject="alpha", limit=1)
        assert model.economics.decision_id == decision.id
        ids = {number for one in model.depths for number in one.measurement_ids}
        assert ids == set(decision.measurement_ids)
        for one in model.depths:
            cells = await control.measurements(
                model=None,
                depth=None,
                workload=None,
                operation_id=None,
                ids=one.measurement_ids,
                limit=99,
            )
            assert {cell.arm for cell in cells} == {one.row.arm}
            assert len(cells) == one.row.repetitions
        assert [choice.subject for choice in found.choices] == ["alpha"]
        with pytest.raises(UnknownNameError):
            await control.report("nobody")
