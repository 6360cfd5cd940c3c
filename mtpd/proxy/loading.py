"""What a client that asked for a stream is told while its model is not ready; pure.

Two ways: SSE comments, which every client passes over (WHATWG HTML 9.2.5), and
llama-swap's lines, which a chat shows as the model's reasoning (its
``internal/router/loading.go``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mtpd.config.model import LoadingState

__all__ = ["Outlook", "Words", "speaks"]

LOADING = frozenset({"spawning", "loading", "probing"})
RULE = "━━━━━"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a request waits for.

    Attributes:
        state: Of the model's engine; "stopped" where there is none.
        depth: At which it is started or runs; None where it is not.
        ahead: Waiting requests that rank before this one.
        waited_s: How long so far.
    """

    state: str
    depth: int | None
    ahead: int
    waited_s: float


def speaks(mode: LoadingState, target: str, *, stream: bool) -> bool:
    """Whether a request for this path of the engine is told anything."""
    if mode is LoadingState.REASONING:
        return stream and target.endswith("/chat/completions")
    return stream and mode is LoadingState.COMMENTS


class Words:
    """To one client, from its first word to its answer."""

    def __init__(self, mode: LoadingState, name: str) -> None:
        self._comments = mode is LoadingState.COMMENTS
        self._name = name
        self._ahead: int | None = None

    def more(self, outlook: Outlook) -> bytes:
        """What is told now; nothing while llama-swap would not speak either."""
        if self._comments:
            return f": mtpd {self._sentence(outlook)}\n\n".encode()
        began = self._ahead is not None
        if not began and outlook.state == "ready":
            return b""
        news = outlook.ahead != self._ahead
        self._ahead = outlook.ahead
        opening = "" if began else f"{RULE}\nmtpd loading model: {self._name}\n"
        place = f"\nQueue position: #{outlook.ahead + 1} " if news and outlook.ahead else ""
        return _reasoning(opening + place or ".")

    def done(self, waited_s: float) -> bytes:
        """What is told before the answer."""
        if self._ahead is None:
            return b""
        self._ahead = None
        return _reasoning(f"\nDone! ({waited_s:.2f}s)\n{RULE}\n \n")

    def _sentence(self, outlook: Outlook) -> str:
        match outlook.state:
            case "ready":
                what = f"{self._name} is busy"
            case state if state in LOADING:
                depth = "" if outlook.depth is None else f" at depth {outlook.depth}"
                what = f"loading {self._name}{depth}"
            case _:
                what = f"waiting for {self._name}"
        ahead = f", {outlook.ahead} before this one" if outlook.ahead else ""
        return f"{what}{ahead}, {outlook.waited_s:.1f} s"


def _reasoning(text: str) -> bytes:
    event = {"choices": [{"delta": {"reasoning_content": text}}]}
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
