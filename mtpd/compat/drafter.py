"""Speculation options of llama-server as the ``[drafter]`` of a model profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind

if TYPE_CHECKING:
    from mtpd.compat.arguments import Option
    from mtpd.compat.remarks import Import

__all__ = ["DEFAULT_DEPTH", "KINDS", "MTP_HEADS", "put_drafter"]

KINDS = {
    "none": "none",
    "draft-mtp": "mtp",
    "mtp": "mtp",
    "draft-simple": "draft-model",
    "draft-eagle3": "eagle3",
    "ngram-simple": "ngram",
    "ngram-map-k": "ngram-map-k",
    "ngram-map-k4v": "ngram-map-k4v",
    "ngram-mod": "ngram-mod",
    "draft-mtp-adaptive": "adaptive",
}
"""``--spec-type`` to the drafter's name in a profile."""

MTP_HEADS = frozenset({"mtp", "mtp-file", "adaptive"})
"""Drafters whose head predicts several tokens. With several slots llama-server was seen to mix
the slots' texts (ggml-org/llama.cpp 28286) and to accept nothing (27572)."""

DEFAULT_DEPTH = 3
"""``--spec-draft-n-max`` where none is given, by the help of build b11434."""

_MAX_DEPTH = 16
_NEED_FILE = frozenset({"draft-model", "eagle3"})
_TAKE_FILE = _NEED_FILE | {"mtp-file"}
_DEPTHS = {
    "ngram": "spec-ngram-simple-size-m",
    "ngram-map-k": "spec-ngram-map-k-size-m",
    "ngram-map-k4v": "spec-ngram-map-k4v-size-m",
    "ngram-mod": "spec-ngram-mod-n-max",
}


def put_drafter(
    options: dict[str, Option], at: tuple[str, ...], into: Import, *, kv_type: str
) -> None:
    """Take the speculation options out of ``options`` and put what they say.

    The depth is both the one to start with and the largest one that may be measured.

    Args:
        options: By ``Flag.key``; what is translated is removed.
        at: Where the profile is in ``into.tree``.
        into: Takes the values and remarks.
        kv_type: Of the model; the draft context's own default is f16.
    """
    _Drafter(options, at, into).put(kv_type)


class _Drafter:
    def __init__(self, options: dict[str, Option], at: tuple[str, ...], into: Import) -> None:
        self.options = options
        self.at = at
        self.into = into

    def put(self, kv_type: str) -> None:
        file = self.options.pop("model-draft", None)
        chosen = self.options.pop("spec-type", None)
        kind = self.kind(chosen, file)
        origin = chosen or file
        if kind in _NEED_FILE and file is None and origin is not None:
            message = f"{origin.shown!r} needs a file, and none is named with -md: no speculation"
            self.tell(Kind.NOT_HONOURED, origin, message)
            kind = "none"
        if origin is None or kind == "none":
            line, key = self.into.lines.get(self.at, 1), self.into.keys.get(self.at, self.at)
            self.into.put((*self.at, "drafter", "kind"), "none", line=line, key=key)
            self.unused(file)
            return
        if kind == "mtp" and file is not None:
            kind = "mtp-file"
        self.set("kind", kind, origin)
        if file is not None and kind in _TAKE_FILE:
            self.set("model", file.value, file)
        elif file is not None:
            self.tell(Kind.NOT_HONOURED, file, f"a drafter of kind {kind!r} has no file here")
        self.several_slots(kind, origin)
        self.depth(kind, origin)
        self.p_min()
        self.kv_type(kv_type, origin)

    def set(self, name: str, value: object, option: Option) -> None:
        path = (*self.at, "drafter", name)
        self.into.put(path, value, line=option.line, key=option.key)

    def tell(
        self, kind: Kind, option: Option, message: str, *, setting: tuple[str, ...] = ()
    ) -> None:
        self.into.remark(kind, option.line, option.key, message, setting=setting)

    def kind(self, chosen: Option | None, file: Option | None) -> str:
        if chosen is None:
            if file is None:
                return "none"
            message = f"{file.shown!r} alone is read as '--spec-type draft-simple' with it"
            self.tell(Kind.CHANGED, file, message)
            return "draft-model"
        words = [word.strip() for word in (chosen.value or "").split(",")]
        known = [KINDS[word] for word in words if word in KINDS]
        # Drafts of a head or a model are what the others are mixed in with.
        kind = min(known, key=lambda one: one.startswith("ngram"), default="none")
        if len(known) != len(words) or len(words) > 1:
            message = f"of {chosen.value!r} mtpd can drive one drafter at a time: {kind}"
            self.tell(Kind.NOT_HONOURED, chosen, message)
        return kind

    def unused(self, file: Option | None) -> None:
        for option in (file, *(self.options.pop(key, None) for key in _DRAFT_KEYS)):
            if option is not None:
                message = "without a --spec-type that drafts, it has no effect"
                self.tell(Kind.NOTE, option, message)

    def several_slots(self, kind: str, origin: Option) -> None:
        """What the file asks for is done, and its danger told; mtpd's own files must say so."""
        slots = self.into.value((*self.at, "slots"))
        if kind not in MTP_HEADS or not isinstance(slots, int) or slots == 1:
            return
        self.set("several_slots", "accept", origin)
        message = (
            f"builds of llama-server were seen to put text of one of {slots} slots into another's"
            " answer with it, and to accept no draft: -np 1 is safe"
        )
        self.tell(Kind.CHANGED, origin, message, setting=(*self.at, "slots"))

    def depth(self, kind: str, origin: Option) -> None:
        option = self.options.pop(_DEPTHS.get(kind, "spec-draft-n-max"), None)
        deepest = (*self.at, "drafter", "max_depth")
        if option is None:
            depth = DEFAULT_DEPTH
            message = f"no depth is given: llama-server's own default of {depth} is used"
            self.tell(Kind.CHANGED, origin, message, setting=deepest)
        else:
            text = option.value or ""
            if not (text.isascii() and text.isdigit() and len(text) < _LONG and int(text)):
                message = f"must be a whole number of at least 1, not {text!r}"
                self.into.fault(option.line, option.key, message)
                return
            depth = min(int(text), _MAX_DEPTH)
            if depth != int(text):
                message = f"the deepest draft here is {_MAX_DEPTH}"
                self.tell(Kind.NOT_HONOURED, option, message, setting=deepest)
        for name in ("max_depth", "depth"):
            self.set(name, depth, option or origin)

    def p_min(self) -> None:
        option = self.options.pop("draft-p-min", None)
        if option is None:
            return
        try:
            value = float(option.value or "")
        except ValueError:
            self.into.fault(option.line, option.key, f"must be a number, not {option.value!r}")
            return
        self.set("p_min", value, option)

    def kv_type(self, kv_type: str, origin: Option) -> None:
        """The draft context is f16 to llama-server unless told, and as the model's here."""
        keys = self.options.pop("cache-type-k-draft", None)
        values = self.options.pop("cache-type-v-draft", None)
        given = keys or values
        chosen = "f16" if given is None else given.value
        if chosen != kv_type:
            path = (*self.at, "draft_kv_type")
            option = given or origin
            self.into.put(path, chosen, line=option.line, key=option.key)
        if given is not None and (keys is None or values is None or keys.value != values.value):
            message = f"keys and values of the draft context have one type here: {chosen}"
            setting = (*self.at, "draft_kv_type")
            self.tell(Kind.NOT_HONOURED, values or given, message, setting=setting)


_DRAFT_KEYS = ("spec-draft-n-max", "draft-p-min", "cache-type-k-draft", "cache-type-v-draft")
_LONG = 10
