"""Where a model lies that ``llama-server -hf`` or ``hf download`` has downloaded.

Looks only at what is on the disk: the cache of Hugging Face, in which llama.cpp keeps its
downloads, too, and llama.cpp's own folder of older builds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.config.directories import is_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mtpd.compat.hub import HubModel

__all__ = ["find_cached"]

_USUAL = ("Q4_K_M", "Q8_0")
"""What llama.cpp takes where no quantisation is named, the first that is there."""

_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)
_FIRST = "00001"
_BESIDE = ("mmproj", "mtp-", "imatrix")


def find_cached(model: HubModel, environment: Mapping[str, str]) -> Path | None:
    """The file of a model, or None where it is not there or more than one could be meant.

    Args:
        model: What is looked for.
        environment: Says where the caches are.
    """
    for names in (_in_hub(model, environment), _in_flat_folder(model, environment)):
        found = _chosen(model, dict(sorted(names)))
        if found is not None:
            return found
    return None


def _chosen(model: HubModel, files: Mapping[str, Path]) -> Path | None:
    """The file that is meant among those of a repository, by their names in it."""
    if model.file is not None:
        return files.get(model.file)
    weights = {name: path for name, path in files.items() if _is_weights(name)}
    for quant in _USUAL if model.quant is None else (model.quant,):
        meant = [path for name, path in weights.items() if _has(name, quant)]
        if len(meant) == 1:
            return meant[0]
    only = list(weights.values())
    return only[0] if model.quant is None and len(only) == 1 else None


def _is_weights(name: str) -> bool:
    base = name.rpartition("/")[2].lower()
    part = _PART.search(base)
    return not base.startswith(_BESIDE) and (part is None or part[1] == _FIRST)


def _has(name: str, quant: str) -> bool:
    """Whether a file is of a quantisation: its name has it as a word of its own."""
    word = rf"(?:^|[-._/]){re.escape(quant)}(?:[-./]|$)"
    return re.search(word, name, re.IGNORECASE) is not None


def _in_hub(model: HubModel, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Files of the repository's revision ``main``, by their paths in it."""
    for cache in _hubs(environment):
        repo = cache / f"models--{model.repo.replace('/', '--')}"
        try:
            revision = (repo / "refs" / "main").read_text().strip()
            folder = repo / "snapshots" / revision
            for path in folder.rglob("*.gguf"):
                if path.is_file():
                    yield path.relative_to(folder).as_posix(), path
        except (OSError, ValueError):
            continue


def _in_flat_folder(model: HubModel, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Files of older builds, which are named ``OWNER_NAME_FILE``."""
    prefix = f"{model.repo.replace('/', '_')}_"
    for cache in _folders(environment, "LLAMA_CACHE", "llama.cpp"):
        try:
            found = [path for path in cache.iterdir() if path.name.startswith(prefix)]
        except OSError:
            continue
        for path in found:
            if path.suffix.lower() == ".gguf" and is_file(path):
                yield path.name.removeprefix(prefix), path


def _hubs(environment: Mapping[str, str]) -> Iterable[Path]:
    home = environment.get("HF_HOME")
    named = environment.get("HF_HUB_CACHE") or (f"{home}/hub" if home else None)
    own = environment.get("LLAMA_CACHE")
    usual = _folders(environment, "", "huggingface/hub") if named is None else (Path(named),)
    return (*usual, *((Path(own),) if own else ()))


def _folders(environment: Mapping[str, str], variable: str, name: str) -> tuple[Path, ...]:
    """A cache by its variable, else in the user's folder for caches; none without a home."""
    if named := environment.get(variable):
        return (Path(named),)
    home = environment.get("HOME")
    caches = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return () if caches is None else (Path(caches) / name,)
