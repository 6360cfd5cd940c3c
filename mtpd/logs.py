"""Logging set-up: one event per line, for people on a terminal and as JSON elsewhere.

Covers structlog, the standard library's loggers (aiohttp, asyncio) behind the same
output, and what must never reach a log: control characters, endless fields, the bytes of
a malformed request. Not where the lines go: standard error, always.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from mtpd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["MalformedRequests", "configure", "tap"]

MAX_FIELD: Final = 4096
"""Characters of one field that are kept; of a traceback, the last ones."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL, C1, the Unicode line ends, what turns the reading direction, lone surrogates."""

_LEVELS = ("debug", "info", "warning", "error", "critical")


def configure(*, json: bool, level: str, stream: TextIO | None = None) -> None:
    """Send every log line to standard error, once for the process.

    Args:
        json: One JSON object per line; else coloured lines for a terminal.
        level: debug, info, warning, error or critical; aiohttp and asyncio never say
            more than warnings.
        stream: Where lines go instead of standard error.

    Raises:
        ConfigError: The level is none of these.
    """
    if level not in _LEVELS:
        raise ConfigError(
            (f"unknown log level {level!r}",), hint=f"use one of {', '.join(_LEVELS)}"
        )
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(json=json, colors=out.isatty()))
    _install(handler, threshold)


@contextmanager
def tap(take: Callable[[str, str], object]) -> Iterator[None]:
    """Hand the level of every log line, and the line without colours, also to ``take``.

    It may be called from any thread. Lines that structlog writes past the standard
    library (before ``configure``) are not seen.
    """
    handler = _Tap(take)
    handler.setFormatter(_formatter(json=False, colors=False))
    root = logging.getLogger()  # noqa: TID251 - this is the module that sets logging up
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Tap(logging.Handler):
    """Passes formatted lines on."""

    def __init__(self, take: Callable[[str, str], object]) -> None:
        super().__init__()
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record.levelname.lower(), self.format(record))


def _shared() -> list[Processor]:
    """What is added to every event, whoever logs it."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _formatter(*, json: bool, colors: bool) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(), structlog.stdlib.ExtraAdder(allow=("suppressed",))],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _bounded if json else _readable,
            # ASCII only: escapes every control character and every line end there is.
            structlog.processors.JSONRenderer(sort_keys=False)
            if json
            else structlog.dev.ConsoleRenderer(colors=colors),
        ],
    )


def _install(handler: logging.Handler, threshold: int) -> None:
    root = logging.getLogger()  # noqa: TID251 - this is the module that sets logging up
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(threshold)
    for name in ("aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(max(threshold, logging.WARNING))  # noqa: TID251 - as above
    server = logging.getLogger("aiohttp.server")  # noqa: TID251 - as above
    for old_filter in [one for one in server.filters if isinstance(one, MalformedRequests)]:
        server.removeFilter(old_filter)
    server.addFilter(MalformedRequests())


class MalformedRequests(logging.Filter):
    """Reports what no HTTP parser understands seldom and without its bytes.

    aiohttp logs each malformed request, and each body that is not in the encoding it
    names, with a traceback that quotes it: a flood that anyone can cause, and a leak
    where the line was an Authorization header.

    Args:
        burst: How many are reported in one window.
        window_s: Length of a window.
    """

    def __init__(self, *, burst: int = 3, window_s: float = 60.0) -> None:
        super().__init__()
        self._burst = burst
        self._window_s = window_s
        self._since: float | None = None
        self._seen = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass everything else; pass few malformed requests, stripped."""
        problem = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not isinstance(problem, HttpProcessingError | web.RequestPayloadError):
            return True
        # Wall time of the record: it can jump either way, which only ends the window early.
        if self._since is None or not 0 <= record.created - self._since < self._window_s:
            suppressed = max(0, self._seen - self._burst)
            self._since, self._seen = record.created, 0
        else:
            suppressed = 0
        self._seen += 1
        record.msg = "http.request_malformed"
        record.args = None
        record.exc_info = None
        record.exc_text = None
        record.__dict__["suppressed"] = suppressed
        return self._seen <= self._burst


def _bounded(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut fields to a bounded length; JSON escapes the rest."""
    trace = event.pop("exception", None)
    out: EventDict = {_text(key): _shortened(value, clean=False) for key, value in event.items()}
    return out if trace is None else {**out, "exception": str(trace)[-MAX_FIELD:]}


def _readable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut fields and escape what a terminal would obey; tracebacks keep their lines."""
    trace = event.pop("exception", None)
    out: EventDict = {
        _clean(_text(key)): _shortened(value, clean=True) for key, value in event.items()
    }
    if trace is not None:
        lines = str(trace)[-MAX_FIELD:].split("\n")
        out["exception"] = "\n".join(_clean(line) for line in lines)
    return out


def _shortened(value: object, *, clean: bool) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON has no infinity and no NaN.
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_text(key): _shortened(inner, clean=clean) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shortened(inner, clean=clean) for inner in value]
    return _clean(_text(value)) if clean else _text(value)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if len(text) <= MAX_FIELD:
        return text
    return f"{text[:MAX_FIELD]}… ({len(text)} characters)"


def _clean(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
