"""llama-swap's ``apiKeys``: access tokens, or a fault; never told, never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.access import Scope, find
from mtpd.compat.api_keys import put_api_keys
from mtpd.compat.remarks import Import, Kind
from mtpd.config.load import load
from mtpd.config.origins import describe_origins
from tests.unit.compat.translating import faults, swap, told
from tests.unit.config.writing import write

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 'apiKeys: ["sk-canary", "${env.KEY}"]\n'


def test_each_key_is_a_token_for_inference_and_reads() -> None:
    made = swap(KEYS, {"KEY": "sk-env"})
    assert faults(made) == []
    assert [one.name for one in made.tokens] == ["apiKeys[0]", "apiKeys[1]"]
    for key in ("sk-canary", "sk-env"):
        token = find(made.tokens, key)
        assert token is not None
        assert token.scopes == {Scope.INFER, Scope.READ}
    (remark,) = told(made, Kind.CHANGED)
    assert remark.startswith("1: apiKeys: each is an access token for inference and")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("apiKeys: sk-canary\n", "1: apiKeys: must be a list of keys"),
        ("apiKeys:\n  - a\n  - ''\n", "3: apiKeys.1: must not be empty"),
        ("apiKeys: [1234]\n", "1: apiKeys.0: must be text: write it in quotes"),
        (
            "apiKeys: ['sk canary']\n",
            "1: apiKeys.0: must not hold spaces or control characters",
        ),
    ],
)
def test_what_is_no_key_makes_the_file_unusable(text: str, fault: str) -> None:
    assert faults(swap(text)) == [fault]


@pytest.mark.parametrize("text", ["apiKeys:\n", "apiKeys: []\n", "models:\n"])
def test_no_keys_are_no_tokens(text: str) -> None:
    made = swap(text)
    assert (made.tokens, made.remarks, made.faults) == ([], [], [])


def test_the_configuration_has_the_tokens_and_shows_none(tmp_path: Path) -> None:
    config = load(write(tmp_path / "c.yaml", KEYS), environment={"KEY": "sk-env"})
    assert find(config.tokens, "sk-env") is not None
    shown = str(describe_origins(config)) + str(config.remarks) + str(config)
    assert "canary" not in shown
    assert not any(token.digest in str(describe_origins(config)) for token in config.tokens)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_any_value_is_tokens_or_faults(value: object) -> None:
    made = Import()
    put_api_keys(value, {}, made)
    keys = value if isinstance(value, list) else []
    assert all(find(made.tokens, key) for key in keys if isinstance(key, str) and key.isalnum())
    assert len(made.tokens) <= len(keys)
    assert bool(made.tokens or made.faults) == (value not in (None, []))
