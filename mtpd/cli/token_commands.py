"""``mtpd token``: make, list and revoke access tokens.

Works on the token file of a state directory, whether a daemon runs there or not; a
running one takes a change in with its next request.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from mtpd.access import Scope, is_name, parse_expiry
from mtpd.cli.cells import NONE, cell, finished, table
from mtpd.cli.configured import json_option, print_json
from mtpd.cli.group import Commands
from mtpd.cli.json_views import NewTokenView, RevokedView, TokenListView, TokenView
from mtpd.cli.session import console
from mtpd.clock import SystemClock, rfc3339
from mtpd.config.directories import Directories
from mtpd.errors import MtpdError
from mtpd.store.token_file import TokenFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import TypeVar

    from rich.console import RenderableType

    from mtpd.access import Token

    CommandT = TypeVar("CommandT", bound=Callable[..., None])

__all__ = ["token"]

CLOCK = SystemClock()
_LAST = (
    "no token is left: on the loopback, inference and reads are open to everybody again; "
    "a daemon that other machines reach answers nobody"
)
_FIRST = "from now on every request over TCP needs a token; clients send it as their API key"


def _state_option(command: CommandT) -> CommandT:
    return click.option(
        "--state-dir",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="The daemon's state directory [default: as mtpd serve finds it].",
    )(command)


def _file(state_dir: Path | None) -> TokenFile:
    return TokenFile(Directories.resolve(os.environ, state=state_dir).state, CLOCK)


def _tokens(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The names of the tokens, for a shell; of a file that cannot be read none."""
    try:
        known = _file(ctx.params.get("state_dir")).read()
    except MtpdError:
        return []
    return [CompletionItem(one.name) for one in known if one.name.startswith(begun)]


@click.group(cls=Commands)
def token() -> None:
    """Make, list and revoke access tokens.

    As long as there is none, everybody on this machine may use the models. With the first
    one every request over TCP needs a token, sent as "Authorization: Bearer TOKEN" or
    "x-api-key: TOKEN"; the control socket stays as it is. Run this as the user that the
    daemon runs as. docs/security.md explains who may do what.
    """


@token.command
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    help="infer: the models; read: status, logs, /metrics; admin: everything. May be given"
    " several times [default: infer].",
)
@click.option(
    "--expires", metavar="WHEN", help="After 12h, 30d or 8w, or at a date [default: never]."
)
@_state_option
@json_option
def add(
    name: str,
    *,
    scopes: tuple[str, ...],
    expires: str | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Make a token and print it: once, it is kept nowhere.

    NAME says whose it is; logs, limits and the journal call its holder so.
    """
    if not is_name(name):
        message = "letters, digits and . _ -, at most 64"
        raise click.BadParameter(message, param_hint="NAME")
    file = _file(state_dir)
    first = not file.read()
    wanted = frozenset(Scope(one) for one in scopes) or frozenset({Scope.INFER})
    secret, made = file.add(name, wanted, expires=_expiry(expires))
    if as_json:
        print_json(NewTokenView(**_known(made), token=secret))
    else:
        click.echo(secret)
    if first:
        click.echo(_FIRST, err=True)


@token.command("list")
@_state_option
@json_option
def list_(*, state_dir: Path | None, as_json: bool) -> None:
    """List the tokens by name, with the last characters of each."""
    tokens = _file(state_dir).read()
    if as_json:
        print_json(TokenListView(tokens=tuple(TokenView(**_known(one)) for one in tokens)))
        return
    console(sys.stdout).print(_table(tokens))


@token.command
@click.argument("name", shell_complete=_tokens)
@_state_option
@json_option
def revoke(name: str, *, state_dir: Path | None, as_json: bool) -> None:
    """Revoke a token: the next request that shows it is refused.

    What already runs goes on to its end.
    """
    left = _file(state_dir).revoke(name)
    if as_json:
        print_json(RevokedView(revoked=name, left=len(left)))
    else:
        click.echo(f"revoked {name}")
    if not left:
        click.echo(_LAST, err=True)


def _expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_expiry(text, CLOCK.utc())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--expires") from None


def _known(one: Token) -> dict[str, Any]:
    """The members of its view."""
    return {
        "name": one.name,
        "scopes": tuple(sorted(one.scopes)),
        "created": None if one.created is None else rfc3339(one.created),
        "expires": None if one.expires is None else rfc3339(one.expires),
        "expired": one.expired(CLOCK.utc()),
        "last4": one.last4,
    }


def _table(tokens: tuple[Token, ...]) -> RenderableType:
    made = table("tokens")
    for head in ("name", "scopes", "created", "expires", "last 4"):
        made.add_column(head, overflow="fold")
    for one in tokens:
        made.add_row(
            cell(one.name),
            cell(", ".join(sorted(one.scopes))),
            cell(_moment(one.created)),
            cell(_end(one)),
            cell(one.last4),
        )
    return finished(made, "no token exists: mtpd token add NAME makes one")


def _end(one: Token) -> str:
    if one.expires is None:
        return "never"
    return "expired" if one.expired(CLOCK.utc()) else _moment(one.expires)


def _moment(moment: datetime | None) -> str:
    return NONE if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
