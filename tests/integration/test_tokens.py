"""Access tokens on a whole daemon: real sockets, a real token file, a scripted engine."""

from __future__ import annotations

import os
import signal
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import anthropic
import anyio
import openai
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from mtpd.access import Scope
from mtpd.api.auth import OPEN
from mtpd.api.gate import BURST
from mtpd.api.routes import ROUTES
from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.clock import SystemClock
from mtpd.config.data import bundled_model
from mtpd.errors import EXIT_CONFIG, ConfigError, MtpdError
from mtpd.proxy.endpoints import ENDPOINTS, FORMS, READS
from mtpd.store.token_file import TokenFile
from tests.fakes.clock import FakeClock
from tests.fakes.house import WITHIN_S, Home, daemon_at, home, run_operation
from tests.fakes.script import Script
from tests.fakes.serve import processes_of, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mtpd.app import Daemon

ASK = {"model": "alpha", "prompt": "x", "n_predict": 3}
STATUS, UNLOAD = "/mtpd/v1/status", "/mtpd/v1/unload"

pytestmark = pytest.mark.slow


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def token_file(place: Home) -> TokenFile:
    return TokenFile(place.directories.state, SystemClock())


def made(place: Home, name: str, *scopes: Scope) -> str:
    return token_file(place).add(name, frozenset(scopes), expires=None)[0]


@asynccontextmanager
async def over_socket(running: Daemon) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(str(running.control_socket))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as client:
        yield client


async def status_of(
    client: aiohttp.ClientSession, method: str, path: str, secret: str | None = None
) -> int:
    body = ASK if path == "/completion" else {} if method == "POST" else None
    headers = {} if secret is None else bearer(secret)
    async with client.request(method, path, json=body, headers=headers) as reply:
        return reply.status


async def test_each_scope_opens_its_own_door() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        assert await status_of(client, "POST", "/completion", "sk-any") == 200
        secrets = {scope: made(place, scope.value, scope) for scope in Scope}
        for method, path, needed in (
            ("POST", "/completion", Scope.INFER),
            ("GET", "/v1/models", Scope.INFER),
            ("GET", "/props?model=alpha", Scope.INFER),
            ("GET", STATUS, Scope.READ),
            ("GET", "/metrics", Scope.READ),
            ("GET", "/readyz", Scope.READ),
            ("GET", "/running", Scope.READ),
            ("GET", "/logs", Scope.READ),
            ("GET", "/upstream/alpha/slots", Scope.ADMIN),
            ("POST", UNLOAD, Scope.ADMIN),
            ("GET", "/unload", Scope.ADMIN),
        ):
            assert await status_of(client, method, path) == 401, path
            assert await status_of(client, method, path, "sk-any") == 401, path
            for scope, secret in secrets.items():
                answer = await status_of(client, method, path, secret)
                opens = scope in {needed, Scope.ADMIN}
                assert (answer in {200, 202}) == opens, (path, scope, answer)
                assert opens or answer == 403, (path, scope, answer)
        for path in ("/healthz", "/health", "/v1/health"):
            assert await status_of(client, "GET", path) == 200


async def test_a_token_is_taken_as_the_clients_send_it() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        secret = made(place, "laptop", Scope.INFER)
        for headers in (
            bearer(secret),
            {"x-api-key": secret},
            {"Authorization": aiohttp.encode_basic_auth("anybody", secret)},
        ):
            async with client.get("/v1/models", headers=headers) as reply:
                assert reply.status == 200
        async with client.get(f"/v1/models?api_key={secret}") as reply:
            assert reply.status == 401


async def test_a_refusal_has_the_shape_that_its_client_knows() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        secret = made(place, "laptop", Scope.INFER)
        async with client.post("/v1/chat/completions", json=ASK) as reply:
            error = (await reply.json())["error"]
            assert reply.headers["WWW-Authenticate"] == 'Bearer realm="mtpd"'
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        async with client.get(STATUS, headers=bearer(f"{secret[:-1]}-")) as reply:
            problem = await reply.json()
            assert reply.content_type == "application/problem+json"
            assert reply.headers["WWW-Authenticate"].endswith('error="invalid_token"')
        assert problem["type"] == "urn:mtpd:problem:token-mistyped"
        async with client.post(UNLOAD, json={}, headers=bearer(secret)) as reply:
            problem = await reply.json()
            assert reply.headers["WWW-Authenticate"].endswith('error="insufficient_scope"')
        assert problem["hint"] == "A token for it: mtpd token add NAME --scope admin"


