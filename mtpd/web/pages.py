"""The dashboard's files: read once at the start, answered from memory.

An explicit table of files takes the place of a static folder, so that no path of a request
ever becomes a path of the disk. Everything but the page itself lies under a prefix that is a
hash over all files: what a browser keeps for ever under it can never be stale.

Not covered: who may ask. The page and its files hold nothing of this daemon, so that they
are open to everybody who reaches it (``Pages.paths``); all that they show comes from the API.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["HEADERS", "STATIC", "Page", "Pages"]

STATIC: Final = Path(__file__).resolve().parent / "static"
"""Where the files lie, in a checkout and in a wheel."""

INDEX: Final = "index.html"
PREFIX_IN_INDEX: Final = b"assets/"
"""How the page names its files; the daemon puts the hash in."""

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".css": "text/css",
        ".html": "text/html",
        ".js": "text/javascript",
        ".svg": "image/svg+xml",
    }
)
"""What is served, by the end of its name; other files beside them are not."""

HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
"""Of every answer here: no inline script or style, nothing from elsewhere, in no frame, and no
text that becomes markup or script (trusted types, where a browser has them)."""

FOR_EVER: Final = "public, max-age=31536000, immutable"
ASK_AGAIN: Final = "no-cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One file as it is answered.

    Attributes:
        path: Of the URL.
        content_type: Without the charset, which is UTF-8.
        cache: The Cache-Control header.
        etag: A hash over the body.
    """

    path: str
    body: bytes
    content_type: str
    cache: str
    etag: str

    async def answer(self, request: web.Request) -> web.Response:
        """The file, or 304 to who has it already."""
        response = web.Response(headers={**HEADERS, "Cache-Control": self.cache})
        response.etag = self.etag
        known = request.if_none_match or ()
        if any(tag.value in {self.etag, "*"} for tag in known):
            response.set_status(HTTPStatus.NOT_MODIFIED)
            return response
        response.content_type, response.charset = self.content_type, "utf-8"
        response.body = self.body
        return response


class Pages:
    """Every file of the dashboard.

    Args:
        pages: The files.
    """

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = tuple(pages)

    @classmethod
    def read(cls, folder: Path = STATIC) -> Self:
        """Read them; blocks.

        Args:
            folder: Where they lie.

        Raises:
            OSError: They cannot be read; the install is broken.
        """
        return cls(_pages(folder))

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the URLs."""
        return frozenset(page.path for page in self._pages)

    def mount(self, app: web.Application) -> None:
        """Add them to an application that has not started yet."""
        for page in self._pages:
            app.router.add_get(page.path, page.answer)


def _pages(folder: Path) -> Iterator[Page]:
    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in TYPES
    }
    index = files.pop(INDEX)
    prefix = f"assets/{_hash(*(part for name in files for part in (name.encode(), files[name])))}"
    yield _page("/", INDEX, index.replace(PREFIX_IN_INDEX, f"{prefix}/".encode()), ASK_AGAIN)
    for name, body in files.items():
        yield _page(f"/{prefix}/{name}", name, body, FOR_EVER)


def _page(path: str, name: str, body: bytes, cache: str) -> Page:
    return Page(
        path=path,
        body=body,
        content_type=TYPES[Path(name).suffix],
        cache=cache,
        etag=_hash(body),
    )


def _hash(*parts: bytes) -> str:
    """Of parts, each with its length, so that no two lists of parts are alike."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]
