"""Secrets wherever somebody can put one, and then a look at everything that can be read of mtpd.

Each canary is a word of its own, so that a hit says where it came from. Not covered: a secret in
the command line of another program, which the kernel shows to everybody (docs/security.md).
"""

from __future__ import annotations

import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import anyio
import pytest
from click.testing import CliRunner

from mtpd.access import Scope
from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli as mtpd
from mtpd.clock import SystemClock
from mtpd.errors import MtpdError
from mtpd.store.token_file import TokenFile
from tests.fakes.house import home
from tests.fakes.serve import processes_of, serve
from tests.integration.test_tokens import bearer, plain_reads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MARK: Final = b"canary"
CHILD = Path(__file__).parents[1] / "fakes" / "opaque_child.py"
OF_THE_DAEMON: Final = {
    "HF_TOKEN": "canary-hf",
    "HUGGING_FACE_HUB_TOKEN": "canary-hub",
    "OPENAI_API_KEY": "canary-openai",
    "MTPD_TOKEN": "canary-mtpctl",
    "LLAMA_API_KEY": "canary-llama",
    "https_proxy": "http://user:canary-proxy@192.0.2.1:3128",
}
"""Variables of the daemon; those of a user's shell or unit."""
OPAQUE: Final = f"""
[models.speech]
kind = "opaque"
command = ["{sys.executable}", "{CHILD}", "--port", "${{PORT}}"]
[models.speech.env]
SPEECH_API_KEY = "canary-opaque"
"""
BROKEN: Final = (
    'SPEECH_API_KEY = "canary-open\n',
    'SPEECH_API_KEY = ["canary-list"]\n',
    'SPEECH_API_KEY = { canary-table = "canary-inner" }\n',
    'SPEECH_API_KEY = "canary-nul\\u0000"\n',
    '"SPEECH=API" = "canary-name"\n',
    'LD_PRELOAD = "canary-denied"\n',
    'X = "y"\n[engine.env]\nHF_TOKEN = "canary-engine"\n',
    'X = "y"\n[engine.env]\nHIP_TOKEN = ["canary-engine"]\n',
    'X = "y"\n[models.alpha.env]\nHF_TOKEN = "canary-model"\n',
    'X = "y"\n[server]\napi_key = "canary-server"\n',
)
"""What a profile may say of its variables, and is refused for."""


FOREIGN: Final = (
    'apiKeys: ["canary-key", 4711, "canary-key two"]\nmodels: {}\n',
    "apiKeys: {a: canary-key}\nmodels: {}\n",
    "models:\n  m:\n    cmd: prog --port ${PORT}\n    env: [SECRET=canary-swap, canary-swap]\n",
    "models:\n  m:\n    cmd: prog --port ${PORT}\n    env: {SECRET: canary-swap}\n",
    (
        "models:\n  m:\n    cmd: prog --port ${PORT}\n    env: [SECRET=canary-swap]\n"
        '    proxy: "http://user:canary-proxy@127.0.0.1:1"\n'
    ),
    (
        "models:\n  m:\n    cmd: env HF_TOKEN=canary-swap llama-server --port ${PORT} -m /m.gguf"
        " --hf-token canary-flag --api-key canary-flag --api-key=canary-flag --apikey canary-flag\n"
    ),
    (
        "models:\n  m:\n    cmd: llama-server --port ${PORT} -m /m.gguf\n"
        "    env: [HF_TOKEN=canary-swap, LLAMA_API_KEY=canary-swap, LLAMA_ARG_HF_TOKEN=canary]\n"
    ),
    "peers:\n  p:\n    proxy: http://192.0.2.1\n    apiKey: canary-peer\nmodels: {}\n",
    "apiKeys: [canary-key\nmodels: {}\n",
    (
        "macros: {KEY: canary-macro}\nmodels:\n  m:\n    cmd: prog --port ${PORT}\n"
        "    env: [SECRET=${KEY}]\n"
    ),
)
"""Files of llama-swap, right and wrong."""


def foreign(folder: Path) -> list[str]:
    """What is said of them: by a check, by what is in force, by an import."""
    found = []
    for number, text in enumerate(FOREIGN):
        path = folder / f"config-{number}.yaml"
        path.write_text(text)
        for command in (
            ("mtpd", "check", "--config", str(path)),
            ("mtpd", "config", "show", "--origin", "--config", str(path)),
        ):
            found += hits(f"{command[1]} of {text!r}", said_by(command))
    return found


