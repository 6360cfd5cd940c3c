"""Remarks on a file of another program as lines of text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind
from mtpd.config.locate import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mtpd.compat.remarks import Path, Remark
    from mtpd.config.layers import Origin
    from mtpd.config.model import Config

__all__ = ["in_force", "not_honoured", "remark_text"]


def remark_text(remark: Remark) -> str:
    """``FILE:LINE: KEY: KIND: WHY``."""
    return (
        f"{remark.file}:{remark.line}: {dotted(remark.key)}: {remark.kind.value}: {remark.message}"
    )


def not_honoured(config: Config) -> tuple[str, ...]:
    """What is written in the file and without effect; ``--strict`` refuses it."""
    return tuple(remark_text(one) for one in config.remarks if one.kind is Kind.NOT_HONOURED)


def in_force(
    remarks: Iterable[Remark], values: Mapping[Path, object], origins: Mapping[Path, Origin]
) -> tuple[Remark, ...]:
    """The remarks, with the value in force where it is not the one that the remark is about.

    That one is written where the remark points to, or beside it: in the same command, say.

    Args:
        remarks: Of one file.
        values: What is configured once all layers are joined, by key path; None is not set.
        origins: Where it was written, by key path; a default is written nowhere.
    """
    return tuple(_with_value(one, values.get(one.setting), origins) for one in remarks)


def _with_value(remark: Remark, value: object, origins: Mapping[Path, Origin]) -> Remark:
    origin = origins.get(remark.setting)
    if value is None or (origin is not None and _is_beside(origin, remark)):
        return remark
    message = f"{remark.message}; in force is {value} ({origin or 'default'})"
    return replace(remark, message=message)


def _is_beside(origin: Origin, remark: Remark) -> bool:
    return origin.file == remark.file and origin.path[:-1] == remark.key[:-1]
