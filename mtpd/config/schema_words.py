"""Types and ranges of the values in the TOML files, and what all tables have in common.

Part of ``mtpd.config.schema``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "DAY_S",
    "Batch",
    "DrafterWord",
    "KvType",
    "Limit",
    "LoadingWord",
    "OffloadWord",
    "Patience",
    "Table",
    "Text",
    "Threads",
    "Ttl",
    "Word",
]

DAY_S = 86_400.0

Text = Annotated[str, Field(min_length=1, max_length=1024)]
KvType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
OffloadWord = Literal["refuse", "accept"]
DrafterWord = Literal[
    "none",
    "mtp",
    "mtp-file",
    "draft-model",
    "eagle3",
    "ngram",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "adaptive",
]
LoadingWord = Literal["off", "comments", "reasoning"]
Limit = Annotated[float, Field(ge=0.0, le=DAY_S)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Word = Annotated[str, Field(max_length=65_536)]
Ttl = Annotated[float, Field(ge=0.0, le=365 * DAY_S)]
Patience = Annotated[float, Field(ge=1.0, le=DAY_S)]
Batch = Annotated[int, Field(ge=32, le=65_536)]


class Table(BaseModel):
    """A TOML table: exact types, known keys only."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)
