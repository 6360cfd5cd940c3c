"""A machine that is well, in which a test plants one fault."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.cli.client import Client, UnixTarget
from mtpd.cli.doctor.look import Wanted, collect
from mtpd.cli.doctor.machine import Machine
from mtpd.cli.doctor.planner import examine
from mtpd.config.data import bundled_model, units_dir
from tests.fakes import sysfs
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from mtpd.cli.doctor.views import DoctorView, FindingView

HELP = Path(sysfs.__file__).with_name("help_b11434.txt")
MOUNTS = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
SERVER = "[server]\nlisten = '127.0.0.1:0'\n"
UNIT = "etc/systemd/system/mtpd.service"


@dataclass(kw_only=True)
class World:
    """A real home with real files, beside a tree that stands for the hardware.

    Attributes:
        home: Of the user.
        tree: ``sys``, ``proc``, ``dev`` and ``etc``.
        environment: What the command sees.
        socket: Where the daemon would answer.
        clock: What time it is.
        answer_s: How long the daemon may take.
        driver_s: How long the driver may.
        tables: What stands in the configuration beside server and model.
    """

    home: Path
    tree: sysfs.Tree
    environment: dict[str, str]
    socket: Path
    clock: FakeClock = field(default_factory=FakeClock)
    answer_s: float = 20.0
    driver_s: float = 20.0
    tables: str = ""

    @classmethod
    def healthy(cls, folder: Path) -> World:
        """No card, one model, an engine that knows every option."""
        tree = sysfs.no_gpu(folder / "root")
        tree.write("proc/self/mountinfo", MOUNTS)
        tree.write("proc/sys/kernel/random/boot_id", "7c7f2c0e-0000-4000-8000-000000000000\n")
        home = folder / "home"
        programs = home / "bin"
        programs.mkdir(parents=True)
        world = cls(
            home=home,
            tree=tree,
            environment={"HOME": str(home), "PATH": str(programs)},
            socket=folder / "none.sock",
        )
        world.engine(f"exec /bin/cat {shlex.quote(str(HELP))}")
        shutil.copy(bundled_model("tiny-chained.gguf"), home / "m.gguf")
        world.configure()
        return world

    @property
    def model(self) -> Path:
        return self.home / "m.gguf"

    @property
    def state(self) -> Path:
        return self.home / ".local/state/mtpd"

    def engine(self, script: str, *, mode: int = 0o755) -> Path:
        path = self.home / "bin" / "llama-server"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
        return path

    def configure(self, text: str = "", *, server: str = SERVER) -> Path:
        path = self.home / ".config/mtpd/mtpd.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        model = f"[models.m]\nmodel = {str(self.model)!r}\n[models.m.drafter]\nkind = 'mtp'\n"
        path.write_text(f"{server}{text}{model}max_depth = 2\n")
        return path

    def card(self, hardware: str = "gfx906-16g-150w") -> None:
        """A card that is well, with the cap that its hardware profile declares."""
        sysfs.card(self.tree)
        self.tree.write(f"{sysfs.device()}/class", "0x030000\n")
        for node in ("kfd", "dri/renderD128"):
            self.tree.write(f"dev/{node}", "")
            (self.tree.root / "dev" / node).chmod(0o666)
        self.tables = f"[budget]\nhardware = '{hardware}'\n" if hardware else ""
        self.configure(self.tables)

    def service(self, change: tuple[str, str] = ("", "")) -> None:
        """The unit of the system's service, for a user that every machine has."""
        text = (units_dir() / "mtpd.service").read_text()
        program = self.home / "bin/mtpd"
        program.touch(mode=0o755)
        engine = f"[engine]\nbinary = '{self.home}/bin/llama-server'\n"
        config = self.configure(f"{engine}{self.tables}")
        for old, new in (
            ("User=mtpd\n", "User=nobody\n"),
            ("Group=mtpd\n", "Group=nogroup\n"),
            ("/usr/bin/mtpd", str(program)),
            ("/etc/mtpd/mtpd.toml", str(config)),
            change,
        ):
            text = text.replace(old, new) if old else text
        self.tree.write(UNIT, text)

    def examine(self, wanted: Wanted | None = None) -> DoctorView:
        machine = Machine(
            root=self.tree.root,
            environment=self.environment,
            clock=self.clock,
            driver_s=self.driver_s,
        )
        client = Client(UnixTarget(str(self.socket)), answer_s=self.answer_s)
        return examine(collect(client, machine, wanted or Wanted()))

    def finds(self, check: str) -> FindingView:
        """The one thing that is wrong, which this check has to find."""
        found = self.examine().findings
        assert [one.check for one in found] == [check], found
        return found[0]
