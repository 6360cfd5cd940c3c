"""Looking at the installed units of systemd."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.cli.doctor.facts import UnitFacts
from mtpd.cli.doctor.machine import account_named
from mtpd.config.data import units_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.doctor.machine import Machine

__all__ = ["Unit", "installed"]

NAME = "mtpd.service"
SYSTEM = (
    "etc/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
"""Where the system's units lie; the first one counts (systemd.unit(5))."""

_COMMAND = re.compile(r"^ExecStart=:?(?P<words>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """An installed unit.

    Attributes:
        facts: What is said of it.
        config: The configuration that it serves, or None.
        files: Its limit of open descriptors, or None.
    """

    facts: UnitFacts
    config: Path | None
    files: int | None


def installed(machine: Machine) -> tuple[Unit, ...]:
    """The system's unit and the user's own, those that there are."""
    return tuple(_units(machine))


def _units(machine: Machine) -> Iterator[Unit]:
    for folder in SYSTEM:
        text = machine.text(f"{folder}/{NAME}")
        if text is not None:
            yield _unit(machine, f"/{folder}/{NAME}", text, user=False)
            break
    home = machine.environment.get("HOME", "")
    base = machine.environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    own = Path(base) / "systemd" / "user" / NAME
    with suppress(OSError):  # there is none, or it is not ours to read
        yield _unit(machine, str(own), own.read_text(errors="replace"), user=True)


def _unit(machine: Machine, path: str, text: str, *, user: bool) -> Unit:
    words = _words(machine, text)
    name = _value(text, "User")
    groups = tuple((_value(text, "SupplementaryGroups") or "").split())
    config = words[words.index("--config") + 1 :][:1] if "--config" in words else []
    files = _value(text, "LimitNOFILE")
    program = words[0] if words else ""
    return Unit(
        facts=UnitFacts(
            path=path,
            user=user,
            program=program,
            program_there=shutil.which(program) is not None,
            differs=_differs(text, user=user),
            names_user=None if user else name,
            account=None if user or name is None else account_named(name, groups),
        ),
        config=Path(config[0]) if config else None,
        files=int(files.partition(":")[0]) if files and files[:1].isdigit() else None,
    )


def _words(machine: Machine, text: str) -> list[str]:
    """The command line, its specifiers replaced as far as the shipped units use them."""
    found = _COMMAND.search(text)
    if found is None:
        return []
    home = machine.environment.get("HOME", "")
    config = machine.environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    values = {"%h": home, "%E": config, "%%": "%"}
    try:
        words = shlex.split(found["words"])
    except ValueError:  # a quote that is not closed
        return []
    return [re.sub("%[hE%]", lambda one: values[one[0]], word) for word in words]


def _value(text: str, key: str) -> str | None:
    found = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
    return str(found[-1]).strip() if found else None


def _differs(text: str, *, user: bool) -> bool | None:
    """Whether this version would write another unit, the command line apart."""
    folder = units_dir()
    shipped = (folder / "user" if user else folder) / NAME
    try:
        ours = shipped.read_text(encoding="utf-8")
    except OSError:
        return None
    return _COMMAND.sub("", text).split(os.linesep) != _COMMAND.sub("", ours).split(os.linesep)
