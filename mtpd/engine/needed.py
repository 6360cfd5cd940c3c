"""Whether a configuration needs an engine at all: one of other programs alone does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.binary import find
from mtpd.errors import BinaryError
from mtpd.types import EngineBinary

if TYPE_CHECKING:
    from mtpd.config.model import Config

__all__ = ["NO_ENGINE", "find_needed", "needed"]

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
