from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mtpd.config.model import BodyLimits
from mtpd.proxy.endpoints import Endpoint
from mtpd.proxy.json_body import MAX_DEPTH, BadBody, parse
from mtpd.proxy.policy import Examined, examine

if TYPE_CHECKING:
    from collections.abc import Mapping

USUAL = BodyLimits()
CHAT = Endpoint("/v1/chat/completions", "/v1/chat/completions", streams=True)
IMAGE = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/x.png"}}


def refused(fields: Mapping[str, object], limits: BodyLimits = USUAL) -> BadBody | None:
    examined = examine(json.dumps(fields).encode(), CHAT, limits)
    return examined if isinstance(examined, BadBody) else None


def asks(part: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"id_slot": 0}, "id_slot", "cannot be chosen"),
        ({"lora": [{"id": 0, "scale": 1}]}, "lora", "cannot be chosen"),
        ({"n": 17}, "n", "'n' is 17; at most 16 answers"),
        ({"n_probs": 21}, "n_probs", "at most 20 alternatives"),
        ({"top_logprobs": 21}, "top_logprobs", "at most 20 alternatives"),
        ({"logprobs": 1e9}, "logprobs", "at most 20 alternatives"),
        ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias", "1025 biased tokens"),
        ({"logit_bias": [[n, 1] for n in range(1025)]}, "logit_bias", "1025 biased tokens"),
        ({"stop": ["x"] * 65}, "stop", "65 stop texts"),
        ({"messages": [{}] * 4097}, "messages", "4097 messages"),
        ({"input": ["x"] * 4097}, "input", "4097 inputs"),
        ({"grammar": "root ::= " + "(" * 257}, "grammar", "more than 256 brackets"),
        ({"grammar": 'root ::= "\\"" ' + "(" * 257}, "grammar", "more than 256 brackets"),
        ({"grammar": "x" * 65537}, "grammar", "65537 characters"),
        ({"json_schema": {"x": "y" * 65536}}, "json_schema", "more than 65536"),
        ({"response_format": {"x": "y" * 65536}}, "response_format", "more than 65536"),
        ({"text": {"format": "y" * 65536}}, "text", "more than 65536"),
        (asks(IMAGE), "messages", "'http://10.0.0.1/x.png' is not fetched"),
        (asks({"image_url": " HTTPS://x/y"}), "messages", "is not fetched"),
        (asks({"image_url": {"url": "file:///etc/passwd"}}), "messages", "is not fetched"),
        (asks({"input_audio": {"data": "http://x/a.wav"}}), "messages", "is not fetched"),
        (asks({"source": {"type": "url", "url": "http://x"}}), "messages", "is not fetched"),
        ({"input": [{"content": [{"image_url": "http://x"}]}]}, "input", "is not fetched"),
        (
            asks({"type": "tool_result", "content": [{"image_url": "http://x"}]}),
            "messages",
            "is not fetched",
        ),
    ],
)
def test_what_is_refused_is_told_with_its_place(
    fields: dict[str, object], param: str, says: str
) -> None:
    bad = refused(fields)
    assert bad is not None
    assert bad.param == param
    assert says in bad.reason
    assert len(bad.reason) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"id_slot": -1, "lora": [], "n": 16, "n_probs": 20, "top_logprobs": 20, "logprobs": True},
        {"n": None, "logit_bias": None, "stop": "x", "grammar": None, "response_format": None},
        {"stop": ["x"] * 64, "logit_bias": [[n, 1] for n in range(1024)]},
        {"input": list(range(100_000))},
        {"prompt": list(range(100_000))},
        {"grammar": "root ::= " + "(" * 256 + ")" * 256 + "(" * 256},
        {"grammar": 'root ::= "' + "(" * 400 + '" [' + "(" * 400 + "] # " + "(" * 400},
        {"max_tokens": 10**9, "n_predict": -1},
        {"tools": [{"function": {"parameters": {"image_url": "http://x"}}}]},
        asks({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
        asks({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        asks({"type": "text", "text": "http://x is a URL"}),
    ],
)
def test_what_clients_usually_send_is_passed_on_as_it_came(fields: dict[str, object]) -> None:
    body = json.dumps(fields).encode()
    examined = examine(body, CHAT, USUAL)
    assert isinstance(examined, Examined)
    assert examined.body is body


def test_whoever_allows_it_has_images_fetched() -> None:
    assert refused(asks(IMAGE), BodyLimits(remote_media=True)) is None


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_more_tokens_than_are_configured_are_refused(key: str) -> None:
    limits = BodyLimits(max_tokens=100)
    assert refused({key: 100}, limits) is None
    bad = refused({key: 101}, limits)
    assert bad is not None
    assert bad.reason == (
        f"{key!r} is 101; at most 100 tokens ([server.limits] max_tokens) may be asked for"
    )


@pytest.mark.parametrize(
    ("target", "body", "sent"),
    [
        ("/v1/chat/completions", b'{ "n":1 }', b'{"max_tokens":100, "n":1 }'),
        ("/completion", b"{}", b'{"n_predict":100}'),
        ("/v1/responses", b"{}", b'{"max_output_tokens":100}'),
        ("/v1/messages", b"{}", b'{"max_tokens":100}'),
        ("/completion", b'{"n_predict": -1}', b'{"n_predict": 100}'),
        ("/completion", b'{"n_predict": null, "x": 1}', b'{"n_predict": 100, "x": 1}'),
        ("/completion", b'{"n_predict": 5}', b'{"n_predict": 5}'),
        ("/completion", b'{"max_tokens": 7}', b'{"max_tokens": 7}'),
    ],
)
def test_who_names_no_number_gets_the_configured_one(target: str, body: bytes, sent: bytes) -> None:
    endpoint = Endpoint(target, target, streams=True)
    examined = examine(body, endpoint, BodyLimits(max_tokens=100))
    assert isinstance(examined, Examined)
    assert examined.body == sent


def test_what_generates_nothing_gets_no_number() -> None:
    examined = examine(b"{}", Endpoint("/tokenize", "/tokenize"), BodyLimits(max_tokens=100))
    assert isinstance(examined, Examined)
    assert examined.body == b"{}"


def nested(levels: int) -> bytes:
    return b'{"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_nesting_has_a_limit() -> None:
    assert not isinstance(parse(nested(MAX_DEPTH)), BadBody)
    bad = parse(nested(MAX_DEPTH + 1))
    assert isinstance(bad, BadBody)
    assert "at most 128 levels" in bad.reason


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"model":"a","model":"b"}', "model"),
        (b'{"x":[{"y":1,"\\u0079":1}]}', "y"),
    ],
)
def test_a_key_may_not_come_twice(body: bytes, key: str) -> None:
    assert parse(body) == BadBody(f"the key {key!r} comes twice", key)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_only_python_takes_for_a_number_is_refused(name: str) -> None:
    body = f'{{"model": "a", "sampling": {{"temperature": {name}}}}}'.encode()
    assert parse(body) == BadBody(f"the body is not JSON: {name} is no value of it")


