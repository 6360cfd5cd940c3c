"""Every failure that an operator may have to act on.

Expected outcomes (does not fit, sensor absent, not comparable) are values, not
exceptions; an exception here ends a command or a request with advice.
"""

from __future__ import annotations

__all__ = [
    "BinaryError",
    "CalibrationError",
    "ConfigError",
    "ConflictError",
    "DiskError",
    "DriverError",
    "EngineError",
    "GateClosedError",
    "InvalidError",
    "MtpdError",
    "NoModelFileError",
    "NotFoundError",
    "StateError",
    "StoreError",
    "UnknownNameError",
    "UnreachableError",
    "UpstreamError",
    "expected",
]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_CONFIG = 78


class MtpdError(Exception):
    """Base of the errors that end a command or a request with advice.

    Attributes:
        hint: One sentence that says what to do next, or None.
        exit_code: What a command returns when this error ends it.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(MtpdError):
    """One or more problems in the configuration files, all of them listed."""

    exit_code = EXIT_CONFIG

    def __init__(self, problems: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class BinaryError(MtpdError):
    """No usable llama-server was found, or it cannot do what the profile asks for."""


class DriverError(MtpdError):
    """The driver of a graphics card does not answer."""


class EngineError(MtpdError):
    """An engine process could not be started or died; carries its failure class."""

    def __init__(self, message: str, *, failure: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure


class NoModelFileError(EngineError):
    """A model file is not there, or not to be read; found before anything is started."""


class StateError(MtpdError):
    """The state directory is in use, not writable, or from a newer version."""

    exit_code = EXIT_CONFIG


class StoreError(MtpdError):
    """The database refused a write or holds what this version cannot read."""


class DiskError(StoreError):
    """The disk takes no writes: it is full, read-only, or failing."""


class UpstreamError(MtpdError):
    """The engine answered with something that cannot be used."""


class CalibrationError(MtpdError):
    """A calibration ended without a choice; the cells measured so far are kept."""


class GateClosedError(CalibrationError):
    """Nothing may be measured now: the card is hot, or its power cap is not in force."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the measurement gate did not open: {reason}",
            hint="mtpctl status shows every gate with its reading",
        )


class UnreachableError(MtpdError):
    """The daemon does not answer on its control socket."""

    exit_code = EXIT_UNREACHABLE


class NotFoundError(MtpdError):
    """What was asked for by name or number does not exist (HTTP 404)."""


class ConflictError(MtpdError):
    """The request contradicts the present state or an earlier request (HTTP 409)."""


class InvalidError(MtpdError):
    """The request is well formed but asks for what cannot be done (HTTP 422)."""


class UnknownNameError(InvalidError):
    """A filter names what there is not (HTTP 400)."""


def expected(error: BaseException) -> MtpdError | None:
    """The error to show, for a task group's of nothing but ours the first; None for a defect."""
    if isinstance(error, BaseExceptionGroup):
        leaves = [expected(inner) for inner in error.exceptions]
        return leaves[0] if all(leaf is not None for leaf in leaves) else None
    return error if isinstance(error, MtpdError) else None
