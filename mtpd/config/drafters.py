"""The drafter of a model, and a model that is compared with several of them.

A model with ``[[drafters]]`` is one profile per drafter, ``MODEL+DRAFTER``, and a pool of the
model's own name over them, whose objective is speed: the text is that of the same file whatever
drafts. So every drafter has its own fingerprint, memory and depths, one that the engine lacks or
that loses is left out with its reason, and clients go on asking for the model.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.compat.drafter import MTP_HEADS
from mtpd.config.model import Group, Objective, Pool, Profile
from mtpd.config.words import check_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mtpd.config.locate import Path
    from mtpd.config.model import DrafterConfig
    from mtpd.config.schema import CandidateTable, DrafterTable, ModelTable

__all__ = ["as_written", "check_drafters", "variant_names", "variants", "with_variants"]

_NEEDS_FILE = frozenset({"mtp-file", "draft-model", "eagle3"})
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def check_drafters(path: Path, model_name: str, model: ModelTable) -> Iterator[tuple[Path, str]]:
    """What is wrong with the drafter of a model, or with each of several.

    Args:
        path: Of the model.
        model_name: What clients ask for.
        model: Its table.
    """
    yield from _drafter((*path, "drafter"), model.drafter, model.slots)
    if not model.drafters:
        return
    if "drafter" in model.model_fields_set:
        yield (*path, "drafter"), "is one of 'drafters' where those are listed: move it there"
    for key, given in (("aliases", model.aliases), ("served_as", model.served_as)):
        if given:
            told = f"clients ask for {model_name!r} itself where drafters are listed: leave it out"
            yield (*path, key), told
    seen: set[str] = set()
    for number, drafter in enumerate(model.drafters):
        here, label = (*path, "drafters", number), _label(drafter)
        yield from _drafter(here, drafter, model.slots)
        if not _LABEL.fullmatch(label):
            yield (*here, "name"), f"{label!r} is not a name: letters, digits and . _ -"
        elif label in seen:
            yield here, f"there are two drafters {label!r}: give one of them another 'name'"
        seen.add(label)


def _drafter(path: Path, drafter: DrafterTable, slots: int) -> Iterator[tuple[Path, str]]:
    yield from _several_slots(path, drafter, slots)
    if drafter.kind == "none":
        for key, given in (("max_depth", drafter.max_depth), ("depth", drafter.depth)):
            if given and "kind" in drafter.model_fields_set:
                yield (*path, key), f"must be 0 where kind is 'none', not {given}"
            elif given:
                yield (*path, key), "needs the key 'kind', the drafter: name one, e.g. 'mtp'"
    elif drafter.max_depth == 0:
        yield (*path, "max_depth"), f"must be at least 1 where kind is {drafter.kind!r}"
    if drafter.kind != "none" and drafter.depth is not None and drafter.depth > drafter.max_depth:
        yield (
            (*path, "depth"),
            f"must be at most max_depth ({drafter.max_depth}), not {drafter.depth}",
        )
    if drafter.kind in _NEEDS_FILE and drafter.model is None:
        yield (*path, "kind"), f"{drafter.kind!r} needs the key 'model', the file of the drafter"
    if drafter.model is not None:
        if drafter.kind not in _NEEDS_FILE:
            yield (*path, "model"), f"is not used where kind is {drafter.kind!r}"
        yield from check_path((*path, "model"), drafter.model)


def _several_slots(path: Path, drafter: DrafterTable, slots: int) -> Iterator[tuple[Path, str]]:
    if slots > 1 and drafter.kind in MTP_HEADS and drafter.several_slots == "refuse":
        told = (
            f"{drafter.kind!r} with {slots} slots: builds of llama-server were seen to put text of"
            " one slot into another's answer, and to accept no draft: set slots = 1, or"
            " several_slots = 'accept' beside it for a build that does neither"
        )
        yield (*path, "kind"), told


def variant_names(name: str, model: ModelTable) -> Iterator[tuple[Path, str]]:
    """The profile of each drafter of a model, with the place of the drafter."""
    for number, drafter in enumerate(model.drafters):
        yield ("models", name, "drafters", number), f"{name}+{_label(drafter)}"


def as_written(path: Path, variants_at: Mapping[str, Path]) -> Path:
    """Where a value of the profile of a drafter is written; any other path as it is.

    Args:
        path: A key of the configuration as it is shown.
        variants_at: The place of the drafter by the name of its profile.
    """
    match path:
        case ("models", str(name), "drafter", *rest) if name in variants_at:
            return (*variants_at[name], *rest)
        case ("models", str(name), *rest) if name in variants_at:
            return (*variants_at[name][:2], *rest)
        case _:
            return path


def _label(drafter: CandidateTable) -> str:
    """Its name; else its kind, with p_min where drafts are cut short."""
    if drafter.name is not None:
        return drafter.name
    return f"{drafter.kind}-p{drafter.p_min:g}" if drafter.p_min else drafter.kind


def variants(profile: Profile, drafters: Mapping[str, DrafterConfig]) -> tuple[Profile, ...]:
    """A model once per drafter; lists of models show the model only.

    Args:
        profile: The model without any drafter.
        drafters: By the name of the profile that has it.
    """
    return tuple(
        replace(profile, name=name, drafter=drafter, unlisted=True)
        for name, drafter in drafters.items()
    )


def _expanded(
    members: Iterable[str], variants_of: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Members of a pool or group, with the profiles of its drafters in place of a model."""
    return tuple(one for name in members for one in variants_of.get(name, (name,)))


def with_variants(
    pools: Mapping[str, Pool],
    groups: Mapping[str, Group],
    profiles: Mapping[str, Profile],
    variants_of: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, Pool], dict[str, Group]]:
    """Pools and groups over the profiles of drafters, and the pool of each such model.

    Args:
        pools: As configured.
        groups: As configured.
        profiles: Those of drafters among them.
        variants_of: The profiles of each model with several drafters.
    """
    own = {
        name: Pool(
            name=name,
            members=members,
            objective=Objective.SPEED,
            offload=profiles[members[0]].offload,
            is_model=True,
        )
        for name, members in variants_of.items()
    }
    configured = {
        name: replace(pool, members=_expanded(pool.members, variants_of))
        for name, pool in pools.items()
    }
    grouped = {
        name: replace(group, members=_expanded(group.members, variants_of))
        for name, group in groups.items()
    }
    return configured | own, grouped
