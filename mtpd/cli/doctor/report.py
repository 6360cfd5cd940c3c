"""How ``mtpctl doctor`` shows what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.text import Text

from mtpd.cli.cells import NONE, cell, grid, line

if TYPE_CHECKING:
    from rich.console import Console

    from mtpd.cli.doctor.views import DoctorView, FindingView

__all__ = ["show"]

_STYLES: Final = {"error": "red", "warning": "yellow"}
_MARKS: Final = {"unknown": "?", "not_applicable": NONE}


def show(out: Console, view: DoctorView) -> None:
    """Every finding with its command, then what is well and what was not looked at."""
    for finding in view.findings:
        _finding(out, finding)
    made = grid()
    for check in view.checks:
        if check.state != "findings":
            mark = _MARKS.get(check.state)
            line(made, check.name, check.says if mark is None else f"{mark} {check.says}")
    out.print(cell(_sum(view)))
    out.print(made)


def _finding(out: Console, finding: FindingView) -> None:
    """Its sentence within the window, its command on one line, so that it can be copied."""
    head = Text.assemble((finding.severity, _STYLES[finding.severity]), f"  {finding.check}")
    out.print(head)
    out.print(Padding(cell(finding.says), (0, 0, 0, 4)))
    out.print(Text.assemble("    $ ", (finding.fix, "bold")), soft_wrap=True)
    out.print()


def _sum(view: DoctorView) -> str:
    count = len(view.findings)
    if not count:
        return f"nothing is wrong, as {view.account} sees it:"
    errors = sum(one.severity == "error" for one in view.findings)
    kinds = (_counted(errors, "error"), _counted(count - errors, "warning"))
    found = " and ".join(kind for kind in kinds if kind)
    return f"{found}, as {view.account} sees it; the rest:"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}" if count else ""
