"""Whether a configuration needs an engine at all: one of other programs alone does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.binary import OTHER_HINT, find, named
from mtpd.errors import BinaryError
from mtpd.types import EngineBinary

if TYPE_CHECKING:
    from mtpd.config.model import Config

__all__ = ["NO_ENGINE", "find_needed", "needed", "placed", "program_problem"]

NO_ENGINE = EngineBinary(
    argv=(),
    kind="none",
    flags=frozenset(),
    spec_types=frozenset(),
    digest="",
    label="no llama-server, which no model needs",
)
"""In the place of an engine."""

_ANY = "auto"
_UNPLACED = ("auto", "embedded")
_KEY = "engine.binary"
_DEFAULT = "default"
_FOREIGN_HINT = (
    "correct the path there, or write mtpd: {engine: {binary: PATH}} at the top of the file; "
    "'embedded' as PATH is the engine that mtpd brings along"
)


async def find_needed(config: Config, *, path_env: str) -> EngineBinary:
    """The engine that a configuration asks for, or ``NO_ENGINE`` where it can do without.

    Args:
        config: Names it, and has the models.
        path_env: Value of ``PATH``.

    Raises:
        BinaryError: There is none that can be used, and it is named or a model needs one.
    """
    spec = config.engine.binary
    try:
        return await find(spec, path_env=path_env, extra_env=dict(config.engine.extra_env))
    except BinaryError:
        models = config.profiles.values()
        if spec != _ANY or not models or any(profile.opaque is None for profile in models):
            raise
        return NO_ENGINE


def placed(config: Config, error: BinaryError) -> BinaryError:
    """What is wrong with the engine, with the place that names it and what to do there."""
    if config.origins.get(_KEY, _DEFAULT) == _DEFAULT:
        return error
    foreign = _KEY in config.written and error.hint == OTHER_HINT
    hint = _FOREIGN_HINT if foreign else error.hint
    return BinaryError(f"{config.place(_KEY)}: {error}", hint=hint)


def program_problem(config: Config, *, path_env: str) -> str | None:
    """Why the engine that is named cannot be started, as far as a look at the file tells."""
    spec = config.engine.binary
    if spec in _UNPLACED:
        return None
    try:
        named(spec, path_env)
    except BinaryError as error:
        located = placed(config, error)
        return f"{located} ({located.hint})"
    return None


def needed(engine: EngineBinary) -> EngineBinary:
    """The engine for a model that needs one.

    Raises:
        BinaryError: The daemon was started without.
    """
    if engine.kind == NO_ENGINE.kind:
        message = "When mtpd started there was no llama-server, and no model that needs one."
        hint = "mtpd check tells what is missing; start mtpd again once it is there"
        raise BinaryError(message, hint=hint)
    return engine
