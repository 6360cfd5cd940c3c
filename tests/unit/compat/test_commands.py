from __future__ import annotations

import pytest

from mtpd.compat.commands import Command, Opaque, read, without_comments, word_lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("llama-server -a 'x y' \"z\"", ("-a", "x y", "z")),
        ("llama-server \\\n  -c 1 \\  \n -m x", ("-c", "1", "-m", "x")),
        ("# first\nllama-server\n  # -c 1\n  -m x#y", ("-m", "x#y")),
        ("/opt/llama-server-b1 -m x", ("-m", "x")),
        ("./build/bin/llama-server", ()),
    ],
)
def test_words(text: str, words: tuple[str, ...]) -> None:
    found = read(text)
    assert isinstance(found, Command)
    assert found.words == words


def test_the_environment_of_env() -> None:
    found = read("/usr/bin/env A=1 B='x y' llama-server -m z C=2")
    assert found == Command("llama-server", ("-m", "z", "C=2"), (("A", "1"), ("B", "x y")))


@pytest.mark.parametrize("text", ["", "  \n", "# only\n", "env", "env A=1"])
def test_nothing_to_start(text: str) -> None:
    assert read(text) == "is missing or empty: it must be the command that starts the model"


def test_other_programs() -> None:
    assert read("podman run 'x y'") == Opaque(("podman", "run", "x y"), ())
    assert read("env A=1 whisper-server") == Opaque(("whisper-server",), (("A", "1"),))


def test_lines_of_words() -> None:
    assert word_lines("a b\n# c\n  d a\n", 5) == {"a": 5, "b": 5, "d": 7}
    assert without_comments("a\n  # b\nc # d") == "a\nc # d"
