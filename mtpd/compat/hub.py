"""Models that are named as ``llama-server -hf`` names them: by a repository and a file of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["SCHEME", "HubModel", "parse"]

SCHEME = "hf:"
"""What such a name begins with in a profile."""

_NAME = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})"
    r"(?::(?P<what>[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}))?"
)
_SUFFIX = ".gguf"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model in a repository.

    Attributes:
        repo: ``OWNER/NAME``.
        quant: How it is quantised, e.g. ``Q4_K_M``; None for the usual one.
        file: The file; None for the one with that quantisation.
    """

    repo: str
    quant: str | None = None
    file: str | None = None

    @property
    def download(self) -> str:
        """The command that downloads it to where it is looked for."""
        what = self.file or f"--include '*{self.quant or 'Q4_K_M'}*{_SUFFIX}'"
        return f"hf download {self.repo} {what}"

    @property
    def missing(self) -> str:
        """That it is not here, as a sentence without a full stop."""
        return (
            f"is not in the cache of Hugging Face or llama.cpp, and mtpd downloads nothing:"
            f" {self.download}, then mtpctl reload"
        )


def parse(text: str) -> HubModel | None:
    """The model of a name such as ``hf:OWNER/NAME:Q4_K_M`` or ``hf:OWNER/NAME:FILE.gguf``."""
    match = _NAME.fullmatch(text)
    if match is None or ".." in text:
        return None
    what = match["what"]
    if what is not None and what.lower().endswith(_SUFFIX):
        return HubModel(match["repo"], file=what)
    return None if what and "/" in what else HubModel(match["repo"], quant=what)
