"""What is sent of a prompt, and what counts as the text of a reply."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from mtpd import prompts
from mtpd.errors import UpstreamError
from tests.unit.control.made import CHAT, TEXT


def test_a_request_depends_on_the_prompt_the_seed_and_the_limit_alone() -> None:
    text, chat = (prompts.body(prompt, seed=7, max_tokens=9) for prompt in (TEXT, CHAT))

    for body in (text, chat):
        assert (body["seed"], body["temperature"], body["cache_prompt"]) == (7, 0.0, False)
        assert (body["max_tokens"], body["n_predict"], body["stream"]) == (9, 9, False)
    assert text["prompt"] == TEXT.prompt
    assert "messages" not in text
    assert chat["messages"] == [{"role": "user", "content": "Say what a list is."}]
    assert "prompt" not in chat


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"content": "native"}, "native"),
        ({"content": ""}, ""),
        ({"choices": [{"message": {"role": "assistant", "content": "chat"}}]}, "chat"),
        ({"choices": [{"message": {"content": "c", "reasoning_content": "r "}}]}, "r c"),
        ({"choices": [{"message": {"content": None, "reasoning_content": "r"}}]}, "r"),
    ],
)
def test_the_text_of_a_reply_has_its_reasoning(reply: dict[str, Any], said: str) -> None:
    assert prompts.text(reply) == said
    assert prompts.digest(said) == hashlib.sha256(said.encode()).hexdigest()


@pytest.mark.parametrize(
    "reply", [{}, {"choices": []}, {"content": 3}, {"choices": [{"text": ""}]}]
)
def test_a_reply_without_text_is_no_reply(reply: dict[str, Any]) -> None:
    with pytest.raises(UpstreamError, match="the engine's reply has no text"):
        prompts.text(reply)
