"""The manual pages: one of each program and command, and one of the configuration.

Made of what ``--help`` says (``mtpd.cli.reference``) and of the tables of the
configuration (``mtpd.config.reference``), so they cannot fall behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd import __version__
from mtpd.cli import roff
from mtpd.cli.reference import commands
from mtpd.config.reference import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import click

    from mtpd.cli.reference import CommandText
    from mtpd.config.reference import Section

__all__ = ["pages"]

_CODES: Final = {
    "0": "Done.",
    "1": "Failed, with a reason on standard error.",
    "2": "Wrong use.",
    "3": "The daemon cannot be reached.",
    "78": "The configuration has errors.",
}
_NO_CLIENT: Final = "3"
"""What ``mtpd``, which asks no daemon, never ends with."""
_VARIABLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "mtpctl": (
        ("MTPD_SOCKET", "The control socket, where `--socket` names none."),
        ("MTPD_TOKEN", "The access token for `--url`, where `--token-file` names none."),
        ("NO_COLOR", "Where it is set, nothing is coloured."),
    ),
    "mtpd": (
        ("STATE_DIRECTORY, RUNTIME_DIRECTORY, CACHE_DIRECTORY", "Where systemd wants its files."),
        ("XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR, XDG_CACHE_HOME", "Where else."),
        ("MTPD_CGROUP", "`delegated` where the unit is `Delegate=`: a control group per engine."),
        ("MTPD_TRACEBACK", "Where it is set, an unexpected error is shown with its traceback."),
    ),
}
_FILES: Final = (
    ("~/.config/mtpd/mtpd.toml", "The user's configuration, see mtpd.toml(5)."),
    ("/etc/mtpd/mtpd.toml", "The machine's, where the user has none."),
    ("profiles/", "Models, hardware and workloads, beside the configuration."),
)
_LAYERS: Final = (
    (
        "The file is TOML. Later layers win, key by key: the defaults below, `model_defaults` of"
        " the hardware profile that `[budget] hardware` names, the model's profile"
        " `profiles/models/NAME.toml`, this file, the command line."
    ),
    (
        "Unknown keys are errors, and types are exact. Relative paths start at the folder of the"
        " file that names them. `mtpd check` says everything that is wrong,"
        " `mtpd config show --origin` every value in force with where it comes from."
    ),
)
_SMALLEST: Final = '[models.qwen]\nmodel = "/srv/models/qwen.gguf"'


def pages(programs: Mapping[str, click.Group]) -> dict[str, str]:
    """The text of every page by its path below ``share/man``, e.g. ``man1/mtpd-check.1``."""
    made = {"man5/mtpd.toml.5": _text(_configuration())}
    for name, program in programs.items():
        told = tuple(commands(program, name))
        for one in told:
            made[f"man1/{_page(one.name)}.1"] = _text(_command(one, told, tuple(programs)))
    return made


def _text(lines: Iterator[str]) -> str:
    return "\n".join((*lines, ""))


def _page(name: str) -> str:
    return name.replace(" ", "-")


def _command(
    one: CommandText, told: tuple[CommandText, ...], programs: tuple[str, ...]
) -> Iterator[str]:
    program = one.name.split(" ", 1)[0]
    yield from roff.head(_page(one.name), 1, __version__)
    yield from _name(_page(one.name), one.summary)
    yield from roff.section("SYNOPSIS")
    yield from roff.paragraph(f"`{one.usage}`")
    yield from roff.section("DESCRIPTION")
    for text in one.paragraphs:
        yield from roff.paragraph(text)
    if one.options:
        yield from roff.section("OPTIONS")
    for flags, meaning in one.options:
        yield from roff.item(flags, meaning)
    if one.name not in programs and program == "mtpctl":
        yield from roff.paragraph("The options of mtpctl(1) may stand here, too.")
    below = [other for other in told if other.name.rpartition(" ")[0] == one.name]
    if below:
        yield from roff.section("COMMANDS")
    for other in below:
        yield from roff.item(f"{_page(other.name)}(1)", other.summary)
    if one.name in programs:
        yield from _program(one.name)
    others = [f"{other}(1)" for other in programs if other != one.name]
    yield from roff.section("SEE ALSO")
    yield from roff.paragraph(", ".join((*others, "mtpd.toml(5)")))


def _program(name: str) -> Iterator[str]:
    yield from roff.section("EXIT STATUS")
    for code, meaning in _CODES.items():
        if code != _NO_CLIENT or name == "mtpctl":
            yield from roff.item(code, meaning)
    yield from roff.section("ENVIRONMENT")
    for variables, meaning in _VARIABLES[name]:
        yield from roff.item(variables, meaning)
    if name == "mtpd":
        yield from roff.section("FILES")
        for file, meaning in _FILES:
            yield from roff.item(file, meaning)


def _name(name: str, summary: str) -> Iterator[str]:
    yield from roff.section("NAME")
    yield f"{name.replace('-', chr(92) + '-')} \\- {summary.rstrip('.')}"


def _configuration() -> Iterator[str]:
    yield from roff.head("mtpd.toml", 5, __version__)
    yield from _name("mtpd.toml", "what mtpd serves, and how")
    yield from roff.section("DESCRIPTION")
    for text in _LAYERS:
        yield from roff.paragraph(text)
    yield from roff.paragraph("The smallest one:")
    yield from roff.example(_SMALLEST)
    for one in SECTIONS:
        yield from _keys(one)
    yield from roff.section("FILES")
    for file, meaning in _FILES:
        yield from roff.item(file, meaning)
    yield from roff.section("SEE ALSO")
    yield from roff.paragraph("mtpd(1), mtpd-check(1), mtpd-config-show(1)")


def _keys(one: Section) -> Iterator[str]:
    yield from roff.section(one.name.replace("_", " ").upper())
    yield from roff.paragraph(f"In {one.where}.")
    for key in one.keys:
        is_required = key.default == "required"
        default = "required" if is_required else f"default: {key.default}"
        yield from roff.item(key.name, key.meaning, f"({key.type}; {default})")
