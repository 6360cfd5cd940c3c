from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.company import Company
from mtpd.proxy.route import Names, Routed, route
from mtpd.proxy.traits import Traits, traits_of
from tuner.classes import Kind, Sampling

PROSE = "The ship left the harbour early in the morning and nobody on the pier " * 3
CODE = "def add(a, b):\n    return a + b;\n\nclass Sum:\n    total = 0\n"


def chat(content: object, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **more}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (chat(PROSE), Kind.PROSE),
        (chat(CODE), Kind.CODE),
        (chat("Explain this:\n" + CODE), Kind.CODE),
        (chat([{"type": "text", "text": CODE}]), Kind.CODE),
        (chat([{"type": "image_url", "image_url": {"url": "x"}}]), Kind.MIXED),
        (chat("Hello"), Kind.MIXED),
        ({"prompt": PROSE}, Kind.PROSE),
        ({"prompt": [1, 2, 3]}, Kind.MIXED),
        ({"input": [{"role": "user", "content": PROSE}]}, Kind.PROSE),
        ({"input_prefix": "x", "input_suffix": "y"}, Kind.CODE),
        ({}, Kind.MIXED),
    ],
)
def test_the_kind_of_the_text(body: dict[str, Any], kind: Kind) -> None:
    assert traits_of(body).kind is kind


def test_only_the_end_of_the_last_messages_counts() -> None:
    turns = [{"role": "user", "content": CODE}, *([{"role": "user", "content": PROSE}] * 3)]
    assert traits_of({"messages": turns}).kind is Kind.PROSE
    assert traits_of({"prompt": CODE + "\n" + PROSE * 60}).kind is Kind.PROSE


@pytest.mark.parametrize(
    ("more", "sampling"),
    [
        ({}, Sampling.SAMPLED),
        ({"temperature": 0}, Sampling.GREEDY),
        ({"temperature": -1.0}, Sampling.GREEDY),
        ({"temperature": 0.7}, Sampling.SAMPLED),
        ({"temperature": True}, Sampling.SAMPLED),
        ({"temperature": "0"}, Sampling.SAMPLED),
        ({"temperature": 1.0, "top_k": 1}, Sampling.GREEDY),
    ],
)
def test_how_tokens_are_picked(more: dict[str, Any], sampling: Sampling) -> None:
    assert traits_of(chat("x", **more)).sampling is sampling


def test_a_routed_request_knows_them() -> None:
    body = json.dumps({"model": "a", "prompt": PROSE, "temperature": 0}).encode()
    routed = route(body, Names(profiles={"a": "a"}))
    assert isinstance(routed, Routed)
    assert routed.traits == Traits(kind=Kind.PROSE, sampling=Sampling.GREEDY)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
KEYS = st.sampled_from(["messages", "prompt", "input", "temperature", "top_k", "content", "text"])


@given(st.dictionaries(KEYS, JSON | st.lists(st.dictionaries(KEYS, JSON))))
def test_no_body_is_too_odd(body: dict[str, Any]) -> None:
    assert isinstance(traits_of(body), Traits)


def test_requests_of_one_engine_at_one_time_are_not_alone() -> None:
    company = Company()
    with company.of("e1", "first"), company.of("e2", "elsewhere"):
        with company.of("e1", "second"):
            pass
        assert not company.was_alone("second")
    with company.of("e1", "third"):
        pass
    assert not company.was_alone("first")
    assert company.was_alone("elsewhere")
    assert company.was_alone("third")
    assert company.was_alone("first"), "it is forgotten once it was asked about"
