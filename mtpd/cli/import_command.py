"""``mtpd import``: a file of llama-swap or of llama.cpp's router as files of mtpd.

Writes ``mtpd.toml`` and one profile per model. The foreign file is never written to.
"""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.cli.configured import json_option, print_json
from mtpd.cli.json_views import ImportRefusalView, ImportView, RemarkView
from mtpd.cli.loading import load_config, strict_option, tell
from mtpd.compat.hub import SCHEME
from mtpd.compat.remarks import Kind
from mtpd.config.files import file_problems
from mtpd.config.locate import dotted
from mtpd.config.remarks import remark_text
from mtpd.config.sources import Source, is_foreign, read_configuration
from mtpd.config.toml_text import toml_text
from mtpd.engine.needed import program_problem
from mtpd.errors import EXIT_CONFIG, ConfigError, MtpdError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Remark
    from mtpd.config.model import Config

__all__ = ["import_"]

NO_KEYS = (
    "apiKeys: {count} not written, as keys are kept in no file of mtpd; without a token everybody"
    " on this machine may use the models: make one for each client with mtpd token add NAME"
)
_PATHS = (("engine", "binary"), ("server", "control_socket"))
_MODEL_PATHS = (("model",), ("drafter", "model"))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Where mtpd.toml and profiles/models go [default: here].",
)
@strict_option
@click.option("--force", is_flag=True, help="Write over files that are there.")
@json_option
def import_(file: Path, *, out: Path, strict: bool, force: bool, as_json: bool) -> None:
    """Translate a configuration of llama-swap (.yaml) or of llama.cpp's router (.ini).

    Writes mtpd.toml and one profile per model, and lists as FILE:LINE: KEY: what is not
    honoured, what was changed, what has no effect, and which programs and model files are
    not there yet. What is not honoured also stands at the head of the files. FILE itself can
    be used as it is: mtpd serve --config FILE. It takes nothing from the files that are
    written, not even where they lie beside it.
    """
    if not is_foreign(file):
        message = f"{file} is neither .yaml nor .yml (llama-swap) nor .ini (llama.cpp presets)"
        raise click.BadParameter(message, param_hint="FILE")
    try:
        config = load_config(file, strict=strict)
    except ConfigError as error:
        if not as_json:
            raise
        print_json(ImportRefusalView(ok=False, problems=error.problems))
        raise click.exceptions.Exit(EXIT_CONFIG) from None
    source = read_configuration(file, os.environ)
    if not isinstance(source, Source) or source.imported is None:
        message = f"{file} has changed while it was read"
        raise MtpdError(message, hint="run the command again")
    texts = _texts(source, config.remarks, out)
    _write(texts, force=force)
    missing = _missing(config)
    if as_json:
        print_json(_report(config, source.imported, tuple(texts), missing))
        return
    _tell_written(config, source.imported, tuple(texts))
    click.echo(f"serve them with --config {out / 'mtpd.toml'}; {file} reads none of them")
    tell(config)
    for problem in ("Not there yet, and needed to serve:", *missing) if missing else ():
        click.echo(problem, err=True)


def _tell_written(config: Config, imported: Import, written: tuple[Path, ...]) -> None:
    """What was written, and what becomes of the file's ports and keys."""
    for path in written:
        click.echo(f"wrote {path}")
    for name, port in imported.ports.items():
        if _is_opaque(config, imported.names.get(name)):
            click.echo(f"port {port} is {name}'s, as before")
        else:
            click.echo(f"port {port} was {name}'s; mtpd reaches the engine on a private socket")
    click.echo(f"listens on {config.server.listen}")
    if config.tokens:
        click.echo(NO_KEYS.format(count=len(config.tokens)))


def _missing(config: Config) -> tuple[str, ...]:
    """The programs and model files that are not there, where the file names them."""
    path_env = os.environ.get("PATH", os.defpath)
    engine = program_problem(config, path_env=path_env)
    return (*(() if engine is None else (engine,)), *file_problems(config))


def _is_opaque(config: Config, name: str | None) -> bool:
    profile = None if name is None else config.profiles.get(name)
    return profile is not None and profile.opaque is not None


def _texts(source: Source, remarks: tuple[Remark, ...], out: Path) -> dict[Path, str]:
    """The text of every file to write, by its path; each remark in the file of its model."""
    tree = copy.deepcopy(source.tree)
    models = tree.pop("models", {})
    if not isinstance(models, dict):
        raise TypeError(models)
    name = Path(source.file).name
    lost = [one for one in remarks if one.kind is Kind.NOT_HONOURED]
    texts: dict[Path, str] = {}
    for profile, table in models.items():
        _make_absolute(table, _MODEL_PATHS, source.folder)
        for words in (table.get("command"), table.get("stop_command")):
            _make_program_absolute(words, source.folder)
        at = ("models", profile)
        key = source.keys[at]
        own = [one for one in lost if one.key[: len(key)] == key]
        lost = [one for one in lost if one not in own]
        head = _head(f"Imported from {name}, line {source.lines[at]}.", own)
        texts[out / "profiles" / "models" / f"{profile}.toml"] = head + toml_text(table)
    _make_absolute(tree, _PATHS, source.folder)
    return {out / "mtpd.toml": _head(f"Imported from {name}.", lost) + toml_text(tree), **texts}


def _head(first: str, remarks: list[Remark]) -> str:
    """Comment lines; TOML allows no control character in them, which a name may hold."""
    lines = (first, *map(remark_text, remarks))
    return "".join(f"# {_CONTROL.sub('?', line)}\n" for line in lines)


def _make_absolute(
    table: dict[str, object], keys: tuple[tuple[str, ...], ...], folder: str
) -> None:
    """Paths are relative to the file that they stand in, which is another one now."""
    for key in keys:
        current: object = table
        for name in key[:-1]:
            current = current.get(name) if isinstance(current, dict) else None
        value = current.get(key[-1]) if isinstance(current, dict) else None
        if not isinstance(current, dict) or not isinstance(value, str):
            continue
        if value.startswith(("bundled:", SCHEME)) or (
            key == ("engine", "binary") and "/" not in value
        ):
            continue  # no path: a model that comes with mtpd, or a program to look up
        current[key[-1]] = str(Path(folder) / value)


def _make_program_absolute(words: object, folder: str) -> None:
    """The first word of a command likewise, where it is a path."""
    if isinstance(words, list) and words and "/" in str(words[0]):
        words[0] = str(Path(folder) / str(words[0]))


def _write(texts: Mapping[Path, str], *, force: bool) -> None:
    there = [path for path in texts if path.exists()]
    if there and not force:
        names = "\n".join(f"{path} is already there" for path in there)
        raise MtpdError(names, hint="name another directory with --out, or give --force")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        message = f"{error.filename} cannot be written: {error.strerror}"
        raise MtpdError(message, hint="name another directory with --out") from error


def _report(
    config: Config, imported: Import, written: tuple[Path, ...], missing: tuple[str, ...]
) -> ImportView:
    return ImportView(
        ok=True,
        written=tuple(str(path) for path in written),
        listen=config.server.listen,
        keys_left_out=len(config.tokens),
        models=dict(imported.names),
        ports=dict(imported.ports),
        remarks=tuple(
            RemarkView(
                kind=one.kind.value,
                file=one.file,
                line=one.line,
                key=dotted(one.key),
                message=one.message,
            )
            for one in config.remarks
        ),
        missing=missing,
    )
