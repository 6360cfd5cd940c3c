"""Web pages of other origins that were listed may use the data plane: CORS, and no more of it.

Only an origin that ``[server] cors_origins`` names is ever told to a browser; there are no
credentials, and the control plane has no such answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import MultiMapping

__all__ = ["admit", "asks_first", "followed", "give", "granted"]

_ORIGIN = web.RequestKey("mtpd.cors_origin", str)
_METHODS = "GET, POST, OPTIONS"
_EXPOSED = "Retry-After, X-Mtpd-Attempt, X-Mtpd-Depth, X-Mtpd-Instance, X-Mtpd-Profile, X-Mtpd-Why"
_HELD_S = 600
_NAMES = re.compile(r"[A-Za-z0-9_-]+(?:[ \t]*,[ \t]*[A-Za-z0-9_-]+)*")


def followed(headers: MultiMapping[str]) -> bool:
    """Whether a browser opens this as a page of its own: in no frame, and in no other page."""
    how = (headers.getall("Sec-Fetch-Mode", []), headers.getall("Sec-Fetch-Dest", []))
    return how == (["navigate"], ["document"])


def asks_first(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser asks what a page may do, before the page does it."""
    return method == "OPTIONS" and "Access-Control-Request-Method" in headers


def admit(request: web.Request, origin: str) -> None:
    """Remember that the page of a request may read the answer, whichever it is."""
    request[_ORIGIN] = origin


def granted(request: web.Request) -> web.Response:
    """The answer to a browser that asks first."""
    headers = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": str(_HELD_S)}
    asked = request.headers.get("Access-Control-Request-Headers", "").strip()
    if _NAMES.fullmatch(asked):
        headers["Access-Control-Allow-Headers"] = asked
    return web.Response(status=204, headers=headers)


async def give(request: web.Request, response: web.StreamResponse) -> None:
    """Tell the browser of a page that was admitted; to be run before a response begins."""
    origin = request.get(_ORIGIN)
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        response.headers.add("Vary", "Origin")
