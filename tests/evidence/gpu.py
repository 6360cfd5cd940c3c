"""mtpd on a real NVIDIA card made as small as a 16 GiB one: the depth cliff, seen and avoided.

``python -m tests.evidence.gpu --engine /path/to/llama-server --out FOLDER`` writes the 27B-shaped
model, takes the card's memory away but for 16 GiB, runs the daemon and lets ``mtpctl`` do the
work: engines with the engine's own fit margin, which evicts, and engines as mtpd plans them;
the depth table; the search; several engines on one card; memory that another program takes while
an engine loads; the device. Every answer goes to FOLDER as it was printed.
``--rehearse`` does the same with a small model and the embedded engine, without a card.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.evidence.shaped_gguf import BIG, SMALL, THIRD, write

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

CARD_MIB: Final = 16384
HARD: Final = 0.24
"""Share of tokens that the head cannot see: acceptance about 0.76."""

DEEPEST: Final = 5
TOGETHER: Final = ("first", "second", "third")
INTO_LOAD_S: Final = 2.5
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
        card: Whether there is a card.
    """

    folder: Path
    out: Path
    engine: str
    card: bool

    @property
    def socket(self) -> Path:
        """The daemon's control socket."""
        return self.folder / "control.sock"

    def mtpctl(self, name: str, *arguments: str) -> None:
        """Run ``mtpctl``, keep what it prints, and go on whatever it says."""
        with self.started(name, *arguments):
            pass

    @contextmanager
    def started(self, name: str, *arguments: str) -> Iterator[None]:
        """The same, while the block runs."""
        command = [*_program("mtpctl"), "--socket", str(self.socket), *arguments]
        began = time.monotonic()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            yield
            printed, _ = process.communicate(timeout=COMMAND_S)
        took = time.monotonic() - began
        self.keep(
            name,
            f"$ mtpctl {' '.join(arguments)}\n{printed}[exit {process.returncode}, {took:.1f} s]\n",
        )

    def ask(self, model: str) -> str:
        """Ask a model for a text; returns how fast it came, and from which depth."""
        told = subprocess.check_output(
            [*_program("mtpctl"), "--socket", str(self.socket), "--json", "status"]
        )
        body = {"model": model, "prompt": PROMPTS["code"][0], "n_predict": TOKENS}
        url = f"http://{json.loads(told)['listen']}/completion"
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), kind)
        with urllib.request.urlopen(request, timeout=COMMAND_S) as reply:  # noqa: S310 - the same
            timings = json.load(reply)["timings"]
            served_by = {n: v for n, v in reply.headers.items() if n.lower().startswith("x-mtpd")}
        rate = timings["predicted_per_second"]
        return f"asked {model}: {timings['predicted_n']} tokens, {rate:.1f} tok/s; {served_by}"

    def keep(self, name: str, text: str) -> None:
        """Put a text beside the answers, and print it."""
        with (self.out / f"{name}.txt").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _program(name: str) -> list[str]:
    """How to run one of our programs from this interpreter, installed or not."""
    code = f"from mtpd.cli.start import {name}; {name}()"
    return [sys.executable, "-c", code]


def _configure(place: Place, model: Path, third: Path) -> Path:
    """Two models of one file: one that the engine fits, one that mtpd plans; three small ones."""
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
    models += "".join(
        f'[models.{name}]\nmodel = "{third}"\ncontext = 4096\nslots = 1\nkv_type = "q8_0"\n'
        'flash_attention = "on"\n'
        f'drafter = {{ kind = "mtp", max_depth = {DEEPEST} }}\n'
        for name in TOGETHER
    )
    models += f"[groups.together]\nmembers = {list(TOGETHER)}\nswap = false\n"
    config = place.folder / "mtpd.toml"
    config.write_text(
        f'[server]\nlisten = "127.0.0.1:0"\ncontrol_socket = "{place.socket}"\n'
        f'[engine]\nbinary = "{place.engine}"\n'
        + ('[budget]\nhardware = "balloon"\nheadroom_mib = 128\n' if place.card else "")
        + models
    )
    return config


@contextmanager
def _balloon(leave_mib: int = CARD_MIB) -> Iterator[None]:
    """Hold the card's memory but for so much while the block runs."""
    command = [sys.executable, "-m", "tests.evidence.balloon", "--leave-mib", str(leave_mib)]
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


def _together(place: Place) -> None:
    for name in TOGETHER[:2]:
        place.mtpctl("together", "switch", name, "--depth", "2")
    place.mtpctl("together", "status")
    place.mtpctl("together", "gpu")
    with ThreadPoolExecutor() as both:
        for said in both.map(place.ask, TOGETHER[:2]):
            place.keep("together", said)
    place.mtpctl("together", "switch", TOGETHER[2], "--depth", "2")
    place.mtpctl("together", "status")
    place.mtpctl("together", "decisions")


def _taken(place: Place) -> None:
    """Another program takes the card's memory while an engine loads, and gives it back."""
    place.mtpctl("taken", "unload")
    with place.started("taken", "switch", "planned", "--depth", "3"), ExitStack() as other:
        time.sleep(INTO_LOAD_S)
        if place.card:
            other.enter_context(_balloon(64))
            place.keep("taken", "another program took all but 64 MiB of the card")
        place.mtpctl("taken", "status")
        time.sleep(4 * INTO_LOAD_S)
        place.mtpctl("taken", "status")
        place.mtpctl("taken", "gpu")
    place.mtpctl("taken", "logs", "planned", "--evidence")
    place.mtpctl("taken", "switch", "planned", "--depth", "3")
    place.mtpctl("taken", "status")
    place.mtpctl("taken", "decisions")


PHASES: Final = {
    "device": _device,
    "engine-fit": _engine_fit,
    "planned": _planned,
    "search": _search,
    "sweep": _sweep,
    "together": _together,
    "taken": _taken,
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
        place = Place(folder=folder, out=args.out, engine=args.engine, card=not args.rehearse)
        model = args.model or folder / "shaped.gguf"
        if not model.exists():
            write(model, SMALL if args.rehearse else BIG, hard=HARD)
        third = folder / "third.gguf"
        write(third, THIRD if place.card else SMALL, hard=HARD)
        config = _configure(place, model.resolve(), third)
        if place.card:
            stack.enter_context(_balloon())
        stack.callback(_keep_logs, place)
        stack.enter_context(_daemon(place, config))
        for phase in args.phases:
            PHASES[phase](place)


if __name__ == "__main__":
    main()