async def test_a_revoked_token_is_refused_by_the_running_daemon() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        secret, _ = made(place, "a", Scope.INFER), made(place, "b", Scope.INFER)
        assert await status_of(client, "POST", "/completion", secret) == 200
        token_file(place).revoke("a")
        assert await status_of(client, "POST", "/completion", secret) == 401
        token_file(place).revoke("b")
        assert await status_of(client, "POST", "/completion") == 200, "none is left: open again"


async def test_what_runs_when_its_token_is_revoked_goes_on_to_its_end() -> None:
    slow = Script(realtime=True, tps0=20.0)
    async with home(slow) as place, daemon_at(place) as (_, client):
        secret, _ = made(place, "a", Scope.INFER), made(place, "b", Scope.INFER)
        ask = {**ASK, "n_predict": 20, "stream": True}
        async with client.post("/v1/completions", json=ask, headers=bearer(secret)) as reply:
            await reply.content.readline()
            token_file(place).revoke("a")
            assert await status_of(client, "GET", "/v1/models", secret) == 401
            assert (await reply.read()).rstrip().endswith(b"data: [DONE]")


@pytest.mark.parametrize("path", ["/mtpd/v1/events", "/mtpd/v1/logs?follow=true", "/api/events"])
async def test_a_stream_without_an_end_is_closed_when_its_token_is_revoked(path: str) -> None:
    async with home() as place:
        made(place, "other", Scope.ADMIN)
        reads = bearer(made(place, "reads", Scope.READ))
        async with daemon_at(place) as (_, client), client.get(path, headers=reads) as stream:
            assert stream.status == 200
            token_file(place).revoke("reads")
            with anyio.fail_after(WITHIN_S):
                await stream.read()
            async with client.get(path, headers=reads) as again:
                assert again.status == 401


async def test_a_limit_per_token_counts_each_of_them_alone() -> None:
    slow = Script(realtime=True, tps0=20.0)
    async with home(slow) as place:
        text = place.config.read_text()
        place.config.write_text(
            text.replace("[server]\n", "[server]\nmax_in_flight_per_token = 1\n")
        )
        async with daemon_at(place) as (_, client):
            one, other = made(place, "one", Scope.INFER), made(place, "other", Scope.INFER)
            ask = {**ASK, "n_predict": 40, "stream": True}
            async with client.post("/v1/completions", json=ask, headers=bearer(one)) as reply:
                await reply.content.readline()
                async with client.post("/completion", json=ASK, headers=bearer(one)) as second:
                    assert second.status == 429
                    assert (await second.json())["error"]["code"] == "rate_limit_exceeded"
                assert await status_of(client, "POST", "/completion", other) == 200


async def test_a_token_ends_while_the_daemon_runs() -> None:
    clock = FakeClock()
    async with home() as place, daemon_at(place, clock=clock) as (_, client):
        ends = clock.utc() + timedelta(hours=1)
        secret, _ = token_file(place).add("guest", frozenset({Scope.INFER}), expires=ends)
        assert await status_of(client, "GET", "/v1/models", secret) == 200
        clock.advance(3600)
        async with client.get("/v1/models", headers=bearer(secret)) as reply:
            assert reply.status == 401
            message = (await reply.json())["error"]["message"]
        assert message.startswith("The token 'guest' expired on 2026-11-29T13:00:00.000Z.")


async def test_refusals_are_counted_and_seldom_logged() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        secret = made(place, "ops", Scope.READ)
        with capture_logs() as logs:
            for _ in range(BURST + 5):
                await status_of(client, "GET", f"/v1/models?key={secret}", "canary-4711")
            await status_of(client, "POST", "/completion", secret)
        told = [line for line in logs if line["event"] == "auth.refused"]
        assert [line["actor"] for line in told] == [*([None] * BURST), "token ops"]
        assert (told[0]["problem"], told[0]["route"]) == ("token-unknown", "/v1/models")
        assert not any(word in str(logs) for word in ("canary", secret))
        async with client.get("/metrics", headers=bearer(secret)) as reply:
            text = await reply.text()
        assert f'mtpd_http_refusals_total{{problem="token-unknown"}} {BURST + 5}.0' in text
        assert 'mtpd_http_refusals_total{problem="token-scope"} 1.0' in text


async def test_operations_and_decisions_name_who_asked() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        secret = made(place, "ops", Scope.ADMIN)
        with capture_logs() as logs:
            async with client.post(
                "/mtpd/v1/load", json={"model": "alpha"}, headers=bearer(secret)
            ) as reply:
                operation = await running.control.operation((await reply.json())["id"])
        assert operation is not None
        ended = await run_operation(running, operation)
        assert (ended.state, ended.actor) == ("done", "token ops")
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert decision.actor == "token ops"
        (line,) = [line for line in logs if line["event"] == "auth.change"]
        assert (line["actor"], line["path"]) == ("token ops", "/mtpd/v1/load")
        assert (line["status"], line["operation"]) == (202, operation.id)
        async with over_socket(running) as owner, owner.post(UNLOAD, json={}) as reply:
            asked = (await reply.json())["actor"]
        assert asked == f"uid {os.getuid()} over the control socket"


