"""How the embedded engine's flag values are read: text in, plain value out, or `BadValueError`.

Covers only the conversion of one value. Which flag uses which reader stands in
`embedded_flags`; `EnumValue` names a constant of the wheel without importing it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "CACHE_TYPES",
    "INT32_MAX",
    "SPEC_TYPES",
    "BadValueError",
    "EnumValue",
    "Read",
    "SettingValue",
    "cache_type",
    "choice",
    "depth",
    "device",
    "fit_margins",
    "flash_attention",
    "fraction",
    "integer",
    "layers",
    "names",
    "pooling",
    "rates",
    "seed",
    "spec_types",
    "switch",
    "text",
]

INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1
BYTES_PER_MIB = 1024 * 1024
MAX_DEVICES = 128
"""The engine keeps one fit margin for each of this many devices (llama.h, build b11434)."""

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
SPEC_TYPES = (
    "none",
    "draft-simple",
    "draft-mtp",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
)


class BadValueError(ValueError):
    """A value that its flag does not take; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class EnumValue:
    """A constant of the wheel: the name of its enumeration and the member."""

    enum: str
    member: str


SettingValue = (
    bool
    | int
    | float
    | str
    | EnumValue
    | tuple[str, ...]
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[EnumValue, ...]
)

Read = Callable[[str], SettingValue]


def text(value: str) -> str:
    """Any text that is not empty."""
    if not value:
        msg = "expected a value that is not empty"
        raise BadValueError(msg)
    return value


def names(value: str) -> tuple[str, ...]:
    """A comma-separated list of names."""
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        msg = f"expected a comma-separated list, got '{value}'"
        raise BadValueError(msg)
    return found


def integer(low: int, high: int = INT32_MAX) -> Callable[[str], int]:
    """Return a reader of whole numbers from `low` to `high`."""

    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            msg = f"expected a whole number from {low} to {high}, got '{value}'"
            raise BadValueError(msg)
        return number

    return read


def depth(value: str) -> int:
    """The drafting depth; 0 aborts the engine at the first request, so it is refused here."""
    if value.strip() == "0":
        msg = (
            "0 would abort the engine at its first request; "
            "leave --spec-type out to run without speculation"
        )
        raise BadValueError(msg)
    return integer(1)(value)


def fraction(value: str) -> float:
    """A probability from 0 to 1."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        msg = f"expected a number from 0 to 1, got '{value}'"
        raise BadValueError(msg)
    return number


def rates(value: str) -> tuple[float, ...]:
    """Comma-separated probabilities; how many and in which order is checked by the engine."""
    return tuple(fraction(part) for part in value.split(","))


def seed(value: str) -> int:
    """A 32-bit seed; -1 asks for a random one, which the engine writes as 2**32 - 1."""
    number = integer(-1, UINT32_MAX)(value)
    return UINT32_MAX if number == -1 else number


def layers(value: str) -> int:
    """A number of layers, 'auto' or 'all'; this build has no device, so it changes nothing."""
    words = {"auto": -1, "all": -2}
    return words[value] if value in words else integer(0)(value)


def fit_margins(value: str) -> tuple[int, ...]:
    """MiB per device to bytes per device; a single value holds for every device."""
    margins = tuple(integer(0)(part) * BYTES_PER_MIB for part in value.split(","))
    if len(margins) > MAX_DEVICES:
        msg = f"got {len(margins)} values, but the engine knows {MAX_DEVICES} devices"
        raise BadValueError(msg)
    repeated = margins[-1] if len(margins) == 1 else 1024 * BYTES_PER_MIB
    return margins + (repeated,) * (MAX_DEVICES - len(margins))


def device(value: str) -> bool:
    """'none' is the only device of a build for the processor; it changes nothing."""
    if value != "none":
        msg = f"invalid device: {value}"
        raise BadValueError(msg)
    return True


def switch(value: str) -> bool:
    """'on' or 'off'."""
    if value not in {"on", "off"}:
        msg = f"unknown value '{value}', expected one of: on, off"
        raise BadValueError(msg)
    return value == "on"


def choice(enum: str, **members: str) -> Callable[[str], EnumValue]:
    """Return a reader of one of the given words, each naming a member of `enum`."""

    def read(value: str) -> EnumValue:
        if value not in members:
            msg = f"unknown value '{value}', expected one of: {', '.join(members)}"
            raise BadValueError(msg)
        return EnumValue(enum, members[value])

    return read


flash_attention = choice(
    "llama_flash_attn_type",
    on="LLAMA_FLASH_ATTN_TYPE_ENABLED",
    off="LLAMA_FLASH_ATTN_TYPE_DISABLED",
    auto="LLAMA_FLASH_ATTN_TYPE_AUTO",
)
pooling = choice(
    "llama_pooling_type",
    none="LLAMA_POOLING_TYPE_NONE",
    mean="LLAMA_POOLING_TYPE_MEAN",
    cls="LLAMA_POOLING_TYPE_CLS",
    last="LLAMA_POOLING_TYPE_LAST",
    rank="LLAMA_POOLING_TYPE_RANK",
)


def cache_type(value: str) -> EnumValue:
    """The data type of a key/value cache."""
    if value not in CACHE_TYPES:
        msg = f"Unsupported cache type: {value}; expected one of: {', '.join(CACHE_TYPES)}"
        raise BadValueError(msg)
    return EnumValue("ggml_type", f"GGML_TYPE_{value.upper()}")


def spec_types(value: str) -> tuple[EnumValue, ...]:
    """Comma-separated kinds of speculation."""
    found = []
    for name in value.split(","):
        if name not in SPEC_TYPES:
            msg = f"unknown speculative type: {name}; expected one of: {', '.join(SPEC_TYPES)}"
            raise BadValueError(msg)
        member = f"COMMON_SPECULATIVE_TYPE_{name.replace('-', '_').upper()}"
        found.append(EnumValue("common_speculative_type", member))
    return tuple(found)
