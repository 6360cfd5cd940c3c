"""What the configuration changes in a request's body."""

from __future__ import annotations

import json

import pytest

from mtpd.config.serving import BodyLimits
from mtpd.config.tables import Filters, Setting
from mtpd.proxy.endpoints import Endpoint
from mtpd.proxy.route import BadBody, Names, Routed, route
from tuner.classes import Sampling

CHAT = Endpoint("/v1/chat/completions", "/v1/chat/completions", streams=True)


def sent(body: bytes, filters: Filters, limits: BodyLimits = BodyLimits()) -> bytes:  # noqa: B008
    return routed(body, filters, limits).body


def routed(body: bytes, filters: Filters, limits: BodyLimits = BodyLimits()) -> Routed:  # noqa: B008
    names = Names(profiles={"m": "m", "m:high": "m"}, filters={"m": filters})
    found = route(body, names, CHAT, limits)
    assert isinstance(found, Routed)
    return found


def always(name: str, value: object, *, soft: bool = False) -> Setting:
    return Setting(path=tuple(name.split(".")), value=json.dumps(value), soft=soft)


@pytest.mark.parametrize(
    ("filters", "body", "after"),
    [
        (
            Filters(strip=(("top_k",), ("seed",))),
            b'{ "seed": 1, "model" : "m",\t"x": 1e30 , "top_k":5 }\n',
            b'{ "model" : "m",\t"x": 1e30 }\n',
        ),
        (Filters(strip=(("a", "b"),)), b'{"a":{"b":1,"c":[ 2]}}', b'{"a":{"c": [2]}}'),
        (Filters(strip=(("a", "b"),)), b'{"a": 1, "b": 2}', b'{"a": 1, "b": 2}'),
        (
            Filters(set=(always("seed", 7),)),
            b'{"seed": null, "x":[ ]}',
            b'{"seed": 7, "x":[ ]}',
        ),
        (Filters(set=(always("seed", 7),)), b"{ }", b'{"seed":7 }'),
        (Filters(set=(always("n", 1),)), b'{"n": true}', b'{"n": 1}'),
        (Filters(set=(always("seed", 7, soft=True),)), b'{"seed":1}', b'{"seed":1}'),
        (Filters(set=(always("seed", 7, soft=True),)), b'{"x":1}', b'{"seed":7,"x":1}'),
        (
            Filters(strip=(("seed",),), set=(always("seed", 7, soft=True),)),
            b'{"seed":1}',
            b'{"seed":7}',
        ),
        (Filters(set=(always("a.b", 1),)), b'{"a":{"c":2}}', b'{"a":{"c": 2, "b": 1}}'),
        (Filters(set=(always("a.b", 1),)), b'{"a":3}', b'{"a":{"b": 1}}'),
        (Filters(set=(always("a.b", 1, soft=True),)), b'{"a":{"b":3}}', b'{"a":{"b":3}}'),
    ],
)
def test_a_body(filters: Filters, body: bytes, after: bytes) -> None:
    assert sent(body, filters) == after


def test_what_is_set_by_the_name_that_was_asked_for_comes_last() -> None:
    filters = Filters(
        set=(always("effort", "low"), always("seed", 7)),
        by_name=(("m:high", (always("effort", "high"),)),),
    )
    assert json.loads(sent(b'{"model":"m"}', filters))["effort"] == "low"
    high = json.loads(sent(b'{"model":"m:high"}', filters))
    assert high == {"model": "m:high", "effort": "high", "seed": 7}


def test_a_body_that_no_filter_concerns_is_passed_on_as_it_came() -> None:
    raw = b'{ "model" :\t"m", "seed" : 7 }'
    filters = Filters(strip=(("top_k",),), set=(always("seed", 7),))
    assert sent(raw, filters) is raw


def test_a_client_is_not_told_of_what_it_has_not_sent() -> None:
    filters = Filters(strip=(("id_slot",),), set=(always("lora", [{"id": 0, "scale": 0}]),))
    assert json.loads(sent(b'{"id_slot": 3}', filters)) == {"lora": [{"id": 0, "scale": 0}]}
    names = Names(profiles={"m": "m"}, filters={"m": filters})
    assert route(b'{"lora": [1]}', names, CHAT) == BadBody(
        "'lora' cannot be chosen by a request", "lora"
    )


def test_the_limit_of_tokens_holds_for_what_is_left() -> None:
    limits = BodyLimits(max_tokens=100)
    assert json.loads(sent(b'{"max_tokens": 9}', Filters(strip=(("max_tokens",),)), limits)) == {
        "max_tokens": 100
    }
    own = Filters(set=(always("max_tokens", 500),))
    assert json.loads(sent(b"{}", own, limits)) == {"max_tokens": 500}


def test_the_request_is_what_the_engine_gets() -> None:
    found = routed(
        b'{"temperature": 0}',
        Filters(set=(always("temperature", 0.9), always("stream", value=True))),
    )
    assert found.stream is True
    assert found.traits.sampling is Sampling.SAMPLED
    assert routed(b'{"temperature": 0}', Filters()).traits.sampling is Sampling.GREEDY
