"""Rules that concern more than one key, each told at the key to change.

Works on validated tables and reads no file. Types, ranges and unknown keys are
``mtpd.config.schema``'s business.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.compat import hub
from mtpd.config.drafters import check_drafters, variant_names
from mtpd.config.filters import check_filters
from mtpd.config.model import ENGINE_ENV_RULE, may_set_for_engine
from mtpd.config.opaque import check_kind
from mtpd.config.words import check_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mtpd.config.locate import Path
    from mtpd.config.schema import (
        EngineTable,
        GroupTable,
        HardwareTable,
        ModelTable,
        PoolTable,
        PromptTable,
        RootTable,
        ServerTable,
        WorkloadTable,
    )

__all__ = [
    "Listen",
    "check_hardware",
    "check_root",
    "check_workload",
    "did_you_mean",
    "parse_host",
    "parse_listen",
    "parse_origin",
]

Finding = tuple["Path", str]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:-]{0,99}")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:/@-]{0,199}")
_LISTEN = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")
_HOST = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_USUAL_PORTS = {"http": ":80", "https": ":443"}
_RESERVED = "auto"
_MAX_PORT = 65_535
_MIN_SLOT_CONTEXT = 256  # the engine rounds each slot's cells up to a multiple of 256


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest known word in any case, or an empty string."""
    words = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    return f"; did you mean {words[near[0]]!r}?" if near else ""


@dataclass(frozen=True, slots=True)
class Listen:
    """A parsed ``listen`` address."""

    host: str
    port: int
    remote: bool = False


def parse_listen(text: str) -> Listen | str:
    """The address, or the sentence that says why it is not accepted."""
    match = _LISTEN.fullmatch(text)
    if match is None:
        return f"must be ADDRESS:PORT such as '127.0.0.1:8080' or '[::1]:8080', not {text!r}"
    host, port = match["v6"] or match["host"], int(match["port"])
    if port > _MAX_PORT:
        return f"the port must be at most {_MAX_PORT}, not {port}"
    if host == "localhost":
        return Listen("127.0.0.1", port)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"must name an IP address or 'localhost', not {host!r}"
    return Listen(host, port, remote=not address.is_loopback)


def parse_host(text: str) -> str | None:
    """A name or address that a ``Host`` header may have, as one has it; None if it is none."""
    match = _HOST.fullmatch(text)
    if match is None or int(match["port"] or 0) > _MAX_PORT:
        return None
    port = "" if match["port"] is None else f":{match['port']}"
    return f"{match['host'].lower()}{port}"


def parse_origin(text: str) -> str | None:
    """The origin of web pages as a browser sends it; None if no browser would."""
    scheme, _, rest = text.lower().partition("://")
    host = parse_host(rest)
    if host is None or not _SCHEME.fullmatch(scheme):
        return None
    return f"{scheme}://{host.removesuffix(_USUAL_PORTS.get(scheme, ':'))}"


def check_root(root: RootTable, *, all_models: frozenset[str]) -> Iterator[Finding]:
    """Everything in ``mtpd.toml`` and the model profiles that contradicts itself.

    Args:
        root: The tables that passed validation.
        all_models: Names of all model profiles, including those that did not.
    """
    yield from _server(root.server)
    yield from _engine(root.engine)
    for name, model in root.models.items():
        yield from _model(("models", name), name, model)
    yield from _names(root)
    yield from _reserved(root)
    yield from _variants(root)
    drafted = (one for name, model in root.models.items() for one in variant_names(name, model))
    all_models |= {variant for _, variant in drafted}
    yield from _preload(root, all_models)
    for name, pool in root.pools.items():
        yield from _pool(("pools", name), pool, all_models)
        yield from _can_be_measured(("pools", name), pool, root)
        yield from _within_reach(("pools", name), pool, root)
    yield from _groups(root.groups, all_models)


def _server(server: ServerTable) -> Iterator[Finding]:
    listen = parse_listen(server.listen)
    if isinstance(listen, str):
        yield ("server", "listen"), listen
    elif listen.remote and not server.hosts:
        message = (
            f"{server.listen} can be reached from other machines; that needs the key 'hosts', the"
            " names under which they ask, e.g. hosts = ['gpu.lan', '192.168.1.5'], and an access"
            " token (mtpd token add)"
        )
        yield ("server", "listen"), message
    for number, host in enumerate(server.hosts):
        if parse_host(host) is None:
            yield ("server", "hosts", number), _no_host(host)
    for number, origin in enumerate(server.cors_origins):
        if parse_origin(origin) is None:
            yield ("server", "cors_origins", number), _no_origin(origin)
    if server.control_socket is not None:
        yield from check_path(("server", "control_socket"), server.control_socket)


def _no_host(host: str) -> str:
    if host == "*":
        return "must name each host: '*' would let any web page in, by DNS rebinding"
    return f"must be NAME or NAME:PORT, a name or an address such as '[fd00::5]', not {host!r}"


