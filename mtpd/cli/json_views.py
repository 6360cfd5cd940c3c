"""What the commands print with ``--json`` that ask no daemon: plain values, their own schema."""

from __future__ import annotations

from dataclasses import dataclass

from mtpd.memory_views import MemoryView  # noqa: TC001  # the schema resolves it

__all__ = [
    "CapView",
    "ConfigCheckView",
    "ImportRefusalView",
    "ImportView",
    "NewTokenView",
    "OpaquePlanView",
    "PlanView",
    "RemarkView",
    "RevokedView",
    "TokenListView",
    "TokenView",
    "UnitFileView",
    "UnitsView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCheckView:
    """What ``mtpd check`` found.

    Attributes:
        problems: Everything that is wrong, as ``FILE:LINE: KEY: what is wrong``.
        warnings: What is odd, but no error.
        files: The file that was read; empty for the defaults.
        models: The models that are configured.
        pools: The pools that are configured.
        hardware: The hardware profile that is named, or None.
        engine: The engine that would be used, or None.
        remarks: Of a foreign file, what is not honoured, was changed or has no effect.
        ok: Whether there is no problem.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    hardware: str | None = None
    engine: str | None = None
    remarks: tuple[str, ...] = ()
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """What a model needs, and the command that would start it.

    Attributes:
        model: The profile.
        engine: The engine that would be started.
        depth: The draft depth of the command.
        reason: Why it is this depth.
        endpoint: Where the engine would listen.
        argv: The words of the command.
        env: Its whole environment.
        memory: Predicted device memory of every depth.
        warnings: What is odd.
    """

    model: str
    engine: str
    depth: int
    reason: str
    endpoint: str
    argv: tuple[str, ...]
    env: dict[str, str]
    memory: MemoryView
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaquePlanView:
    """How a program would be started that is no llama-server.

    Attributes:
        model: The profile.
        kind: Always opaque.
        endpoint: Where it is reached.
        check: The path that says it is ready; None: it counts as ready once it runs.
        argv: The words of the command.
        env: The names of its variables.
        stop_command: What ends it; empty: SIGTERM.
        vram_mib: What the configuration says it takes; None: it is measured.
        residency: Why mtpd says nothing of where it lies.
    """

    model: str
    kind: str
    endpoint: str
    check: str | None
    argv: tuple[str, ...]
    env: tuple[str, ...]
    stop_command: tuple[str, ...]
    vram_mib: int | None
    residency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemarkView:
    """What is to be said of one key of a foreign file.

    Attributes:
        kind: not honoured, changed, or note: without effect here, and nothing is lost by it.
        file: The file.
        line: Of the file, from 1.
        key: The key.
        message: One clause.
    """

    kind: str
    file: str
    line: int
    key: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportView:
    """What ``mtpd import`` wrote.

    Attributes:
        ok: Always true.
        written: The files.
        listen: Where a daemon with them listens.
        keys_left_out: API keys of the file; they are not written.
        models: The profile of each model, by the file's name for it.
        ports: The port that each model had in the file.
        remarks: What is to be said of its keys.
        missing: What is not there yet and is needed to serve, each as FILE:LINE: KEY: and why.
    """

    ok: bool
    written: tuple[str, ...]
    listen: str
    keys_left_out: int
    models: dict[str, str]
    ports: dict[str, int]
    remarks: tuple[RemarkView, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRefusalView:
    """Why ``mtpd import`` wrote nothing.

    Attributes:
        ok: Always false.
        problems: As ``FILE:LINE: KEY: what is wrong``.
    """

    ok: bool
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapView:
    """A card's power cap, as ``mtpd powercap`` found or left it.

    Attributes:
        device: PCI address.
        state: declared where it is in force, else wrong, unknown or unsupported.
        reason: One sentence.
        wanted_w: What was asked for or is declared.
        current_w: In force, as far as the driver knows.
        default_w: After a boot or a reset.
        min_w: Lowest that can be asked for.
        max_w: Highest that can be asked for.
    """

    device: str
    state: str
    reason: str
    wanted_w: float
    current_w: float | None
    default_w: float | None
    min_w: float | None
    max_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """An access token, without the token.

    Attributes:
        name: Whose it is.
        scopes: infer, read, admin.
        created: RFC 3339, UTC; None where it is not known.
        expires: RFC 3339, UTC; None: never.
        expired: Whether it has ended.
        last4: Its last characters.
    """

    name: str
    scopes: tuple[str, ...]
    created: str | None
    expires: str | None
    expired: bool
    last4: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTokenView(TokenView):
    """A token that was made.

    Attributes:
        token: The token; it is kept nowhere.
    """

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenListView:
    """Every token.

    Attributes:
        tokens: In the order in which they were made.
    """

    tokens: tuple[TokenView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokedView:
    """A token that was ended.

    Attributes:
        revoked: Its name.
        left: Tokens that there still are; 0: nobody needs one any more.
    """

    revoked: str
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFileView:
    """A unit or a file beside it.

    Attributes:
        path: Where it goes.
        text: All of it.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsView:
    """What ``mtpd install-units`` wrote, or would write.

    Attributes:
        written: False with ``--dry-run``.
        files: Every file.
        commands: What starts it now and with the machine.
        warnings: What is odd.
    """

    written: bool
    files: tuple[UnitFileView, ...]
    commands: tuple[str, ...]
    warnings: tuple[str, ...]
