"""Every command of both programs: its help, what it prints for people, and its JSON.

A command that is not in ``CASES`` fails here, and so does one that prints JSON without a
schema. ``MTPD_WRITE_GOLDEN=1`` writes the texts anew.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from jsonschema import Draft202012Validator

from mtpd.api.json_schema import closed, document_of
from mtpd.cli import mtpctl, mtpd, powercap_commands, token_commands
from mtpd.cli.demo_report import show_report
from mtpd.cli.doctor.planner import examine
from mtpd.cli.failure import exit_code_of
from mtpd.cli.schemas import MTPCTL, mtpd_shapes
from mtpd.config import sandbox
from mtpd.events import EngineTransition
from mtpd.views import encode
from tests.fakes import sysfs, views
from tests.fakes.backend import ScriptedBackend, ServedInThread, served_in_thread
from tests.fakes.binary import fake_binary
from tests.fakes.clock import FakeClock
from tests.unit.cli.doctor.test_planner import facts as doctor_facts
from tests.unit.cli.doctor.test_planner import shown as drawn
from tests.unit.cli.offline import write
from tests.unit.cli.support import Mtpctl, Ran, check_golden, commands
from tests.unit.cli.test_demo_report import report as demo_report

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = {"mtpd": mtpd.cli, "mtpctl": mtpctl.cli}
EVERY = {
    called: command
    for name, program in PROGRAMS.items()
    for called, command in commands(program, (name,))
}
SHAPES = {f"mtpctl {words}": shapes for words, shapes in MTPCTL.items()} | {
    f"mtpd {words}": shapes for words, shapes in mtpd_shapes().items()
}
CONFIG = """
[engine]
binary = "{binary}"
[models.small]
model = "bundled:tiny-chained.gguf"
context = 2048
[models.small.drafter]
kind = "mtp"
max_depth = 2
[models.other]
kind = "opaque"
command = ["{binary}", "--port", "${{PORT}}"]
proxy = "http://127.0.0.1:${{PORT}}"
"""
FOREIGN = """
models:
  small:
    cmd: {binary} --port ${{PORT}} -m /srv/small.gguf
    ttl: 60