async def test_every_control_act_is_logged_with_who_what_and_what_came_of_it() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        admin, reads = made(place, "ops", Scope.ADMIN), made(place, "eye", Scope.READ)
        acts: tuple[tuple[str, str, dict[str, object] | None, str], ...] = (
            ("POST", "/mtpd/v1/load", {"model": "alpha"}, admin),
            ("POST", "/mtpd/v1/load", {"model": "nobody"}, admin),
            ("POST", "/mtpd/v1/load", {"model": 1}, admin),
            ("DELETE", "/mtpd/v1/operations/none", None, admin),
            ("POST", f"/mtpd/v1/{admin}", {}, admin),
            ("POST", "/mtpd/v1/load", {"model": "alpha"}, reads),
            ("POST", "/mtpd/v1/load", {"model": "alpha"}, "canary-4711"),
        )
        with capture_logs() as logs:
            for method, path, body, secret in acts:
                async with client.request(method, path, json=body, headers=bearer(secret)) as reply:
                    await reply.read()
            async with over_socket(running) as owner, owner.post(UNLOAD, json={}) as reply:
                await reply.read()
        changes = [line for line in logs if line["event"] == "auth.change"]
        assert [(line["status"], line["problem"]) for line in changes] == [
            *((202, None), (404, "not-found"), (422, "invalid-body"), (404, "not-found")),
            *((404, None), (202, None)),
        ]
        assert [line["operation"] is not None for line in changes] == [
            *(True, False, False, False, False, True),
        ]
        assert changes[4]["path"] == "none", "what nothing answers at may be anything"
        assert {line["actor"] for line in changes[:5]} == {"token ops"}
        assert changes[5]["actor"] == f"uid {os.getuid()} over the control socket"
        refused = [line for line in logs if line["event"] == "auth.refused"]
        assert [(line["actor"], line["problem"], line["status"]) for line in refused] == [
            ("token eye", "token-scope", 403),
            (None, "token-unknown", 401),
        ]
        assert not any(secret in str(logs) for secret in (admin, reads, "canary"))


async def test_who_is_refused_often_hides_nobody_elses_refusal() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        reads = made(place, "eye", Scope.READ)
        with capture_logs() as logs:
            for _ in range(BURST + 5):
                await status_of(client, "GET", STATUS, "noise")
            await status_of(client, "POST", UNLOAD, reads)
        told = [line["actor"] for line in logs if line["event"] == "auth.refused"]
        assert told == [*([None] * BURST), "token eye"]


async def test_the_usual_clients_send_it_as_their_key() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        secret = made(place, "laptop", Scope.INFER)
        async with openai.AsyncOpenAI(
            base_url=f"{running.url}/v1", api_key=secret, max_retries=0
        ) as client:
            assert "alpha" in {model.id async for model in await client.models.list()}
            with pytest.raises(openai.AuthenticationError, match="none of this daemon's"):
                await client.with_options(api_key="sk-any").models.list()
        async with anthropic.AsyncAnthropic(
            base_url=running.url, api_key=secret, max_retries=0
        ) as other:
            asked: dict[str, Any] = {
                "model": "alpha",
                "max_tokens": 1,
                "messages": [{"role": "user", "content": "hi"}],
            }
            # Let in: the scripted engine does not know the path.
            with pytest.raises(anthropic.NotFoundError):
                await other.messages.create(**asked)
            with pytest.raises(anthropic.AuthenticationError):
                await other.with_options(api_key="sk-any").messages.create(**asked)


async def test_the_tokens_of_llama_swap_are_those_of_the_daemon() -> None:
    async with home() as place:
        binary = place.root / "llama-server"
        config = place.root / "config.yaml"
        config.write_text(
            "apiKeys: [sk-canary]\nmodels:\n  alpha:\n"
            f"    cmd: {binary} --port ${{PORT}} -m {bundled_model('tiny-chained.gguf')} -c 2048\n"
            'mtpd: {server: {listen: "127.0.0.1:0"}}\n',
        )
        async with serve(place, "--config", str(config)) as daemon:
            await daemon.until_serving()
            async with aiohttp.ClientSession(daemon.url) as client:
                assert await status_of(client, "POST", "/completion") == 401
                assert await status_of(client, "POST", "/completion", "sk-canary") == 200
                assert await status_of(client, "GET", "/running", "sk-canary") == 200
                assert await status_of(client, "GET", "/unload", "sk-canary") == 403
            assert await daemon.end(signal.SIGTERM) == 0
    assert b"canary" not in daemon.log


