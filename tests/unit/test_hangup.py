"""What a SIGHUP means, by whether the terminal is still there."""

from __future__ import annotations

import pytest

from mtpd.hangup import Hangup, Meaning


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_signal_that_took_no_terminal_away_is_an_order_to_reload(
    *, terminal: bool, ignored: bool
) -> None:
    hangup = Hangup(terminal=terminal, ignored=ignored)
    assert hangup.meaning(terminal=terminal) is Meaning.RELOAD
    assert hangup.meaning(terminal=terminal) is Meaning.RELOAD


def test_a_terminal_that_is_closed_ends_what_was_started_in_it() -> None:
    assert Hangup(terminal=True, ignored=False).meaning(terminal=False) is Meaning.STOP


def test_nohup_outlives_the_terminal_and_is_told_to_reload_afterwards() -> None:
    hangup = Hangup(terminal=True, ignored=True)
    assert hangup.meaning(terminal=False) is Meaning.NOTHING
    assert hangup.meaning(terminal=False) is Meaning.RELOAD
