"""``mtpd token``: prints a token once, and never again."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.failure import exit_code_of
from mtpd.cli.mtpd import cli
from mtpd.errors import EXIT_CONFIG, EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from pathlib import Path


class Command:
    """``mtpd token`` on a state directory of the test's own."""

    def __init__(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state = state
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = exit_code_of(cli, ("token", *words, "--state-dir", str(self.state)))
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "state", capsys)


def test_a_token_is_printed_once_and_kept_nowhere(token: Command) -> None:
    code, out, err = token("add", "laptop")
    secret = out.strip()
    assert (code, out) == (0, f"{secret}\n")
    assert secret.startswith("mtpd_")
    assert "from now on every request over TCP needs a token" in err
    assert token("add", "other")[2] == ""
    for words in (("list",), ("list", "--json")):
        code, out, _ = token(*words)
        assert code == 0
        assert "laptop" in out
        assert secret[-4:] in out
        assert secret[5:20] not in out
    assert stat.S_IMODE((token.state / "tokens.json").stat().st_mode) == 0o600


def test_json_tells_what_is_known(token: Command) -> None:
    made = json.loads(token("add", "ops", "--scope", "read", "--scope", "admin", "--json")[1])
    listed = json.loads(token("list", "--json")[1])
    secret = made.pop("token")
    assert listed == {"tokens": [made]}
    assert made["scopes"] == ["admin", "read"]
    assert (made["expires"], made["expired"], made["last4"]) == (None, False, secret[-4:])


def test_a_token_may_end(token: Command) -> None:
    made = json.loads(token("add", "guest", "--expires", "2099-01-31", "--json")[1])
    assert made["expires"] == "2099-01-31T00:00:00.000Z"
    assert "2099-01-31 00:00 UTC" in token("list")[1]


def test_revoking_the_last_one_says_what_is_open_now(token: Command) -> None:
    token("add", "a")
    token("add", "b")
    assert token("revoke", "a") == (0, "revoked a\n", "")
    code, out, err = token("revoke", "b")
    assert (code, out) == (0, "revoked b\n")
    assert "no token is left" in err
    assert token("list")[1] == "no token exists: mtpd token add NAME makes one\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "a b"), EXIT_USAGE, "letters, digits"),
        (("add", "apiKeys[0]"), EXIT_USAGE, "letters, digits"),
        (("add", "x", "--scope", "all"), EXIT_USAGE, "'infer', 'read', 'admin'"),
        (("add", "x", "--expires", "2020-01-01"), EXIT_USAGE, "is not in the future"),
        (("add", "x", "--expires", "soon"), EXIT_USAGE, "neither a span"),
        (("add", "a"), EXIT_FAILED, "there is a token 'a' already"),
        (("revoke", "nobody"), EXIT_FAILED, "there is no token 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said(
    token: Command, words: tuple[str, ...], code: int, said: str
) -> None:
    token("add", "a")
    result, out, err = token(*words)
    assert (result, out) == (code, "")
    assert said in err


def test_a_file_that_others_may_read_is_not_trusted(token: Command) -> None:
    token("add", "a")
    (token.state / "tokens.json").chmod(0o644)
    for words in (("list",), ("add", "b"), ("revoke", "a")):
        code, _, err = token(*words)
        assert code == EXIT_CONFIG
        assert "chmod 600" in err
