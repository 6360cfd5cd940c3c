"""Remarks on a file of another program as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind
from mtpd.config.locate import dotted

if TYPE_CHECKING:
    from mtpd.compat.remarks import Remark
    from mtpd.config.model import Config

__all__ = ["not_honoured", "remark_text"]


def remark_text(remark: Remark) -> str:
    """``FILE:LINE: KEY: KIND: WHY``."""
    return (
        f"{remark.file}:{remark.line}: {dotted(remark.key)}: {remark.kind.value}: {remark.message}"
    )


def not_honoured(config: Config) -> tuple[str, ...]:
    """What is written in the file and without effect; ``--strict`` refuses it."""
    return tuple(remark_text(one) for one in config.remarks if one.kind is Kind.NOT_HONOURED)
