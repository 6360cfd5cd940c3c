"""llama.cpp's preset files (``llama-server --models-preset``) in the terms of ``mtpd.toml``.

Reads as common/preset.cpp does (build b11434): a key or section begins in the first
column, ``;`` and ``#`` begin a comment anywhere, nothing is quoted, ``[*]`` holds what
every section starts from, keys before any section make a model named ``default``, and a
section that comes again takes the place of the earlier one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtpd.compat import hub
from mtpd.compat.arguments import BUILD, TRUTHY, changed, made_option, replacement
from mtpd.compat.flag_table import BY_ENV, BY_KEY
from mtpd.compat.names import profile_name
from mtpd.compat.overlay import put_list
from mtpd.compat.remarks import Import, Kind
from mtpd.compat.settings import hub_name, put_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.compat.arguments import Option
    from mtpd.compat.remarks import Path

__all__ = ["translate"]

_NEWLINE = re.compile(r"\r\n|\n|\r")
_SECTION = re.compile(r"\[[ \t]*(?P<name>[^\]]+)\][ \t]*(?:[;#].*)?")
_PAIR = re.compile(
    r"(?P<key>[a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(?P<value>[^;#]*?)[ \t]*(?:[;#].*)?"
)
_BLANK = re.compile(r"[ \t]*(?:[;#].*)?")
_ALL = "*"
_BEFORE_SECTIONS = "default"
_VERSION = "version"
_TAG = re.compile(r"(?P<name>.+):(?P<tag>[^:/]+)")

_LOAD, _STOP = "load-on-startup", "stop-timeout"
_MOST_DIGITS = 6
_STRIPPED = frozenset(
    {"host", "port", "api-key", "alias", "ssl-key-file", "ssl-cert-file", "models-preset"}
)


@dataclass(slots=True)
class _Section:
    """A section as it stands: value and line by key."""

    name: str
    line: int
    pairs: dict[str, tuple[str, int]] = field(default_factory=dict)

    def of_the_router(self) -> dict[str, _Given]:
        """What only the router reads, which no engine is told."""
        given = ((key, self.pairs[key]) for key in (_LOAD, _STOP) if key in self.pairs)
        return {key: _Given(value, line, (self.name, key)) for key, (value, line) in given}


@dataclass(frozen=True, slots=True)
class _Given:
    """A value with its place."""

    value: str
    line: int
    key: Path


def translate(text: str) -> Import:
    """Translate a file; never raises."""
    into = Import()
    sections = _sections(text, into)
    options = {name: _options(section, into) for name, section in sections.items()}
    shared = options.pop(_ALL, {})
    for_all = sections[_ALL].of_the_router() if _ALL in sections else {}
    preloaded: dict[str, tuple[int, Path]] = {}
    for name, own in sorted(options.items()):
        section = sections[name]
        if not section.pairs.keys() - {_VERSION} and name == _BEFORE_SECTIONS:
            continue
        profile = _put(section, shared | own, into)
        if profile is not None:
            router = for_all | section.of_the_router()
            _put_stop(router.get(_STOP), profile, into)
            load = router.get(_LOAD)
            if load is not None and load.value in TRUTHY:
                preloaded[profile] = load.line, load.key
    if preloaded:
        put_list(("server", "preload"), preloaded, into)
    return into


def _sections(text: str, into: Import) -> dict[str, _Section]:
    """The sections by name; a line that is none of the four kinds is a fault."""
    found: dict[str, _Section] = {}
    current = _Section(_BEFORE_SECTIONS, 1)
    for number, line in enumerate(_NEWLINE.split(text), start=1):
        if _BLANK.fullmatch(line):
            continue
        if (match := _SECTION.fullmatch(line)) is not None:
            name = match["name"].rstrip(" \t")
            if name in found:
                message = f"takes the place of the section in line {found[name].line}"
                into.remark(Kind.CHANGED, number, (name,), f"{message}, as in llama-server")
            current = found[name] = _Section(name, number)
        elif (match := _PAIR.fullmatch(line)) is not None:
            found.setdefault(current.name, current)
            current.pairs[match["key"]] = (match["value"], number)
        else:
            why = (
                "an indented line is refused" if line[0] in " \t" else "neither a key nor a section"
            )
            into.fault(number, (), f"{why}: the whole file is not read by llama-server either")
    return found


def _options(section: _Section, into: Import) -> dict[str, Option]:
    """The options of a section; of two spellings of one, the last in the alphabet counts."""
    found: dict[str, Option] = {}
    for option in _named(section, into):
        earlier = found.get(option.flag.key)
        if earlier is not None:
            message = f"is the same option as {earlier.written!r} and takes its place"
            into.remark(Kind.CHANGED, option.line, option.key, message)
        found[option.flag.key] = option
    return found


def _named(section: _Section, into: Import) -> Iterator[Option]:
    for key, (value, line) in sorted(section.pairs.items()):
        path = (section.name, key)
        flag = BY_ENV.get(key) or BY_KEY.get(key)
        if key in {_VERSION, _LOAD, _STOP}:
            continue
        if (replaced := replacement(key, value)) is not None:
            option = made_option(BY_KEY[replaced[0]], *replaced, line=line, key=path)
            change = changed(f"{key} = {value}", " = ".join(replaced))
            yield replace(option, change=change)
        elif flag is None:
            into.fault(line, path, f"is no option of llama-server {BUILD}")
        elif flag.values > 1:
            into.fault(line, path, "an option with two values cannot stand in a preset")
        elif flag.key in _STRIPPED:
            into.remark(Kind.NOTE, line, path, "llama-server's router takes this out of presets")
        else:
            yield made_option(flag, key, value, line=line, key=path)


def _put(section: _Section, options: dict[str, Option], into: Import) -> str | None:
    """Put a section; the profile that it became, or None."""
    name = _canonical(section.name)
    key = (section.name,)
    cached = f"{hub.SCHEME}{section.name}"
    named = "model" in options or hub_name(options) is not None
    if not named and hub.parse(cached) is None:
        message = "names no file with 'model' and no repository: it is left out"
        into.remark(Kind.NOT_HONOURED, section.line, key, message)
        return None
    aliases: list[str] = []
    profile = profile_name(name, aliases, into, line=section.line, key=key)
    at = ("models", profile)
    into.lines[at], into.keys[at] = section.line, key
    if aliases:
        into.put((*at, "aliases"), aliases, line=section.line, key=key)
    if not named:  # a section for what the router finds in the cache
        into.put((*at, "model"), cached, line=section.line, key=key)
    put_settings(options, at, into)
    return profile


def _put_stop(given: _Given | None, profile: str, into: Import) -> None:
    """Put how long an engine may take to end; at least a second, as it is asked first."""
    if given is None:
        return
    if not (given.value.isascii() and given.value.isdigit() and len(given.value) < _MOST_DIGITS):
        message = f"must be a whole number of seconds, not {given.value!r}"
        into.remark(Kind.NOT_HONOURED, given.line, given.key, message)
        return
    at = ("models", profile, "stop_timeout_s")
    into.put(at, max(1, int(given.value)), line=given.line, key=given.key)
    if not int(given.value):
        message = "0 is taken for 1: an engine is asked to end before it is killed"
        into.remark(Kind.CHANGED, given.line, given.key, message)


def _canonical(name: str) -> str:
    """A tag after the last colon in capitals, as the router lists it."""
    match = _TAG.fullmatch(name)
    return name if match is None else f"{match['name']}:{match['tag'].upper()}"