def _no_origin(origin: str) -> str:
    if origin == "*":
        return "must name each origin: '*' would let any web page use the models"
    return f"must be SCHEME://HOST or SCHEME://HOST:PORT, as a browser sends it, not {origin!r}"


def _engine(engine: EngineTable) -> Iterator[Finding]:
    yield from check_path(("engine", "binary"), engine.binary)
    if engine.tools_dir is not None:
        yield from check_path(("engine", "tools_dir"), engine.tools_dir)
    for name, value in engine.extra_env.items():
        path = ("engine", "extra_env", name)
        if not may_set_for_engine(name):
            yield (
                path,
                f"may not be set for engines; allowed are {ENGINE_ENV_RULE}",
            )
        elif not value.isprintable():
            yield path, "must be printable text on one line"


def _model(path: Path, name: str, model: ModelTable) -> Iterator[Finding]:
    if not _NAME.fullmatch(name):
        yield path, f"{name!r} is not a model name: letters, digits and . _ + : - (at most 100)"
    yield from check_kind(path, model)
    yield from check_filters(path, name, model)
    if model.kind == "opaque":
        return
    file = model.model or ""
    yield from check_path((*path, "model"), file)
    if file.startswith(hub.SCHEME) and hub.parse(file) is None:
        yield (*path, "model"), f"must be 'hf:OWNER/NAME' or 'hf:OWNER/NAME:QUANT', not {file!r}"
    bundled = file.removeprefix("bundled:")
    if bundled != file and not _NAME.fullmatch(bundled):
        yield (*path, "model"), f"{file!r} must name a file that comes with mtpd"
    if model.context // model.slots < _MIN_SLOT_CONTEXT:
        least = model.slots * _MIN_SLOT_CONTEXT
        yield (*path, "slots"), f"{model.slots} slots need a context of at least {least} tokens"
    if model.batch is not None and model.ubatch is not None and model.ubatch > model.batch:
        yield (*path, "ubatch"), f"must be at most batch ({model.batch}), not {model.ubatch}"
    if model.kv_type.startswith(("q", "iq")) and model.flash_attention == "off":
        yield (
            (*path, "kv_type"),
            f"{model.kv_type} needs flash attention, which flash_attention = 'off' forbids",
        )
    yield from _purpose(path, model)
    for number, tag in enumerate(model.tags):
        if "," in tag or tag != tag.strip():
            yield (
                (*path, "tags", number),
                f"{tag!r} could not be asked for: no commas, and no spaces around it",
            )
    yield from check_drafters(path, name, model)


def _purpose(path: Path, model: ModelTable) -> Iterator[Finding]:
    if model.pooling is not None and model.purpose != "embedding":
        yield (*path, "pooling"), "needs purpose = 'embedding'"
    drafts = model.drafters or model.drafter.kind != "none"
    if model.purpose != "text" and drafts:
        yield (
            (*path, "drafters") if model.drafters else (*path, "drafter", "kind"),
            f"must be 'none' where purpose is {model.purpose!r}: no text is drafted",
        )


def _names(root: RootTable) -> Iterator[Finding]:
    """Every name a client may ask for means one thing."""
    taken: dict[str, str] = {_RESERVED: "a reserved word"}
    for name in root.models:
        if name in taken:
            yield ("models", name), f"{name!r} is {taken[name]}"
        taken[name] = f"the model {name!r}"
    for name in root.pools:
        if not _NAME.fullmatch(name):
            yield ("pools", name), f"{name!r} is not a pool name: letters, digits and . _ + : -"
        if name in taken:
            yield ("pools", name), f"{name!r} is already {taken[name]}"
        taken.setdefault(name, f"the pool {name!r}")
    for name, model in root.models.items():
        for path, alias in _other_names(name, model):
            if not _ALIAS.fullmatch(alias):
                yield path, f"{alias!r} is not an alias: letters, digits and . _ + : / @ -"
            elif alias in taken:
                yield path, f"the alias {alias!r} is already {taken[alias]}"
            taken.setdefault(alias, f"an alias of {name!r}")


def _reserved(root: RootTable) -> Iterator[Finding]:
    """No name looks like ``auto`` with a tag behind it."""
    names: list[tuple[Path, str]] = [(("models", name), name) for name in root.models]
    names += [(("pools", name), name) for name in root.pools]
    for name, model in root.models.items():
        names += _other_names(name, model)
    for path, name in names:
        if name.startswith(f"{_RESERVED}:"):
            yield path, f"{name!r} is reserved: it asks for a model with that tag"


