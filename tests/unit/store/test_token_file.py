"""The token file: private, replaced as a whole, and read again as soon as it changes."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mtpd.access import Scope, Token, digest_of
from mtpd.errors import EXIT_CONFIG, ConflictError, NotFoundError, StateError
from mtpd.store.token_file import MAX_BYTES, NAME, TokenFile, Tokens
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

INFER = frozenset({Scope.INFER})


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "state", FakeClock())


def known(file: TokenFile, *configured: Token) -> Tokens:
    tokens = Tokens(file, lambda: configured)
    tokens.load()
    return tokens


def test_what_was_added_is_read_back(file: TokenFile) -> None:
    clock = FakeClock()
    secret, made = file.add("a", INFER, expires=None)
    ends = clock.utc() + timedelta(days=1)
    _, other = file.add("b", frozenset({Scope.ADMIN, Scope.READ}), expires=ends)
    assert file.read() == (made, other)
    assert (made.name, made.scopes, made.created, made.last4) == (
        "a", INFER, clock.utc(), secret[-4:],
    )  # fmt: skip
    assert other.expires == ends
    assert known(file).find(secret) == made


def test_the_file_is_private_and_holds_no_token(file: TokenFile) -> None:
    before = os.umask(0)
    try:
        secret, _ = file.add("a", INFER, expires=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    text = file.path.read_text()
    assert secret[5:20] not in text
    assert digest_of(secret) in text
    assert [path.name for path in file.path.parent.iterdir()] == [NAME]


def test_a_name_is_taken_once_and_free_after_its_revocation(file: TokenFile) -> None:
    secret, _ = file.add("a", INFER, expires=None)
    with pytest.raises(ConflictError, match="there is a token 'a' already"):
        file.add("a", INFER, expires=None)
    assert file.revoke("a") == ()
    with pytest.raises(NotFoundError, match="no token 'a'"):
        file.revoke("a")
    again, _ = file.add("a", INFER, expires=None)
    assert again != secret


def test_changes_at_once_are_all_kept(file: TokenFile) -> None:
    threads = [
        threading.Thread(target=lambda n=n: file.add(f"t{n}", INFER, expires=None))
        for n in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {one.name for one in file.read()} == {f"t{n}" for n in range(8)}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o606])
def test_a_file_that_others_may_touch_is_refused(file: TokenFile, mode: int) -> None:
    file.add("a", INFER, expires=None)
    file.path.chmod(mode)
    with pytest.raises(StateError, match="is open to other users") as caught:
        file.read()
    assert caught.value.hint == f"chmod 600 {file.path}"
    assert caught.value.exit_code == EXIT_CONFIG


def test_a_link_is_refused(file: TokenFile, tmp_path: Path) -> None:
    file.add("a", INFER, expires=None)
    file.path.rename(tmp_path / "elsewhere")
    file.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="cannot be read"):
        file.read()


def test_what_is_no_file_is_refused_without_waiting(file: TokenFile) -> None:
    file.path.parent.mkdir(mode=0o700)
    os.mkfifo(file.path, 0o600)
    with pytest.raises(StateError, match="is not a regular file"):
        file.read()


def row(**changed: object) -> str:
    """A file with one token, of which something is otherwise than mtpd writes it."""
    right = {
        "name": "a",
        "sha256": "0" * 64,
        "scopes": ["infer"],
        "created": "2026-01-01T00:00:00Z",
        "expires": None,
        "last4": "",
    }
    return json.dumps({"version": 1, "tokens": [{**right, **changed}]})


def test_the_row_is_right_as_it_is(file: TokenFile) -> None:
    file.add("a", INFER, expires=None)
    file.path.write_text(row())
    assert [one.name for one in file.read()] == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"version": 2, "tokens": []}',
        '{"version": 1}',
        '{"version": 1, "tokens": [], "more": 1}',
        row(sha256="SECRET"),
        row(scopes=[]),
        row(scopes=["all"]),
        row(created="2026-01-01T00:00:00"),
        row(more="SECRET"),
        " " * (MAX_BYTES + 1),
    ],
)
def test_a_file_that_is_none_of_ours_is_told_without_what_it_holds(
    file: TokenFile, text: str
) -> None:
    file.add("a", INFER, expires=None)
    file.path.write_text(text)
    with pytest.raises(StateError, match=r"is not what mtpd wrote|is larger") as caught:
        file.read()
    assert "SECRET" not in str(caught.value)


def test_a_directory_of_others_is_not_written_to(file: TokenFile) -> None:
    file.path.parent.mkdir(mode=0o777)
    file.path.parent.chmod(0o777)
    with pytest.raises(StateError, match="can be written by other users"):
        file.add("a", INFER, expires=None)


def test_a_change_counts_at_once(file: TokenFile) -> None:
    tokens = known(file)
    assert tokens.all() == ()
    secret, made = file.add("a", INFER, expires=None)
    assert tokens.find(secret) == made
    other, _ = file.add("b", INFER, expires=None)
    assert tokens.find(other) is not None
    file.revoke("a")
    assert tokens.find(secret) is None
    assert tokens.find(other) is not None
    file.path.unlink()
    assert tokens.all() == ()


def test_a_file_that_becomes_unusable_changes_nothing_and_is_told_once(file: TokenFile) -> None:
    secret, made = file.add("a", INFER, expires=None)
    tokens = known(file)
    file.path.write_text(json.dumps({"tokens": secret}))
    with capture_logs() as logs:
        assert [tokens.find(secret) for _ in range(3)] == [made] * 3
    (line,) = logs
    assert line["event"] == "tokens.unusable"
    assert secret not in str(line)
    file.path.chmod(0o644)
    with capture_logs() as logs:
        tokens.all()
    assert "is open to other users" in logs[0]["reason"]


def test_those_of_the_configuration_count_too(file: TokenFile) -> None:
    given = Token(name="apiKeys[0]", digest=digest_of("sk-x"), scopes=INFER)
    tokens = known(file, given)
    assert tokens.find("sk-x") == given
    _, made = file.add("a", INFER, expires=None)
    assert tokens.all() == (made, given)