logLevel: debug
"""


@dataclass(frozen=True, slots=True)
class Case:
    """How a command is called to be looked at.

    Attributes:
        words: After the program.
        golden: The text that it prints; None where it prints no data.
        code: Its exit code.
        wide: Whether it prints what must not be wrapped.
    """

    words: tuple[str, ...]
    golden: str | None
    code: int = 0
    wide: bool = False


def of(words: str, golden: str, **more: Any) -> Case:
    return Case(tuple(words.split()), golden, **more)


CASES: dict[str, tuple[Case, ...]] = {
    "mtpctl status": (of("status", "status"),),
    "mtpctl gpu": (of("gpu --sources", "gpu"),),
    "mtpctl models": (
        of("models", "models"),
        of("models default", "model"),
        of(f"models {views.TINY}", "model_unmeasured"),
    ),
    "mtpctl switch": (of("switch default", "switch"),),
    "mtpctl load": (of("load default", "load"),),
    "mtpctl unload": (of("unload", "unload"),),
    "mtpctl reload": (of("reload", "reload"),),
    "mtpctl tune": (of("tune default", "tune"),),
    "mtpctl sweep": (of(f"sweep {views.QWEN}", "sweep"),),
    "mtpctl probe": (of("probe default", "probe"),),
    "mtpctl ppl": (
        of("ppl", "ppl_list"),
        of("ppl qwen3.6-27b-b2 uncensored-b2", "ppl"),
        of("ppl qwen3.6-27b-b2 uncensored-b2 --corpus /t", "ppl"),
    ),
    "mtpctl bench": (of("bench", "bench_list"), of("bench default", "bench")),
    "mtpctl recipe b2": (
        of("recipe b2 default", "recipe_plan"),
        of("recipe b2 default --run --corpus /t", "recipe_made"),
    ),
    "mtpctl quarantine list": (of("quarantine list", "quarantine"),),
    "mtpctl quarantine clear": (
        of(f"quarantine clear {views.quarantined().id}", "quarantine_clear"),
    ),
    "mtpctl decisions": (of("decisions", "decisions"),),
    "mtpctl explain": (of("explain", "explain"),),
    "mtpctl events": (of("events -n", "events", wide=True),),
    "mtpctl operations": (of("operations", "operations"),),
    "mtpctl operations list": (of("operations list", "operations"),),
    "mtpctl operations show": (of("operations show op-0001", "operation"),),
    "mtpctl operations cancel": (of("operations cancel op-0001", "operation_cancel"),),
    "mtpctl report": (of("report", "report", wide=True),),
    "mtpctl measurements": (of("measurements", "measurements"),),
    "mtpctl config": (of("config", "config"),),
    "mtpctl doctor": (Case((), "doctor_well"),),
    "mtpctl logs": (of("logs --evidence", "logs_evidence", wide=True),),
    "mtpctl top": (of("top --once", "top_line", wide=True),),
    "mtpctl schema": (of("schema", "schema"),),
    "mtpd serve": (),
    "mtpd demo": (Case((), "demo"),),
    "mtpd check": (
        of("check --config HOME/mtpd.toml", "check", wide=True),
        of("check --config HOME/wrong.toml", "check_wrong", code=78, wide=True),
    ),
    "mtpd config show": (
        of("config show --config HOME/mtpd.toml --origin", "config_show", wide=True),
    ),
    "mtpd plan": (
        of("plan small --config HOME/mtpd.toml --depth 1", "plan", wide=True),
        of("plan other --config HOME/mtpd.toml", "plan_opaque", wide=True),
    ),
    "mtpd import": (of("import HOME/swap.yaml --out HOME/out", "import", wide=True),),
    "mtpd powercap apply": (of("powercap apply --watts 150", "powercap_apply"),),
    "mtpd powercap verify": (of("powercap verify --watts 150", "powercap_verify", code=1),),
    "mtpd token add": (of("token add guest --expires 2030-01-31", "token_add"),),
    "mtpd token list": (of("token list", "token_list"),),
    "mtpd token revoke": (of("token revoke laptop", "token_revoke"),),
    "mtpd install-units": (
        of(
            "install-units --config HOME/mtpd.toml --program /opt/mtpd/bin/mtpd --prefix HOME/etc",
            "install_units",
            wide=True,
        ),
    ),
    "mtpd prometheus": (),
    "mtpd completion": (),
    "mtpd man": (of("man", "man"),),
    "mtpctl completion": (),
    "mtpd schema": (of("schema", "mtpd_schema"),),
}
"""Of ``serve`` there is only a log to see; ``prometheus`` and ``completion`` print files."""

ASKED = [
    pytest.param(called, case, id=f"{called}-{number}")
    for called, cases in CASES.items()
    for number, case in enumerate(cases)
]


def test_no_command_is_left_out() -> None:
    assert set(CASES) == set(EVERY)
    assert {name for name, command in EVERY.items() if _has_json(command)} == set(SHAPES)


def test_every_option_is_explained() -> None:
    dumb = [
        f"{called} {option.opts[0]}"
        for called, command in EVERY.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert dumb == []


def _has_json(command: click.Command) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


@pytest.mark.parametrize("called", [*PROGRAMS, *EVERY])
def test_its_help(called: str) -> None:
    program, *words = called.split()
    context = PROGRAMS[program].make_context(program, [], resilient_parsing=True)
    for word in words:
        group: Any = context.command
        context = group.get_command(context, word).make_context(
            word, [], parent=context, resilient_parsing=True
        )
    context.terminal_width = 80
    context.command._help_option = None  # kept from a call without its parent, which has no -h
    check_golden(f"help/{called.replace(' ', '_')}", context.command.get_help(context))


class Machine:
    """Runs the commands of both programs where everything is known."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys
        self._secret = ""

    def make_token(self) -> None:
        """One that the commands about tokens find."""
        assert exit_code_of(mtpd.cli, ("token", "add", "laptop", "--scope", "admin")) == 0
        self._secret = self._capsys.readouterr().out.strip()

    def run(self, called: str, words: tuple[str, ...], served: ServedInThread | None) -> Ran:
        given = tuple(word.replace("HOME", str(self.home)) for word in words)
        if called == "mtpctl doctor":
            view = examine(doctor_facts())
            return Ran(
                0, json.dumps(encode(view)) if "--json" in given else drawn(doctor_facts()), ""
            )
        if served is not None:
            return self._told(Mtpctl(self._capsys, served.socket)(*given))
        self._capsys.readouterr()
        if called == "mtpd demo":
            show_report(demo_report(), as_json="--json" in given, once=True)
            code = 0
        else:
            code = exit_code_of(mtpd.cli, given)
        out, err = self._capsys.readouterr()
        return self._told(Ran(code, out, err))

    def _told(self, ran: Ran) -> Ran:
        return Ran(ran.code, self._steady(ran.out), self._steady(ran.err))

    def _steady(self, text: str) -> str:
        """Without what is different on every machine."""
        text = text.replace(str(self.home), "HOME").replace(sys.executable, "PYTHON")
        text = text.replace(str(Path(mtpd.__file__).parents[1]), "MTPD")
        if self._secret:
            text = text.replace(self._secret[-4:], "LAST")
        return re.sub(r"mtpd_[A-Za-z0-9]{20,}", "mtpd_TOKEN", text)


