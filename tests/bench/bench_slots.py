"""What a saved slot would spare when the draft depth is changed in the middle of chats.

Run as ``python -m tests.bench.bench_slots``. Chats are played on an engine at depth 1 whose
slot is saved after every reply. An engine at depth 2 then takes each turn with the saved
slot of the turn before, or with nothing; the engine at depth 1 tells what a change costs
at all. A client sends the replies back as text, in one of these ways:

- as they came;
- with their first half left out, as clients do with what a model thought;
- regenerated: the last turn is asked once more.

An exact continuation of the saved tokens is the case for which slots are made; it needs a
client that sends tokens, which chat clients do not.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from mtpd.engine import timings
from mtpd.engine.timings import Timings
from tests.bench.host import machine
from tests.contract.harness import EMBEDDED, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from mtpd.engine.client import EngineClient
    from mtpd.views import Json

OPENINGS = (
    "Explain in plain words the parcel with the fields weight: float, owner: str, rank: int.",
    "Write a function that counts the words of a file and returns the most frequent ones.",
    "Describe the station with the fields city: str, level: int, open: bool, height: float.",
    "Explain step by step how to load, check, build, save and close the archive.",
)
FOLLOWING = ("Shorter, please.", "Give an example.", "And what if it is empty?", "Why is that so?")
CONTEXT, REPLY_TOKENS, TIMEOUT_S = 8192, 96, 60.0
KINDS = ("same engine", "slot restored", "nothing restored")

Chat = list[dict[str, str]]


def as_it_came(chat: Chat) -> Chat:
    """Replies go back whole."""
    return chat


def half_left_out(chat: Chat) -> Chat:
    """Of each reply only its second half goes back."""
    return [
        {**m, "content": m["content"][len(m["content"]) // 2 :]} if m["role"] == "assistant" else m
        for m in chat
    ]


def regenerated(chat: Chat) -> Chat:
    """The last reply is thrown away, and its question asked once more."""
    return chat[:-2]


WAYS: dict[str, Callable[[Chat], Chat]] = {
    "replies as they came": as_it_came,
    "their first half left out": half_left_out,
    "regenerated": regenerated,
}


@dataclass(slots=True)
class Tally:
    """Prompt tokens of one way of going on with a chat, and how many of them were cached."""

    prompt: int = 0
    cached: Counter[str] = field(default_factory=Counter)
    texts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def row(self, name: str) -> str:
        """A line of the table."""
        shares = (f"{100 * self.cached[kind] / self.prompt:.1f} %" for kind in KINDS)
        return f"{name:<28}{self.prompt:>9}" + "".join(f"{share:>19}" for share in shares)


@dataclass(slots=True)
class Files:
    """What was written and read."""

    tokens: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    save_s: list[float] = field(default_factory=list)
    restore_s: list[float] = field(default_factory=list)


async def say(client: EngineClient, chat: Chat) -> tuple[str, Timings]:
    """The reply to a chat."""
    reply: Any = await client.complete(
        "/v1/chat/completions",
        {"messages": [dict(m) for m in chat], "max_tokens": REPLY_TOKENS, "temperature": 0},
        timeout_s=TIMEOUT_S,
    )
    timed = timings.from_response(reply)
    assert isinstance(timed, Timings), timed
    return str(reply["choices"][0]["message"]["content"]), timed


async def slot(client: EngineClient, action: str, name: str | None = None) -> tuple[Any, float]:
    """Save, restore or erase the slot; the engine's reply, and the seconds that it took."""
    began = time.perf_counter()
    body: dict[str, Json] = {} if name is None else {"filename": name}
    reply = await client.complete(f"/slots/0?action={action}", body, timeout_s=TIMEOUT_S)
    return reply, time.perf_counter() - began


