"""mtpd on a real NVIDIA card made as small as a 16 GiB one: the depth cliff, seen and avoided.

``python -m tests.evidence.gpu --engine /path/to/llama-server --out FOLDER`` writes the 27B-shaped
model, takes the card's memory away but for 16 GiB, runs the daemon and lets ``mtpctl`` do the
work: engines with the engine's own fit margin, which evicts, and engines as mtpd plans them;
the depth table; the search; the device. Every answer goes to FOLDER as it was printed.
``--rehearse`` does the same with a small model and the embedded engine, without a card.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.evidence.shaped_gguf import BIG, SMALL, write

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

CARD_MIB: Final = 16384
HARD: Final = 0.24
"""Share of tokens that the head cannot see: acceptance about 0.76."""

DEEPEST: Final = 5
READY_S: Final = 60.0
COMMAND_S: Final = 480.0
TOKENS: Final = 160
PROMPTS: Final = {
    "short": ("hello there", "the old road"),
    "prose": ("some text about a house in the hills",),
    "code": ("def main of the program",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are.

    Attributes:
        folder: Configuration, model, state.
        out: Where the answers go.
        engine: The engine's binary, or "embedded".
    """

    folder: Path
    out: Path
    engine: str

    @property
    def socket(self) -> Path:
        """The daemon's control socket."""
        return self.folder / "control.sock"

    def mtpctl(self, name: str, *arguments: str) -> None:
        """Run ``mtpctl``, keep what it prints, and go on whatever it says."""
        command = [*_program("mtpctl"), "--socket", str(self.socket), *arguments]
        began = time.monotonic()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        took = time.monotonic() - began
        said = f"$ mtpctl {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        said += f"[exit {done.returncode}, {took:.1f} s]\n\n"
        with (self.out / f"{name}.txt").open("a", encoding="utf-8") as file:
            file.write(said)
        sys.stdout.write(said)
        sys.stdout.flush()


def _program(name: str) -> list[str]:
    """How to run one of our programs from this interpreter, installed or not."""
    code = f"from mtpd.cli.start import {name}; {name}()"
    return [sys.executable, "-c", code]


def _configure(place: Place, model: Path, *, card: bool) -> Path:
    """Two models of one file: one that the engine fits, one that mtpd plans."""
    profiles = place.folder / "profiles"
    for kind in ("hardware", "workloads"):
        (profiles / kind).mkdir(parents=True)
    for name, prompts in PROMPTS.items():
        text = f'description = "evidence"\nmax_tokens = {TOKENS}\n'
        text += "".join(f'[[prompts]]\npath = "/completion"\nprompt = "{p}"\n' for p in prompts)
        (profiles / "workloads" / f"{name}.toml").write_text(text)
    (profiles / "hardware" / "balloon.toml").write_text(
        'description = "an NVIDIA card with 16 GiB left"\nisa = "sm_90"\n'
        f"vram_mib = {CARD_MIB}\ngate_edge_c = 60.0\npower_cap_w = 700.0\n"
    )
    models = "".join(
        f'[models.{name}]\nmodel = "{model}"\ncontext = 4096\nslots = 2\nkv_type = "q8_0"\n'
        f'fit = "{fit}"\nflash_attention = "on"\n'
        f'drafter = {{ kind = "mtp", max_depth = {DEEPEST}, several_slots = "accept" }}\n'
        for name, fit in (("engine-fit", "engine"), ("planned", "auto"))
    )
    config = place.folder / "mtpd.toml"
    config.write_text(
        f'[server]\nlisten = "127.0.0.1:0"\ncontrol_socket = "{place.socket}"\n'
        f'[engine]\nbinary = "{place.engine}"\n'
        + ('[budget]\nhardware = "balloon"\nheadroom_mib = 128\n' if card else "")
        + models
    )
    return config


@contextmanager
def _balloon() -> Iterator[None]:
    """Hold the card's memory but for ``CARD_MIB`` while the block runs."""
    command = [sys.executable, "-m", "tests.evidence.balloon", "--leave-mib", str(CARD_MIB)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or not (said := process.stdout.readline()):
            msg = "the balloon did not inflate"
            raise RuntimeError(msg)
        sys.stdout.write(f"balloon: {said}")
        yield
        process.communicate()


def _answers(path: Path) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def _daemon(place: Place, config: Path) -> Iterator[None]:
    """The daemon while the block runs; its log goes beside the answers."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place.folder),
        "PYTHONPATH": ":".join(sys.path),
        "XDG_STATE_HOME": str(place.folder / "state"),
        "XDG_RUNTIME_DIR": str(place.folder / "run"),
    }
    (place.folder / "run").mkdir(mode=0o700)
    command = [*_program("mtpd"), "serve", "--config", str(config)]
    with (
        (place.out / "daemon.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        deadline = time.monotonic() + READY_S
        while not _answers(place.socket):
            if process.poll() is not None or time.monotonic() > deadline:
                msg = f"the daemon is not ready: see {place.out / 'daemon.log'}"
                raise RuntimeError(msg)
            time.sleep(0.1)
        try:
            yield
        finally:
            process.terminate()
            process.wait(READY_S)


def _keep_logs(place: Place) -> None:
    """Copy what the engines printed."""
    for log in sorted((place.folder / "state").rglob("logs/*.log")):
        shutil.copy(log, place.out / f"engine-{log.stem.split('@')[0]}.log")


def _device(place: Place) -> None:
    place.mtpctl("device", "gpu")
    place.mtpctl("device", "gpu", "--json")


def _engine_fit(place: Place) -> None:
    for depth in (2, 3):
        place.mtpctl("engine-fit", "switch", "engine-fit", "--depth", str(depth))
        place.mtpctl("engine-fit", "status")


def _planned(place: Place) -> None:
    place.mtpctl("planned", "models", "planned")
    place.mtpctl("planned", "switch", "planned", "--depth", "3")
    place.mtpctl("planned", "status")
    place.mtpctl("planned", "gpu")


def _search(place: Place) -> None:
    place.mtpctl("search", "tune", "planned")
    place.mtpctl("search", "explain")


def _sweep(place: Place) -> None:
    place.mtpctl("sweep", "sweep", "planned", "--depths", f"0-{DEEPEST}")
    place.mtpctl("sweep", "explain")


PHASES: Final = {
    "device": _device,
    "engine-fit": _engine_fit,
    "planned": _planned,
    "search": _search,
    "sweep": _sweep,
}


def main() -> None:
    """Run everything and leave what was printed in the output folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence.gpu", description=__doc__)
    parser.add_argument("--engine", default="embedded", help="path of llama-server")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="where the model is, or is to be written")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--phases", nargs="+", choices=tuple(PHASES), default=tuple(PHASES))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mtpd-evidence-")))
        place = Place(folder=folder, out=args.out, engine=args.engine)
        model = args.model or folder / "shaped.gguf"
        if not model.exists():
            write(model, SMALL if args.rehearse else BIG, hard=HARD)
        config = _configure(place, model.resolve(), card=not args.rehearse)
        if not args.rehearse:
            stack.enter_context(_balloon())
        stack.callback(_keep_logs, place)
        stack.enter_context(_daemon(place, config))
        for phase in args.phases:
            PHASES[phase](place)


if __name__ == "__main__":
    main()
