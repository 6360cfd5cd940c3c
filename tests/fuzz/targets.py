"""What reads bytes that others wrote, each as a function of them.

A target raises only where a promise is broken: what is wrong with its input is a value or one of
the reader's own errors. ``tests/fuzz/test_targets.py`` calls each on a few thousand mutants of its
seeds; ``python -m tests.fuzz.guided`` has atheris look for more by coverage.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.api.auth import Asked, Plane, Policy, Scope, decide
from mtpd.api.peer import Peer
from mtpd.compat.llama_swap import translate
from mtpd.config.data import bundled_model
from mtpd.config.load import load
from mtpd.engine.gguf import read_header
from mtpd.engine.logs import fact, level, plain
from mtpd.errors import ConfigError, MtpdError, StoreError
from mtpd.listen import handed
from mtpd.proxy.json_body import parse
from mtpd.proxy.usage import Tap, usage_of
from mtpd.store import rows
from mtpd.supervise.lines import LINE_BYTES, Splitter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SEEDS", "TARGETS"]

CUT = len(" [cut]")
PORT = 8080
OURS = ("127.0.0.1:8080", "localhost:8080", "[::1]:8080")
FOLDER = Path(tempfile.gettempdir())
CORPUS = Path(__file__).parents[1] / "corpus"


def configuration(data: bytes) -> None:
    """mtpd.toml: a configuration, or every problem."""
    with _file(data, ".toml") as path, suppress(ConfigError):
        load(path)


def llama_swap(data: bytes) -> None:
    """A file of llama-swap, which is never an error."""
    text = data.decode(errors="replace")
    translate(text, environment={"X": "y"}, may_set=lambda _name: False)


def log_lines(data: bytes) -> None:
    """What an engine prints: bounded lines without control characters."""
    splitter = Splitter()
    half = len(data) // 2
    for line in (*splitter.feed(data[:half]), *splitter.feed(data[half:]), *splitter.end()):
        assert len(line) <= LINE_BYTES + CUT
        assert not any(mark in line for mark in "\0\n\r\x1b\u2028")
        fact(line)
        level(line)
        plain(line)


def gguf(data: bytes) -> None:
    """A model file: a header, or the one error that says what is wrong."""
    with _file(data, ".gguf") as path, suppress(MtpdError):
        read_header(path)


def replies(data: bytes) -> None:
    """An engine's reply: the same of it in one piece and byte by byte."""
    for sse in (True, False):
        whole, parts = Tap(sse=sse), Tap(sse=sse)
        whole.feed(data)
        for byte in data:
            parts.feed(bytes((byte,)))
        assert whole.summary() == parts.summary()
        usage_of(whole.summary())


def bodies(data: bytes) -> None:
    """A client's body: a table, or what is wrong with it."""
    parse(data)


def hosts(data: bytes) -> None:
    """Host and Origin: only exactly ours is let in."""
    host, _, origin = data.decode("latin-1").partition("\n")
    asked = Asked(
        peer=Peer(port=PORT, uid=None),
        plane=Plane.DATA,
        scope=Scope.READ,
        hosts=(host,),
        origin=origin or None,
    )
    problem = decide(asked, Policy(daemon_uid=0, daemon_gid=0))
    if problem is None:
        assert host.lower() in OURS
        assert not origin or origin.lower() == f"http://{host.lower()}"


def handed_sockets(data: bytes) -> None:
    """systemd's variables: sockets, none, or a mistake of the units."""
    count, _, names = data.decode(errors="replace").replace("\0", "").partition("\n")
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count, "LISTEN_FDNAMES": names}
    if count.isdecimal() and len(count) < FEW_DIGITS:
        with suppress(ConfigError):
            handed(environment, first=UNUSED).close()
    elif not count.isdecimal():
        handed(environment, first=UNUSED)


FEW_DIGITS = 3
UNUSED = 5000
"""A descriptor that is not open, nor are those behind it."""


def database(data: bytes) -> None:
    """Columns that hold JSON: their value, or the one error that names the row."""
    text = data.decode(errors="replace")
    for read in DECODERS:
        with suppress(StoreError):
            read(text)


DECODERS: tuple[Callable[[str], object], ...] = (
    rows.load,
    rows.load_object,
    rows.load_strings,
    rows.load_numbers,
    rows.load_integers,
    rows.arm_from_json,
    rows.interval_from_json,
)


class _file:  # noqa: N801 - reads as a function
    """The bytes as a file."""

    def __init__(self, data: bytes, suffix: str) -> None:
        self._path = FOLDER / f"mtpd-fuzz-{os.getpid()}{suffix}"
        self._path.write_bytes(data)

    def __enter__(self) -> Path:
        return self._path

    def __exit__(self, *_problem: object) -> None:
        self._path.unlink()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "configuration": configuration,
    "llama_swap": llama_swap,
    "log_lines": log_lines,
    "gguf": gguf,
    "replies": replies,
    "bodies": bodies,
    "hosts": hosts,
    "handed_sockets": handed_sockets,
    "database": database,
}


def _logs() -> list[bytes]:
    return [path.read_bytes()[:20_000] for path in sorted((CORPUS / "logs").glob("*.log"))[:6]]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "configuration": lambda: [
        (
            b'[server]\nlisten = "127.0.0.1:1"\n[engine]\nbinary = "embedded"\nthreads = 1\n'
            b'[models.a]\nmodel = "/m.gguf"\ncontext = 2048\n[models.a.drafter]\nkind = "mtp"\n'
            b'[pools.default]\nmembers = ["tiny-chained", "a"]\n'
        ),
        b"[tuning]\nmin_gain = 0.1\n[models]\na = 1\n",
    ],
    "llama_swap": lambda: [
        (
            b'apiKeys: [sk-a]\nmacros: {m: "x ${env.X}"}\nmodels:\n  a:\n    cmd: llama-server'
            b" --port ${PORT} -m /m.gguf -c 2048\n    aliases: [b]\n    ttl: 60\n"
            b"groups:\n  g: {members: [a]}\n"
        ),
        b"models: &a {x: *a}\n",
    ],
    "log_lines": _logs,
    "gguf": lambda: [bundled_model("tiny-chained.gguf").read_bytes()[:4096]],
    "replies": lambda: [
        (
            b'data: {"choices":[{"delta":{"content":"a"}}],"timings":{"predicted_n":3,'
            b'"predicted_ms":1.5,"draft_n":2,"draft_n_accepted":1}}\n\ndata: [DONE]\n\n'
        ),
        b":na\r\n\n",
        b': ping\r\n\r\nevent: error\rdata: {"error": {}}\r\r',
        b'{"usage":{"completion_tokens":3,"prompt_tokens":1},"timings":{"cache_n":1}}',
    ],
    "bodies": lambda: [b'{"model": "a", "n": 1e3, "x": [[1], {"y": null}], "s": "\\ud83d"}'],
    "hosts": lambda: [b"127.0.0.1:8080\nhttp://127.0.0.1:8080", b"localhost:8080\n", b"[::1]:8080"],
    "handed_sockets": lambda: [b"2\napi:control", b"0\n", b"\xc2\xb2\nx"],
    "database": lambda: [
        b'{"profile": "a", "depth": 1}',
        b'{"low": 1.0, "mid": 2.0, "high": 3.0}',
        b"[1, 2.5, null]",
        b'["a", "b"]',
        b"[" * 3000,
        b"1" * 5000,
    ],
}


if __name__ == "__main__":
    print("\n".join(TARGETS))  # noqa: T201 - for make
