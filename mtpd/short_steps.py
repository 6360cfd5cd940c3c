"""Times single decode steps of a running engine, by replies that end after one.

A reply of ``rows`` + 2 tokens brings its first token with the prompt; the one step after it
verifies ``rows`` draft tokens and adds one more, if every draft token is accepted (the
engine drafts at most what the limit leaves: facts of llama-server, section 2.2). So one
start shows what a verification row costs, without a start per depth.

Each reply continues the text of the one before: the same text as a long reply makes, and
all of the prompt but its last token is cached. Then the decode before the step has one row,
as that of a steady plain step has. Covers asking and checking; what the times mean, and
how they differ from steady steps, is the tuner's business (docs/short_steps.md).
"""

from __future__ import annotations

import http
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from mtpd.engine import timings
from mtpd.types import Absent
from tuner.types import Drafter, ShortStep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from mtpd.engine.client import EngineClient
    from mtpd.engine.timings import Timings
    from mtpd.views import Json
    from tuner.types import Arm

__all__ = ["TRIES", "StepClock"]

log = structlog.get_logger()

TRIES = 6
"""Replies per wanted step: enough where all draft tokens hold in a sixth of the steps."""

REPLY_S = 120.0
"""How long a reply of a few tokens may take, its prompt included."""

WALK_TOKENS = 512
"""Longest walk along one text, so that the context is filled about as in a cell."""

WHOLE: Final = frozenset({Drafter.NONE, Drafter.MTP, Drafter.MTP_FILE})
"""Drafters that draft to their full depth before they are cut, which is what a ``ShortStep``
is said to hold; a draft model stops at the limit (facts of llama-server, section 2.3)."""

BUSY_TOKENS = 24
"""Length of the steady reply before every turn through the row counts. Without it a card idles
between single steps, because the engine restores its recurrent state before each, and its clock
sinks: on an H200 the same step grew from 32 to 44 ms within seconds, and with it stayed at 32."""

FIRST_AND_LAST = 2
"""Tokens of a reply beside its draft: one comes with the prompt, one ends the step."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """What came of one reply.

    Attributes:
        tokens: All that were generated.
        timings: What they took.
        ended: Whether the text cannot be continued from here.
    """

    tokens: tuple[int, ...]
    timings: Timings
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClock:
    """One engine start whose steps are timed.

    Attributes:
        client: Talks to it; nobody else may ask it meanwhile.
        arm: What runs.
        start_id: This engine start.
        fingerprint: Digest of all that a result depends on except the depth.
        seed: The same as the cells'.
        walk_tokens: Longest walk along one text.
    """

    client: EngineClient
    arm: Arm
    start_id: str
    fingerprint: str
    seed: int
    walk_tokens: int = WALK_TOKENS

    async def steps(self, texts: Sequence[str], wanted: int) -> AsyncGenerator[ShortStep]:
        """Steps with 0 to ``arm.depth`` rows, ``wanted`` of each where they can be had.

        What cannot be had is missing, and logged. Neither the first reply on each text, which
        processes it, nor the steady reply before each turn is measured.

        Args:
            texts: Prompts to continue, one after the other as each comes to its end.
            wanted: Steps per number of rows.

        Raises:
            UpstreamError: The engine does not answer.
        """
        turns = _Turns(self.arm.depth, wanted)
        why = "the texts came to their end"
        if self.arm.drafter not in WHOLE:
            why, texts = (
                f"a drafter of kind {self.arm.drafter.value} is not known to draft to the end",
                (),
            )
        for text in texts:
            reply = await self._reply(text, [], None)
            made: list[int] = []
            while not isinstance(reply, Absent):
                made += reply.tokens
                if reply.ended or len(made) >= self.walk_tokens or not turns.open:
                    break
                rows = turns.next()
                reply = await self._reply(text, made, rows)
                if rows is None or isinstance(reply, Absent):
                    continue
                if reply.timings.prompt_n != 1:
                    reply = Absent("the engine does not continue from its cached prompt")
                elif (step := self._step(reply.timings, rows)) is not None:
                    turns.took(rows)
                    yield step
            if isinstance(reply, Absent):
                why = reply.reason
                break
            if not turns.open:
                why = f"{TRIES} replies for each were tried"
                break
        turns.say_missing(self.arm, why)

    async def _reply(self, text: str, made: Sequence[int], rows: int | None) -> _Reply | Absent:
        """Continue a text by one step of so many rows, or steadily; or why that cannot be done."""
        limit = BUSY_TOKENS if rows is None else rows + FIRST_AND_LAST
        body: dict[str, Json] = {
            "prompt": [text, *made],
            "n_predict": limit,
            "temperature": 0.0,
            "seed": self.seed,
            "stream": False,
            "cache_prompt": True,
            "return_tokens": True,
            # What a step costs does not depend on where the model would end its answer.
            "ignore_eos": True,
        }
        status, reply = await self.client.post_json("/completion", body, timeout_s=REPLY_S)
        if status != http.HTTPStatus.OK or not isinstance(reply, dict):
            return Absent(f"the engine answered /completion with status {status}")
        timed = timings.from_response(reply)
        if isinstance(timed, Absent):
            return timed
        tokens = _tokens(reply)
        if not tokens:
            return Absent("the engine's reply has no tokens")
        ended = len(tokens) < limit or reply.get("stop_type", "limit") != "limit"
        return _Reply(tokens, timed, ended)

    def _step(self, timed: Timings, rows: int) -> ShortStep | None:
        """The step, if it was one with so many rows and all of them were accepted."""
        kept = (timed.predicted_n, timed.draft_n or 0, timed.draft_n_accepted or 0)
        if kept != (rows + FIRST_AND_LAST, rows, rows) or not timed.predicted_ms:
            return None
        return ShortStep(
            arm=self.arm,
            start_id=self.start_id,
            fingerprint=self.fingerprint,
            rows=rows,
            step_s=timed.predicted_ms / 1000,
            context_tokens=timed.cache_n + timed.prompt_n,
        )


class _Turns:
    """Row counts in turn, so that a slow drift of the card does not look like row cost."""

    def __init__(self, depth: int, wanted: int) -> None:
        self._wanted = dict.fromkeys(range(depth + 1), wanted)
        self._tries = dict.fromkeys(range(depth + 1), wanted * TRIES)
        self._last = -1

    @property
    def missing(self) -> dict[str, int]:
        """How many steps are missing, by their rows."""
        return {str(rows): left for rows, left in self._wanted.items() if left}

    @property
    def open(self) -> tuple[int, ...]:
        """Row counts that lack steps and have tries left."""
        return tuple(rows for rows, left in self._wanted.items() if left and self._tries[rows])

    def say_missing(self, arm: Arm, why: str) -> None:
        """Log what could not be had, if anything."""
        if self.missing:
            log.info("short_steps.missing", arm=str(arm), rows=self.missing, reason=why)

    def next(self) -> int | None:
        """The rows to try now; None after each turn through them."""
        rows = min((rows for rows in self.open if rows > self._last), default=None)
        self._last = -1 if rows is None else rows
        if rows is not None:
            self._tries[rows] -= 1
        return rows

    def took(self, rows: int) -> None:
        """A step with so many rows was had."""
        self._wanted[rows] -= 1


def _tokens(reply: Mapping[str, Json]) -> tuple[int, ...]:
    found = reply.get("tokens")
    if not isinstance(found, list):
        return ()
    return tuple(token for token in found if isinstance(token, int))
