from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.flags import can_listen_on_unix_socket, parse_help

if TYPE_CHECKING:
    from pathlib import Path

REMOVED = {
    "--draft",
    "--draft-n",
    "--draft-max",
    "--draft-min",
    "--draft-n-min",
    "--spec-ngram-size-n",
    "--spec-ngram-size-m",
    "--spec-ngram-min-hits",
}


def help_of(corpus: Path, build: str) -> str:
    return (corpus / "help" / f"{build}.txt").read_text()


def test_every_spelling_of_a_recorded_build_is_found_except_the_removed_ones(
    corpus: Path,
) -> None:
    table = json.loads((corpus / "llama_flags_b11434.json").read_text())
    listed = {name for entry in table["flags"] for name in entry["names"]}
    flags, _ = parse_help(help_of(corpus, "b11434"))
    assert flags == listed - REMOVED


def test_the_speculation_types_are_the_ones_listed(corpus: Path) -> None:
    expected = (
        "none,draft-simple,draft-eagle3,draft-mtp,draft-dflash,draft-dspark,ngram-simple,"
        "ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache"
    )
    _, types = parse_help(help_of(corpus, "b11434"))
    assert types == set(expected.split(","))


def test_an_older_build_differs_where_it_differs(corpus: Path) -> None:
    old, _ = parse_help(help_of(corpus, "b10434"))
    new, _ = parse_help(help_of(corpus, "b11434"))
    assert {"--mmap", "--no-mmap", "--mlock"} <= old - new
    assert {"--spec-synth-rates", "--log-jsonl"} <= new - old


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_both_builds_say_that_they_take_a_unix_socket(corpus: Path, build: str) -> None:
    assert can_listen_on_unix_socket(help_of(corpus, build))


def test_a_build_that_says_nothing_of_sockets_takes_none() -> None:
    assert not can_listen_on_unix_socket(
        "--host HOST     ip address to listen (default: 127.0.0.1)"
    )


@pytest.mark.parametrize(
    ("line", "types"),
    [
        ("--spec-type none,draft-mtp    types (default: none)", {"none", "draft-mtp"}),
        ("--spec-type {none,mtp}\n      types", {"none", "mtp"}),
        ("--spec-type [none|mtp]        types", {"none", "mtp"}),
        ("--spec-type", set()),
    ],
)
def test_the_types_are_read_in_every_style(line: str, types: set[str]) -> None:
    assert parse_help(line)[1] == types


@pytest.mark.parametrize("text", ["", "usage: tool [-x]\n", "error: no such option", "-", "--\n-"])
def test_a_text_that_is_no_help_gives_nothing(text: str) -> None:
    assert parse_help(text) == (frozenset(), frozenset())


@given(st.text())
def test_no_text_raises(text: str) -> None:
    flags, _ = parse_help(text)
    assert all(flag.startswith("-") for flag in flags)
    can_listen_on_unix_socket(text)
