"""Units hold a command line of any words so that systemd splits it into the same words."""

from __future__ import annotations

import re
import shlex

from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.unit_text import Setup, command_line, filled

WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1
)


def split(line: str) -> list[str]:
    """As systemd.service(5) says: quotes and escapes as in a shell, then %% and variables.

    Behind ``:`` there are no variables; elsewhere ``$$`` is one ``$``, but not in the path of
    the program.
    """
    literal = line.startswith(":")
    program, *words = (word.replace("%%", "%") for word in shlex.split(line.removeprefix(":")))
    return [program, *(word if literal else word.replace("$$", "$") for word in words)]


@given(st.lists(WORDS, min_size=1).map(lambda words: [f"/{words[0]}", *words[1:]]))
def test_a_command_line_is_split_into_its_words_again(words: list[str]) -> None:
    line = command_line(words)
    assert split(line) == words
    assert not re.search(r"(?<!%)%(?:%%)*(?!%)", line), "a specifier is left"
    assert "$" not in line or line.startswith(":"), "a variable is left"


@given(st.text(st.characters(codec="ascii"), min_size=1))
def test_no_word_ends_its_line(word: str) -> None:
    assert command_line(["/bin/mtpd", word]).isprintable()


@given(WORDS, WORDS)
def test_only_the_command_and_the_address_of_a_unit_are_filled_in(name: str, file: str) -> None:
    program = f"/{name}"
    text = (
        "[Service]\nExecStart=/usr/bin/mtpd powercap apply --config /etc/mtpd/mtpd.toml\n"
        "ExecReload=/bin/kill -HUP $MAINPID\n[Socket]\nListenStream=127.0.0.1:8080\n"
        "ListenStream=/run/mtpd-control.sock\n"
    )
    setup = Setup(program=(program, "-m", "mtpd"), config=file, listen="[::1]:9")
    got, had = filled(text, setup).splitlines(), text.splitlines()
    assert [
        number for number, pair in enumerate(zip(got, had, strict=True)) if len(set(pair)) > 1
    ] == [1, 4]
    assert split(got[1].removeprefix("ExecStart=")) == [
        *(program, "-m", "mtpd", "powercap", "apply", "--config", file)
    ]
    assert got[4] == "ListenStream=[::1]:9"
