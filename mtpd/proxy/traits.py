"""What a request's body tells of its class: how it samples, and what its text mostly is; pure.

Acceptance depends on both (``tuner.classes``). Only the end of the text is looked at, and
nothing of it is kept. In doubt a text is mixed: a wrong class would blur two that differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.classes import Kind, Sampling, sampling_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DEFAULT_TEMPERATURE", "Traits", "traits_of"]

DEFAULT_TEMPERATURE: Final = 0.8
"""What llama-server samples with where a request names no temperature."""

LOOKED_AT: Final = 4096
"""Characters from the end of the text by which code is told from prose."""

MESSAGES: Final = 3
"""Last messages of a chat that are looked at: a tool's answer stands beside its question."""

CODE_LINES: Final = 0.3
"""Share of lines that look like code from which a text is code."""

PROSE_WORDS: Final = 20
"""Words from which a text without a line of code is prose."""

_CODE_LINE: Final = re.compile(
    r"(?:```|#include\b|import \w|from \w+ import\b|(?:async )?def \w|class \w+\s*[({:]"
    r"|fn \w|func \w|(?:const|let|var) \w+\s*=|return\b.*;|</?\w+[^>]*>$|SELECT\b.*\bFROM\b)"
    r"|.*[;{}]$|.*\) ?:$"
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What the body alone tells.

    Attributes:
        kind: What the text mostly is.
        sampling: How tokens are picked.
    """

    kind: Kind = Kind.MIXED
    sampling: Sampling = Sampling.SAMPLED


def traits_of(body: Mapping[str, object]) -> Traits:
    """Read them out of a body of any endpoint that generates; total."""
    temperature = body.get("temperature")
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        temperature = DEFAULT_TEMPERATURE
    if body.get("top_k") == 1:
        temperature = 0.0
    kind = Kind.CODE if "input_prefix" in body else _kind("\n".join(_texts(body))[-LOOKED_AT:])
    return Traits(kind=kind, sampling=sampling_of(temperature))


def _kind(text: str) -> Kind:
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    code = sum(_CODE_LINE.match(line) is not None for line in lines)
    if code and code >= CODE_LINES * len(lines):
        return Kind.CODE
    return Kind.PROSE if not code and len(text.split()) >= PROSE_WORDS else Kind.MIXED


def _texts(body: Mapping[str, object]) -> Iterator[str]:
    """The text of the last messages, or the prompt."""
    for name in ("messages", "input", "prompt"):
        match body.get(name):
            case str(text):
                yield text
            case list(items):
                for item in items[-MESSAGES:]:
                    yield from _text(item)
            case _:
                pass


def _text(item: object) -> Iterator[str]:
    match item:
        case str(text) | {"text": str(text)} | {"content": str(text)}:
            yield text
        case {"content": list(parts)}:
            for part in parts[-MESSAGES:]:
                match part:
                    case {"text": str(text)}:
                        yield text
                    case _:
                        pass
        case _:
            pass
