"""The daemon as a whole over a scripted engine whose true speeds are known."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.clock import SystemClock
from mtpd.config.data import bundled_model
from mtpd.control.deciding import decide
from mtpd.control.recorded import decode_inputs
from mtpd.errors import InvalidError, NotFoundError, StateError
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.samples import Measurements
from mtpd.types import Absent
from tests.fakes.binary import fake_binary
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.app import Daemon
    from mtpd.views import DecisionView

CHEAP_ROWS = Script(acceptance=(0.9, 0.85, 0.5), row_cost=0.1, tps0=50.0)
"""E/cost is 1.73, 2.22, 2.33 at depths 1 to 3: depth 3 is truly the fastest."""
STUDY_ROWS = Script(acceptance=(0.93, 0.74, 0.5), row_cost=0.41, tps0=32.4)
"""Study 000, 3.8 base B2: 1.37, 1.44, 1.33; depth 2 is truly the fastest."""
COSTLY_ROWS = Script(acceptance=(0.9, 0.8, 0.7), row_cost=1.2, tps0=50.0)
"""A verification row costs more than a step: depth 0 is truly the fastest."""


async def tune(running: Daemon, subject: str, **changed: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "subject": subject,
        "method": "sweep",
        "depths": None,
        "workloads": None,
        "prompts": 2,
        "repetitions": 1,
        "max_tokens": 384,
        "apply": True,
        "idempotency_key": None,
    }
    operation = await run_operation(running, await running.control.tune(**{**asked, **changed}))
    assert operation.state == "done", operation.error
    assert operation.result is not None
    return operation.result


def arm(decision: DecisionView | None) -> tuple[str, int]:
    assert decision is not None
    assert decision.arm is not None
    return decision.arm.profile, decision.arm.depth


@pytest.mark.parametrize(
    ("script", "best"),
    [(CHEAP_ROWS, 3), (STUDY_ROWS, 2), (COSTLY_ROWS, 0)],
    ids=["cheap rows", "study 000", "costly rows"],
)
@pytest.mark.parametrize("method", ["sweep", "model-based"])
async def test_the_truly_fastest_depth_is_chosen_and_served(
    script: Script, best: int, method: str
) -> None:
    async with home(script) as place, daemon_at(place) as (running, client):
        await tune(running, "alpha", method=method)
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert arm(decision) == ("alpha", best)
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.headers["X-Mtpd-Depth"] == str(best)


async def test_a_choice_is_void_once_its_model_file_was_replaced(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(bundled_model("tiny-chained.gguf"), model)
    async with home() as place:
        binary = fake_binary(place.root / "llama-server", CHEAP_ROWS)
        write_config(place, binary=str(binary), model=model)
        async with daemon_at(place) as (running, client):
            await tune(running, "alpha")
            choice = (await running.control.status()).choices[1]
            assert (choice.arm.depth, choice.measured) == (3, True)
            os.utime(model, ns=(1, 1))
            choice = (await running.control.status()).choices[1]
            assert (choice.arm.depth, choice.measured) == (0, False)
            assert choice.reason.startswith("its file has changed since it was measured: ")
            loaded = await running.control.load(model="alpha", idempotency_key=None)
            assert (await run_operation(running, loaded)).state == "done"
            async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
                assert reply.headers["X-Mtpd-Depth"] == "0"


async def test_the_choice_follows_from_the_stored_cells() -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, _):
            await tune(running, "alpha")
            (decision,) = await running.control.decisions(subject="alpha", limit=1)
            explained = await running.control.explain(decision.id, None)
        clock = SystemClock()
        async with await Database.open(place.directories.state / "mtpd.sqlite3", clock) as db:
            stored = await Measurements(db=db, clock=clock).observations()
            recorded = await Journal(db=db, clock=clock).inputs(decision.id)
    assert recorded is not None
    inputs = decode_inputs(recorded[1], stored)
    assert not isinstance(inputs, Absent)
    assert decide(inputs).reason == decision.reason == explained.chain[-1]
    assert [m.id for m in explained.measurements] == list(decision.measurement_ids)
    assert len(explained.measurements) == len(stored)


async def test_an_evicted_depth_is_rejected_as_not_fitting_and_never_served() -> None:
    script = Script(acceptance=(0.9, 0.9, 0.9), row_cost=0.05, device=Device(), evict_at_depth=3)
    async with home(script) as place, daemon_at(place) as (running, _):
        await tune(running, "alpha")
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert arm(decision) == ("alpha", 2)
        assert "does not fit" in decision.reason
        assert "does not pay" not in decision.reason


async def test_the_pool_serves_the_model_that_the_measurements_chose() -> None:
    slow = {"acceptance": [0.9, 0.5, 0.3]}
    script = Script(acceptance=(0.95, 0.92, 0.9), row_cost=0.2, models={"slow": slow}, tps0=50.0)
    async with home(script) as place:
        other = place.root / "slow.gguf"
        shutil.copy(bundled_model("tiny-unchained.gguf"), other)
        text = place.config.read_text()
        head, _, tail = text.partition("[models.beta]")
        tail = tail.replace(str(bundled_model("tiny-chained.gguf")), str(other), 1)
        place.config.write_text(f"{head}[models.beta]{tail}")
        async with daemon_at(place) as (running, client):
            await tune(running, "both")
            (decision,) = await running.control.decisions(subject="both", limit=1)
            assert arm(decision)[0] == "alpha"
            async with client.post("/completion", json={"model": "both", "prompt": "x"}) as reply:
                assert reply.headers["X-Mtpd-Profile"] == "alpha"


async def test_a_choice_survives_a_restart_and_dies_with_its_model_file(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copy(bundled_model("tiny-chained.gguf"), model)
    async with home(STUDY_ROWS) as place:
        binary = place.root / "llama-server"
        write_config(place, binary=str(binary), model=model)
        async with daemon_at(place) as (running, _):
            await tune(running, "alpha")
        async with daemon_at(place) as (running, _):
            kept = await running.control.model("alpha")
            assert kept is not None
            assert kept.choice is not None
            assert (kept.choice.arm.depth, kept.choice.measured) == (2, True)
        os.utime(model, ns=(1, 1))
        async with daemon_at(place) as (running, _):
            void = await running.control.model("alpha")
            assert void is not None
            assert void.choice is not None
            assert (void.choice.arm.depth, void.choice.measured) == (0, False)
            assert "not measured" in void.choice.reason


async def test_a_choice_dies_with_its_engine() -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, _):
            await tune(running, "alpha")
        fake_binary(place.root / "llama-server", Script(row_cost=0.9))
        async with daemon_at(place) as (running, _):
            void = await running.control.model("alpha")
            assert void is not None
            assert void.choice is not None
            assert not void.choice.measured
            assert void.depths == ()


async def test_a_sweep_that_is_not_applied_changes_nothing_that_is_served() -> None:
    async with home(STUDY_ROWS) as place:
        async with daemon_at(place) as (running, client):
            async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
                assert reply.headers["X-Mtpd-Depth"] == "0"
            result = await tune(running, "alpha", apply=False)
            assert len(result["depths"]) == 4
            async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
                assert reply.headers["X-Mtpd-Depth"] == "0"
        async with daemon_at(place) as (running, _):
            model = await running.control.model("alpha")
            assert model is not None
            assert model.choice is not None
            assert not model.choice.measured


async def test_an_operators_depth_is_served_until_the_next_tuning() -> None:
    async with home(STUDY_ROWS) as place, daemon_at(place) as (running, client):
        ordered = await running.control.switch(
            model="first", depth=1, force=False, idempotency_key=None
        )
        assert (await run_operation(running, ordered)).state == "done"
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.headers["X-Mtpd-Depth"] == "1"
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert decision.act == "switch"
        assert decision.outcome == "ready, host"
        await tune(running, "alpha")
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.headers["X-Mtpd-Depth"] == "2"


async def test_a_probe_says_whether_depth_two_pays() -> None:
    async with home(STUDY_ROWS) as place, daemon_at(place) as (running, _):
        operation = await running.control.probe(model="alpha", depth=2, idempotency_key=None)
        ended = await run_operation(running, operation)
        assert ended.state == "done"
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert decision.act == "measure"
        assert decision.reason.startswith("depth 2 pays: ")
        assert "alpha2" in decision.reason


@pytest.mark.parametrize(
    ("missing", "source"), [("no_spec_metrics", "timings"), ("no_per_pos_metrics", "metrics")]
)
async def test_a_build_without_counters_by_position_gets_them_from_its_log(
    missing: str, source: str
) -> None:
    script = Script(acceptance=(0.9, 0.8), row_cost=0.2, **{missing: True})  # type: ignore[arg-type]  # a knob by name
    async with home(script) as place, daemon_at(place) as (running, _):
        result = await tune(running, "alpha", depths=(2,), workloads=("short", "prose"))
        (two,) = result["depths"]
        first, second = (a["alpha"] for a in two["acceptance"])
        assert first["low"] < 0.9 < first["high"]
        assert second["low"] < 0.8 < second["high"]
        (taken,) = await running.control.measurements(
            model="alpha", depth=2, workload=None, operation_id=None, ids=None, limit=1
        )
        assert taken.acceptance_source == source
        assert taken.accepted_per_position is not None
        assert taken.accepted == sum(taken.accepted_per_position)


async def test_an_arm_that_dies_is_reported_and_the_others_are_still_measured() -> None:
    script = Script(acceptance=(0.9, 0.8), row_cost=0.2, models={})
    async with home(script) as place:
        path = fake_binary(place.root / "llama-server", script)
        text = path.read_text()
        path.write_text(
            text.replace(
                "exec ", 'case "$*" in *"n-max 2"*) echo boom >&2; exit 3;; esac\nexec ', 1
            )
        )
        async with daemon_at(place) as (running, _):
            result = await tune(running, "alpha", depths=(0, 1, 2))
            rows = {row["arm"]["depth"]: row for row in result["depths"]}
            assert rows[2]["decode_tps"] is None
            assert rows[2]["note"]
            assert rows[1]["decode_tps"] is not None


async def test_two_daemons_cannot_share_a_state_directory() -> None:
    async with home() as place, daemon_at(place):
        with pytest.raises(StateError, match="in use by another mtpd"):
            async with daemon_at(place):
                pass


async def test_what_does_not_exist_is_refused_with_what_is_close() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        with pytest.raises(NotFoundError) as wrong:
            await running.control.switch(
                model="alhpa", depth=None, force=False, idempotency_key=None
            )
        assert wrong.value.hint == "did you mean alpha?"
        with pytest.raises(InvalidError, match="allows depths 0 to 3, not 9"):
            await running.control.switch(model="alpha", depth=9, force=False, idempotency_key=None)
        async with client.post("/completion", json={"model": "alhpa", "prompt": "x"}) as reply:
            assert reply.status == 404


async def test_a_switch_says_how_much_of_the_prompts_went_with_the_engine() -> None:
    async with home(STUDY_ROWS) as place, daemon_at(place) as (running, client):
        said = []
        for depth, tokens in ((1, 40), (2, 0), (1, 0)):
            ordered = await running.control.switch(
                model="first", depth=depth, force=False, idempotency_key=None
            )
            ended = await run_operation(running, ordered)
            assert ended.result is not None
            said.append(ended.result["prompt_cache"])
            if tokens:
                body = {"model": "alpha", "prompt": "x", "n_predict": tokens}
                async with client.post("/completion", json=body) as reply:
                    assert reply.status == 200
                    await reply.read()
        assert said[0] is None
        told = [re.fullmatch(r"prompt cache lost: (\d+) tokens", str(one)) for one in said[1:]]
        spoken, proof = (0 if one is None else int(one[1]) for one in told)
        assert spoken > 40 > proof > 0
        (last, before, _) = await running.control.decisions(subject="alpha", limit=3)
        assert (before.outcome, last.outcome) == (
            f"ready, host, {said[1]}",
            f"ready, host, {said[2]}",
        )


async def test_requests_wait_while_a_calibration_holds_the_device() -> None:
    async with (
        home(Script(realtime=True, tps0=400.0)) as place,
        daemon_at(place) as (
            running,
            client,
        ),
    ):
        operation = await running.control.tune(
            subject="alpha",
            method="sweep",
            depths=(0, 1),
            workloads=("short",),
            prompts=1,
            repetitions=1,
            max_tokens=64,
            apply=True,
            idempotency_key=None,
        )
        with anyio.fail_after(10):
            while (current := running.operations.current) is None or not current.progress.done:  # noqa: ASYNC110 - a progress is not an event
                await anyio.sleep(0.01)
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.status == 200
            await reply.read()
        ended = await running.control.operation(operation.id)
        assert ended is not None
        assert ended.state == "done"


async def test_a_pool_member_that_cannot_be_measured_does_not_keep_the_others_from_it() -> None:
    async with home(STUDY_ROWS) as place:
        missing = place.root / "missing.gguf"
        text = place.config.read_text()
        head, _, tail = text.partition("[models.beta]")
        model = str(bundled_model("tiny-chained.gguf"))
        place.config.write_text(f"{head}[models.beta]{tail.replace(model, str(missing), 1)}")
        async with daemon_at(place) as (running, _):
            result = await tune(running, "both", depths=(0, 1), workloads=("short",))
            subjects = [(d["subject"], d["act"]) for d in result["decisions"]]
            assert subjects == [("alpha", "choose"), ("beta", "reject"), ("both", "choose")]
            rejected = result["decisions"][1]
            assert "missing.gguf" in rejected["reason"]
            assert result["decisions"][2]["arm"]["profile"] == "alpha"


CARD = Device()


async def test_a_depth_that_evicts_is_refused_before_any_request_and_what_served_comes_back() -> (
    None
):
    script = Script(device=CARD, evict_at_depth=2)
    async with home(script) as place, daemon_at(place) as (running, client):
        ordered = await running.control.switch(
            model="alpha", depth=1, force=False, idempotency_key=None
        )
        assert (await run_operation(running, ordered)).state == "done"
        ordered = await running.control.switch(
            model="alpha", depth=2, force=False, idempotency_key=None
        )
        ended = await run_operation(running, ordered)
        assert ended.state == "failed"
        assert ended.error is not None
        assert str(ended.error["detail"]).startswith("alpha@2 does not fit: ")
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert (reply.status, reply.headers["X-Mtpd-Depth"]) == (200, "1")
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert decision.outcome is not None
        assert decision.outcome.startswith("failed: alpha@2 does not fit")


async def test_an_operator_who_insists_gets_the_evicted_depth_and_sees_its_verdict() -> None:
    script = Script(device=CARD, evict_at_depth=2)
    async with home(script) as place, daemon_at(place) as (running, client):
        ordered = await running.control.switch(
            model="alpha", depth=2, force=True, idempotency_key=None
        )
        assert (await run_operation(running, ordered)).state == "done"
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.headers["X-Mtpd-Depth"] == "2"
        (engine,) = (await running.control.status()).engines
        assert engine.residency.state == "evicted"
        assert engine.residency.evidence


@pytest.mark.parametrize(("setting", "status"), [("", 503), ('offload = "accept"', 200)])
async def test_a_model_that_does_not_fit_is_served_only_where_its_profile_accepts_that(
    setting: str, status: int
) -> None:
    script = Script(device=CARD, evict_at_depth=0)
    async with home(script, alpha=setting) as place, daemon_at(place) as (_, client):
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.status == status
            text = await reply.text()
        assert ("does not fit" in text) == (status == 503)


async def test_models_to_preload_are_loaded_once_it_serves_and_reported() -> None:
    async with home() as place:
        text = place.config.read_text().replace("[server]", '[server]\npreload = ["first"]')
        place.config.write_text(text)
        async with daemon_at(place) as (running, _):
            with anyio.fail_after(30):
                while not await _loaded(running):  # noqa: ASYNC110 - rows tell nobody
                    await anyio.sleep(0.01)
            (decision,) = await running.control.decisions(subject="alpha", limit=1)
            assert (decision.act, decision.outcome) == ("load", "loaded")


async def _loaded(running: Daemon) -> bool:
    decisions = await running.control.decisions(subject="alpha", limit=1)
    return any(one.outcome for one in decisions)