class OfLlamaSwap(Home):
    """Is configured by a file of llama-swap."""

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    def write(self, key: str) -> None:
        self.config.write_text(
            f"apiKeys: [sk-{key}]\nmodels:\n  alpha:\n"
            f"    cmd: llama-server --port ${{PORT}} -m {bundled_model('tiny-chained.gguf')}\n"
            f"mtpd:\n  engine: {{binary: {self.root / 'llama-server'}}}\n"
            '  server: {listen: "127.0.0.1:0"}\n'
        )


async def test_a_key_that_was_taken_out_of_the_file_opens_nothing_once_that_is_read_again() -> None:
    async with home() as made_home:
        place = OfLlamaSwap(made_home.root)
        place.write("first")
        async with daemon_at(place) as (running, client):
            assert await status_of(client, "GET", "/v1/models", "sk-first") == 200
            place.write("second")
            await run_operation(running, await running.control.reload(idempotency_key=None))
            assert await status_of(client, "GET", "/v1/models", "sk-first") == 401
            assert await status_of(client, "GET", "/v1/models", "sk-second") == 200


async def test_beyond_the_loopback_nothing_starts_without_a_token() -> None:
    async with home() as place:
        text = place.config.read_text()
        open_to_all = 'listen = "0.0.0.0:0"\nhosts = ["127.0.0.2"]'
        place.config.write_text(text.replace('listen = "127.0.0.1:0"', open_to_all))
        with pytest.raises(ConfigError, match="there is no access token") as caught:
            async with daemon_at(place):
                pytest.fail("it serves")
        assert caught.value.exit_code == EXIT_CONFIG
        assert "mtpd token add NAME --state-dir" in str(caught.value.hint)
        secret = made(place, "laptop", Scope.INFER)
        async with daemon_at(place) as (running, _):
            port = running.url.rpartition(":")[2]
            async with aiohttp.ClientSession(f"http://127.0.0.2:{port}") as client:
                assert await status_of(client, "GET", "/v1/models", secret) == 200
                token_file(place).revoke("laptop")
                assert await status_of(client, "GET", "/v1/models", secret) == 401
                assert await status_of(client, "GET", "/healthz") == 200
            async with aiohttp.ClientSession(f"http://127.0.0.3:{port}") as client:
                assert await status_of(client, "GET", "/healthz") == 421


async def test_mtpctl_asks_over_tcp_with_a_token() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        path = place.root / "token"
        path.touch(mode=0o600)
        path.write_text(made(place, "ops", Scope.ADMIN))

        def ask(*words: str) -> tuple[int, str]:
            ran = CliRunner(env={"MTPD_TOKEN": ""}).invoke(mtpctl, ["--url", running.url, *words])
            error = ran.exception
            hint = error.hint if isinstance(error, MtpdError) else ""
            return ran.exit_code, f"{ran.output}\n{error} {hint}"

        code, said = await anyio.to_thread.run_sync(ask, "status")
        assert (code, "shows no token" in said, "--token-file FILE" in said) == (1, True, True)
        code, said = await anyio.to_thread.run_sync(
            ask, "--token-file", str(path), "--json", "load", "beta"
        )
        assert code == 0, said
        assert '"actor": "token ops"' in said


def secrets_seen(place: Home, canary: str) -> list[str]:
    """Where the canary is: in a file of the daemon's, or with a process of its."""
    found = [str(p) for p in place.root.rglob("*") if p.is_file() and holds(p, canary)]
    for pid in processes_of(place):
        for name in ("cmdline", "environ"):
            path = Path(f"/proc/{pid}/{name}")
            if holds(path, canary):
                found.append(str(path))
    return found


def holds(path: Path, canary: str) -> bool:
    with suppress(OSError):
        return canary.encode() in path.read_bytes()
    return False


STREAMS = {"/mtpd/v1/events", "/mtpd/v1/logs"}


def plain_reads() -> list[tuple[str, str]]:
    """Every read of the control API that ends."""
    paths = (route.path for route in ROUTES if route.method == "GET")
    return [("GET", path.replace("{id}", "alpha")) for path in paths if path not in STREAMS]


