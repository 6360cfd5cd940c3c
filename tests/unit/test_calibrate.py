"""Cells on a held device: what is sent, what is told, and what ends a calibration."""

from __future__ import annotations

import hashlib
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from mtpd.calibrate import Sampling, Started
from mtpd.engine.acceptance import Source
from mtpd.engine.client import EngineClient
from mtpd.engine.heard import RequestFacts
from mtpd.errors import CalibrationError
from mtpd.types import GateResult, UnixEndpoint, Verdict
from tests.fakes.script import Script
from tests.unit.calibrating import SHORT, Told
from tests.unit.control.held import scripted
from tests.unit.control.made import arm
from tests.unit.engine import recorded
from tuner.design import Sweep, WorkloadPlan
from tuner.power import Energy
from tuner.types import Budget, Evicted, Host, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.control.held import Asked
    from tuner.types import Arm

SHUT = GateResult(passed=False, reason="the edge is at 71 °C, above 44 °C")


class Replays:
    """A hold whose engine answers with recorded replies and metrics texts, in order."""

    def __init__(self, client: EngineClient, which: Arm) -> None:
        self._client, self._arm = client, which

    async def start(self, which: Arm) -> Started:
        assert which == self._arm
        return Started(
            client=self._client,
            verdict=Verdict(residency=Host()),
            start_id="recorded",
            fingerprint="f",
            heard=RequestFacts(),
        )


@asynccontextmanager
async def replaying(
    folder: Path, which: Arm, *, reply: str, metrics: tuple[str, ...]
) -> AsyncIterator[Replays]:
    left = list(metrics)

    async def post(_request: web.Request) -> web.Response:
        return web.json_response(json.loads(recorded.text(f"logs/{reply}.json")))

    async def get(_request: web.Request) -> web.Response:
        return web.Response(text=recorded.text(f"logs/{left.pop(0)}.txt"))

    app = web.Application()
    app.router.add_post("/completion", post)
    app.router.add_post("/v1/chat/completions", post)
    app.router.add_get("/metrics", get)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "e.sock")).start()
        async with EngineClient(UnixEndpoint(str(folder / "e.sock"))) as client:
            yield Replays(client, which)
    finally:
        await runner.cleanup()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("build", ["b10434", "b11434"])
async def test_a_recorded_reply_and_its_counters_become_one_observation(
    tmp_path: Path, build: str
) -> None:
    told, which = Told(), arm(depth=2)
    metrics = (f"{build}_metrics_before_first_request_n2", f"{build}_metrics_n2")
    async with replaying(tmp_path, which, reply=f"{build}_completion_n2", metrics=metrics) as hold:
        history = await told.run(
            hold, which, plans=(WorkloadPlan(name="short", prompts=1),), repetitions=1
        )
    (one,) = history.observations
    reply = json.loads(recorded.text(f"logs/{build}_completion_n2.json"))
    assert (one.tokens, one.decode_s) == (24, reply["timings"]["predicted_ms"] / 1000)
    assert (one.steps, one.drafted, one.accepted, one.accepted_per_position) == (
        137,
        269,
        21,
        (21, 0),
    )
    assert one.digest == digest(reply["content"])
    (stored,) = told.repetitions
    assert (stored.observation, stored.source) == (one, Source.METRICS)


async def test_a_recorded_chat_is_digested_with_its_reasoning(tmp_path: Path) -> None:
    told, which = Told(), arm()
    metrics = ("b10434_metrics_n0", "b10434_metrics_n0")
    async with replaying(tmp_path, which, reply="b10434_chat_n2", metrics=metrics) as hold:
        history = await told.run(
            hold, which, plans=(WorkloadPlan(name="short", prompts=1),), repetitions=1
        )
    message = json.loads(recorded.text("logs/b10434_chat_n2.json"))["choices"][0]["message"]
    text = (message.get("reasoning_content") or "") + (message["content"] or "")
    assert text
    assert history.observations[0].digest == digest(text)


async def test_an_engine_without_counters_leaves_the_reply_to_answer(tmp_path: Path) -> None:
    told = Told()
    script = Script(acceptance=(0.9, 0.8), no_spec_metrics=True)
    async with scripted(tmp_path, script=script) as device:
        history = await told.run(device, arm(depth=2))
    assert {one.source for one in told.repetitions} == {Source.TIMINGS}
    for one in history.observations:
        assert one.accepted_per_position is None
        assert one.accepted is not None


async def test_every_start_is_warmed_up_at_its_own_depth_and_that_is_not_counted(
    tmp_path: Path,
) -> None:
    told = Told()
    async with scripted(tmp_path) as device:
        history = await told.run(device, arm(), arm(depth=2))
    assert device.starts == [arm(), arm(depth=2)]
    assert [asked.body["max_tokens"] for asked in device.asked] == [16, 12, 12, 12, 12] * 2
    assert [asked.arm.depth for asked in device.asked] == [0] * 5 + [2] * 5
    for one in history.observations:
        assert one.accepted is not None
        decoded = one.tokens - 1 - one.accepted
        # The last step of a reply may have nothing to draft; a warm-up in it would add more.
        assert one.steps == 0 if one.arm.depth == 0 else one.steps in {decoded, decoded - 1}


