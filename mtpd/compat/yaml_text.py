"""YAML text to values with the line of each, bounded in size and depth.

Works on PyYAML's events. Scalars are typed as llama-swap's reader (yaml.v3, YAML 1.2's
core schema) types them: ``on``, ``yes`` and ``1:30`` are text. A repeated key, an
anchor inside itself, an unknown tag and a second document are faults.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from mtpd.compat.remarks import Fault, Path, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Document", "read"]

MAX_DEPTH = 40
"""How deep lists and tables may be nested."""

MAX_VALUES = 20_000
"""How many values a document may have once its aliases are replaced by what they name."""

_INT = re.compile(r"[-+]?[0-9]{1,18}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset({"str", "int", "float", "bool", "null", "map", "seq", "merge"})
_MERGE = "<<"


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read.

    Attributes:
        value: Tables, lists, text, numbers, truth values and None.
        lines: 1-based line by path: of the key in a table, of the element in a list.
        blocks: For text written with ``|``: the line on which its first line stands.
    """

    value: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    blocks: dict[Path, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """1-based line and column; 0 where PyYAML says nothing."""

    line: int
    column: int


class _FaultFound(Exception):  # noqa: N818 - a signal inside this module, not an error
    def __init__(self, place: _Place, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(line=place.line, column=place.column, message=shortened(message))


@dataclass(slots=True)
class _Scalar:
    place: _Place
    value: object
    text: str
    plain: bool
    block: bool


@dataclass(slots=True)
class _List:
    place: _Place
    items: list[_Node] = field(default_factory=list)


@dataclass(slots=True)
class _Table:
    place: _Place
    pairs: list[tuple[_Scalar, _Node]] = field(default_factory=list)


_Node = _Scalar | _List | _Table


def read(text: str, *, substitute: Callable[[str], str] = str) -> Document | Fault:
    """Read a document, or say where it is wrong; never raises.

    Args:
        text: The document.
        substitute: Applied to every scalar before its type is looked at. A ``LookupError``
            from it is a fault at that scalar, in its words.
    """
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        return Fault(line=line, message="not YAML: a control character")
    try:
        return _Composer(loader, substitute).document()
    except _FaultFound as found:
        return found.fault
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _Place(0, 0) if mark is None else _Place(mark.line + 1, mark.column + 1)
        what = " ".join(part for part in (error.context, error.problem) if part)
        return _FaultFound(place, f"not YAML: {what}").fault
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML passes on what the standard library thinks of an escape or a directive.
        return Fault(line=loader.line + 1, message=shortened(f"not YAML: {error}"))


class _Composer:
    """Events to nodes, and nodes to values."""

    def __init__(self, loader: yaml.SafeLoader, substitute: Callable[[str], str]) -> None:
        self.events = _events(loader)
        self.substitute = substitute
        self.anchors: dict[str, _Node | None] = {}
        self.values = 0
        self.found = Document()

    def document(self) -> Document:
        """The only document of the text; nothing at all is an empty one."""
        root: _Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _FaultFound(_place(event), "a second document begins here")
                root = self.node(next(self.events), 0)
        if root is None:
            return self.found
        return Document(self.value(root, (), 0), self.found.lines, self.found.blocks)

    def node(self, event: yaml.Event, depth: int) -> _Node:
        place = _place(event)
        if depth > MAX_DEPTH:
            raise _FaultFound(place, f"lists and tables are nested deeper than {MAX_DEPTH}")
        match event:
            case yaml.AliasEvent():
                return self.alias(event, place)
            case yaml.ScalarEvent():
                return self.anchored(event, self.scalar(event, place))
            case yaml.SequenceStartEvent():
                self.begin(event, place)
                return self.anchored(event, self.list_(place, depth))
            case yaml.MappingStartEvent():
                self.begin(event, place)
                return self.anchored(event, self.table(place, depth))
            case _:
                raise TypeError(event)

    def alias(self, event: yaml.AliasEvent, place: _Place) -> _Node:
        if event.anchor not in self.anchors:
            raise _FaultFound(place, f"there is no anchor &{event.anchor}")
        known = self.anchors[event.anchor]
        if known is None:
            raise _FaultFound(place, f"&{event.anchor} contains itself")
        return known

    def begin(self, event: yaml.CollectionStartEvent, place: _Place) -> None:
        """A list or table starts: what it may be called, and that it is not complete."""
        _check_tag(event.tag, place)
        if event.anchor is not None:
            self.anchors[event.anchor] = None

    def anchored(self, event: yaml.NodeEvent, made: _Node) -> _Node:
        if event.anchor is not None:
            self.anchors[event.anchor] = made
        return made

    def list_(self, place: _Place, depth: int) -> _List:
        made = _List(place)
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            made.items.append(self.node(event, depth + 1))
        return made

    def table(self, place: _Place, depth: int) -> _Table:
        made = _Table(place)
        seen: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.node(event, depth + 1)
            if not isinstance(key, _Scalar):
                raise _FaultFound(_place(event), "a key must be text")
            if key.text in seen and not _is_merge(key):
                message = f"the key {key.text!r} is already in line {seen[key.text]}"
                raise _FaultFound(_place(event), message)
            seen[key.text] = _place(event).line
            made.pairs.append((key, self.node(next(self.events), depth + 1)))
        return made

    def scalar(self, event: yaml.ScalarEvent, place: _Place) -> _Scalar:
        _check_tag(event.tag, place)
        try:
            text = self.substitute(event.value)
            text.encode()  # an escape can name half a character
        except LookupError as error:
            raise _FaultFound(place, str(error.args[0])) from None
        except UnicodeEncodeError:
            raise _FaultFound(place, "is not text: it holds half of a surrogate pair") from None
        plain = not event.style and event.tag is None
        typed = plain or event.tag not in {None, "!", f"{_TAG}str"}
        value = _typed(text) if typed else text
        return _Scalar(place, value, text, plain, event.style == "|")

    def value(self, node: _Node, path: Path, depth: int) -> object:
        """The value of a node; aliases are counted each time that they are used."""
        self.values += 1
        if self.values > MAX_VALUES or depth > MAX_DEPTH:
            message = (
                f"more than {MAX_VALUES} values or {MAX_DEPTH} levels once aliases are followed"
            )
            raise _FaultFound(node.place, message)
        self.found.lines.setdefault(path, node.place.line)
        match node:
            case _Scalar():
                if node.block:
                    self.found.blocks[path] = node.place.line + 1
                return node.value
            case _List():
                return [
                    self.value(item, (*path, i), depth + 1) for i, item in enumerate(node.items)
                ]
            case _Table():
                return self.table_value(node, path, depth)

    def table_value(self, node: _Table, path: Path, depth: int) -> dict[str, object]:
        table: dict[str, object] = {}
        for key, below in self.merged(node, depth):
            here = (*path, key.text)
            if key.text not in table:
                self.found.lines[here] = key.place.line
                table[key.text] = self.value(below, here, depth + 1)
        return table

    def merged(self, node: _Table, depth: int) -> list[tuple[_Scalar, _Node]]:
        """The table's own pairs, then those of the tables that ``<<`` names."""
        if depth > MAX_DEPTH:
            raise _FaultFound(node.place, f"<< is nested deeper than {MAX_DEPTH}")
        own = [pair for pair in node.pairs if not _is_merge(pair[0])]
        for key, below in node.pairs:
            if not _is_merge(key):
                continue
            for table in below.items if isinstance(below, _List) else [below]:
                if not isinstance(table, _Table):
                    raise _FaultFound(key.place, "<< takes a table or a list of tables")
                own += self.merged(table, depth + 1)
                self.values += len(table.pairs)
                if self.values > MAX_VALUES:
                    raise _FaultFound(key.place, f"<< brings more than {MAX_VALUES} values")
        return own


def _events(loader: yaml.SafeLoader) -> Iterator[yaml.Event]:
    while loader.check_event():
        yield loader.get_event()  # type: ignore[no-untyped-call]  # the stubs leave it out


def _place(event: yaml.Event) -> _Place:
    mark = event.start_mark
    return _Place(0, 0) if mark is None else _Place(mark.line + 1, mark.column + 1)


def _check_tag(tag: str | None, place: _Place) -> None:
    if tag not in {None, "!"} and str(tag).removeprefix(_TAG) not in _TAGS:
        raise _FaultFound(place, f"the tag {tag} has no meaning here")


def _is_merge(key: _Scalar) -> bool:
    return key.plain and key.text == _MERGE


def _typed(text: str) -> object:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text.startswith("0o") or "x" in text else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