async def malformed(url: str, secret: str) -> None:
    """A token in what no parser takes: a header without a colon, a name with a blank, a version."""
    port = int(url.rpartition(":")[2])
    for head in (
        f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization Bearer {secret}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization : {secret}\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization: Bearer {secret}\x00\r\nHost: x\r\n\r\n",
        f"GET / {secret}\r\n\r\n",
        f"{secret}\r\n\r\n",
    ):
        async with await anyio.connect_tcp("127.0.0.1", port) as wire:
            await wire.send(head.encode("latin-1"))
            answer = b""
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(60):
                while True:
                    answer += await wire.receive()
        assert answer.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4")), answer
        assert secret.encode() not in answer


async def by_address(client: aiohttp.ClientSession, secret: str) -> None:
    """A token where none belongs: in the query and in the user of an address."""
    basic = {"Authorization": aiohttp.encode_basic_auth("anybody", secret)}
    for path in (f"{STATUS}?api_key={secret}", f"/v1/models?token={secret}"):
        async with client.get(path, headers=basic) as reply:
            assert secret not in f"{await reply.text()}{reply.headers}"


async def nothing_told(client: aiohttp.ClientSession, admin: str, other: str) -> None:
    """Neither the stored log lines nor the events since the start hold one of them."""
    async with client.get("/mtpd/v1/logs?tail=1000", headers=bearer(admin)) as reply:
        assert reply.status == 200, await reply.text()
        lines = await reply.text()
    assert "auth.refused" in lines, "refusals are among the lines"
    told = b""
    async with client.get("/mtpd/v1/events?after=0", headers=bearer(admin)) as stream:
        with suppress(TimeoutError), anyio.fail_after(2):
            async for chunk in stream.content.iter_any():
                told += chunk
    assert b"stream.open" in told
    for secret in (admin, other):
        assert secret not in lines
        assert secret.encode() not in told


async def test_a_token_is_nowhere_but_with_its_client() -> None:
    """Of whatever was shown, known or not: logs at debug, database, argv, environment."""
    async with home() as place:
        known = made(place, "ops", Scope.ADMIN)
        async with serve(place, "--log-level", "debug") as daemon:
            await daemon.until_serving()
            async with aiohttp.ClientSession(daemon.url) as client:
                for secret in (known, "canary-4711"):
                    for headers in (bearer(secret), {"x-api-key": secret}):
                        for method, path in (
                            ("POST", "/completion"),
                            ("POST", "/upstream/alpha/completion"),
                            ("GET", STATUS),
                            ("POST", "/mtpd/v1/switch"),
                            ("GET", "/nowhere"),
                            ("GET", "/metrics"),
                            *(one for one in plain_reads() if one[1] != STATUS),
                        ):
                            body = ASK if method == "POST" else None
                            async with client.request(
                                method, path, json=body, headers=headers
                            ) as reply:
                                said = await reply.text()
                                assert secret not in f"{said}{reply.headers}"
                for secret in (known, "canary-4711"):
                    await malformed(daemon.url, secret)
                    await by_address(client, secret)
                await nothing_told(client, known, "canary-4711")
            assert len(processes_of(place)) > 1, "an engine runs"
            for secret in (known, "canary-4711"):
                assert secrets_seen(place, secret) == []
            assert await daemon.end(signal.SIGTERM) == 0
        for secret in (known, "canary-4711"):
            assert secret.encode() not in daemon.log
            assert secrets_seen(place, secret) == []
        probe = place.root / "probe"
        probe.write_text("canary-4711")
        assert secrets_seen(place, "canary-4711") == [str(probe)], "the search finds what is there"


async def test_no_route_opens_without_the_right_token() -> None:
    """Every path that there is, without a token and with wrong ones."""
    clock = FakeClock()
    async with home() as place, daemon_at(place, clock=clock) as (_, client):
        known = made(place, "ops", Scope.ADMIN)
        ended, _ = token_file(place).add(
            "guest", frozenset({Scope.ADMIN}), expires=clock.utc() + timedelta(hours=1)
        )
        clock.advance(3600)
        # The page itself holds nothing of the daemon: a token is typed into it.
        doors = {(route.method, route.path.replace("{id}", "x")) for route in ROUTES}
        doors |= {("POST", one.path) for one in (*ENDPOINTS, *FORMS)}
        doors |= {("GET", path) for path in (*READS, "/running", "/unload", "/logs")}
        doors |= {("GET", "/upstream/alpha/slots"), ("GET", "/props"), ("POST", "/nowhere")}
        for method, path in sorted(doors):
            if path in OPEN:
                assert await status_of(client, method, path) == 200
                continue
            for secret in (None, "sk-any", known[:-1], f"{known}x", ended):
                assert await status_of(client, method, path, secret) == 401, (path, secret)
