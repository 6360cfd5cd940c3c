from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.proxy.usage import MAX_EVENT_BYTES, MAX_JSON_BYTES, Tap, Usage, usage_of

if TYPE_CHECKING:
    from pathlib import Path

TIMINGS = (
    b'"timings":{"cache_n":3,"prompt_n":7,"predicted_n":20,"predicted_per_second":41.5,'
    b'"draft_n":18,"draft_n_accepted":12}'
)


def tapped(*chunks: bytes, sse: bool = True) -> Tap:
    tap = Tap(sse=sse)
    for chunk in chunks:
        tap.feed(chunk)
    return tap


def test_a_chat_stream_gives_its_last_timings_and_its_end() -> None:
    tap = tapped(
        b": ping\n\n",
        b'data: {"choices":[{"delta":{"content":"\xc3',
        b'\xa9"}}]}\r\n\r\n',
        b'data: {"timings":{"predicted_n":1}}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":20},' + TIMINGS,
        b"}\n\ndata: [DONE]\n\n",
    )
    summary = tap.summary()
    assert summary.complete
    assert summary.between_events
    assert not summary.error
    assert usage_of(summary) == Usage(
        prompt_tokens=10,
        completion_tokens=20,
        decode_tps=41.5,
        drafted=18,
        accepted=12,
        generated=20,
        cached_tokens=3,
    )


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_that_have_data_are_counted_however_they_come(size: int) -> None:
    text = (
        b': ping\n\ndata: {"content":"a"}\n\ndata: {"content":"data: b"}\n\n'
        b'event: x\ndata: {"content":"c"}\n\n\n\ndata: [DONE]\n\n'
    )
    tap = tapped(*(text[i : i + size] for i in range(0, len(text), size)))
    assert tap.events == 4
    assert tapped(b'{"content":"a"}', sse=False).events == 0


def test_the_native_stream_ends_with_stop_true() -> None:
    assert not tapped(b'data: {"content":"a","stop":false}\n\n').summary().complete
    assert tapped(b'data: {"content":"a","stop": true}\n\n').summary().complete


def test_text_that_looks_like_an_end_is_not_one() -> None:
    inside = b'data: {"content":"data: [DONE] \\"stop\\":true message_stop","stop":false}\n\n'
    assert not tapped(inside).summary().complete
    assert not tapped(b": [DONE]\n\n").summary().complete


def test_the_anthropic_stream_ends_with_message_stop() -> None:
    tap = tapped(
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":5}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    )
    assert tap.summary().complete
    assert usage_of(tap.summary()).completion_tokens == 5


def test_an_event_without_its_empty_line_does_not_count() -> None:
    summary = tapped(b"data: [DONE]\n").summary()
    assert not summary.complete
    assert not summary.between_events


def test_an_error_event_is_seen() -> None:
    summary = tapped(b'data: {"error":{"code":500,"message":"x"}}\n\n').summary()
    assert summary.error
    assert not summary.complete


def test_an_event_beyond_the_limit_is_passed_over_and_the_next_one_is_read() -> None:
    big = b"data: " + b"x" * (MAX_EVENT_BYTES + 10)
    tap = tapped(big[: MAX_EVENT_BYTES // 2], big[MAX_EVENT_BYTES // 2 :], b"\n")
    assert not tap.summary().between_events
    assert len(tap._line) == 0
    tap.feed(b'data: [DONE]\n\ndata: {"stop":true}\n\n')
    assert tap.summary().complete
    assert tap.summary().between_events


def test_a_json_body_is_read_when_it_is_whole() -> None:
    tap = tapped(b'{"choices":[],"usage":{"prompt_tokens":1},', sse=False)
    assert not tap.summary().complete
    tap.feed(TIMINGS + b"}")
    assert tap.summary().complete
    assert usage_of(tap.summary()).prompt_tokens == 1
    assert usage_of(tap.summary()).completion_tokens == 20


def test_a_json_body_beyond_the_limit_stays_unknown_and_is_not_kept() -> None:
    tap = tapped(*([b" " * 1024 * 1024] * (MAX_JSON_BYTES // 1024 // 1024 + 1)), b"{}", sse=False)
    assert not tap.summary().complete
    assert len(tap._line) == 0


def test_prompt_tokens_of_timings_count_the_cached_ones() -> None:
    assert usage_of(tapped(b"{" + TIMINGS + b"}", sse=False).summary()).prompt_tokens == 10


@pytest.mark.parametrize("bad", [b'"9"', b"-1", b"true", b"null", b"1.5", b"[]"])
def test_a_figure_that_is_not_a_count_stays_unknown(bad: bytes) -> None:
    body = b'{"timings":{"prompt_n":%s,"predicted_n":%s,"draft_n":%s}}' % (bad, bad, bad)
    assert usage_of(tapped(body, sse=False).summary()) == Usage()


@pytest.mark.parametrize("bad", [b"NaN", b"Infinity", b"-2", b"1" + b"0" * 400, b'"x"', b"true"])
def test_a_rate_that_is_not_a_number_stays_unknown(bad: bytes) -> None:
    body = b'{"timings":{"predicted_per_second":%s}}' % bad
    assert usage_of(tapped(body, sse=False).summary()).decode_tps is None


def test_every_recorded_stream_of_the_real_engine_is_seen_as_complete(corpus: Path) -> None:
    streams = sorted((corpus / "logs").glob("*.sse"))
    assert len(streams) >= 8
    for path in streams:
        summary = tapped(path.read_bytes()).summary()
        usage = usage_of(summary)
        assert summary.complete, path.name
        assert not summary.error
        assert usage.prompt_tokens, path.name
        assert usage.drafted, path.name
        assert usage.accepted is not None


@pytest.mark.parametrize(
    ("event", "seen"),
    [
        (b'{"choices":[{"delta":{"reasoning_content":"Let me"}}]}', True),
        (b'{"choices":[{"delta":{"reasoning_content":null,"content":"x"}}]}', False),
        (b'{"choices":[{"delta":{"reasoning_content":""}}]}', False),
        (b'{"delta":{"type":"thinking_delta","thinking":"Hm"}}', True),
        (b'{"type":"response.reasoning_text.delta","delta":"Hm"}', True),
        (b'{"choices":[{"delta":{"content":"\\"reasoning_content\\": \\"x\\""}}]}', False),
    ],
)
def test_a_reasoning_trace_is_noticed(event: bytes, seen: bool) -> None:  # noqa: FBT001
    assert tapped(b"data: " + event + b"\n\ndata: [DONE]\n\n").summary().reasoning is seen
    assert tapped(event, sse=False).summary().reasoning is seen


def test_times_and_a_dropped_context_are_read() -> None:
    body = b'{"truncated":true,"timings":{"prompt_ms":250.0,"predicted_n":9,"predicted_ms":1500}}'
    summary = tapped(body, sse=False).summary()
    assert summary.truncated
    usage = usage_of(summary)
    assert (usage.generated, usage.decode_s, usage.prompt_s) == (9, 1.5, 0.25)