async def test_every_cell_is_asked_alike_except_for_its_prompt(tmp_path: Path) -> None:
    told = Told()
    plans = (*SHORT, WorkloadPlan(name="prose", prompts=1))
    async with scripted(tmp_path) as device:
        await told.run(device, arm(), plans=plans, sampling=Sampling(seed=7))
    sent = [asked.body for asked in device.asked[1:]]
    assert {(b["seed"], b["temperature"], b["cache_prompt"], b["stream"]) for b in sent} == {
        (7, 0.0, False, False)
    }
    # The workload's own number where none is given, under both names that engines know.
    assert {(b["max_tokens"], b["n_predict"]) for b in sent} == {(32, 32)}
    assert [asked.path for asked in device.asked[1:]] == [
        *["/v1/chat/completions"] * 2,
        *["/completion"] * 2,
        *["/v1/chat/completions"] * 2,
    ]
    assert sent[0]["messages"] == [{"role": "user", "content": "Say what a list is."}]
    assert sent[2]["prompt"] == "def main() -> None:"


async def test_the_text_of_a_prompt_is_the_same_at_every_depth_and_repetition(
    tmp_path: Path,
) -> None:
    told = Told()
    async with scripted(tmp_path) as device:
        history = await told.run(device, arm(), arm(depth=1), arm(depth=2))
    assert len(history.observations) == 12
    for prompt in range(2):
        found = {o.digest for o in history.observations if o.prompt == prompt}
        assert len(found) == 1
    assert {r.prompt_digest for r in told.repetitions} == {
        digest("def main() -> None:"),
        told.repetitions[0].prompt_digest,
    }


async def test_what_was_measured_is_stored_before_it_is_told(tmp_path: Path) -> None:
    told = Told()
    async with scripted(tmp_path) as device:
        history = await told.run(device, arm(), arm(depth=1))
    assert [r.observation for r in told.repetitions] == list(history.observations)
    assert [s.start_id for s in history.starts] == ["engine-1", "engine-2"]
    assert {o.start_id for o in history.observations} == {"engine-1", "engine-2"}
    assert {o.fingerprint for o in history.observations} == {"fingerprint-of-tiny"}
    assert history.spent_s == 8.0
    assert told.progress[0] == (0, "starting tiny@0")
    assert told.progress[4:6] == [(4, "tiny@0 short prompt 2 run 2"), (4, "starting tiny@1")]
    assert told.progress[-1][0] == 8


async def test_an_arm_that_does_not_start_is_told_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    told = Told()

    def broken(which: Arm, _start: int) -> str | None:
        return "the engine was killed by SIGILL" if which.depth == 1 else None

    async with scripted(tmp_path, broken=broken) as device:
        history = await told.run(device, arm(), arm(depth=1), arm(depth=2))
    assert [which.depth for which in device.starts] == [0, 1, 1, 2]
    assert {o.arm.depth for o in history.observations} == {0, 2}
    failed = [start for start in history.starts if start.failure]
    assert [start.failure for start in failed] == ["the engine was killed by SIGILL"] * 2
    assert failed[0].residency == Unknown("the engine did not become ready")
    assert len({start.start_id for start in history.starts}) == 4


async def test_an_arm_that_dies_in_mid_cell_costs_one_start_and_is_tried_once_more(
    tmp_path: Path,
) -> None:
    told = Told()

    def trouble(asked: Asked) -> str | None:
        return "die" if (asked.arm.depth, asked.start, asked.number) == (1, 1, 4) else None

    async with scripted(tmp_path, trouble=trouble) as device:
        with capture_logs() as lines:
            history = await told.run(device, arm(), arm(depth=1), arm(depth=2))
    assert [which.depth for which in device.starts] == [0, 1, 1, 2]
    # Two repetitions before it died, the other two after the second start; none twice.
    assert len(history.observations) == len(told.repetitions) == 12
    assert [start.arm.depth for start in history.starts] == [0, 1, 1, 2]
    assert [bool(start.failure) for start in history.starts] == [False, True, False, False]
    assert history.starts[1].residency == Host()
    assert [line["event"] for line in lines].count("calibration.arm_failed") == 1


async def test_an_arm_that_dies_every_time_is_given_up_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    told = Told()

    def trouble(asked: Asked) -> str | None:
        return "die" if asked.arm.depth == 1 and asked.number == 3 else None

    async with scripted(tmp_path, trouble=trouble) as device:
        history = await told.run(device, arm(), arm(depth=1), arm(depth=2))
    assert [which.depth for which in device.starts] == [0, 1, 1, 2]
    assert [o.arm.depth for o in history.observations].count(1) == 2
    assert [o.arm.depth for o in history.observations].count(2) == 4


