"""Finds expressions that join quantities of different units, by the suffixes of their names."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

UNITS: Final = frozenset(
    {
        *("s", "ms", "us", "ns", "min", "h"),
        *("bytes", "kib", "mib", "gib"),
        *("w", "mw", "uw", "j", "mj", "wh"),
        *("c", "mc"),
        *("hz", "khz", "mhz"),
        *("v", "mv"),
        *("tps", "tokens"),
        "percent",
    }
)
"""Last words of names that say a unit: ``decode_s``, ``free_bytes``, ``edge_c``, ..."""

_COMPARING: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_SAME: Final = frozenset({"abs", "max", "min", "round", "sum", "float", "int", "fmean", "median"})
"""Functions whose value has the unit of their arguments."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """One expression that joins two units."""

    line: int
    left: str
    right: str
    text: str


def unit_of_name(name: str) -> str | None:
    """Unit that a name ends with; a bare ``_MIB`` is a factor and has none."""
    stem, _, last = name.lower().rpartition("_")
    return last if stem.strip("_") and last in UNITS else None


def unit(node: ast.expr) -> str | None:
    """Unit of an expression, or None where the names do not say."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return unit_of_name(name)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name not in _SAME:
            return unit_of_name(name)
        case _:
            return next((found for part in _alike(node) if (found := unit(part))), None)


def _alike(node: ast.expr) -> list[ast.expr]:
    """Parts of an expression that have its unit."""
    match node:
        case (
            ast.Subscript(value=part)
            | ast.Await(value=part)
            | ast.Starred(value=part)
            | ast.UnaryOp(operand=part)
            | ast.GeneratorExp(elt=part)
            | ast.ListComp(elt=part)
        ):
            return [part]
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mod(), left=left, right=right):
            return [left, right]
        case ast.IfExp(body=left, orelse=right) | ast.NamedExpr(target=left, value=right):
            return [left, right]
        case (
            ast.BoolOp(values=parts)
            | ast.List(elts=parts)
            | ast.Tuple(elts=parts)
            | ast.Call(args=parts)
        ):
            return parts
        case _:
            return []


def mixed(source: str) -> list[Mixed]:
    """Sums, differences, comparisons, assignments, arguments and results of two units."""
    found: list[Mixed] = []
    for node in ast.walk(ast.parse(source)):
        for left, right in _joined(node):
            a, b = unit(left), unit(right)
            if a and b and a != b:
                text = ast.unparse(node)
                found.append(Mixed(line=left.lineno, left=a, right=b, text=text))
    return found


def _joined(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            yield left, right
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [left, *others]
            for one, first, second in zip(ops, sides, others, strict=False):
                if isinstance(one, _COMPARING):
                    yield first, second
        case ast.Call(func=ast.Name(id="min" | "max"), args=[first, *others]):
            yield from ((first, other) for other in others)
        case _:
            yield from _given(node)


def _given(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Names and the values that they are given."""
    match node:
        case ast.Assign(targets=[target], value=value):
            yield target, value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value):
            yield target, value
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.keyword(arg=str(name), value=value):
            yield ast.Name(id=name, lineno=value.lineno), value
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield ast.Name(id=name, lineno=inner.lineno), inner.value
        case _:
            return
