"""Which state leads to which, found by playing the pure machines; and drawings of it.

``python -m tests.documents`` writes the drawings in docs/images and the tables of ways in
docs/supervision.md and docs/architecture.md.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

from mtpd.proxy import admission
from mtpd.proxy.admission_types import (
    Arrive,
    Close,
    Done,
    Drained,
    Failed,
    Forget,
    Hold,
    Leave,
    Lost,
    Ready,
    Reject,
    Release,
    Serving,
    State,
    Stopped,
    Tick,
    WantEngine,
)
from mtpd.supervise.states import label
from tests.documents.drawing import Drawing
from tests.property.supervise.test_machine_world import SEEDS, World, drawn

if TYPE_CHECKING:
    from mtpd.proxy.admission_types import Event

__all__ = ["BLOCKS", "FILES"]

Edges = dict[tuple[str, str], set[str]]
"""From a state to another: the events that lead there."""

ENGINE = Drawing(
    title="Lifecycle of an engine",
    places={
        "failed": (1, 0),
        "backoff": (3, 0),
        "stopped": (0, 1),
        "spawning": (2, 1),
        "loading": (3, 1),
        "probing": (4, 1),
        "ready": (5, 1),
        "releasing": (2, 2),
        "stopping": (4, 2),
        "gpu_failed": (0, 2),
        "vram_unrecovered": (1, 3),
        "wedged": (3, 3),
    },
    good=("ready",),
    bad=("failed", "gpu_failed", "vram_unrecovered", "wedged", "backoff"),
)
QUEUE = Drawing(
    title="What the queue of a device knows of its engine",
    places={"no engine": (0, 0), "pending": (2, 0), "serving": (4, 0), "recovering": (4, 1)},
    good=("serving",),
    bad=("recovering",),
)
REQUEST = Drawing(
    title="Life of a request",
    places={
        "arrives": (0, 0),
        "waiting": (1, 0),
        "running": (3, 0),
        "ended": (4, 0),
        "turned away": (0, 1),
        "left": (2, 1),
    },
    good=("running",),
    bad=("turned away",),
)
PROFILES = ("a", "b")
ROUNDS = 400


class Recorder(World):
    """A world that remembers which event changed the name of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: set[tuple[str, str, str]] = set()

    def deliver(self) -> None:
        if self.inbox:
            event, old = type(self.inbox[0]).__name__, label(self.engine.state)
            super().deliver()
            if (new := label(self.engine.state)) != old:
                self.moves.add((old, event, new))


@cache
def engine_edges() -> Edges:
    """Every change of an engine's state that some order of events leads to."""
    edges: Edges = {}
    for seed in SEEDS:
        world = Recorder()
        for action, number in drawn(seed):
            world.act(action, number)
        for old, event, new in world.moves:
            edges.setdefault((old, new), set()).add(event)
    return edges


