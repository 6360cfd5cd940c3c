"""``GET /props``: what an engine says of itself, without where its files lie."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from mtpd.proxy import replies
from mtpd.proxy.headers import to_engine
from mtpd.proxy.outcomes import RejectedError, UpstreamLostError

if TYPE_CHECKING:
    from mtpd.proxy.carry import Board
    from mtpd.proxy.engines import Lease

__all__ = ["props"]

SHOWN = (
    "default_generation_settings",
    "total_slots",
    "model_alias",
    "model_ftype",
    "modalities",
    "chat_template",
    "chat_template_caps",
    "bos_token",
    "eos_token",
    "build_info",
    "is_sleeping",
)
"""What clients ask it for; paths and what the engine's own web page needs are left out."""

MAX_BYTES = 4 * 1024 * 1024
PATIENCE_S = 10.0
"""The engine answers while it works; one that does not within this has broken off."""


async def props(board: Board, profile: str) -> web.Response:
    """The subset, from an engine that is loaded for it if need be."""
    try:
        beside = board.beside(profile)
        if beside is not None:
            whole = await _ask(beside)
        else:
            async with board.lease(profile, request_id="props") as lease:
                whole = await _ask(lease)
    except RejectedError as error:
        return replies.rejected(error)
    except UpstreamLostError as error:
        return replies.upstream_lost(error)
    return web.json_response({name: whole[name] for name in SHOWN if name in whole})


async def _ask(lease: Lease) -> dict[str, object]:
    raw = bytearray()
    with lease.cut, anyio.move_on_after(PATIENCE_S):
        async with lease.upstream.open("GET", "/props", headers=to_engine({}), data=b"") as answer:
            while chunk := await answer.chunk():
                raw += chunk
                if len(raw) > MAX_BYTES:
                    break
    try:
        parsed: object = json.loads(raw)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        msg = "the engine did not say its properties"
        raise UpstreamLostError(msg)
    return parsed