def _variants(root: RootTable) -> Iterator[Finding]:
    """The profiles of drafters have names of their own."""
    others = {
        alias for name, model in root.models.items() for _, alias in _other_names(name, model)
    }
    for name, model in root.models.items():
        for path, variant in variant_names(name, model):
            if variant in {*root.models, *root.pools, *others}:
                yield path, f"its name {variant!r} is already taken"


def _preload(root: RootTable, all_models: frozenset[str]) -> Iterator[Finding]:
    """What is to be loaded at the start is a model or a pool, by any of its names."""
    others = (
        alias for name, model in root.models.items() for _, alias in _other_names(name, model)
    )
    known = {*all_models, *root.pools, *others}
    for number, name in enumerate(root.server.preload):
        if name not in known:
            message = f"there is no model or pool {name!r}{did_you_mean(name, known)}"
            yield ("server", "preload", number), message


def _other_names(name: str, model: ModelTable) -> Iterator[tuple[Path, str]]:
    """Every other name of a model with its place, each once."""
    for number, alias in enumerate(model.aliases):
        yield ("models", name, "aliases", number), alias
    if model.served_as is not None and model.served_as not in {name, *model.aliases}:
        yield ("models", name, "served_as"), model.served_as


def _pool(path: Path, pool: PoolTable, all_models: frozenset[str]) -> Iterator[Finding]:
    yield from _members(path, pool.members, all_models)


def _members(path: Path, members: Iterable[str], all_models: frozenset[str]) -> Iterator[Finding]:
    """Every member is a model, once."""
    seen: set[str] = set()
    for number, member in enumerate(members):
        here = (*path, "members", number)
        if member in seen:
            yield here, f"{member!r} is listed twice"
        elif member not in all_models:
            yield here, f"there is no model {member!r}{did_you_mean(member, all_models)}"
        seen.add(member)


def _groups(groups: Mapping[str, GroupTable], all_models: frozenset[str]) -> Iterator[Finding]:
    """Every model goes by the rule of one group at most."""
    owner: dict[str, str] = {}
    for name, group in groups.items():
        path = ("groups", name)
        if not _NAME.fullmatch(name):
            yield path, f"{name!r} is not a group name: letters, digits and . _ + : -"
        yield from _members(path, group.members, all_models)
        for number, member in enumerate(group.members):
            if owner.setdefault(member, name) != name:
                at = (*path, "members", number)
                yield at, f"{member!r} is already in the group {owner[member]!r}"


def _can_be_measured(path: Path, pool: PoolTable, root: RootTable) -> Iterator[Finding]:
    """A pool is chosen from by measurements, which a foreign program is not open to."""
    for number, member in enumerate(pool.members):
        if member in root.models and root.models[member].kind == "opaque":
            yield (
                (*path, "members", number),
                f"{member!r} is of kind 'opaque', which is never measured: no pool may have it",
            )


def _within_reach(path: Path, pool: PoolTable, root: RootTable) -> Iterator[Finding]:
    """Bounds that no member can meet, whatever is measured."""
    members = [root.models[name] for name in pool.members if name in root.models]
    if len(members) < len(pool.members):
        return  # a member with mistakes of its own says nothing yet
    wanted = set(pool.require_tags)
    if not any(wanted <= set(member.tags) for member in members):
        there = ", ".join(sorted({tag for member in members for tag in member.tags})) or "none"
        yield (
            (*path, "require_tags"),
            f"no member has {' and '.join(sorted(wanted))}; their tags are: {there}",
        )
    most = max(member.context // member.slots for member in members)
    if pool.min_context is not None and pool.min_context > most:
        yield (
            (*path, "min_context"),
            f"no member holds {pool.min_context} tokens in one slot; the most is {most}",
        )
    if pool.quality_bound is not None and all(member.quality is None for member in members):
        yield (*path, "quality_bound"), "no member has a [quality] table to compare by"


def check_hardware(hardware: HardwareTable) -> Iterator[Finding]:
    """Facts that need each other in a hardware profile."""
    if hardware.row_cost is not None and hardware.row_cost_source is None:
        yield ("row_cost",), "needs row_cost_source: the cells that it was fitted to"
    if hardware.row_cost is None and "row_cost_sd" in hardware.model_fields_set:
        yield ("row_cost_sd",), "says nothing without row_cost"


def check_workload(workload: WorkloadTable) -> Iterator[Finding]:
    """Prompts that their endpoint cannot take."""
    for number, prompt in enumerate(workload.prompts):
        message = _prompt(prompt)
        if message is not None:
            yield ("prompts", number), message


def _prompt(prompt: PromptTable) -> str | None:
    if prompt.path == "/completion":
        if prompt.prompt is None or prompt.messages:
            return "'/completion' takes 'prompt' and no 'messages'"
        return None
    if prompt.prompt is not None or not prompt.messages:
        return f"{prompt.path!r} takes 'messages' and no 'prompt'"
    if prompt.messages[-1].role != "user":
        return "the last message must be the user's"
    return None
