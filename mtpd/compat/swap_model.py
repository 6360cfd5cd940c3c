"""One model of llama-swap's configuration as a model profile."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mtpd.compat import commands, macros, swap_filters, swap_opaque, swap_serving
from mtpd.compat.arguments import Source, from_environment, parse
from mtpd.compat.names import is_alias, profile_name
from mtpd.compat.overlay import overlay, put_list
from mtpd.compat.remarks import Kind, as_table
from mtpd.compat.settings import hub_name, put_settings
from mtpd.compat.swap_keys import MODEL_KEYS, is_empty
from mtpd.compat.swap_table import Given, SwapTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Path
    from mtpd.compat.swap_table import Shared

__all__ = ["put_model"]

_TRANSLATED = frozenset(
    {
        "cmd", "proxy", "aliases", "env", "checkEndpoint", "ttl", "filters", "macros", "metadata",
        "concurrencyLimit", "name", "description", "unlisted", "useModelName", "cmdStop",
        "unloadTimeout",
    }
)  # fmt: skip
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_MAX_PORT = 65_535


def put_model(name: str, table: Mapping[str, object], shared: Shared) -> None:
    """Translate a model; to be called in the order of the names, as ports go by it."""
    _Model(name, table, shared).put()


class _Model(SwapTable):
    def __init__(self, name: str, table: Mapping[str, object], shared: Shared) -> None:
        super().__init__(name, table, shared)
        self.metadata: dict[str, object] = {}

    def put(self) -> None:
        before = len(self.into.faults)
        command = self.command()
        self.keys_without_effect()
        if not isinstance(command, commands.Opaque):
            self.of_the_engine()
        self.put_metadata()
        if len(self.into.faults) > before or command is None:
            return
        self.profile(command)

    def command(self) -> commands.Command | commands.Opaque | None:
        """The command, once its port is known; None where it cannot be read."""
        text = self.text("cmd", keep=("PORT",))
        self.port(text)
        command = commands.read(macros.plain(macros.expand(text, self.macros)))
        if isinstance(command, str):
            self.fault(command, "cmd")
            return None
        return command

    def port(self, command: str) -> None:
        """Give the model the next port if its command uses one."""
        proxy = self.text("proxy", "http://localhost:${PORT}", keep=("PORT",))
        if "${PORT}" not in command:
            if "${PORT}" in proxy:
                given = "proxy" in self.table
                message = "may not use ${PORT}" if given else "is required"
                message += " where cmd does not use ${PORT}"
                self.fault(message, "proxy")
            return
        if self.shared.next_port > _MAX_PORT:
            self.fault(f"no port is left: the next one is {self.shared.next_port}", "cmd")
            return
        self.into.ports[self.name] = self.shared.next_port
        self.macros = (("PORT", self.shared.next_port), *self.macros)
        self.shared.next_port += 1

    def keys_without_effect(self) -> None:
        for key, value in self.table.items():
            if key in MODEL_KEYS:
                if not is_empty(value):
                    self.tell(*MODEL_KEYS[key], key)
            elif key not in _TRANSLATED | swap_serving.KEYS:
                self.tell(Kind.NOT_HONOURED, "this key is not known", key)

    def of_the_engine(self) -> None:
        """Keys about where and how an engine is asked, which mtpd sees to itself."""
        self.proxy()
        check = self.text("checkEndpoint", "/health")
        if check not in {"", "/health"}:
            self.tell(Kind.NOTE, "mtpd asks /health and for a first token", "checkEndpoint")

    def put_metadata(self) -> None:
        for key, value in as_table(self.table.get("metadata")).items():
            self.metadata[key] = self.expand(value, "metadata", key)
            if key != "mtpd" and not is_empty(value):
                message = "is not shown in /v1/models yet"
                self.tell(Kind.NOT_HONOURED, message, "metadata", key)

    def proxy(self) -> None:
        if "proxy" not in self.table:
            return
        text = self.text("proxy")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            self.fault(f"is no URL: {error}", "proxy")
            return
        if host not in _LOOPBACK or parts.path not in {"", "/"}:
            message = f"mtpd asks the engine that it starts itself, not {text!r}"
            self.tell(Kind.NOT_HONOURED, message, "proxy")
        elif port != self.into.ports.get(self.name):
            self.tell(Kind.NOTE, "mtpd asks the engine over a private socket", "proxy")

    def profile(self, command: commands.Command | commands.Opaque) -> None:
        own = self.metadata.get("mtpd")
        own = {} if own is None else own
        if not isinstance(own, dict):
            self.fault("must be a table of settings of a model profile", "metadata", "mtpd")
            return
        if isinstance(command, commands.Opaque):
            at = self.named()
            swap_opaque.put_opaque(self, at, command, self.variables(command))
        elif (found := self.engine(command, has_model="model" in own)) is not None:
            at = found
        else:
            return
        swap_opaque.put_stop(self, at)
        self.put_plain(at)
        key, line = self.at, self.line("sendLoadingState")
        swap_serving.put_loading_state(self.table, at, key, line, self.into)
        swap_serving.put_timeouts(self.table, at, key, self.shared.document.lines, self.into)
        overlay(own, at, (*key, "metadata", "mtpd"), self.shared.document.lines, self.into)

    def engine(self, command: commands.Command, *, has_model: bool) -> tuple[str, ...] | None:
        """Put the settings of a llama-server; None where its model is left out."""
        place = Source((*self.at, "cmd"), self.line("cmd"), self.word_lines())
        options, variables = from_environment(self.variables(command))
        options |= parse(command.words, place, self.into)
        if "model" not in options and not has_model and hub_name(options) is None:
            message = "names no file with -m and no repository with -hf: this model is left out"
            self.tell(Kind.NOT_HONOURED, message, "cmd")
            return None
        at = self.named()
        self.shared.programs[self.name] = Given(command.program, self.line("cmd"), place.key)
        for name, (value, where, written) in variables.items():
            given = Given(value, where, written)
            self.shared.environment.setdefault(name, {})[self.name] = given
        put_settings(options, at, self.into)
        return at

    def named(self) -> tuple[str, ...]:
        """Where the profile is put, with its aliases and what is changed under each."""
        aliases = self.aliases()
        key, line = self.at, self.line()
        profile = profile_name(self.name, aliases, self.into, line=line, key=key)
        at = ("models", profile)
        self.into.lines[at], self.into.keys[at] = line, key
        if aliases:
            places = {alias: self.alias_place(alias) for alias in aliases}
            put_list((*at, "aliases"), places, self.into)
        swap_filters.put_filters(self, at, aliases)
        return at

    def word_lines(self) -> dict[str, int]:
        first = self.shared.document.blocks.get((*self.at, "cmd"))
        return {} if first is None else commands.word_lines(str(self.table.get("cmd")), first)

    def variables(
        self, command: commands.Command | commands.Opaque
    ) -> dict[str, tuple[str, int, Path]]:
        """Variables of ``env`` and of a leading ``env`` in the command."""
        found: dict[str, tuple[str, int, Path]] = {}
        listed = self.table.get("env")
        for number, item in enumerate(listed if isinstance(listed, list) else []):
            name, equals, value = macros.plain(item).partition("=")
            if isinstance(item, dict | list) or not (name and equals):
                self.fault("must be NAME=VALUE", "env", number)
                continue
            found[name] = (value, self.line("env", number), (*self.at, "env", number))
        if not isinstance(listed, list | None):
            self.fault("must be a list of NAME=VALUE", "env")
        for name, value in command.environment:
            found[name] = (value, self.line("cmd"), (*self.at, "cmd", name))
        return found

    def aliases(self) -> list[str]:
        """Aliases, and the names that ``filters.setParamsByID`` makes aliases."""
        listed = self.table.get("aliases")
        if not isinstance(listed, list | None):
            self.fault("must be a list of names", "aliases")
        found: list[str] = []
        for number, item in enumerate(listed if isinstance(listed, list) else []):
            name = as_table(item).get("id") if isinstance(item, dict) else item
            if isinstance(name, dict | list) or is_empty(name):
                self.fault("must be a name", "aliases", number)
                continue
            found += self.usable(macros.plain(name), "aliases", number)
        for key in swap_filters.names_of(self.table):
            name = macros.plain(self.expand(key, "filters", "setParamsByID", key))
            if name != self.name and name not in found:
                found += self.usable(name, "filters", "setParamsByID", key)
        return found

    def usable(self, alias: str, *below: str | int) -> list[str]:
        if is_alias(alias):
            return [alias]
        self.tell(Kind.NOT_HONOURED, f"no client can ask for {alias!r} here", *below)
        return []

    def alias_place(self, alias: str) -> tuple[int, Path]:
        """Where an alias is written, or else the model."""
        listed = self.table.get("aliases")
        for number, item in enumerate(listed if isinstance(listed, list) else []):
            if alias in {macros.plain(item), macros.plain(as_table(item).get("id"))}:
                return self.line("aliases", number), (*self.at, "aliases", number)
        return self.line(), self.at
