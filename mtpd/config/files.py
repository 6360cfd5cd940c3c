"""Whether the files that profiles name are there.

Not part of loading: a missing file is a problem of its model, told by ``mtpd check``;
``mtpd.engine.launch`` refuses to start that model.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.compat import hub
from mtpd.config.locate import dotted

if TYPE_CHECKING:
    from mtpd.config.model import Config, Profile

__all__ = ["NO_MODEL", "file_problems", "named_files", "problems_of", "unreadable"]

_MAGIC = b"GGUF"

NO_MODEL = "no model is configured: add [models.NAME] with its file, or name tiny-chained in a pool"
"""What is said of a configuration that could not serve anything."""


def file_problems(config: Config) -> tuple[str, ...]:
    """Every file that a profile names and that cannot be read, as ``FILE:LINE: KEY: ...``.

    Also says when there is no profile at all.
    """
    problems = () if config.profiles else (NO_MODEL,)
    return problems + tuple(p for name in config.profiles for p in problems_of(config, name))


def problems_of(config: Config, name: str) -> tuple[str, ...]:
    """Every file that one profile names and that cannot be read, likewise."""
    profile = config.profiles[name]
    if profile.opaque is not None:
        return tuple(_program_problem(config, name, profile.opaque.command[0]))
    problems = []
    for key, text in named_files(profile):
        path = dotted(("models", name, *key))
        reason = unreadable(text)
        if reason is not None:
            problems.append(f"{config.place(path)}: {text} {reason}")
    return tuple(problems)


def _program_problem(config: Config, model: str, program: str) -> list[str]:
    """That a program is neither a path nor on the PATH of whoever asks."""
    if shutil.which(program) is not None:
        return []
    path = dotted(("models", model, "command"))
    where = "is not on the PATH"
    if "/" in program:
        where = "is not executable" if Path(program).is_file() else "does not exist"
    return [f"{config.place(path)}: {program} {where}"]


def named_files(profile: Profile) -> tuple[tuple[tuple[str, ...], str], ...]:
    """The model files of a profile, each with the key below the profile that names it."""
    files: tuple[tuple[tuple[str, ...], str], ...] = ((("model",), profile.model),)
    if profile.drafter.model is not None:
        files += ((("drafter", "model"), profile.drafter.model),)
    return files


def unreadable(text: str) -> str | None:
    """Why the file at this path cannot be a model, as a predicate; None where it may be one."""
    model = hub.parse(text)
    if model is not None:
        return model.missing
    path = Path(text)
    try:
        if path.is_dir():
            return "is a directory, not a GGUF file"
        if not path.is_file():
            return "does not exist"
        if not os.access(path, os.R_OK):
            return "cannot be read by this user"
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        return f"cannot be reached: {error.strerror}"
    return None if magic == _MAGIC else f"is not a GGUF file: it begins with {magic!r}"
