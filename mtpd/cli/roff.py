"""Lines of a manual page in the man macros of roff, from plain sentences. Pure.

Words between backticks are set in bold, as are options wherever they stand.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["example", "head", "item", "paragraph", "section"]

_CODE: Final = re.compile(r"`+([^`]+)`+|(?<![\w`/-])(--?[a-z][\w-]*)")
_CONTROL: Final = re.compile(r"^(?=[.'])", re.MULTILINE)


def head(name: str, part: int, version: str) -> list[str]:
    """The title line; no date, so that the same code always makes the same page."""
    return [f'.TH "{_quoted(name.upper())}" {part} "" "mtpd {version}" "mtpd"']


def section(title: str) -> list[str]:
    """A heading."""
    return [f'.SH "{_quoted(title)}"']


def paragraph(text: str) -> list[str]:
    """A paragraph."""
    return [".PP", _set(text)]


def item(term: str, text: str, beside: str = "") -> list[str]:
    """Something with what it means, e.g. an option; the term is in bold, with words beside it."""
    line = f"\\fB{_plain(term)}\\fR"
    return [".TP", f"{line} {_set(beside)}" if beside else line, _set(text) or "\\&"]


def example(text: str) -> list[str]:
    """Lines that are printed as they are."""
    return [".PP", ".nf", ".RS", _plain(text), ".RE", ".fi"]


def _set(text: str) -> str:
    """A sentence with its code in bold."""
    made, end = [], 0
    for found in _CODE.finditer(text):
        made += [_escaped(text[end : found.start()])]
        made += [f"\\fB{_code(found[1] or found[2])}\\fR"]
        end = found.end()
    return _CONTROL.sub(r"\\&", "".join([*made, _escaped(text[end:])]))


def _plain(text: str) -> str:
    return _CONTROL.sub(r"\\&", _code(text))


def _code(text: str) -> str:
    """With every hyphen as the minus that is typed."""
    return _escaped(text).replace("-", "\\-")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e")


def _quoted(text: str) -> str:
    return _code(text).replace('"', "\\(dq")