class Queue:
    """A switchboard that answers at random, and clients that come and go."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a game
        self.state = State(limit=self.dice.randint(1, 4), timeout_s=10.0)
        self.requests: dict[int, str] = {}
        self.wanted: str | None = None
        self.held = self.drained = False
        self.engine: Edges = {}
        self.request: Edges = {}

    def post(self, event: Event) -> None:
        """Deliver an event and note what changed."""
        before, had = self.engine_label(), dict(self.requests)
        self.state, effects = admission.step(self.state, event)
        name = type(event).__name__
        if (after := self.engine_label()) != before:
            self.engine.setdefault((before, after), set()).add(name)
        for effect in effects:
            match effect:
                case WantEngine(profile):
                    self.wanted = profile
                case Drained():
                    self.drained = True
                case Reject(who):
                    self.requests[who] = "turned away"
                case _:
                    pass
        waiting = {waiter.id for waiter in self.state.waiting}
        for who, told in self.requests.items():
            if told not in {"turned away", "left", "ended"}:
                now = "waiting" if who in waiting else told
                self.requests[who] = "running" if who in self.state.running else now
        for who, now in self.requests.items():
            if (then := had.get(who, "arrives")) != now:
                self.request.setdefault((then, now), set()).add(name)

    def engine_label(self) -> str:
        """The queue's word for its engine, in small letters."""
        words = {"NoEngine": "no engine"}
        name = type(self.state.engine).__name__
        return words.get(name, name.lower())

    def turn(self) -> None:
        """One thing that may happen now, at random."""
        open_ones = [who for who, told in self.requests.items() if told in {"waiting", "running"}]
        running = [who for who in open_ones if who in self.state.running]
        profile = self.dice.choice(PROFILES)
        may: list[str] = ["arrive", "arrive", "tick"]
        may += ["leave"] * bool(open_ones) + ["done", "done"] * bool(running)
        may += ["answer"] * 3 * (self.wanted is not None)
        may += ["lost"] * isinstance(self.state.engine, Serving)
        may += ["mend", "give up"] * (self.engine_label() == "recovering")
        may += ["release" if self.held else "hold"]
        may += ["stop"] * (self.drained and isinstance(self.state.engine, Serving))
        match self.dice.choice(may):
            case "arrive":
                who = len(self.requests) + 1
                self.requests[who] = "arrives"
                self.post(Arrive(who, profile, self.state.now))
            case "tick":
                self.post(Tick(self.state.now + self.dice.choice((0.1, 1.0, 4.0))))
            case "leave":
                self.end(self.dice.choice(open_ones), "left")
            case "done":
                self.end(self.dice.choice(running), "ended")
            case other:
                self.switchboard(other)

    def end(self, who: int, how: str) -> None:
        """A request ends by itself."""
        then, self.requests[who] = self.requests[who], how
        event = Done(who) if how == "ended" else Leave(who)
        self.request.setdefault((then, how), set()).add(type(event).__name__)
        self.post(event)

    def switchboard(self, what: str) -> None:
        """What the other side of the queue does."""
        wanted, now = self.wanted, self.state.now
        serves = getattr(self.state.engine, "profile", PROFILES[0])
        match what:
            case "answer" if wanted is not None:
                self.wanted = None
                if self.dice.random() < 0.7:
                    self.post(Ready(wanted, 2))
                else:
                    self.post(Failed(profile=wanted, why="no", now=now, retry_after_s=3.0))
            case "lost":
                self.post(Lost())
            case "mend":
                self.post(Ready(serves, 2))
            case "give up":
                self.post(Failed(profile=serves, why="no", now=now, retry_after_s=3.0))
            case "hold":
                self.held = True
                self.post(Hold("measured"))
            case "release":
                self.held = self.drained = False
                self.post(Release())
            case _:
                self.post(Stopped())


@cache
def _queues() -> tuple[Edges, Edges]:
    engine: Edges = {}
    request: Edges = {}
    for seed in range(ROUNDS):
        world = Queue(seed)
        for _ in range(60):
            world.turn()
        world.post(Forget(PROFILES[0], "removed") if seed % 2 else Close("ends"))
        for found, all_of_them in ((world.engine, engine), (world.request, request)):
            for edge, events in found.items():
                all_of_them.setdefault(edge, set()).update(events)
    return engine, request


def table(edges: Edges) -> str:
    """One row per way."""
    rows = [
        f"| {old} | {new} | {', '.join(sorted(edges[old, new]))} |" for old, new in sorted(edges)
    ]
    return "\n".join(["| from | to | by |", "|---|---|---|", *rows])


BLOCKS = {
    "ways engine": table(engine_edges()),
    "ways queue": table(_queues()[0]),
    "ways request": table(_queues()[1]),
}
FILES = {
    "docs/images/states_engine.svg": ENGINE.svg(engine_edges()),
    "docs/images/states_queue.svg": QUEUE.svg(_queues()[0]),
    "docs/images/states_request.svg": REQUEST.svg(_queues()[1]),
}
"""Drawings by their path in the repository."""
