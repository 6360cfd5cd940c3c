"""The access tokens on disk, and the set of them that counts at this moment.

``tokens.json`` in the state directory, mode 0600, replaced as a whole. It holds no token,
only what ``mtpd.access.Token`` keeps of one.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import structlog
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from mtpd.access import RANDOM_BYTES, Scope, Token, digest_of, find, secret_from
from mtpd.config.directories import private_directory
from mtpd.errors import ConflictError, NotFoundError, StateError
from mtpd.store import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from mtpd.clock import Clock

__all__ = ["NAME", "TokenFile", "Tokens"]

NAME = "tokens.json"

MAX_BYTES = 1024 * 1024

log = structlog.get_logger()


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=64)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    created: AwareDatetime
    expires: AwareDatetime | None
    last4: Annotated[str, Field(max_length=4)]

    def token(self) -> Token:
        return Token(
            name=self.name,
            digest=self.sha256,
            scopes=frozenset(self.scopes),
            created=self.created,
            expires=self.expires,
            last4=self.last4,
        )


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1]
    tokens: list[_Row]


class TokenFile:
    """Reads and changes the file; every change holds a lock on its directory.

    Args:
        directory: The state directory.
        clock: Dates new tokens.
        owner: Number of the user beside root whose file is believed; None for this process's.
    """

    def __init__(self, directory: Path, clock: Clock, *, owner: int | None = None) -> None:
        self.path = directory / NAME
        self._clock = clock
        self._owner = owner

    def read(self) -> tuple[Token, ...]:
        """The tokens in the order they were made; none where there is no file.

        Raises:
            StateError: The file cannot be read, is none of ours, or others may change it.
        """
        try:
            text = self._text()
        except FileNotFoundError:
            return ()
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
            raise self._unusable(why) from None
        try:
            return tuple(row.token() for row in _Document.model_validate_json(text).tokens)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            why = f"is not what mtpd wrote: {where}: {first['msg']}"
            raise self._unusable(why) from None

    def add(
        self, name: str, scopes: frozenset[Scope], *, expires: datetime | None
    ) -> tuple[str, Token]:
        """Make a token: the secret, which is nowhere else from now on, and what is kept of it.

        Raises:
            ConflictError: There is one of this name.
            StateError: The file cannot be used.
        """
        secret = secret_from(secrets.token_bytes(RANDOM_BYTES))
        made = Token(
            name=name,
            digest=digest_of(secret),
            scopes=scopes,
            created=self._clock.utc(),
            expires=expires,
            last4=secret[-4:],
        )
        with self._locked():
            present = self.read()
            if any(one.name == name for one in present):
                msg = f"there is a token {name!r} already"
                raise ConflictError(msg, hint=f"revoke it first: mtpd token revoke {name}")
            self._write((*present, made))
        return secret, made

    def revoke(self, name: str) -> tuple[Token, ...]:
        """Remove a token; the ones that are left.

        Raises:
            NotFoundError: There is none of this name.
            StateError: The file cannot be used.
        """
        with self._locked():
            present = self.read()
            left = tuple(one for one in present if one.name != name)
            if left == present:
                msg = f"there is no token {name!r}"
                raise NotFoundError(msg, hint="mtpd token list shows the names")
            self._write(left)
        return left

    def sweep(self) -> None:
        """Remove what a writer left that was killed."""
        private_file.sweep(self.path)

    def seen(self) -> tuple[int, ...] | None:
        """What changes whenever the file does; None where there is none."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return (error.errno or 0,)
        return (
            found.st_ino,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_size,
            found.st_mode,
            found.st_uid,
        )

    def _text(self) -> bytes:
        owner = os.geteuid() if self._owner is None else self._owner
        try:
            return private_file.read(self.path, limit=MAX_BYTES, owner=owner)
        except private_file.OpenToOthersError as problem:
            raise self._unusable(str(problem), hint=f"chmod 600 {self.path}") from None
        except private_file.UntrustedError as problem:
            raise self._unusable(str(problem)) from None

    def _unusable(self, why: str, *, hint: str | None = None) -> StateError:
        remedy = hint or "move the file away and make new tokens with mtpd token add"
        return StateError(f"the token file {self.path} {why}", hint=remedy)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_directory(self.path.parent)
        with self._explained("cannot be locked"):
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._explained("cannot be locked"):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = f"{what}: {error.strerror}"
            raise self._unusable(why, hint="see the kernel log, or name --state-dir") from error

    def _write(self, tokens: tuple[Token, ...]) -> None:
        rows = [
            _Row(
                name=one.name,
                sha256=one.digest,
                scopes=sorted(one.scopes),
                created=one.created or self._clock.utc(),
                expires=one.expires,
                last4=one.last4,
            )
            for one in tokens
        ]
        text = _Document(version=1, tokens=rows).model_dump_json(indent=2) + "\n"
        try:
            private_file.replace(self.path, text.encode())
        except private_file.MayNotLastError as error:
            why = f"is changed, but may not outlive a power cut: {error.strerror}"
            raise self._unusable(why, hint="see the kernel log, or name --state-dir") from error
        except OSError as error:
            why = f"cannot be written: {error.strerror}"
            raise self._unusable(why, hint="free disk space, or name --state-dir") from error


class Tokens:
    """The tokens that count now, from the file and from the configuration.

    The file is looked at with every question (one ``lstat``), so that what was revoked is
    refused from the next request on. One that has become unusable changes nothing: what
    was known before counts on.

    Args:
        file: The token file.
        configured: Tokens of the configuration.
    """

    def __init__(self, file: TokenFile, configured: Callable[[], tuple[Token, ...]]) -> None:
        self._file = file
        self._configured = configured
        self._seen: tuple[int, ...] | None = None
        self._kept: tuple[Token, ...] = ()

    def load(self) -> None:
        """Read the file for the first time.

        Raises:
            StateError: It cannot be used.
        """
        self._file.sweep()
        self._seen = self._file.seen()
        self._kept = self._file.read()

    def all(self) -> tuple[Token, ...]:
        """Every token, also those that have expired."""
        seen = self._file.seen()
        if seen != self._seen:
            self._seen = seen
            self._read_again()
        return (*self._kept, *self._configured())

    def find(self, secret: str) -> Token | None:
        """The token that this is, or None."""
        return find(self.all(), secret)

    def _read_again(self) -> None:
        try:
            self._kept = self._file.read()
        except StateError as error:
            log.error("tokens.unusable", reason=f"{error}; those read before count on")  # noqa: TRY400 - no defect
        else:
            log.info("tokens.read", names=[one.name for one in self._kept])
