"""The configuration read again by a whole daemon over a scripted engine."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.config.data import bundled_model
from mtpd.control.reload import SUBJECT
from mtpd.errors import ConfigError
from mtpd.events import ConfigRefused, ConfigReloaded, Envelope
from mtpd.units import Seq
from tests.fakes.board import until
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.control.parts import Parts
    from mtpd.events import Event
    from mtpd.views import EngineView, OperationView
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

SLOW = Script(realtime=True, tps0=40.0)
"""A stream of 80 tokens takes two seconds."""
GAMMA = """
[models.gamma]
model = "{model}"
context = 2048
"""


def edit(place: Home, old: str, new: str, *, below: str = "") -> None:
    """Replace a text of the configuration, the first one below another text."""
    head, mark, tail = place.config.read_text().partition(below) if below else ("", "", "")
    text = tail if below else place.config.read_text()
    assert old in text
    place.config.write_text(head + mark + text.replace(old, new, 1))


def drop(place: Home, *names: str) -> None:
    """Take models out of the configuration, and the pool with them."""
    kept, skip = [], False
    for line in place.config.read_text().splitlines():
        if line.startswith("["):
            skip = line.startswith(("[pools", *(f"[models.{name}" for name in names)))
        if not skip:
            kept.append(line)
    place.config.write_text("\n".join(kept))


async def reload(running: Daemon) -> OperationView:
    return await run_operation(running, await running.control.reload(idempotency_key=None))


async def applied(running: Daemon) -> dict[str, Any]:
    operation = await reload(running)
    assert operation.state == "done", operation.error
    assert operation.result is not None
    return operation.result


async def ask(client: aiohttp.ClientSession, model: str, tokens: int = 4) -> str:
    """Ask for a completion; the depth that it was served at."""
    body = {"model": model, "prompt": "x", "n_predict": tokens}
    async with client.post("/completion", json=body) as reply:
        assert reply.status == 200, await reply.text()
        return reply.headers["X-Mtpd-Depth"]


def parts(running: Daemon) -> Parts:
    """What the backend works with: its switchboard and configuration can be asked at once."""
    return running.control._p


def engine(running: Daemon, model: str) -> EngineView:
    engines = parts(running).switchboard.engines()
    return next(one for one in engines if one.profile == model)


async def told(running: Daemon, kind: type[Event]) -> list[Event]:
    async with running.bus.subscribe(Seq(0)) as reader:
        found: list[Event] = []
        for _ in range(running.bus.seq):
            item = await anext(reader)
            assert isinstance(item, Envelope)
            if isinstance(item.event, kind):
                found.append(item.event)
    return found


async def test_only_what_changed_is_touched_and_all_of_it_is_told() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        await ask(client, "alpha")
        before = engine(running, "alpha")
        edit(place, "context = 2048", "context = 4096", below="[models.beta]")
        place.config.write_text(
            place.config.read_text() + GAMMA.format(model=bundled_model("tiny-chained.gguf"))
        )
        result = await applied(running)
        after = engine(running, "alpha")
        assert (after.pid, after.id, after.starts) == (before.pid, before.id, before.starts)
        assert result["reason"] == (
            "the configuration was read again: new: gamma; other engine settings: beta"
        )
        assert result["engines"] == []
        (decision,) = await running.control.decisions(subject=SUBJECT, limit=9)
        assert (decision.act, decision.reason, decision.outcome) == (
            "reload",
            result["reason"],
            "in force",
        )
        line = 1 + place.config.read_text()[
            : place.config.read_text().index("context = 4096")
        ].count("\n")
        assert f"models.beta.context: 2048 -> 4096 ({place.config}:{line})" in decision.evidence
        assert await told(running, ConfigReloaded) == [
            ConfigReloaded(added=("gamma",), removed=(), changed=("beta",), needs_restart=())
        ]
        async with client.get("/v1/models") as reply:
            listed = [one["id"] for one in (await reply.json())["data"]]
        assert "gamma" in listed
        values = {one.key: one.value for one in running.control.config()}
        assert values["models.beta.context"] == 4096
        explained = await running.control.explain(decision.id, None)
        assert explained.chain[-1] == "then: in force"
        await ask(client, "beta")
        (plan,) = [p for p in parts(running).switchboard.plans() if p.arm.profile == "beta"]
        assert plan.command.argv[plan.command.argv.index("--ctx-size") + 1] == "4096"


async def test_what_runs_ends_whole_and_then_the_changed_model_serves_as_configured_now() -> None:
    async with home(SLOW) as place, daemon_at(place) as (running, client):
        body = {"model": "alpha", "prompt": "x", "n_predict": 60, "stream": True}
        async with client.post("/completion", json=body) as stream:
            first = await stream.content.readline()
            before = engine(running, "alpha")
            edit(place, "context = 2048", "context = 4096")
            operation = await running.control.reload(idempotency_key=None)
            rest = await stream.content.read()
        frames = [json.loads(x[6:]) for x in (first + rest).splitlines() if x[:6] == b"data: "]
        assert frames[-1]["stop"] is True
        assert frames[-1]["tokens_predicted"] == 60
        ended = await run_operation(running, operation)
        assert ended.result is not None
        assert [(e["profile"], e["outcome"]) for e in ended.result["engines"]] == [  # type: ignore[union-attr,index,call-overload]
            ("alpha", "restarted")
        ]
        after = engine(running, "alpha")
        assert (after.state, after.starts) == ("ready", before.starts + 1)
        await ask(client, "alpha")
        assert engine(running, "alpha").id == after.id


async def test_a_model_that_is_gone_ends_its_requests_and_then_its_engine() -> None:
    async with home(SLOW) as place, daemon_at(place) as (running, client):
        body = {"model": "alpha", "prompt": "x", "n_predict": 60, "stream": True}
        async with client.post("/completion", json=body) as stream:
            await stream.content.readline()
            drop(place, "alpha")
            operation = await running.control.reload(idempotency_key=None)
            await until(lambda: "alpha" not in parts(running).config.profiles)
            async with client.post("/completion", json={"model": "first", "prompt": "x"}) as late:
                assert late.status == 404
                message = (await late.json())["error"]["message"]
            assert "no model is called 'first' any more" in message
            assert "known: auto, beta" in message
            assert engine(running, "alpha").state == "ready"
            assert b'"stop":true' in (await stream.content.read()).replace(b" ", b"")
        assert (await run_operation(running, operation)).state == "done"
        assert parts(running).switchboard.engines() == ()
        async with client.get("/running") as reply:
            assert (await reply.json())["running"] == []
        assert await ask(client, "beta") == "0"


@pytest.mark.parametrize("edited", ["gone", "shallower"])
async def test_what_a_reload_takes_away_is_shown_until_its_requests_have_ended(edited: str) -> None:
    async with home(SLOW) as place, daemon_at(place) as (running, client):
        asked = await running.control.switch(
            model="alpha", depth=3, force=False, idempotency_key=None
        )
        assert (await run_operation(running, asked)).state == "done"
        body = {"model": "alpha", "prompt": "x", "n_predict": 80, "stream": True}
        async with client.post("/completion", json=body) as stream:
            await stream.content.readline()
            if edited == "gone":
                drop(place, "alpha")
            else:
                edit(place, "max_depth = 3", "max_depth = 1")
            before = parts(running).config.now
            operation = await running.control.reload(idempotency_key=None)
            await until(lambda: parts(running).config.now is not before)
            status = await running.control.status()
            assert [(one.profile, one.state) for one in status.engines] == [("alpha", "ready")]
            assert status.memory == ()
            async with client.get("/metrics") as scraped:
                assert scraped.status == 200
                assert 'profile="alpha",state="ready"} 1.0' in await scraped.text()
            for path in ("status", "models", "gpu", "live", "history", "config"):
                async with client.get(f"/mtpd/v1/{path}") as reply:
                    assert reply.status == 200, path
            await stream.content.read()
        assert (await run_operation(running, operation)).state == "done"


async def test_a_configuration_with_errors_changes_nothing_and_every_error_is_told() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        await ask(client, "alpha")
        before, good = engine(running, "alpha"), place.config.read_text()
        place.config.write_text(good.replace("context = 2048", 'context = "2048"'))
        with pytest.raises(ConfigError) as caught:
            await running.control.reload(idempotency_key=None)
        assert len(caught.value.problems) == 2
        assert all(one.startswith(f"{place.config}:") for one in caught.value.problems)
        status = (await running.control.status()).config
        assert status is not None
        assert status.problems == caught.value.problems
        assert status.invalid_since is not None
        assert await told(running, ConfigRefused) == [ConfigRefused(problems=status.problems)]
        assert engine(running, "alpha") == before
        assert await running.control.operations(9) == ()
        place.config.write_text(good)
        assert (await applied(running))["decision"] is None
        status = (await running.control.status()).config
        assert status is not None
        assert (status.invalid_since, status.problems) == (None, ())
        assert engine(running, "alpha") == before


async def test_an_address_waits_for_a_restart_and_is_named_until_it_is_taken_back() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        edit(place, 'listen = "127.0.0.1:0"', 'listen = "127.0.0.1:1"\nmax_waiting = 7')
        result = await applied(running)
        assert result["changes"]["needs_restart"] == ["server.listen"]
        assert result["changes"]["settings"] == ["server.max_waiting"]
        status = await running.control.status()
        assert status.config is not None
        assert status.config.needs_restart == ("server.listen",)
        assert status.queue.limit == 7
        edit(place, "127.0.0.1:1", "127.0.0.1:0")
        await applied(running)
        status = await running.control.status()
        assert status.config is not None
        assert status.config.needs_restart == ()


async def test_a_flag_that_changes_voids_what_was_measured_and_the_old_flag_brings_it_back() -> (
    None
):
    async with home(Script(acceptance=(0.9, 0.85, 0.5), row_cost=0.1)) as place:
        async with daemon_at(place) as (running, client):
            tuning = await running.control.tune(
                subject="alpha",
                method="sweep",
                depths=(0, 2),
                workloads=None,
                prompts=1,
                repetitions=1,
                max_tokens=64,
                apply=True,
                idempotency_key=None,
            )
            assert (await run_operation(running, tuning)).state == "done"
            assert await ask(client, "alpha") == "2"
            edit(place, "context = 2048", 'context = 2048\nkv_type = "q8_0"')
            await applied(running)
            choice = next(
                c for c in (await running.control.status()).choices if c.subject == "alpha"
            )
            assert (choice.measured, choice.arm.depth) == (False, 0)
            assert await ask(client, "alpha") == "0"
            edit(place, '\nkv_type = "q8_0"', "")
            await applied(running)
            choice = next(
                c for c in (await running.control.status()).choices if c.subject == "alpha"
            )
            assert (choice.measured, choice.arm.depth) == (True, 2)
            assert await ask(client, "alpha") == "2"


async def test_a_model_that_runs_is_not_stopped_for_a_file_that_is_not_there() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        await ask(client, "alpha")
        before = engine(running, "alpha")
        model = bundled_model("tiny-chained.gguf")
        edit(place, str(model), "gone.gguf")
        with pytest.raises(ConfigError, match=r"models\.alpha\.model: .*gone\.gguf does not exist"):
            await running.control.reload(idempotency_key=None)
        assert engine(running, "alpha") == before
        edit(place, "gone.gguf", str(model))
        edit(place, str(model), "gone.gguf", below="[models.beta]")
        result = await applied(running)
        assert len(result["warnings"]) == 1
        assert "gone.gguf does not exist" in result["warnings"][0]


async def test_a_model_that_does_not_start_with_its_new_file_is_told_and_gets_503() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        await ask(client, "alpha")
        model = bundled_model("tiny-chained.gguf")
        short = place.root / "short.gguf"
        shutil.copy(model, short)
        with short.open("r+b") as file:
            file.truncate(model.stat().st_size // 2)
        edit(place, str(model), str(short))
        operation = await reload(running)
        assert operation.state == "failed"
        assert operation.error is not None
        assert "alpha: the model file of alpha is cut short" in str(operation.error["detail"])
        (decision,) = await running.control.decisions(subject=SUBJECT, limit=9)
        assert decision.outcome == "alpha failed"
        async with client.post("/completion", json={"model": "alpha", "prompt": "x"}) as reply:
            assert reply.status == 503
            assert "cut short" in (await reply.json())["error"]["message"]
        edit(place, str(short), str(model))
        assert (await reload(running)).state == "done"
        assert await ask(client, "alpha") == "0"


async def test_reloads_wait_for_their_turn_and_those_that_wait_are_one() -> None:
    async with home(Script(load_s=1.0)) as place, daemon_at(place) as (running, _):
        loading = await running.control.load(model="alpha", idempotency_key=None)
        edit(place, "context = 2048", "context = 4096", below="[models.beta]")
        first = await running.control.reload(idempotency_key=None)
        edit(place, "context = 4096", "context = 1024", below="[models.beta]")
        second = await running.control.reload(idempotency_key=None)
        assert (await run_operation(running, loading)).state == "done"
        assert (await run_operation(running, first)).state == "done"
        if first.id == second.id:  # else the load had ended before, on a machine that stood still
            assert len(await running.control.operations(9)) == 2
        await run_operation(running, second)
        assert parts(running).config.profiles["beta"].context == 1024


async def test_an_order_that_waited_is_carried_out_as_is_configured_when_its_turn_comes() -> None:
    async with home(Script(load_s=0.5)) as place, daemon_at(place) as (running, _):
        loading = await running.control.load(model="alpha", idempotency_key=None)
        drop(place, "beta")
        await running.control.reload(idempotency_key=None)
        late = await running.control.load(model="beta", idempotency_key=None)
        tune = await running.control.probe(model="beta", depth=1, idempotency_key=None)
        assert (await run_operation(running, loading)).state == "done"
        for operation in (late, tune):
            ended = await run_operation(running, operation)
            assert ended.state == "failed"
            assert ended.error is not None
            assert "beta" in str(ended.error["detail"])


async def test_who_waits_for_a_model_that_is_taken_away_is_told_so() -> None:
    async with home(SLOW) as place, daemon_at(place) as (running, client):
        body = {"model": "alpha", "prompt": "x", "n_predict": 60, "stream": True}
        async with client.post("/completion", json=body) as stream:
            await stream.content.readline()
            found: list[tuple[int, str]] = []

            async def wait() -> None:
                late = {"model": "beta", "prompt": "x"}
                async with client.post("/completion", json=late) as reply:
                    found.append((reply.status, (await reply.json())["error"]["message"]))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await until(lambda: parts(running).switchboard.queue().waiting == 1)
                drop(place, "beta")
                await applied(running)
            await stream.content.read()
        assert found == [(404, "beta was taken out of the configuration")]


async def test_a_model_that_is_taken_away_while_a_body_arrives_is_told_to_its_client() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        begun = anyio.Event()
        taken = anyio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"prompt": '
            begun.set()
            await taken.wait()
            yield b'"x"}'

        async def take_away() -> None:
            await begun.wait()
            drop(place, "beta")
            await applied(running)
            taken.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_away)
            async with client.post("/upstream/beta/completion", data=body()) as reply:
                answer = await reply.json()
        assert (reply.status, answer["error"]["code"]) == (404, "model_not_found")
