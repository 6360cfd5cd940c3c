"""Requests that mean harm, over real sockets: the daemon answers or hangs up, and goes on.

Bytes that are no HTTP, JSON that is no request, two requests in the coat of one, heads and
bodies that never end, names that want to be paths. ``make test`` sends a part of them,
``MTPD_ENDURANCE`` all: 10 000 malformed requests, 500 slow clients, 5 000 names.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import aiohttp
import anyio
import psutil
import pytest
from yarl import URL

from tests.fakes.house import daemon_at, home, write_config
from tests.fakes.serve import Serving, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import SocketStream

FULL = "MTPD_ENDURANCE" in os.environ
MALFORMED: Final = 10_000 if FULL else 300
SLOW: Final = 500 if FULL else 60
NAMES: Final = 5_000 if FULL else 200
PATIENCE_S: Final = 60.0
MAX_GROWTH: Final = 10 * 2**20
"""Bytes by which the daemon may grow over all malformed requests."""

CHILD = Path(__file__).parents[1] / "fakes" / "opaque_child.py"
ASK: Final = {"model": "alpha", "prompt": "x", "n_predict": 2}
PATHS: Final = (
    *("/completion", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/tokenize"),
    *("/v1/embeddings", "/infill", "/upstream/alpha/completion", "/mtpd/v1/switch", "/props"),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def refused(status: int) -> bool:
    """Whether this is an answer to a request that was wrong: not a fault of the daemon."""
    return 200 <= status < 500 or status in {501, 505}


def relayed(answer: bytes) -> bool:
    """Whether these are the engine's own words: it calls some wrong requests its own fault."""
    return b"X-Mtpd-Attempt" in answer and b'"type":"server_error"' in answer


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[SocketStream]:
    where = URL(url)
    assert where.host is not None
    assert where.port is not None
    async with await anyio.connect_tcp(where.host, where.port) as stream:
        yield stream


async def said_to(url: str, payload: bytes, *, end: bool = True) -> bytes:
    """All that comes back for some bytes, until the daemon hangs up or has nothing to say."""
    got = b""
    async with connected(url) as stream:
        try:
            await stream.send(payload)
            if end:
                await stream.send_eof()
            with anyio.fail_after(PATIENCE_S):
                async for data in stream:
                    got += data
        except (anyio.BrokenResourceError, ConnectionError):
            return got
    return got


def statuses(answer: bytes) -> list[int]:
    """The status of every response in some bytes."""
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)]


