"""Turn one line of an engine's log into a fact, or into nothing.

Total and pure: any text goes in, nothing is raised. Understands plain lines, coloured
lines, lines of a router's child (``[port] …``) and ``--log-jsonl``. What several facts
mean together is decided elsewhere.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from mtpd.engine.facts import Breakdown, BreakdownTable, Fact, LogDialectUnknown
from mtpd.engine.log_rules_run import END_RULES, REQUEST_RULES, RUN_RULES
from mtpd.engine.log_rules_start import START_RULES

if TYPE_CHECKING:
    from mtpd.engine.log_rule import Rule

__all__ = ["MAX_LINE", "fact", "level", "plain"]

MAX_LINE = 4 * 1024
"""Only so many characters of a line are looked at; longer ones quote prompts."""

_QUOTED = 200

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_START = re.compile(
    r"(?:\[\d+\] )?(?:\d+\.\d\d\.\d{3}\.\d{3} )?(?:([IWED]) )?([^:]{0,40})", re.ASCII
).match

_LEVELS = {"D": "debug", "I": "info", "W": "warning", "E": "error"}
_TELLING = frozenset("ID")
_FAILING = frozenset("WE")

_INFO_RULES = START_RULES + RUN_RULES
_ALL_RULES = _INFO_RULES + END_RULES
_REQUEST_MARK = " | task "

# Functions that print by the thousand and never anything of interest; some of them quote
# the model file, so that skipping them also keeps a file's own words from being evidence.
_NOISE = (
    "adapters_lora_are_same",
    "create_tensor",
    "done_getting_tensors",
    "graph_reserve",
    "init_tokenizer",
    "llama_graph_n_input_tensors",
    "llama_model_loader",
    "load",
    "print_info",
    "set_abort_callback",
    "set_adapters_lora",
    "set_embeddings",
    "que          post",
    "que    start_loop",
    "que  process_new_",
    "que  yield_to_que",
    "spec        draft",
)
# Functions that print a lot and only sometimes what interests us: fewer rules to try.
_TALKATIVE = {
    "common_memory_breakdown_print": ("breakdown_print: |",),
    "llama_context": ("buffer size =", "n_rs_seq"),
    "llama_kv_cache": ("buffer size =", " cells,"),
    "resolve_fused_ops": ("is assigned to device", "set to disabled"),
    "sched_reserve": ("buffer size =", "is assigned to device", "set to disabled"),
}
_BY_FUNCTION: dict[str, tuple[Rule, ...]] = dict.fromkeys(_NOISE, ()) | {
    function: tuple(rule for rule in START_RULES if rule.literal in literals)
    for function, literals in _TALKATIVE.items()
}


def _start(line: str) -> re.Match[str]:
    match = _START(line)
    assert match is not None  # noqa: S101 - every part of it may be empty
    return match


def plain(line: str) -> str:
    """The message of a line without colour, prefix and trailing space."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    return line[_start(line).start(2) :].rstrip()


def level(line: str) -> str | None:
    """How grave a line is by its own letter: debug, info, warning or error; None without one."""
    return _LEVELS.get(_start(line)[1])


def fact(line: str) -> Fact | None:
    """What one line says; None for a line that says nothing to us. Never raises."""
    if len(line) > MAX_LINE:
        line = line[:MAX_LINE]
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    start = _start(line)
    level = start[1]
    rules = None if level in _FAILING else _BY_FUNCTION.get(start[2])
    if rules == ():
        return None
    text = line[start.start(2) :].rstrip()
    if rules is not None:
        return _read(text, rules)
    if text.startswith('{"type":'):
        return _json(text)
    if _REQUEST_MARK in text:
        return _read(text, REQUEST_RULES)
    return _read(text, _INFO_RULES if level in _TELLING else _ALL_RULES)


def _read(text: str, rules: tuple[Rule, ...]) -> Fact | None:
    for rule in rules:
        if rule[0] in text:
            match = rule[1](text)
            if match is not None:
                return _build(rule, match, text)
            if rule[3] is not None:
                return LogDialectUnknown(family=rule[3], text=text[:_QUOTED])
    return None


def _build(rule: Rule, match: re.Match[str], text: str) -> Fact | None:
    try:
        return rule.build(match)
    except ValueError:
        return LogDialectUnknown(family=rule.family or "number", text=text[:_QUOTED])


def _json(text: str) -> Fact | None:
    """A line of ``--log-jsonl``; a message of several lines is judged by its first."""
    try:
        record: dict[str, object] = json.loads(text)  # an object: the text begins with a brace
    except (ValueError, RecursionError):
        return None
    message = record.get("msg")
    if isinstance(message, str):
        return fact(message.partition("\n")[0])
    data = record.get("data")
    if record.get("type") == "fit_memory_breakdown" and isinstance(data, dict):
        return _table(data.get("rows"))
    return None


def _table(rows: object) -> BreakdownTable | None:
    if not isinstance(rows, list):
        return None
    read = [row for row in map(_row, rows) if row is not None]
    return BreakdownTable(rows=tuple(read)) if read else None


def _row(row: object) -> Breakdown | None:
    if not isinstance(row, dict) or not isinstance(name := row.get("name"), str):
        return None

    def mib(key: str) -> int | None:
        value = row.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    return Breakdown(
        device=name,
        total_mib=mib("total"),
        free_mib=mib("free"),
        self_mib=mib("self") or 0,
        model_mib=mib("model") or 0,
        context_mib=mib("context") or 0,
        compute_mib=mib("compute") or 0,
    )
