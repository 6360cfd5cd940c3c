"""Options of llama-server as the keys of a model profile.

Every option ends in one of four ways: a key of the profile, no remark because it says
what mtpd does anyway, a note because mtpd sets it itself, or a remark that it is not
honoured. What proposes tokens is ``mtpd.compat.drafter``'s part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.compat import hub
from mtpd.compat.drafter import put_drafter
from mtpd.compat.remarks import Kind, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.arguments import Option
    from mtpd.compat.remarks import Import

__all__ = ["hub_name", "put_settings"]

ALL_LAYERS = 99
"""This many layers or more mean all of them, as ``mtpd.engine.command`` writes it."""

_LAYER_WORDS = frozenset({"all", "auto", "-1", "-2"})

_AS_DEFAULT = {  # switches that say what is the engine's default, by key and direction
    ("jinja", True),
    ("cont-batching", True),
    ("warmup", True),
    ("cache-prompt", True),
    ("context-shift", False),
    ("mmproj-auto", True),
    ("mmproj-auto", False),  # mtpd passes no projector
    ("kv-offload", True),
    ("repack", True),
    ("op-offload", True),
    ("escape", True),
    ("perf", False),
}
_SAME_VALUES = {"load-mode": "auto", "reasoning-format": "auto", "reasoning": "auto"}
_SET_BY_MTPD = frozenset(
    {
        "metrics", "slots", "log-verbosity", "log-colors", "log-prefix", "log-timestamps",
        "log-jsonl", "log-verbose", "offline", "webui", "timeout", "sse-ping-interval",
        "threads-http", "alias", "perf",
    }
)  # fmt: skip
_WHY = {
    "daemon": "mtpd decides this itself",
    "deny_net": "mtpd starts engines that open no connection and download nothing",
    "deny_exec": "mtpd starts engines that run no other program",
    "deny_read": "mtpd passes no flag that serves files or secrets",
    "deny_write": "mtpd passes no flag that writes files",
    "deny_debug": "mtpd passes no flag that changes what is measured or logged",
    "deny_router": "mtpd decides itself which model is loaded",
    "deny_removed": "it has been removed from llama-server",
    "deny_meta": "it prints something and ends",
}
_WHY_KEY = {
    "api-key": "mtpd keeps the engine private; clients need access tokens: mtpd token add",
    "mmproj": "models with images are not served yet",
    "fit-target": "set [budget] headroom_mib, which holds for every model",
    "cache-ram": "mtpd bounds the prompt cache itself",
    "swa-checkpoints": "mtpd bounds the checkpoints itself",
    "hf-repo": "mtpd downloads nothing: name the file with -m",
    "kv-unified": "mtpd gives each slot its own part of the context",
}


def put_settings(options: Mapping[str, Option], at: tuple[str, ...], into: Import) -> None:
    """Translate the options of one model.

    Args:
        options: By ``Flag.key``.
        at: Where the profile goes in ``into.tree``.
        into: Takes the values and remarks.
    """
    _Profile(options, at, into).put()


def hub_name(options: Mapping[str, Option]) -> str | None:
    """What a profile calls the model of ``-hf`` and ``-hff``; None where none is named."""
    repo, file = options.get("hf-repo"), options.get("hf-file")
    if repo is None or repo.value is None:
        return None
    written = repo.value
    if file is not None and file.value is not None:
        written = f"{written.partition(':')[0]}:{file.value}"
    name = f"{hub.SCHEME}{written}"
    return None if hub.parse(name) is None else name


class _Profile:
    def __init__(self, options: Mapping[str, Option], at: tuple[str, ...], into: Import) -> None:
        self.rest = dict(options)
        self.given = tuple(options.values())
        self.at = at
        self.into = into

    def put(self) -> None:
        before = len(self.into.remarks)
        self.model()
        self.context()
        self.slots()
        self.whole_number("threads", "threads", least=1)
        self.batches()
        self.whole_number("seed", "seed", least=0)
        kv_type = self.kv_type()
        self.layers()
        self.fit()
        self.flash_attention()
        self.purpose()
        self.device()
        self.address()
        put_drafter(self.rest, self.at, self.into, kv_type=kv_type)
        for option in self.rest.values():
            self.left(option)
        self.changes(before)

    def changes(self, first: int) -> None:
        """Tell how options were written anew: in the remark that says more of one, if any."""
        remarks = self.into.remarks
        for option in self.given:
            if option.change is None:
                continue
            place = (option.line, option.key)
            more = [n for n in range(first, len(remarks)) if place == remarks[n].place]
            for number in more:
                message = f"{option.change}; {remarks[number].message}"
                remarks[number] = replace(remarks[number], message=shortened(message))
            if not more:
                self.tell(Kind.CHANGED, option, option.change)

    def set(self, name: str, value: object, option: Option) -> None:
        self.into.put((*self.at, name), value, line=option.line, key=option.key)

    def tell(self, kind: Kind, option: Option, message: str, *, about: str | None = None) -> None:
        """Tell something of an option; ``about`` is the key of the profile that it concerns."""
        setting = () if about is None else (*self.at, about)
        self.into.remark(kind, option.line, option.key, message, setting=setting)

    def model(self) -> None:
        option = self.rest.pop("model", None)
        if option is None or option.value is None:
            self.of_a_repository()
            return
        self.set("model", option.value, option)
        if not option.value.startswith(("/", "~", "bundled:")):
            message = (
                f"{option.value!r} is looked for beside this file, not in the working directory"
            )
            self.tell(Kind.CHANGED, option, message)

    def of_a_repository(self) -> None:
        """A model without a file: the one that llama-server would have downloaded."""
        name = hub_name(self.rest)
        if name is None:
            return
        self.rest.pop("hf-file", None)
        option = self.rest.pop("hf-repo")
        self.set("model", name, option)
        message = "mtpd downloads nothing: the file that is in the cache already is served"
        self.tell(Kind.CHANGED, option, message, about="model")

    def context(self) -> None:
        option = self.rest.get("ctx-size")
        if option is not None and option.value == "0":
            del self.rest["ctx-size"]
            self.tell(Kind.CHANGED, option, f"0 {_WHOLE_CONTEXT}", about="context")
        elif option is None:
            self.absent("-c", f"no context {_WHOLE_CONTEXT}", "context")
        else:
            self.whole_number("ctx-size", "context")

    def slots(self) -> None:
        if "parallel" in self.rest:
            self.whole_number("parallel", "slots", least=1)
            return
        self.absent("-np", "no number of slots means up to four to llama-server", "slots")

    def absent(self, flag: str, message: str, about: str) -> None:
        """Tell of a flag that is not written, where the model itself is."""
        line, key = self.into.lines.get(self.at, 1), self.into.keys.get(self.at, self.at)
        setting = (*self.at, about)
        self.into.remark(Kind.CHANGED, line, (*key, flag), message, setting=setting)

    def whole_number(self, flag: str, name: str, *, least: int | None = None) -> int | None:
        """Put a number; one below ``least`` stands for the engine's default."""
        option = self.rest.pop(flag, None)
        value = None if option is None else number(option, self.into)
        if option is None or value is None or (least is not None and value < least):
            return None
        self.set(name, value, option)
        return value

    def batches(self) -> None:
        """The physical batch is at most the logical one, which llama-server sees to itself."""
        physical = self.rest.get("ubatch-size")
        logical_size = self.whole_number("batch-size", "batch")
        size = self.whole_number("ubatch-size", "ubatch")
        if physical is not None and size and logical_size and size > logical_size:
            self.set("ubatch", logical_size, physical)
            message = f"is {logical_size}, the logical batch, which it may not exceed"
            self.tell(Kind.CHANGED, physical, message, about="ubatch")

    def kv_type(self) -> str:
        """One type for keys and values: where two are written, the one with more bits."""
        given = [
            option
            for flag in ("cache-type-k", "cache-type-v")
            if (option := self.rest.pop(flag, None)) is not None
        ]
        if not given:
            return "f16"
        kinds = {option.value or "" for option in given}
        if len(given) == 1:
            kinds.add("f16")  # the engine's default for the other one
        chosen = max(kinds, key=bits)
        self.set("kv_type", chosen, given[0])
        for option in given:
            if option.value != chosen:
                message = f"keys and values have one type here: {chosen}, the one with more bits"
                self.tell(Kind.NOT_HONOURED, option, message, about="kv_type")
        if len(given) == 1 and given[0].value == chosen and kinds != {chosen}:
            message = f"keys and values have one type here: both are {chosen}"
            self.tell(Kind.CHANGED, given[0], message, about="kv_type")
        return chosen

    def layers(self) -> None:
        option = self.rest.pop("n-gpu-layers", None)
        if option is None or option.value in _LAYER_WORDS:
            return
        count = number(option, self.into)
        if count is None or count >= ALL_LAYERS:
            return
        self.set("n_gpu_layers", count, option)
        self.set("offload", "accept", option)
        message = f"with {count} layers on the device a part on the processor is accepted"
        self.tell(Kind.CHANGED, option, message, about="offload")

    def purpose(self) -> None:
        """Ranking is embedding with a pooling of its own."""
        embeds, ranks = self.rest.pop("embeddings", None), self.rest.pop("reranking", None)
        pooling = self.rest.get("pooling")
        if ranks is None and pooling is not None and pooling.value == "rank":
            ranks = pooling
        given = ranks or embeds
        if given is None or not given.on:
            return
        self.set("purpose", "embedding" if ranks is None else "rerank", given)
        if pooling is not None:
            del self.rest["pooling"]
            if ranks is None:
                self.set("pooling", pooling.value, pooling)

    def fit(self) -> None:
        option = self.rest.pop("fit", None)
        if option is not None:
            self.set("fit", {"on": "engine"}.get(option.value or "", option.value), option)

    def flash_attention(self) -> None:
        option = self.rest.pop("flash-attn", None)
        if option is not None:
            self.set("flash_attention", _SWITCH.get(option.value or "", option.value), option)

    def device(self) -> None:
        option = self.rest.pop("device", None)
        if option is None:
            return
        if "," in (option.value or ""):
            self.tell(Kind.NOT_HONOURED, option, "an engine has one device here")
        else:
            self.set("device", option.value, option)

    def address(self) -> None:
        """Engines listen on a private socket; only an address that others use is missed."""
        host = self.rest.pop("host", None)
        if host is not None and host.value not in {"127.0.0.1", "localhost", "::1"}:
            message = f"the engine is reached through mtpd alone, not at {host.value!r}"
            self.tell(Kind.NOT_HONOURED, host, message)
        port = self.rest.pop("port", None)
        if port is not None:
            message = f"the engine listens on a private socket; port {port.value!r} is not opened"
            self.tell(Kind.NOTE, port, message)

    def left(self, option: Option) -> None:
        """An option that no key of a profile takes."""
        flag = option.flag
        if (flag.key, option.on) in _AS_DEFAULT and not flag.values:
            return
        if _SAME_VALUES.get(flag.key, "") == option.value:
            return
        if flag.key in _SET_BY_MTPD:
            self.tell(Kind.NOTE, option, "mtpd sets this itself for every engine")
            return
        why = _WHY_KEY.get(flag.key) or _WHY.get(flag.purpose)
        message = why or "mtpd does not pass this to its engines yet"
        self.tell(Kind.NOT_HONOURED, option, message)


_WHOLE_CONTEXT = "means the whole context of the model to llama-server"
_SWITCH = {
    "enabled": "on", "true": "on", "1": "on",
    "disabled": "off", "false": "off", "0": "off",
    "-1": "auto",
}  # fmt: skip


def number(option: Option, into: Import) -> int | None:
    """A whole number, or a fault at the option."""
    text = option.value or ""
    if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < _LONG:
        return int(text)
    into.fault(option.line, option.key, f"must be a whole number, not {text!r}")
    return None


_LONG = 19


def bits(kv_type: str) -> int:
    """Bits of a cache type by its name, e.g. 16 of ``bf16`` and 8 of ``q8_0``."""
    digits = kv_type.lstrip("abcdefghijklmnopqrstuvwxyz").partition("_")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < _LONG else 0
