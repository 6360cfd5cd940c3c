from __future__ import annotations

import pytest

from mtpd.compat.remarks import Kind
from tests.unit.compat.translating import faults, one_model, profile, swap, told


@pytest.mark.parametrize(("value", "word"), [("true", "reasoning"), ("false", "off")])
def test_loading_lines_of_the_file_and_of_a_model(value: str, word: str) -> None:
    assert swap(f"sendLoadingState: {value}\n").tree["server"] == {"loading_state": word}
    made = one_model("", f"    sendLoadingState: {value}\n")
    assert profile(made)["loading_state"] == word
    at = ("models", "m", "loading_state")
    assert (made.lines[at], made.keys[at]) == (4, ("models", "m", "sendLoadingState"))


def test_a_model_that_says_nothing_follows_the_file() -> None:
    assert "loading_state" not in profile(one_model("", "    sendLoadingState:\n"))


def test_each_timeout_is_honoured_noted_or_told() -> None:
    made = one_model(
        "",
        "    timeouts:\n"
        "      connect: 5\n"
        "      responseHeader: 0\n"
        "      keepalive: 30\n"
        "      idleConn: 0\n"
        "      bogus: 1\n",
    )
    assert profile(made)["timeouts"] == {"connect_s": 5.0, "first_byte_s": 0.0}
    assert made.keys["models", "m", "timeouts", "connect_s"] == (
        *("models", "m", "timeouts", "connect"),
    )
    assert told(made) == ["9: models.m.timeouts.bogus: this key is not known"]
    assert [one.split(":")[1] for one in told(made, Kind.NOTE) if "timeouts" in one] == [
        " models.m.timeouts.keepalive"
    ]


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("sendLoadingState: 1", "4: models.m.sendLoadingState: must be true or false, not 1"),
        ("timeouts: 3", "4: models.m.timeouts: must be a table of seconds"),
        (
            "timeouts: {connect: -1}",
            "4: models.m.timeouts.connect: must be a whole number of at least 0, not -1",
        ),
        (
            "timeouts: {connect: true}",
            "4: models.m.timeouts.connect: must be a whole number of at least 0, not True",
        ),
    ],
)
def test_what_llama_swap_refuses_is_a_fault(more: str, fault: str) -> None:
    assert faults(one_model("", f"    {more}\n")) == [fault]
