"""The table of flags is the help of build b11434, and says the same as the list of classes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mtpd.compat.drafter import KINDS
from mtpd.compat.flag_table import BY_ENV, BY_KEY, BY_NAME
from mtpd.config.model import DrafterConfig
from mtpd.engine.command import NGRAM_LENGTHS, SPEC_TYPES
from mtpd.engine.flags import parse_help
from tuner.types import Drafter

CORPUS = Path(__file__).parents[2] / "corpus"
HELP = (CORPUS / "help" / "b11434.txt").read_text()
FLAGS = json.loads((CORPUS / "llama_flags_b11434.json").read_text())["flags"]
ENTRY = re.compile(r"(?P<names>--?[A-Za-z][\w.-]*(?:, +--?[A-Za-z][\w.-]*)*)(?P<hint> [^ ].*)?")


def hints() -> dict[str, str]:
    """What follows the names in the first line of each entry."""
    found: dict[str, str] = {}
    for line in HELP.splitlines():
        match = ENTRY.match(line)
        if match is not None:
            hint = (match["hint"] or "").strip().split("  ")[0]
            found |= dict.fromkeys(re.split(r", +", match["names"]), hint)
    return found


@pytest.mark.parametrize("row", FLAGS, ids=lambda row: row["flag"])
def test_a_row_is_what_the_list_and_the_help_say(row: dict[str, object]) -> None:
    flag = BY_NAME[str(row["flag"])]
    assert {*flag.names, *flag.off} == set(row["names"])  # type: ignore[call-overload]
    assert flag.env == row["env"]
    assert flag.purpose == row["class"]
    hint = hints()[str(row["flag"])]
    assert flag.values == (2 if hint == "START END" else bool(hint))
    assert not flag.off or not flag.values


def test_no_flag_is_left_out_or_invented() -> None:
    assert {name for row in FLAGS for name in row["names"]} == BY_NAME.keys()
    usable, _ = parse_help(HELP)
    assert usable <= BY_NAME.keys()
    assert {flag.purpose for name, flag in BY_NAME.items() if name not in usable} == {
        "deny_removed"
    }


def test_the_other_ways_to_name_a_flag() -> None:
    assert BY_KEY["c"] is BY_KEY["ctx-size"] is BY_ENV["LLAMA_ARG_CTX_SIZE"]
    assert BY_KEY["no-jinja"].off == ("--no-jinja",)
    assert BY_KEY["no-host"].off == ()  # a switch of its own
    assert BY_KEY["host"].values == 1


def test_the_types_of_speculation_are_those_that_engines_are_started_with() -> None:
    expected = {
        word: kind.value
        for kind, words in SPEC_TYPES.items()
        for word in words
        if kind != "mtp-file"
    }
    ways = {f"ngram-{way}": DrafterConfig(kind=Drafter.NGRAM, ngram=way) for way in NGRAM_LENGTHS}
    expected |= {word: drafter.word for word, drafter in ways.items()}
    assert {**expected, "none": "none"} == KINDS
