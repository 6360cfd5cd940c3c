"""Who sent a request, as far as the access tokens tell."""

from __future__ import annotations

from aiohttp import web

__all__ = ["CALLER"]

CALLER = web.RequestKey("caller", str)
"""Name of the token that a request showed; absent where none was needed or shown."""