def write(place: Home, more: str = OPAQUE) -> None:
    """The configuration of the house, and what a test adds to it."""
    text = place.config.read_text().partition("\n[models.speech]")[0]
    place.config.write_text(text + more)


async def raw(daemon: Serving, head: bytes) -> bytes:
    """What the port answers to bytes."""
    answer = b""
    async with await anyio.connect_tcp("127.0.0.1", int(daemon.url.rpartition(":")[2])) as wire:
        await wire.send(head)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(60):
            while True:
                answer += await wire.receive()
    return answer


def heads(port: str) -> Iterable[bytes]:
    """Heads that hold a secret where one may get to."""
    ours = f"Host: localhost:{port}\r\nConnection: close\r\n"
    for request in (
        f"GET /mtpd/v1/status?api_key=canary-query HTTP/1.1\r\n{ours}\r\n",
        f"GET /v1/models?key=canary-query HTTP/1.1\r\n{ours}\r\n",
        f"POST /mtpd/v1/load?token=canary-query HTTP/1.1\r\n{ours}\r\n",
        f"GET http://user:canary-userinfo@localhost:{port}/v1/models HTTP/1.1\r\n{ours}\r\n",
        f"GET http://canary-userinfo@evil.example/mtpd/v1/status HTTP/1.1\r\n{ours}\r\n",
        f"GET /mtpd/v1/status HTTP/1.1\r\n{ours}Cookie: session=canary-cookie\r\n\r\n",
        f"GET /mtpd/v1/status HTTP/1.1\r\n{ours}Cookie: canary-cookie;;=\x01\r\n\r\n",
        f"GET /v1/models HTTP/1.1\r\n{ours}Authorization: Digest canary-digest\r\n\r\n",
        f"GET /v1/models HTTP/1.1\r\n{ours}Authorization: Basic canary-basic\r\n\r\n",
        f"GET /v1/models HTTP/1.1\r\n{ours}Proxy-Authorization: Basic canary-proxied\r\n\r\n",
        f"GET /v1/models HTTP/1.1\r\n{ours}Authorization Bearer canary-head\r\n\r\n",
        f"GET /v1/models HTTP/1.1\r\n{ours}Authorization: Bearer canary-head\x00\r\n\r\n",
        f"GET / HTTP/9.canary-head\r\n{ours}\r\n",
        "canary-head\r\n\r\n",
    ):
        yield request.encode("latin-1")
    for path, body in (
        ("/v1/chat/completions", '{"model": "alpha", "api_key": "canary-body", '),
        ("/v1/chat/completions", '{"model": ["canary-body"], "messages": []}'),
        ("/v1/chat/completions", '{"model": "alpha", "messages": "canary-body"}'),
        ("/completion", '"canary-body"'),
        ("/mtpd/v1/load", '{"model": "alpha", "canary-body": 1}'),
        ("/mtpd/v1/load", '{"model": {"canary-body": 1}}'),
        ("/mtpd/v1/load", '{"model": canary-body}'),
    ):
        yield (
            f"POST {path} HTTP/1.1\r\n{ours}Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()


def commands(place: Home, socket_path: Path) -> Iterable[tuple[str, ...]]:
    """What an operator runs, and may pass on to others."""
    at = ("--config", str(place.config))
    yield ("mtpd", "check", *at)
    yield ("mtpd", "config", "show", "--origin", *at)
    yield ("mtpd", "config", "show", "--json", *at)
    yield ("mtpd", "plan", "speech", *at)
    ctl = ("mtpctl", "--socket", str(socket_path))
    yield (*ctl, "doctor", *at)
    yield (*ctl, "--json", "doctor", *at)
    for words in (
        *(("status",), ("models",), ("decisions",), ("logs",), ("explain",)),
        *(("measurements",), ("report",), ("reload",), ("gpu",), ("config",)),
    ):
        yield (*ctl, *words)
        yield (*ctl, "--json", *words)


def said_by(command: tuple[str, ...]) -> bytes:
    """Everything that a command prints, with the secrets in its environment."""
    program, *words = command
    ran = CliRunner(env=OF_THE_DAEMON).invoke(mtpd if program == "mtpd" else mtpctl, words)
    hint = ran.exception.hint if isinstance(ran.exception, MtpdError) else ""
    told = f"{ran.output}{ran.exception}{hint}"
    assert ran.exit_code != 2, f"{command}: {told}"
    return told.encode(errors="replace")


def hits(where: str, text: bytes) -> list[str]:
    """Every canary in a text."""
    return [f"{where}: …{text[max(0, at - 60) : at + 40]!r}" for at in _places(text)]


def _places(text: bytes) -> Iterable[int]:
    at = text.find(MARK)
    while at >= 0:
        yield at
        at = text.find(MARK, at + 1)


def kept(place: Home) -> list[str]:
    """In a file of the daemon, or with a process that it has started."""
    found = []
    for path in place.root.rglob("*"):
        if path.is_file() and path != place.config:
            found += hits(str(path), path.read_bytes())
    for pid in processes_of(place):
        with suppress(OSError):
            found += hits(f"cmdline of {pid}", Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


def environments(daemon: Serving) -> list[str]:
    """With an engine; the other program has what its profile gives it, and nothing else."""
    found = []
    for pid in processes_of(daemon.place):
        if pid == daemon.process.pid:
            continue
        with suppress(OSError):
            text = Path(f"/proc/{pid}/environ").read_bytes()
            found += hits(f"environ of {pid}", text.replace(b"SPEECH_API_KEY=canary-opaque", b""))
    return found


async def asked(daemon: Serving, secret: str) -> list[str]:
    """Everything that is asked is asked, with and without a secret that counts."""
    found = []
    port = daemon.url.rpartition(":")[2]
    for head in heads(port):
        found += hits(repr(head[:60]), await raw(daemon, head))
    async with aiohttp.ClientSession(daemon.url, headers=bearer(secret)) as client:
        for method, path, body in (
            ("POST", "/v1/audio/transcriptions", {"model": "speech"}),
            ("POST", "/upstream/alpha/completion", {"prompt": "x", "n_predict": 2}),
            ("POST", "/completion", {"model": "alpha", "prompt": "x", "n_predict": 2}),
            ("POST", "/mtpd/v1/load", {"model": "alpha"}),
            ("POST", "/mtpd/v1/reload", {}),
            *((method, path, None) for method, path in plain_reads()),
            *(("GET", path, None) for path in ("/running", "/v1/models", "/metrics", "/logs")),
            ("GET", "/mtpd/v1/logs?tail=1000", None),
        ):
            headers = {"X-Conversation-Id": "canary-conversation", "Cookie": "a=canary-cookie"}
            async with client.request(method, path, json=body, headers=headers) as reply:
                found += hits(f"{method} {path}", await reply.read())
                found += hits(f"headers of {path}", str(reply.headers).encode())
        told = b""
        async with client.get("/mtpd/v1/events?after=0") as stream:
            with suppress(TimeoutError), anyio.fail_after(2):
                async for chunk in stream.content.iter_any():
                    told += chunk
        assert b"stream.open" in told
        found += hits("events", told)
    return found


async def test_no_secret_is_anywhere_but_where_it_was_put(tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with manager:
        manager.bind(str(tmp_path / "n"))
        async with home() as place:
            write(place)
            secret, _ = TokenFile(place.directories.state, SystemClock()).add(
                "ops", frozenset({Scope.ADMIN}), expires=None
            )
            variables = {**OF_THE_DAEMON, "NOTIFY_SOCKET": str(tmp_path / "n")}
            variables["PYTHONFAULTHANDLER"] = "1"
            async with serve(place, "--log-level", "debug", environment=variables) as daemon:
                await daemon.until_serving()
                found = await asked(daemon, secret)
                control = place.directories.control_socket(None)
                for more in (OPAQUE, *(OPAQUE.rpartition("SPEECH")[0] + one for one in BROKEN)):
                    write(place, more)
                    for command in commands(place, control):
                        if more == OPAQUE or command[0] == "mtpd" or "reload" in command:
                            said = await anyio.to_thread.run_sync(said_by, command)
                            found += hits(f"{' '.join(command[:5])} with {more[-40:]!r}", said)
                found += await anyio.to_thread.run_sync(foreign, tmp_path)
                write(place)
                found += await asked(daemon, secret)
                found += environments(daemon) + kept(place)
                assert await daemon.end(signal.SIGABRT) == -signal.SIGABRT
            assert b"Fatal Python error: Aborted" in daemon.log, "the crash left no stack"
            found += hits("log", daemon.log) + kept(place)
            found += [one for said in _received(manager) for one in hits("STATUS", said)]
            assert secret.encode() not in daemon.log
    assert not found, "\n".join(found)


def _received(manager: socket.socket) -> Iterable[bytes]:
    told = 0
    with suppress(BlockingIOError):
        while True:
            told += 1
            yield manager.recv(65536)
    assert told > 2, "the service manager was told nothing"
