"""The files that a perplexity is about: the model's and the text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.engine.filehash import hash_file
from mtpd.engine.launch import size_and_time
from mtpd.errors import EngineError, InvalidError
from mtpd.store.quality import MeasuredFile

if TYPE_CHECKING:
    from mtpd.config.model import Profile

__all__ = ["CORPUS_HINT", "Corpus", "file_of", "need_file", "read_corpus"]

CORPUS_HINT = "name a text file, e.g. WikiText-2's wiki.test.raw; mtpd downloads none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The corpus, read once."""

    path: str
    sha256: str


async def read_corpus(path: str) -> Corpus:
    """The text with its digest; it is not kept in memory.

    Raises:
        InvalidError: It cannot be read, or changed meanwhile.
    """

    async def at_once() -> None:
        """The file is small, and nothing better waits."""

    try:
        found = await hash_file(Path(path), between=at_once)
    except EngineError as error:
        message = f"the text cannot be used: {error}"
        raise InvalidError(message, hint=CORPUS_HINT) from error
    return Corpus(path=path, sha256=found.sha256)


def file_of(profile: Profile) -> MeasuredFile | None:
    """A profile's model file as it lies there now; None if there is none."""
    found = size_and_time(profile.model)
    if found is None:
        return None
    return MeasuredFile(path=profile.model, size=found[0], mtime_ns=found[1])


def need_file(profile: Profile) -> MeasuredFile:
    """Likewise.

    Raises:
        InvalidError: There is none.
    """
    file = file_of(profile)
    if file is None:
        message = f"the model file of {profile.name} cannot be read: {profile.model}"
        raise InvalidError(message, hint="correct `model` in its profile, or put the file there")
    return file