def broken_bytes(chance: random.Random) -> bytes:
    """A request in which something was changed, or no request at all."""
    body = json.dumps(ASK).encode()
    whole = (
        f"POST {chance.choice(PATHS)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    data = bytearray(whole)
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(1, 400))
        case 1:
            for _ in range(chance.randrange(1, 8)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case 2:
            del data[chance.randrange(len(data)) :]
        case 3:
            at = chance.randrange(len(data))
            data[at:at] = chance.choice(
                (b"\x00", b"\r\n", b"\n\n", b"\r", b"A" * 9000, b"\xff\xfe", b": ", b"\r\n X: 1")
            )
        case 4:
            return whole.replace(b"HTTP/1.1", chance.choice((b"HTTP/9.9", b"HTTP/1.0", b"ICY")))
        case _:
            return whole.replace(b"Content-Length: ", b"Content-Length: " + b"9" * 30)
    return bytes(data)


def broken_json(chance: random.Random) -> bytes:
    """A body in which members have the wrong type, size or depth."""
    odd: tuple[object, ...] = (
        *(None, True, -1, 0, 1e308, 2**63, -(2**63), 0.5, "", "x" * 3000, "\ud800", "\x00"),
        *([], {}, [[]], [None], {"": {}}, ["x"] * 50, [{"role": "user"}], [{"role": 1}]),
    )
    keys = (
        *("model", "prompt", "messages", "n_predict", "max_tokens", "stream", "stop", "seed"),
        *("temperature", "logit_bias", "grammar", "json_schema", "tools", "n_probs", "id_slot"),
        *("cache_prompt", "samplers", "response_format", "input", "content", "lora"),
    )
    body: dict[str, object] = dict(ASK)
    for _ in range(chance.randrange(1, 5)):
        body[chance.choice(keys)] = chance.choice(odd)
    text = json.dumps(body)
    if chance.random() < 0.15:
        text = "[" * chance.choice((10, 200, 5000)) + text
    if chance.random() < 0.1:
        text = text[: chance.randrange(len(text))]
    return text.encode("utf-8", "surrogatepass")


async def healthy(client: aiohttp.ClientSession) -> None:
    async with client.post("/completion", json=ASK) as reply:
        assert reply.status == 200, await reply.text()


async def engine_of(client: aiohttp.ClientSession) -> object:
    async with client.get("/mtpd/v1/status") as reply:
        engines = (await reply.json())["engines"]
    return next((one["pid"], one["starts"]) for one in engines if one["profile"] == "alpha")


async def test_malformed_requests_are_nobodys_fault_but_the_clients() -> None:
    """On the real engine: it lives on, none is an internal error, the daemon stays small."""
    chance = random.Random(33)  # noqa: S311 - not for secrets
    async with home() as place:
        write_config(place, binary="embedded")
        async with serve(place) as daemon:
            await daemon.until_serving()
            async with aiohttp.ClientSession(daemon.url) as client:
                await healthy(client)
                before = await engine_of(client)
                for _ in range(50):
                    await one_of_each(client, daemon, chance)
                process = psutil.Process(daemon.process.pid)
                small = process.memory_info().rss
                for _ in range(MALFORMED // 2 - 50):
                    await one_of_each(client, daemon, chance)
                await healthy(client)
                assert await engine_of(client) == before, "the engine was not replaced"
                grown = process.memory_info().rss - small
                print(f" {MALFORMED} malformed: grown by {grown / 1e6:.1f} MB", end="")  # noqa: T201
                assert grown < MAX_GROWTH
            assert await daemon.end(signal.SIGTERM) == 0
        assert b"Traceback" not in daemon.log


async def one_of_each(
    client: aiohttp.ClientSession, daemon: Serving, chance: random.Random
) -> None:
    payload = broken_bytes(chance)
    answer = await said_to(daemon.url, payload)
    assert relayed(answer) or all(map(refused, statuses(answer))), (payload, answer)
    body = broken_json(chance)
    path = chance.choice(PATHS)
    headers = {"Content-Type": "application/json"}
    async with client.post(path, data=body, headers=headers) as reply:
        said = await reply.read()
        heads = str(reply.headers).encode()
        assert relayed(heads + said) or refused(reply.status), (path, body, said)


POST: Final = "POST /v1/audio/speech HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
BODY: Final = '{"model": "speech"}'
INNER: Final = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED: Final = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"


def lengths(*values: object) -> str:
    return "".join(f"Content-Length: {value}\r\n" for value in values)


SMUGGLED: Final = {
    "length and chunks": f"{lengths(len(CHUNKED))}Transfer-Encoding: chunked\r\n\r\n{CHUNKED}",
    "chunks and length": f"Transfer-Encoding: chunked\r\n{lengths(4)}\r\n{CHUNKED}",
    "two lengths": f"{lengths(len(BODY), len(BODY) + len(INNER))}\r\n{BODY}",
    "two equal lengths": f"{lengths(len(BODY), len(BODY))}\r\n{BODY}",
    "a list of lengths": f"{lengths('19, 19')}\r\n{BODY}",
    "a signed length": f"{lengths(f'+{len(BODY)}')}\r\n{BODY}",
    "a negative length": f"{lengths(-1)}\r\n{BODY}",
    "a length in hex": f"{lengths('0x13')}\r\n{BODY}",
    "a length with an underscore": f"{lengths('1_9')}\r\n{BODY}",
    "a length in other digits": f"{lengths('١٩')}\r\n{BODY}",
    "an empty length": f"{lengths('')}\r\n{BODY}",
    "a blank before the colon": f"Content-Length : {len(BODY)}\r\n\r\n{BODY}",
    "a folded header": f"Content-Length:\r\n {len(BODY)}\r\n\r\n{BODY}",
    "chunked twice": f"Transfer-Encoding: chunked, chunked\r\n\r\n{CHUNKED}",
    "chunked and more": f"Transfer-Encoding: chunked, identity\r\n\r\n{CHUNKED}",
    "chunked under a blank": f"Transfer-Encoding : chunked\r\n\r\n{CHUNKED}",
    "chunked misspelt": f"Transfer-Encoding: xchunked\r\n{lengths(len(BODY))}\r\n{BODY}",
    "chunked after a tab": f"Transfer-Encoding:\tchunked\r\n{lengths(len(BODY))}\r\n{BODY}",
    "chunked in a vertical tab": f"Transfer-Encoding: \x0bchunked\r\n\r\n{CHUNKED}",
    "a chunk in hex": f"Transfer-Encoding: chunked\r\n\r\n0x13\r\n{BODY}\r\n0\r\n\r\n",
    "a negative chunk": f"Transfer-Encoding: chunked\r\n\r\n-13\r\n{BODY}\r\n0\r\n\r\n",
    "a chunk that is too short": f"Transfer-Encoding: chunked\r\n\r\n4\r\n{BODY}\r\n0\r\n\r\n",
    "chunks with bare feeds": f"Transfer-Encoding: chunked\r\n\r\n13\n{BODY}\n0\n\n",
    "a huge chunk": "Transfer-Encoding: chunked\r\n\r\n" + "f" * 17 + f"\r\n{BODY}",
    "a nameless header": f": x\r\n{lengths(len(BODY))}\r\n{BODY}",
    "a header with a NUL": f"X: a\x00b\r\n{lengths(len(BODY))}\r\n{BODY}",
    "a bare feed in a header": f"X: a\nTransfer-Encoding: chunked\r\n{lengths(19)}\r\n{BODY}",
    "a bare return in a header": f"X: a\rContent-Length: 3\r\n{lengths(19)}\r\n{BODY}",
    "two hosts": f"Host: evil.example\r\n{lengths(len(BODY))}\r\n{BODY}",
}
"""What follows the request line, Host and type; each is one request, and a stranger's behind it."""


async def test_no_request_travels_inside_another() -> None:
    """What is ambiguous is refused; what is not reaches the program once, as it was sent."""
    opaque = json.dumps([sys.executable, str(CHILD), "--port", "${PORT}"])
    async with home() as place:
        with place.config.open("a") as file:
            file.write(f'[models.speech]\nkind = "opaque"\ncommand = {opaque}\n')
        async with daemon_at(place) as (running, client):
            async with client.post("/v1/audio/speech", json={"model": "speech"}) as reply:
                assert reply.status == 200
            start = POST.format(host=URL(running.url).authority)
            sound = f"{start}{lengths(len(BODY))}\r\n{BODY}{INNER}"
            found = statuses(await heard_from(running.url, sound.encode()))
            assert found == [200, 421], "one is served, and the stranger's name is not ours"
            arrived = requests_of(place.directories.state / "logs")
            assert len(arrived) == 2
            for name, rest in SMUGGLED.items():
                answer = await heard_from(running.url, f"{start}{rest}{INNER}".encode())
                found = statuses(answer)
                assert 500 not in found, (name, answer)
                assert len(found) <= 2, (name, answer)
                more = requests_of(place.directories.state / "logs")
                assert len(more) - len(arrived) <= found.count(200), (name, answer, more)
                arrived = more
            assert set(arrived) == {"POST /v1/audio/speech HTTP/1.1"}


async def heard_from(url: str, payload: bytes) -> bytes:
    """What comes back until the daemon hangs up, or waits for more."""
    got = b""
    async with connected(url) as stream:
        await stream.send(payload)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                with anyio.move_on_after(0.5 if got else 3.0) as waiting:
                    got += await stream.receive()
                if waiting.cancelled_caught:
                    break
    return got


def requests_of(folder: Path) -> list[str]:
    """The request lines that the program has seen, health checks left out."""
    logs = "".join(log.read_text() for log in sorted(folder.glob("speech*.log")))
    return [line for line in re.findall(r'"([^"]*)" \d{3} -', logs) if "/health" not in line]


async def test_heads_and_bodies_that_never_end_hold_nobody_up() -> None:
    async with home() as place:
        text = place.config.read_text()
        place.config.write_text(f"{text}[server.timeouts]\nhead_s = 2\n")
        async with daemon_at(place) as (running, client), anyio.create_task_group() as group:
            await healthy(client)
            ended: list[bytes] = []

            async def slowly(number: int) -> None:
                heads = (
                    b"",
                    b"POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
                    b"GET / HTTP/1.1\r\n",
                )
                ended.append(await said_to(running.url, heads[number % 3], end=False))

            for number in range(SLOW):
                group.start_soon(slowly, number)
            for _ in range(20):
                await healthy(client)
            with anyio.fail_after(PATIENCE_S):
                while len(ended) < SLOW:
                    await healthy(client)
            assert all(not answer or b" 408 " in answer for answer in ended)


OPENED: list[str] = []
WATCHING: list[bool] = []


def _hook(event: str, values: tuple[object, ...]) -> None:
    if WATCHING and event in {"open", "os.listdir", "os.scandir", "os.remove", "os.rename"}:
        OPENED.append(str(values[0]))


@pytest.fixture(scope="module")
def _opened() -> None:
    """Every file that Python opens in this process; such a hook cannot be taken out again."""
    sys.addaudithook(_hook)


def path_like(chance: random.Random) -> str:
    """A name that wants to be a file."""
    step = chance.choice(
        ("../", "..\\", "%2e%2e/", "..%2f", "%252e%252e%252f", "....//", "\u2025/", "..\x00/")
    )
    target = chance.choice(("etc/zq7", "root/zq7/id", "proc/self/zq7", "zq7.gguf", "state/zq7.db"))
    head = chance.choice(("", "/", "alpha/", "alpha@", "file://", "hf:", "bundled:", "~/", "C:\\"))
    return head + step * chance.randrange(0, 9) + target + chance.choice(("", "\x00", "\n", " "))


@pytest.mark.usefixtures("_opened")
async def test_no_name_becomes_a_path() -> None:
    chance = random.Random(64)  # noqa: S311 - not for secrets
    async with home() as place, daemon_at(place) as (running, client):
        control = aiohttp.UnixConnector(str(running.control_socket))
        async with aiohttp.ClientSession("http://localhost", connector=control) as admin:
            await healthy(client)
            OPENED.clear()
            WATCHING.append(True)
            try:
                for _ in range(NAMES // 5):
                    await ask_by_name(client, admin, path_like(chance))
            finally:
                WATCHING.clear()
            # The watch itself sees what is opened.
            WATCHING.append(True)
            await anyio.Path(place.root, "seen-zq8").write_text("x")
            WATCHING.clear()
    assert [path for path in OPENED if "zq7" in path] == []
    assert any("seen-zq8" in path for path in OPENED)


async def ask_by_name(
    client: aiohttp.ClientSession, admin: aiohttp.ClientSession, name: str
) -> None:
    """Ask for something of this name in every place that takes one."""
    coded = quote(name, safe="")
    places = (
        ("GET", f"/mtpd/v1/models/{coded}", None),
        ("GET", f"/mtpd/v1/{chance_of(name)}/{coded}", None),
        ("POST", f"/upstream/{coded}/completion", dict(ASK)),
        ("POST", "/completion", ASK | {"model": name}),
    )
    for method, path, body in places:
        async with client.request(method, URL(path, encoded=True), json=body) as reply:
            assert 400 <= reply.status < 500, (path, reply.status)
    async with admin.post("/mtpd/v1/switch", json={"model": name}) as reply:
        assert 400 <= reply.status < 500, (name, reply.status)


def chance_of(name: str) -> str:
    """One of the collections that are asked by identity."""
    return ("decisions", "operations")[len(name) % 2]
