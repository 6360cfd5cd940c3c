from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.model import LoadingState
from mtpd.proxy.loading import Outlook, Words, speaks
from mtpd.proxy.usage import Tap


def outlook(
    state: str = "loading", *, depth: int | None = 2, ahead: int = 0, waited_s: float = 3.2
) -> Outlook:
    return Outlook(state=state, depth=depth, ahead=ahead, waited_s=waited_s)


def said(*words: bytes) -> list[str]:
    """The reasoning that llama-swap's events hold, exactly in its shape."""
    found = []
    for one in words:
        assert one.startswith(b"data: ")
        assert one.endswith(b"\n\n")
        event = json.loads(one[6:])
        assert list(event) == ["choices"]
        [choice] = event["choices"]
        assert list(choice) == ["delta"]
        assert list(choice["delta"]) == ["reasoning_content"]
        found.append(choice["delta"]["reasoning_content"])
    return found


@pytest.mark.parametrize(
    ("now", "comment"),
    [
        (outlook(), b": mtpd loading tiny at depth 2, 3.2 s\n\n"),
        (outlook(depth=None), b": mtpd loading tiny, 3.2 s\n\n"),
        (
            outlook("probing", ahead=2, depth=1),
            b": mtpd loading tiny at depth 1, 2 before this one, 3.2 s\n\n",
        ),
        (outlook("ready", ahead=1), b": mtpd tiny is busy, 1 before this one, 3.2 s\n\n"),
        (outlook("stopped", depth=None), b": mtpd waiting for tiny, 3.2 s\n\n"),
    ],
)
def test_a_comment_says_what_is_waited_for(now: Outlook, comment: bytes) -> None:
    assert Words(LoadingState.COMMENTS, "tiny").more(now) == comment


def test_after_comments_nothing_is_said_before_the_answer() -> None:
    words = Words(LoadingState.COMMENTS, "tiny")
    words.more(outlook())
    assert words.done(9.0) == b""


def test_the_reasoning_lines_are_llama_swaps() -> None:
    words = Words(LoadingState.REASONING, "org/tiny")
    told = [
        words.more(outlook(ahead=2)),
        words.more(outlook(ahead=2)),
        words.more(outlook(ahead=1)),
        words.more(outlook(ahead=0)),
        words.done(3.2),
    ]
    assert said(*told) == [
        "━━━━━\nmtpd loading model: org/tiny\n\nQueue position: #3 ",
        ".",
        "\nQueue position: #2 ",
        ".",
        "\nDone! (3.20s)\n━━━━━\n \n",
    ]


def test_a_chat_that_only_waits_for_its_turn_is_not_told_of_a_load() -> None:
    words = Words(LoadingState.REASONING, "tiny")
    assert words.more(outlook("ready", ahead=1)) == b""
    assert words.done(1.0) == b""


def test_the_end_is_told_once() -> None:
    words = Words(LoadingState.REASONING, "tiny")
    words.more(outlook())
    assert words.done(1.0)
    assert words.done(1.0) == b""


@pytest.mark.parametrize(
    ("mode", "target", "stream", "expected"),
    [
        ("off", "/v1/chat/completions", True, False),
        ("comments", "/v1/chat/completions", True, True),
        ("comments", "/completion", True, True),
        ("comments", "/completion", False, False),
        ("reasoning", "/v1/chat/completions", True, True),
        ("reasoning", "/chat/completions", True, True),
        ("reasoning", "/v1/chat/completions", False, False),
        ("reasoning", "/v1/messages", True, False),
    ],
)
def test_who_is_told(mode: str, target: str, stream: bool, expected: bool) -> None:  # noqa: FBT001
    assert speaks(LoadingState(mode), target, stream=stream) is expected


outlooks = st.builds(
    outlook,
    st.sampled_from(["spawning", "loading", "probing", "ready", "stopped", "backoff"]),
    depth=st.none() | st.integers(0, 16),
    ahead=st.integers(0, 64),
    waited_s=st.floats(0, 1e5),
)


@given(st.lists(outlooks), st.sampled_from([LoadingState.COMMENTS, LoadingState.REASONING]))
def test_words_leave_every_stream_between_events_and_complete_none(
    times: list[Outlook], mode: LoadingState
) -> None:
    words, tap = Words(mode, "tiny"), Tap(sse=True)
    for now in times:
        tap.feed(words.more(now))
    tap.feed(words.done(1.0))
    summary = tap.summary()
    assert summary.between_events
    assert not summary.complete
    assert not summary.error
