"""The manual: whole, as groff and man take it, and as it is installed."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mtpd.cli import roff
from mtpd.cli.manual import pages
from mtpd.cli.mtpctl import cli as mtpctl
from mtpd.cli.mtpd import cli as mtpd
from mtpd.cli.reference import commands
from mtpd.config.reference import SECTIONS
from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from mtpd.cli.reference import CommandText

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs/man"
PROGRAMS = {"mtpd": mtpd, "mtpctl": mtpctl}
MADE = pages(PROGRAMS)
ALL = [text for name, program in PROGRAMS.items() for text in commands(program, name)]


def read(text: str) -> str:
    """What a page says, without its marks and breaks."""
    bare = re.sub(r"\\f[BR]|\\&", "", text).replace("\\-", "-").replace("\\e", "\\")
    return "".join(bare.split())


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_a_command_has_a_page_with_every_option(command: CommandText) -> None:
    page = read(MADE[f"man1/{command.name.replace(' ', '-')}.1"])
    for part in (command.usage, *command.paragraphs, *sum(command.options, ())):
        assert read(part.replace("`", "")) in page


def test_the_page_of_the_configuration_has_every_key() -> None:
    page = MADE["man5/mtpd.toml.5"]
    for section in SECTIONS:
        for key in section.keys:
            assert f"\n\\fB{key.name}\\fR (" in page
            assert read(key.meaning.replace("`", "")) in read(page)


def test_what_is_installed_are_these_pages_and_no_others() -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.[15]")}
    assert there == set(MADE)
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert hatch["targets"]["wheel"]["shared-data"] == {"docs/man": "share/man"}
    assert "/docs" in hatch["targets"]["sdist"]["include"]


def test_pages_are_listed_printed_and_written(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        ran = CliRunner().invoke(mtpd, ["man", *words])
        assert not isinstance(ran.exception, MtpdError), ran.exception
        return ran.exit_code, ran.output

    code, names = run()
    assert (code, {"mtpd", "mtpctl-tune", "mtpd.toml"} <= set(names.split())) == (0, True)
    assert run("mtpctl-tune") == (0, MADE["man1/mtpctl-tune.1"])
    assert run("nobody")[0] == 2
    assert run("--out", str(tmp_path))[1] == f"wrote {len(MADE)} pages to {tmp_path}\n"
    assert {
        str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*.[15]")
    } == MADE


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "man1").write_text("a file")
    ran = CliRunner().invoke(mtpd, ["man", "--out", str(tmp_path)])
    assert isinstance(ran.exception, MtpdError)
    assert "cannot be written" in str(ran.exception)


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n"), max_size=80)
)
def test_no_sentence_is_taken_for_a_macro(text: str) -> None:
    for made in (roff.paragraph(text), roff.item(text, text, text), roff.example(text)):
        lines = "\n".join(made).split("\n")
        macros = [line for line in lines if line.startswith((".", "'"))]
        assert set(macros) <= {".PP", ".TP", ".nf", ".fi", ".RS", ".RE"}


@pytest.mark.man
def test_groff_and_man_take_every_page_without_a_warning() -> None:
    files = [FOLDER / path for path in MADE]
    ran = subprocess.run(
        ["/usr/bin/env", "groff", "-man", "-ww", "-Tutf8", "-k", "-z", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    shown = ("man1/mtpctl.1", "man1/mtpctl-tune.1", "man5/mtpd.toml.5")
    ran = subprocess.run(
        ["/usr/bin/env", "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8"]
        + [str(FOLDER / path) for path in shown],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "MTPCTL-TUNE(1)" in ran.stdout


@pytest.mark.man
def test_whatis_finds_every_page() -> None:
    ran = subprocess.run(
        ["/usr/bin/env", "lexgrog", *(FOLDER / path for path in MADE)],
        capture_output=True,
        text=True,
        check=False,
    )
    named = re.findall(r': "(\S+) - ', ran.stdout)
    assert (ran.returncode, sorted(named)) == (0, sorted(Path(path).stem for path in MADE))