async def test_an_evicted_arm_that_dies_keeps_its_verdict(tmp_path: Path) -> None:
    told = Told()

    def trouble(asked: Asked) -> str | None:
        return "die" if asked.arm.depth == 2 else None

    async with scripted(
        tmp_path,
        trouble=trouble,
        residency=lambda which: Evicted(layers=1) if which.depth == 2 else Host(),
    ) as device:
        history = await told.run(device, arm(), arm(depth=2), arm(depth=3))
    assert [start.residency for start in history.starts] == [Host(), Evicted(layers=1)]
    assert [which.depth for which in device.starts] == [0, 2]


async def test_an_engine_that_lives_but_never_answers_properly_is_not_asked_for_ever(
    tmp_path: Path,
) -> None:
    told = Told()

    def trouble(asked: Asked) -> str | None:
        return "mute" if asked.arm.depth == 1 and asked.number > 1 else None

    async with scripted(tmp_path, trouble=trouble) as device:
        history = await told.run(device, arm(), arm(depth=1), arm(depth=2))
    assert {o.arm.depth for o in history.observations} == {0, 2}
    failed = [start for start in history.starts if start.failure]
    assert [start.arm.depth for start in failed] == [1, 1]
    assert failed[0].failure is not None
    assert "the engine's reply has no timings" in failed[0].failure


async def test_when_nothing_could_be_measured_the_first_failure_is_the_reason(
    tmp_path: Path,
) -> None:
    told = Told()
    async with scripted(
        tmp_path, broken=lambda which, start: f"{which} did not start ({start})"
    ) as device:
        with pytest.raises(CalibrationError) as caught:
            await told.run(device, arm(), arm(depth=1))
    assert str(caught.value) == "nothing could be measured: tiny@0 did not start (1)"
    assert caught.value.hint
    assert told.repetitions == []


async def test_a_gate_that_does_not_open_ends_the_calibration_before_any_request(
    tmp_path: Path,
) -> None:
    told = Told(SHUT)
    async with scripted(tmp_path) as device:
        with pytest.raises(CalibrationError) as caught:
            await told.run(device, arm(), arm(depth=1))
    assert str(caught.value) == f"the measurement gate did not open: {SHUT.reason}"
    assert caught.value.hint
    assert device.starts == [arm()]
    assert device.asked == []


@dataclass
class Readings:
    """A meter that gives one answer per arm, in order; remembers when it ran."""

    answers: list[Energy | Unknown]
    told: Told
    ran: list[tuple[int, int]] = field(default_factory=list)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Readings]:
        before = len(self.told.repetitions)
        yield self
        self.ran.append((before, len(self.told.repetitions)))

    def energy(self) -> Energy | Unknown:
        return self.answers.pop(0)


def joules(amount: float) -> Energy:
    return Energy(joules=amount, duration_s=6.0, source="counter")


def budgeted(max_joules: float | None, *arms: Arm) -> Sweep:
    return Sweep(arms=arms, workloads=SHORT, repetitions=2, budget=Budget(max_joules=max_joules))


async def test_a_budget_in_joules_ends_with_what_it_bought(tmp_path: Path) -> None:
    told = Told()
    told.meter = meter = Readings([joules(70.0), joules(50.0)], told)
    async with scripted(tmp_path) as device:
        history = await told.follow(budgeted(100.0, arm(), arm(depth=1), arm(depth=2)), device)
    assert history.spent_j == 120.0
    assert [start.arm for start in history.starts] == [arm(), arm(depth=1)]
    # A start is counted with all that is measured on it.
    assert meter.ran == [(0, 4), (4, 8)]


async def test_a_budget_in_joules_without_a_meter_starts_nothing(tmp_path: Path) -> None:
    told = Told()
    async with scripted(tmp_path) as device:
        with pytest.raises(CalibrationError) as caught:
            await told.follow(budgeted(100.0, arm()), device)
    assert str(caught.value) == (
        "nothing could be measured: the energy cannot be read, so a budget in joules cannot be kept"
    )
    assert device.starts == []


async def test_energy_of_one_start_that_is_unknown_leaves_the_sum_unknown(
    tmp_path: Path,
) -> None:
    told = Told()
    told.meter = Readings([joules(70.0), Unknown("a gap"), joules(50.0)], told)
    async with scripted(tmp_path) as device:
        with capture_logs() as lines:
            history = await told.follow(budgeted(None, arm(), arm(depth=1), arm(depth=2)), device)
    assert history.spent_j is None
    assert len(history.starts) == 3
    said = [line for line in lines if line["event"] == "calibration.energy_unknown"]
    assert [(line["arm"], line["reason"]) for line in said] == [("tiny@1", "a gap")]
