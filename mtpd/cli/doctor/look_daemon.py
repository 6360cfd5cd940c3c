"""Asking the daemon, and telling one that is not there from one that does not answer us."""

from __future__ import annotations

import os
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.cli.client import SYSTEM_SOCKETS, ApiError, Client, HttpTarget, UnixTarget
from mtpd.cli.decode import decode, decode_all
from mtpd.cli.doctor.finding import quoted
from mtpd.cli.doctor.machine import account_of
from mtpd.errors import MtpdError, UnreachableError
from mtpd.gpu.views import DeviceView
from mtpd.views import StatusView

if TYPE_CHECKING:
    from mtpd.cli.doctor.rights import Account

__all__ = ["Answer", "ask"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a running daemon says.

    Attributes:
        unreachable: Why one that is there does not answer, and what to do.
        refused_by: The user of one that does not admit us.
    """

    status: StatusView | None = None
    devices: tuple[DeviceView, ...] = ()
    unreachable: tuple[str, str] | None = None
    refused_by: Account | None = None


def ask(client: Client) -> Answer:
    """What a daemon says of itself; one that is not there is no failure here."""
    try:
        status = decode(StatusView, client.get("/status").data)
        devices = decode_all(DeviceView, client.get("/gpu").data, "devices")
    except MtpdError as error:
        match client.target:
            case UnixTarget(path=path) if _is_refusal(error):
                return _refused(path)
            case _:
                return Answer(unreachable=_unreachable(client, error))
    return Answer(status=status, devices=devices)


def _is_refusal(error: MtpdError) -> bool:
    """By the mode of the socket or a directory above it, or by the daemon."""
    closed = isinstance(error.__context__, PermissionError)
    return closed or (isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN)


def _refused(path: str) -> Answer:
    at, us = Path(path), account_of(os.geteuid())
    owner = account_of(next(uid for one in (at, *at.parents) if (uid := _uid(one)) is not None))
    says = (
        f"the daemon of {owner.name} at the socket {path} does not admit {us.name}: it answers its"
        " own user, root and, where the mode of the socket lets them, the members of its group"
    )
    named = "" if at in SYSTEM_SOCKETS else f" --socket {quoted(path)}"
    return Answer(unreachable=(says, f"sudo mtpctl{named} doctor"), refused_by=owner)


def _uid(path: Path) -> int | None:
    """Who owns what is there, as far as that can be seen: the closed directory can."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _unreachable(client: Client, error: MtpdError) -> tuple[str, str] | None:
    """Why one that is there does not answer; None where there is none."""
    if not isinstance(error, UnreachableError):
        return str(error), "mtpctl --version && mtpctl status"
    match error.__context__:
        case TimeoutError():
            return f"{error} It hangs.", "sudo systemctl restart mtpd"
        case _ if isinstance(client.target, HttpTarget):
            return str(error), "mtpctl doctor    # without --url: it asks over the control socket"
        case _:
            return None
