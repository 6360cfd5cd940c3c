"""Streams as engines write them, and ways to cut them: for tests of what passes them on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["DONE", "chunked", "events"]

DONE = b"data: [DONE]\n\n"
_TEXTS = (
    "\u4e16\u754c",
    "\U0001f600",
    "\u00e9",
    "plain",
    "data: [DONE]",
    '\\n\\n: \\"stop\\":true',
)


def events(rng: random.Random) -> bytes:
    """A whole stream: events, pings, comments, every line end, characters of 1 to 4 bytes."""
    made = []
    for _ in range(rng.randint(1, 8)):
        end = rng.choice([b"\n", b"\r\n", b"\r"])
        text = "".join(rng.choice(_TEXTS) for _ in range(rng.randint(0, 6))).encode()
        data = b'data: {"content":"' + text + b'","stop":false}' + end + end
        comment = rng.choice([b":" + end + end, b": ping" + end + end, b": \xff\xfe" + end + end])
        usage = b'data: {"usage":{"completion_tokens":%d}}' % rng.randint(0, 99) + end + end
        named = b"event: x" + end + b"id: 7" + end + data
        made.append(rng.choice([data, data, data, comment, usage, named]))
    return b"".join(made) + DONE


def chunked(whole: bytes, rng: random.Random) -> list[bytes]:
    """The same bytes in pieces: from one piece to single bytes."""
    count = rng.choice([0, 1, 3, 20, len(whole)])
    cuts = sorted(rng.randint(0, len(whole)) for _ in range(count))
    return [whole[a:b] for a, b in pairwise([0, *cuts, len(whole)]) if a != b]