async def play(client: EngineClient, opening: str, name: str, files: Files) -> Chat:
    """One chat to its end; the slot is saved after each reply."""
    chat: Chat = []
    for turn, asked in enumerate((opening, *FOLLOWING)):
        chat = [*chat, {"role": "user", "content": asked}]
        reply, _ = await say(client, chat)
        chat = [*chat, {"role": "assistant", "content": reply}]
        saved, seconds = await slot(client, "save", f"{name}-{turn}")
        files.tokens.append(saved["n_saved"])
        files.size.append(saved["n_written"])
        files.save_s.append(seconds)
    await slot(client, "erase")
    return chat


def continued(chat: Chat, turn: int, way: Callable[[Chat], Chat]) -> Chat:
    """What is asked after reply number ``turn``."""
    so_far = way(chat[: 2 * turn + 2])
    asked = chat[2 * turn] if way is regenerated else chat[2 * turn + 2]
    return [*so_far, asked]


async def measure() -> tuple[dict[str, Tally], Files]:
    """Play the chats, then each turn again in every way on every kind of engine."""
    tallies, files = {name: Tally() for name in WAYS}, Files()
    with tempfile.TemporaryDirectory(prefix="mtpd-slots-") as folder:
        home = Path(folder)
        chats = []
        async with engine(home, depth=1) as client:
            for number, opening in enumerate(OPENINGS):
                chats.append(await play(client, opening, str(number), files))
        for depth, kind in ((1, KINDS[0]), (2, KINDS[1]), (2, KINDS[2])):
            async with engine(home, depth=depth) as client:
                for (number, chat), turn, (name, way) in itertools.product(
                    enumerate(chats), range(len(FOLLOWING)), WAYS.items()
                ):
                    await slot(client, "erase")
                    if kind == KINDS[0]:
                        await say(client, chat[: 2 * turn + 1])
                    elif kind == KINDS[1]:
                        _, seconds = await slot(client, "restore", f"{number}-{turn}")
                        files.restore_s.append(seconds)
                    reply, timed = await say(client, continued(chat, turn, way))
                    tallies[name].texts[kind].append(reply)
                    tallies[name].cached[kind] += timed.cache_n
                    if kind == KINDS[2]:
                        tallies[name].prompt += timed.cache_n + timed.prompt_n
    return tallies, files


@asynccontextmanager
async def engine(home: Path, *, depth: int) -> AsyncIterator[EngineClient]:
    """The embedded engine that may save its slot."""
    flags = ("--spec-type", "draft-mtp", "--spec-draft-n-max", str(depth))
    saves = ("--slot-save-path", f"{home}/")
    async with serving(EMBEDDED, *flags, *saves, home=home, context=CONTEXT) as (_, client):
        yield client


def alike(tallies: Iterable[Tally], kind: str) -> str:
    """How many replies came out as on an engine that computed the whole prompt."""
    pairs = [
        pair
        for tally in tallies
        for pair in zip(tally.texts[kind], tally.texts[KINDS[2]], strict=True)
    ]
    return f"{sum(one == other for one, other in pairs)} of {len(pairs)}"


def main() -> None:
    """Print the table."""
    tallies, files = anyio.run(measure)
    lines = [
        f"machine: {machine()}",
        f"{len(OPENINGS)} chats of {1 + len(FOLLOWING)} turns, replies of {REPLY_TOKENS} tokens",
        f"{'share of the prompt cached':<28}{'tokens':>9}" + "".join(f"{k:>19}" for k in KINDS),
        *(tally.row(name) for name, tally in tallies.items()),
        "replies that are those of an engine on which nothing was restored: "
        + ", ".join(f"{alike(tallies.values(), kind)} ({kind})" for kind in KINDS[:2]),
        (
            f"a file of {max(files.tokens)} tokens has {max(files.size) / 1e6:.1f} MB; saving took"
            f" {1000 * statistics.median(files.save_s):.1f} ms, restoring"
            f" {1000 * statistics.median(files.restore_s):.1f} ms (medians)"
        ),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
