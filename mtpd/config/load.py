"""Reading the configuration: which files, in which layers, with every error at once.

Layers: defaults < hardware profile < model profile < mtpd.toml < command line. A
profile beside ``mtpd.toml`` (``profiles/models/NAME.toml``) takes the place of a
shipped one with the same name. Beside a file of another program none does: such a file
means the models that it defines, and what ``mtpd import`` wrote there is for ``mtpd.toml``.
Whatever else takes part in it is told. That a model file exists is not checked here
(``mtpd.config.files``): a missing file concerns its model, not the daemon.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mtpd.compat import hub
from mtpd.compat.remarks import Kind, Remark, as_table
from mtpd.config.build import absolute, build, build_hardware, build_workload
from mtpd.config.checks import check_hardware, check_root, check_workload, did_you_mean
from mtpd.config.data import profiles_dir
from mtpd.config.drafters import as_written, variant_names
from mtpd.config.hub import find_cached
from mtpd.config.layers import Origin, Origins, Problem, Tree, merge, mount, nest
from mtpd.config.locate import dotted, parse_key
from mtpd.config.origins import leaves, told
from mtpd.config.remarks import in_force
from mtpd.config.schema import HardwareTable, RootTable, WorkloadTable
from mtpd.config.sources import Source, find, hint_for, is_foreign, read, read_configuration
from mtpd.config.validate import Validation
from mtpd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mtpd.config.locate import Path as KeyPath
    from mtpd.config.model import Config, DrafterConfig, HardwareProfile, Workload

__all__ = ["load"]

_COMMAND_LINE = "command line"
_TELLING = frozenset({"model", "kind"})
"""One of these stands in every model that is not just mistyped."""


def load(
    path: Path | None,
    *,
    overrides: Mapping[str, object] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
    look: Callable[[str], str | None] = lambda _path: None,
) -> Config:
    """Read everything and check it.

    Args:
        path: ``mtpd.toml``, or a file of llama-swap or of llama.cpp's router, or None for
            the defaults and the shipped profiles.
        overrides: Dotted key path (``server.listen``) to value, from the command line;
            None as a value means that the option was not given.
        environment: For ``${env.X}`` in a file of llama-swap, and where downloads are cached.
        look: Says what is wrong with the file at a path, as a predicate. Asked where something
            else is wrong already, so that who mends that need not ask again.

    Raises:
        ConfigError: With every problem that was found.
    """
    return _Loading(path, overrides, environment, look).config()


class _Loading:
    """The state of one load: the merged tree, its origins, the problems so far."""

    def __init__(
        self,
        path: Path | None,
        overrides: Mapping[str, object],
        environment: Mapping[str, str],
        look: Callable[[str], str | None],
    ) -> None:
        self.look = look
        self.environment = environment
        user = (path.parent / "profiles",) if path is not None else ()
        self.places = (*user, profiles_dir())
        self.foreign = is_foreign(path)
        self.model_places = (profiles_dir(),) if self.foreign else self.places
        self.hint = hint_for(path)
        self.notes: list[Remark] = []
        self.problems: list[Problem] = []
        self.sources: list[str] = []
        self.tree: Tree = {}
        self.origins = Origins()
        self.file = str(path) if path is not None else _COMMAND_LINE
        self.main = self.read_main(path, environment) if path is not None else None
        self.override_tree: Tree = {}
        self.override_origins: dict[KeyPath, Origin] = {}
        self.unknown_hardware: str | None = None
        self.hardware_origins: dict[KeyPath, Origin] = {}
        self.take_overrides(overrides)

    def config(self) -> Config:
        name = self.hardware_name()
        hardware_source = self.hardware_source(name) if name is not None else None
        self.mount_models(hardware_source)
        if self.main is not None:
            origins = mount(self.main.lines, file=self.main.file, folder=self.main.folder)
            merge(self.tree, self.origins, self.main.tree, self.main.in_own_terms(origins))
            self.sources.append(self.main.file)
        merge(self.tree, self.origins, self.override_tree, self.override_origins)
        root = self.validate_root()
        hardware = self.hardware(name, hardware_source)
        workloads = self.workloads()
        if self.problems or root is None:
            self.look_at_files(root)
            raise ConfigError(_in_order(self.problems), hint=self.hint)
        config = build(
            root,
            origins=self.origins,
            hardware=hardware,
            workloads=workloads,
            sources=tuple(self.sources),
        )
        config = self.with_cached(config)
        return replace(
            config,
            **self.told_origins(config, root),
            remarks=self.remarks(config),
            tokens=() if self.main is None else self.main.tokens,
        )

    def look_at_files(self, root: RootTable | None) -> None:
        """Tell which files of models are not there, beside what is wrong already."""
        told = {problem.path for problem in self.problems}
        models = {} if root is None else root.models
        for name, table in models.items():
            for key, text in (
                (("model",), table.model),
                (("drafter", "model"), table.drafter.model),
            ):
                at = ("models", name, *key)
                file = "" if text is None else self.cached(absolute(text, at, self.origins))
                why = self.look(file) if file else None
                message = f"{file} {why}"
                problem = self.origins.problem(at, message, default_file=self.file)
                if why is not None and problem.path not in told:
                    self.problems.append(problem)

    def cached(self, file: str) -> str:
        """The file of a model that is named by its repository, where it is there."""
        model = hub.parse(file)
        found = None if model is None else find_cached(model, self.environment)
        return file if found is None else str(found)

    def cached_drafter(self, drafter: DrafterConfig) -> DrafterConfig:
        """The same of a drafter with a file of its own."""
        return (
            drafter if drafter.model is None else replace(drafter, model=self.cached(drafter.model))
        )

    def with_cached(self, config: Config) -> Config:
        """The configuration with the files of models that are named by their repository."""
        profiles = {
            name: replace(
                profile,
                model=self.cached(profile.model),
                drafter=self.cached_drafter(profile.drafter),
            )
            for name, profile in config.profiles.items()
        }
        return replace(config, profiles=MappingProxyType(profiles))

    def not_cached(self, config: Config) -> Iterator[Remark]:
        """Models that are named by their repository, and are not there."""
        for name, profile in config.profiles.items():
            model, at = hub.parse(profile.model), self.origins.find(("models", name, "model"))
            if model is not None and at is not None:
                message = f"{profile.model} {model.missing}"
                yield Remark(
                    kind=Kind.NOT_HONOURED, file=at.file, line=at.line, key=at.path, message=message
                )

    def remarks(self, config: Config) -> tuple[Remark, ...]:
        """What is told of a file of another program; nothing of ``mtpd.toml``."""
        if self.main is None or not self.foreign:
            return ()
        beside = self.places[0] / "models"
        if find(self.places[:1], "models"):
            message = f"{beside} belongs to an mtpd.toml: no profile of a model there takes part"
            self.note(("profiles", "models"), message)
        told = in_force(self.main.remarks, dict(leaves(config)), self.origins.at)
        return (*told, *self.not_cached(config), *self.notes)

    def takes_part(self, kind: str, name: str, source: Source) -> None:
        """Tell of a profile that is joined with a file of another program."""
        self.note(("profiles", kind, name), f"{source.file} takes part")

    def note(self, key: KeyPath, message: str) -> None:
        self.notes.append(Remark(kind=Kind.NOTE, file=self.file, line=1, key=key, message=message))

    def read_main(self, path: Path, environment: Mapping[str, str]) -> Source | None:
        source = self.checked(read_configuration(path, environment))
        if source is not None:
            self.problems += source.problems
        return source

    def read(self, path: Path) -> Source | None:
        return self.checked(read(path))

    def checked(self, source: Source | Problem) -> Source | None:
        if isinstance(source, Problem):
            self.problems.append(source)
            return None
        return source

    def take_overrides(self, overrides: Mapping[str, object]) -> None:
        folder = str(Path().absolute())
        for key, value in overrides.items():
            if value is None:
                continue
            path = parse_key(key)
            if path is None:
                message = f"{key!r} is not a key path"
                self.problems.append(Problem(file=_COMMAND_LINE, message=message))
                continue
            origin = Origin(file=_COMMAND_LINE, line=0, path=path, folder=folder)
            layer = Origins(self.override_origins)
            merge(self.override_tree, layer, nest(path, value), {path: origin})

    def hardware_name(self) -> str | None:
        """The selected hardware profile, needed before the layers can be joined."""
        for tree in (self.override_tree, self.main.tree if self.main is not None else {}):
            budget = tree.get("budget")
            if isinstance(budget, dict) and isinstance(budget.get("hardware"), str):
                return str(budget["hardware"])
        return None

    def hardware_source(self, name: str) -> Source | None:
        known = find(self.places, "hardware")
        if name in known:
            source = self.read(known[name])
            if source is not None:
                self.takes_part("hardware", name, source)
            return source
        self.unknown_hardware = f"there is no hardware profile {name!r}" + (
            did_you_mean(name, known) or f"; known are {', '.join(sorted(known))}"
        )
        return None

    def mount_models(self, hardware: Source | None) -> None:
        """Lay the model profiles on the hardware profile's defaults."""
        files = find(self.model_places, "models")
        if hardware is not None:
            self.sources.append(hardware.file)
        asked = _model_names(self.main) | _names(self.override_tree)
        # A shipped profile is an offer: it takes part where the file refers to it. Without a
        # file the bundled models do, which need nothing that is not there.
        kept = asked | _members(self.override_tree)
        if self.main is not None:
            kept |= _members(self.main.tree)
        else:
            kept |= {name for name, path in files.items() if _is_bundled(path)}
        shipped = profiles_dir() / "models"
        if self.foreign:
            kept -= _model_names(self.main)  # a file of another program means its own model
        files = {n: f for n, f in files.items() if n in kept or f.parent != shipped}
        for name in sorted(files.keys() | asked):
            source = self.read(files[name]) if name in files else None
            if not self.is_opaque(name, source):
                self.mount_defaults(name, hardware)
            if source is not None:
                self.sources.append(source.file)
                self.takes_part("models", name, source)
                at = ("models", name)
                lines = mount(source.lines, file=source.file, folder=source.folder, at=at)
                merge(self.tree, self.origins, nest(at, source.tree), lines)

    def is_opaque(self, name: str, source: Source | None) -> bool:
        """Whether a model is no llama-server, to which alone a card's defaults apply."""
        trees = (self.override_tree, {} if self.main is None else self.main.tree)
        tables = [as_table(as_table(tree.get("models")).get(name)) for tree in trees]
        tables.append({} if source is None else source.tree)
        kind = next((table["kind"] for table in tables if "kind" in table), None)
        return kind == "opaque"

    def mount_defaults(self, name: str, hardware: Source | None) -> None:
        defaults = hardware.tree.get("model_defaults") if hardware is not None else None
        if hardware is None or not isinstance(defaults, dict):
            return
        at = ("models", name)
        below = ("model_defaults",)
        lines = mount(
            hardware.lines, file=hardware.file, folder=hardware.folder, at=at, below=below
        )
        merge(self.tree, self.origins, nest(at, defaults), lines)

    def validate_root(self) -> RootTable | None:
        named = frozenset(_names(self.tree) | find(self.model_places, "models").keys())
        validation = Validation(origins=self.origins, file=self.file)
        self.drop_models_without_a_file(validation)
        root = validation.table(RootTable, self.tree)
        if root is not None:
            validation.findings(check_root(root, all_models=named))
        if self.unknown_hardware is not None:
            validation.add(("budget", "hardware"), self.unknown_hardware)
        self.problems += validation.problems
        return root

    def drop_models_without_a_file(self, validation: Validation) -> None:
        """A mistyped ``[models.NAME]`` looks like a new model without its only required key."""
        models = self.tree.get("models")
        if not isinstance(models, dict):
            return
        files = find(self.model_places, "models")
        for name, table in list(models.items()):
            if name not in files and isinstance(table, dict) and not _TELLING & table.keys():
                near = did_you_mean(name, files)
                message = f"the key 'model' is required, as there is no profile {name!r}{near}"
                validation.add(("models", name), message)
                del models[name]

    def hardware(self, name: str | None, source: Source | None) -> HardwareProfile | None:
        if name is None or source is None:
            return None
        lines = mount(source.lines, file=source.file, folder=source.folder)
        self.hardware_origins = mount(
            source.lines, file=source.file, folder=source.folder, at=("hardware",)
        )
        validation = Validation(origins=Origins(lines), file=source.file)
        table = validation.table(HardwareTable, dict(source.tree))
        if table is not None:
            validation.findings(check_hardware(table))
        self.problems += validation.problems
        return build_hardware(name, table) if table is not None else None

    def workloads(self) -> dict[str, Workload]:
        workloads = {}
        for name, path in find(self.places, "workloads").items():
            source = self.read(path)
            if source is None:
                continue
            if path.is_relative_to(self.places[0]):
                self.takes_part("workloads", name, source)
            lines = mount(source.lines, file=source.file, folder=source.folder)
            validation = Validation(origins=Origins(lines), file=source.file)
            table = validation.table(WorkloadTable, dict(source.tree))
            if table is not None:
                validation.findings(check_workload(table))
                workloads[name] = build_workload(name, table)
            self.problems += validation.problems
            self.sources.append(source.file)
        return workloads

    def told_origins(self, config: Config, root: RootTable) -> dict[str, Any]:
        known = self.origins.at | self.hardware_origins
        variants = {
            variant: at
            for name, model in root.models.items()
            for at, variant in variant_names(name, model)
        }
        found = {dotted(one): known.get(as_written(one, variants)) for one, _ in leaves(config)}
        origins, written = told(found, self.file if self.foreign else None)
        return {"origins": origins, "written": written}


def _is_bundled(path: Path) -> bool:
    """Whether a profile's model comes with mtpd; an unreadable one takes part and is told."""
    source = read(path)
    return isinstance(source, Problem) or str(source.tree.get("model")).startswith("bundled:")


def _members(tree: Tree) -> set[str]:
    """Every name that a pool or a group lists, whatever else is wrong with it."""
    sections = [one for key in ("pools", "groups") if isinstance(one := tree.get(key), dict)]
    tables = [table for section in sections for table in section.values()]
    lists = [t["members"] for t in tables if isinstance(t, dict) and "members" in t]
    return {
        m for members in lists if isinstance(members, list) for m in members if isinstance(m, str)
    }


def _names(tree: Tree) -> set[str]:
    models = tree.get("models")
    return set(models) if isinstance(models, dict) else set()


def _model_names(source: Source | None) -> set[str]:
    return _names(source.tree) if source is not None else set()


def _in_order(problems: list[Problem]) -> tuple[str, ...]:
    ordered = sorted(problems, key=lambda one: (one.file, one.line, one.column))
    return tuple(dict.fromkeys(str(one) for one in ordered))