@pytest.fixture
def machine(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Machine:
    binary = fake_binary(home / "llama-server")
    write(home, CONFIG.format(binary=binary))
    (home / "wrong.toml").write_text("[server]\nlistn = 1\n[tuning]\nmode = 2\n")
    (home / "swap.yaml").write_text(FOREIGN.format(binary=binary))
    sysfs.build(home / "root", "two_gpus").sensors(cap_w=190)
    monkeypatch.setattr(powercap_commands, "ROOT", home / "root")
    monkeypatch.setattr(token_commands, "CLOCK", FakeClock())
    monkeypatch.setattr(sandbox, "HIDDEN", (home / "hidden",))
    made = Machine(home, capsys)
    made.make_token()
    return made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedInThread]:
    backend = ScriptedBackend()
    with served_in_thread(backend, tmp_path / "s") as here:
        yield here


def _ready(called: str, served: ServedInThread, machine: Machine) -> ServedInThread | None:
    """The daemon to ask, after what a command needs to have happened."""
    if not called.startswith("mtpctl"):
        return None
    if " operations" in called:
        machine.run("mtpctl switch", ("switch", "default"), served)
    if called.endswith(" logs"):
        lines = ["load_tensors:      ROCm0 model buffer size = 14336.11 MiB"]
        note = [(0, ("buffer", "residency"))]
        served.backend.lines.add(views.QWEN, lines, engine_id="e1", notes=note)
    if called.endswith(" events"):
        served.publish(
            EngineTransition(
                engine_id="e1",
                profile=views.QWEN,
                arm=f"{views.QWEN}@2",
                old="loading",
                new="ready",
                reason="it answered",
            )
        )
    return served


@pytest.mark.parametrize(("called", "case"), ASKED)
def test_what_it_prints(
    called: str,
    case: Case,
    machine: Machine,
    served: ServedInThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # only a terminal's width may count
    asked = _ready(called, served, machine)
    ran = machine.run(called, case.words, asked)
    assert ran.code == case.code, ran.err
    assert "\x1b" not in ran.out, "colours are for terminals"
    shown = ran.out if case.code != 78 else ran.err
    assert case.golden is not None
    check_golden(case.golden, shown, wide=case.wide)


@pytest.mark.parametrize(("called", "case"), [one for one in ASKED if one.values[0] in SHAPES])
def test_its_json_is_as_its_schema_says(
    called: str, case: Case, machine: Machine, served: ServedInThread
) -> None:
    asked = _ready(called, served, machine)
    ran = machine.run(called, (*case.words, "--json"), asked)
    assert ran.code == case.code, ran.err
    texts = ran.out.splitlines() if called == "mtpctl events" else [ran.out]
    schema: Any = closed(document_of(*SHAPES[called]))
    assert texts
    for text in texts:
        found = list(Draft202012Validator(schema).iter_errors(json.loads(text)))
        assert [f"{error.json_path}: {error.message[:300]}" for error in found] == []


def test_every_schema_is_printed(machine: Machine, served: ServedInThread) -> None:
    for called, shapes in SHAPES.items():
        program, *words = called.split()
        ran = machine.run(
            f"{program} schema", ("schema", *words), served if program == "mtpctl" else None
        )
        assert (ran.code, json.loads(ran.out)) == (0, document_of(*shapes))
        Draft202012Validator.check_schema(json.loads(ran.out))
    nothing = machine.run("mtpd schema", ("schema", "serve"), None)
    assert (nothing.code, "prints no JSON" in nothing.err) == (2, True)


def test_no_golden_is_left_over() -> None:
    folder = Path(__file__).parent / "golden" / "help"
    assert {one.stem for one in folder.iterdir()} == {
        called.replace(" ", "_") for called in (*PROGRAMS, *EVERY)
    }