@pytest.mark.parametrize("text", ["1e999", "-1e999", "9" * 400 + ".0"])
def test_a_number_that_would_be_written_as_infinity_is_refused(text: str) -> None:
    body = f'{{"model": "a", "chat_template_kwargs": {{"x": {text}}}}}'.encode()
    assert parse(body) == BadBody(f"the number {text[:40]} in the body is too large")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["url", "image_url", "type", "data", "schema", "content"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
keys = st.sampled_from(
    [
        *("messages", "input", "grammar", "json_schema", "response_format", "id_slot", "lora"),
        *("n", "n_probs", "logprobs", "top_logprobs", "logit_bias", "stop", "max_tokens"),
        *("n_predict", "max_output_tokens", "max_completion_tokens", "model", "stream", "x"),
    ]
)


@given(
    st.dictionaries(keys, anything, max_size=6),
    st.builds(BodyLimits, max_tokens=st.integers(0, 50), remote_media=st.booleans()),
    st.sampled_from(["/v1/chat/completions", "/completion", "/v1/responses"]),
)
def test_a_body_is_refused_or_sent_with_at_most_its_number_of_tokens_put_in(
    fields: dict[str, object], limits: BodyLimits, target: str
) -> None:
    body = json.dumps(fields).encode()
    examined = examine(body, Endpoint(target, target, streams=True), limits)
    if isinstance(examined, BadBody):
        assert examined.reason
        return
    sent = json.loads(examined.body)
    tokens = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"}
    assert json.dumps({k: v for k, v in sent.items() if k not in tokens}) == json.dumps(
        {k: v for k, v in fields.items() if k not in tokens}
    )
    if not limits.max_tokens:
        assert examined.body is body
        return
    named = [sent[key] for key in tokens & sent.keys()]
    assert named
    assert all(
        not (isinstance(n, int | float) and not isinstance(n, bool)) or not n > limits.max_tokens
        for n in named
    )
    # what was sent is allowed and final
    again = examine(examined.body, Endpoint(target, target, streams=True), limits)
    assert isinstance(again, Examined)
    assert again.body == examined.body


@given(st.binary(max_size=200))
@example(b"[" * 100_000)
@example(b'{"a":1,"a":1}')
def test_any_bytes_have_an_outcome(body: bytes) -> None:
    assert isinstance(examine(body, CHAT, USUAL), BadBody | Examined)
