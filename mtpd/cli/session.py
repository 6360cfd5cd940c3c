"""What every ``mtpctl`` command has in hand: the client, the consoles, the format."""

from __future__ import annotations

import functools
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click
from rich.console import Console

from mtpd.cli.cells import WIDTH
from mtpd.cli.client import ApiError, Client, Reply, find_target
from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from rich.console import RenderableType

    from mtpd.cli.client import Target

__all__ = ["Connection", "Session", "connected", "connection_options", "read_token"]

_CONNECTION = ("socket_path", "url", "token_file", "as_json")
TOKEN_BYTES = 4096
"""Of a token file, which holds one line."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One run of ``mtpctl``.

    Attributes:
        as_json: Print the API's bodies as they are.
        out: Results.
        err: Progress and remarks.
    """

    client: Client
    as_json: bool
    out: Console
    err: Console

    def show(self, reply: Reply, draw: Callable[[], RenderableType]) -> None:
        """Print a reply: as it came with ``--json``, else drawn."""
        if self.as_json:
            click.echo(reply.text, nl=not reply.text.endswith("\n"))
        else:
            self.out.print(draw())

    def say(self, text: str) -> None:
        """Print a plain line of a result, wrapped at the console's width."""
        self.out.print(text)


def connection_options(command: Callable[P, None]) -> Callable[P, None]:
    """Add ``--socket``, ``--url``, ``--token-file`` and ``--json``, which every command takes."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the API's answer as it is."),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Access token for --url [default: $MTPD_TOKEN].",
        ),
        click.option(
            "--url",
            metavar="URL",
            help="Ask over TCP, e.g. http://127.0.0.1:8080; changes need a token.",
        ),
        click.option("--socket", "socket_path", metavar="PATH", help="The control socket."),
    ):
        command = option(command)
    return command


def connected(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Give a command its session; the connection options work before and after its name."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name) for name in _CONNECTION}
        session = _open(Connection.given(own, click.get_current_context().parent))
        try:
            command(session, *args, **kwargs)
        except ApiError as error:
            if session.as_json:
                click.echo(error.text, nl=not error.text.endswith("\n"))
            raise

    return connection_options(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What the options say that every command takes."""

    socket_path: str | None = None
    url: str | None = None
    token_file: Path | None = None
    as_json: bool = False

    @classmethod
    def given(cls, own: Mapping[str, Any], context: click.Context | None) -> Connection:
        """A command's own options, and those before its name; the nearer ones win."""
        found = cls(**{name: own[name] for name in _CONNECTION if name in own})
        while context is not None:
            before = cls(
                **{name: value for name, value in context.params.items() if name in _CONNECTION}
            )
            named = (found.socket_path, found.url) != (None, None)
            addressed = found if named else before
            found = cls(
                socket_path=addressed.socket_path,  # the nearer place wins as a whole
                url=addressed.url,
                token_file=found.token_file or before.token_file,
                as_json=found.as_json or before.as_json,
            )
            context = context.parent
        return found

    def target(self) -> Target:
        """Where the daemon is.

        Raises:
            ValueError: The URL is none.
            MtpdError: The token cannot be read.
        """
        return find_target(
            socket_path=self.socket_path,
            url=self.url,
            token=read_token(self.token_file, os.environ) if self.url else None,
            environment=os.environ,
        )


def _open(given: Connection) -> Session:
    if given.socket_path and given.url:
        message = "--socket and --url exclude each other."
        raise click.UsageError(message)
    if given.token_file and not given.url:
        message = "--token-file needs --url: on the control socket it is your user that counts."
        raise click.UsageError(message)
    try:
        target = given.target()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    return Session(
        client=Client(target),
        as_json=given.as_json,
        out=console(sys.stdout),
        err=console(sys.stderr),
    )


def read_token(path: Path | None, environment: Mapping[str, str]) -> str | None:
    """The access token of a file, else of ``$MTPD_TOKEN``; never of the command line.

    Raises:
        MtpdError: The file cannot be read, others can read it, or there is no token in it.
    """
    if path is None:
        named = environment.get("MTPD_TOKEN")
        return _token(named, "$MTPD_TOKEN") if named else None
    try:
        with path.open("rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(TOKEN_BYTES)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise MtpdError(message, hint="name another file with --token-file") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"{path} is open to other users"
        raise MtpdError(message, hint=f"chmod 600 {path}")
    return _token(text.decode(errors="replace"), str(path))


def _token(text: str, where: str) -> str:
    """What can stand in a header; the message does not repeat it."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        message = f"{where} must hold a token and nothing else"
        raise MtpdError(message, hint="mtpd token add NAME prints one")
    return token


def console(file: TextIO) -> Console:
    """Colour and the window's width on a terminal, else plain and 80 columns."""
    return Console(
        file=file,
        width=None if file.isatty() else WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
