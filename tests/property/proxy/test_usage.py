"""The tap sees the same whatever the chunking, and survives any bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.proxy.usage import Tap, usage_of

LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
EVENTS = st.sampled_from(
    [
        b": ping",
        b"event: x",
        'data: {"choices":[{"delta":{"content":"\u00e9\u4e16\U0001f600"}}]}'.encode(),
        b'data: {"content":"a","stop":false}',
        b'data: {"content":"","stop":true,"timings":{"predicted_n":7}}',
        b'data: {"usage":{"prompt_tokens":3}}',
        b'data: {"error":{"message":"x"}}',
        b'data:{"usage":\ndata: {"completion_tokens":2}}',
        b"data: [DONE]",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    end = draw(LINE_ENDS)
    return b"".join(e.replace(b"\n", end) + end + end for e in draw(st.lists(EVENTS, max_size=8)))


@settings(max_examples=300)
@given(streams(), st.lists(st.integers(0, 400), max_size=30))
def test_the_chunking_makes_no_difference(stream: bytes, cuts: list[int]) -> None:
    whole, cut = Tap(sse=True), Tap(sse=True)
    whole.feed(stream)
    edges = [0, *sorted(c for c in cuts if c <= len(stream)), len(stream)]
    for start, stop in pairwise(edges):
        cut.feed(stream[start:stop])

    bytewise = Tap(sse=True)
    for byte in stream:
        bytewise.feed(bytes([byte]))

    assert cut.summary() == whole.summary() == bytewise.summary()
    assert whole.summary().between_events
    assert whole.summary().complete == (b"[DONE]" in stream or b'"stop":true' in stream)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_bytes_are_survived(chunks: list[bytes]) -> None:
    for tap in (Tap(sse=True), Tap(sse=False)):
        for chunk in chunks:
            tap.feed(chunk)
            usage_of(tap.summary())
