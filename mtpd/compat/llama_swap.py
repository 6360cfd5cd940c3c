"""llama-swap's ``config.yaml`` in the terms of ``mtpd.toml``.

Written after llama-swap's own loader (mostlygeek/llama-swap, internal/config, 2026-08):
what it refuses is a fault here, what it takes is translated or told. mtpd's settings of
a model stand in its ``metadata.mtpd``, and those of the daemon in a table ``mtpd`` at the
top, which llama-swap passes over: one file runs under both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat import macros, yaml_text
from mtpd.compat.api_keys import KEY, put_api_keys
from mtpd.compat.overlay import overlay
from mtpd.compat.remarks import Fault, Import, Kind, as_table, is_whole
from mtpd.compat.routing import put_routing
from mtpd.compat.swap_keys import OWN_KEYS, TOP_KEYS, is_empty
from mtpd.compat.swap_model import put_model
from mtpd.compat.swap_own import put_own_keys
from mtpd.compat.swap_serving import put_loading_state
from mtpd.compat.swap_table import Given, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.compat.yaml_text import Document

__all__ = ["translate"]

_START_PORT = 5800
_TRANSLATED = frozenset(
    {
        "models", "macros", "startPort", "groups", "matrix", "routing", "mtpd", "sendLoadingState",
        KEY,
    }
)  # fmt: skip
_DEFAULT_PROGRAM = "llama-server"


def translate(
    text: str, *, environment: Mapping[str, str], may_set: Callable[[str], bool]
) -> Import:
    """Translate a file; never raises.

    Args:
        text: The file.
        environment: For ``${env.X}``.
        may_set: Whether a configuration may set a variable of this name for engines.
    """
    into = Import()
    document = yaml_text.read(
        text, substitute=lambda scalar: macros.with_environment(scalar, environment)
    )
    if isinstance(document, Fault):
        into.faults.append(document)
    elif not isinstance(document.value, dict):
        into.fault(1, (), "must be a table with the key 'models'")
    else:
        _File(document, document.value, into, may_set).translate()
    return into


def _is_agreed(given: list[Given]) -> bool:
    """Whether all say the same."""
    return len({one.value for one in given}) == 1


class _File:
    def __init__(
        self,
        document: Document,
        top: Mapping[str, object],
        into: Import,
        may_set: Callable[[str], bool],
    ) -> None:
        self.lines = document.lines
        self.top = top
        self.into = into
        self.may_set = may_set
        self.own = as_table(top.get("mtpd"))
        self.shared = Shared(
            document=document, into=into, macros=self.macros(), next_port=self.start_port()
        )

    def line(self, *path: str | int) -> int:
        return self.lines.get(path, 1)

    def translate(self) -> None:
        self.models()
        put_own_keys(self.top, self.lines, self.into)
        self.keys_without_effect()
        put_api_keys(self.top.get(KEY), self.lines, self.into)
        put_routing(self.top, self.lines, self.into)
        self.binary()
        self.environment()
        line = self.line("sendLoadingState")
        put_loading_state(self.top, ("server",), (), line, self.into)
        self.own_settings()

    def macros(self) -> macros.Macros:
        for name, value in as_table(self.top.get("macros")).items():
            wrong = macros.name_fault(name, value)
            if wrong is not None:
                self.into.fault(self.line("macros", name), ("macros", name), wrong)
        return tuple(as_table(self.top.get("macros")).items())

    def start_port(self) -> int:
        value = self.top.get("startPort", _START_PORT)
        if is_whole(value) and value >= 1:
            return value
        message = f"must be a whole number of at least 1, not {value!r}"
        self.into.fault(self.line("startPort"), ("startPort",), message)
        return _START_PORT

    def models(self) -> None:
        listed = self.top.get("models")
        if not isinstance(listed, dict | None):
            self.into.fault(self.line("models"), ("models",), "must be a table of models")
            return
        for name, table in sorted(as_table(listed).items()):
            if isinstance(table, dict):
                put_model(name, table, self.shared)
            else:
                self.into.fault(self.line("models", name), ("models", name), "must be a table")

    def keys_without_effect(self) -> None:
        for key, value in self.top.items():
            if key in TOP_KEYS:
                if not is_empty(value):
                    kind, message = TOP_KEYS[key]
                    self.into.remark(kind, self.line(key), (key,), message)
            elif key.startswith("x-"):
                message = "has no effect of its own"
                self.into.remark(Kind.NOTE, self.line(key), (key,), message)
            elif key not in _TRANSLATED | OWN_KEYS:
                message = "this key is not known"
                self.into.remark(Kind.NOT_HONOURED, self.line(key), (key,), message)

    def binary(self) -> None:
        """One engine binary for all models: the file's own setting, else the first one."""
        programs = self.shared.programs
        if not programs or "binary" in as_table(self.own.get("engine")):
            return
        first = next(iter(programs.values()))
        if first.value != _DEFAULT_PROGRAM:
            self.into.put(("engine", "binary"), first.value, line=first.line, key=first.key)
            if "/" in first.value and not first.value.startswith("/"):
                message = f"{first.value!r} is looked for beside this file"
                self.into.remark(Kind.CHANGED, first.line, first.key, message)
        for given in programs.values():
            if given.value != first.value:
                message = f"all models run on one llama-server here: {first.value!r}"
                self.into.remark(Kind.NOT_HONOURED, given.line, given.key, message)

    def environment(self) -> None:
        """Variables are for all engines: those are set in which every model agrees."""
        own = as_table(as_table(self.own.get("engine")).get("extra_env"))
        for name, by_model in self.shared.environment.items():
            lost = list(by_model.values())
            if name in own:
                lost = [one for one in lost if one.value != own[name]]
                message = f"mtpd.engine.extra_env gives {name} another value"
            elif not self.may_set(name):
                message = f"{name} may not be set for engines"
            elif len(lost) == len(self.shared.programs) and _is_agreed(lost):
                path = ("engine", "extra_env", name)
                self.into.put(path, lost[0].value, line=lost[0].line, key=lost[0].key)
                continue
            else:
                message = f"{name} is set for all engines or for none: see mtpd.engine.extra_env"
            for one in lost:
                self.into.remark(Kind.NOT_HONOURED, one.line, one.key, message)

    def own_settings(self) -> None:
        given = self.top.get("mtpd")
        if not isinstance(given, dict | None):
            self.into.fault(self.line("mtpd"), ("mtpd",), "must be a table")
        if "models" in self.own:
            message = "the settings of a model stand in its metadata.mtpd"
            self.into.fault(self.line("mtpd", "models"), ("mtpd", "models"), message)
            return
        overlay(self.own, (), ("mtpd",), self.lines, self.into)
