"""The chunked coding of HTTP/1.1 (RFC 9112, 7.1), as far as it is written here; pure."""

from __future__ import annotations

__all__ = ["LAST", "framed"]

LAST = b"0\r\n\r\n"


def framed(data: bytes) -> bytes:
    """One chunk; ``data`` must not be empty, or it would be the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data)
