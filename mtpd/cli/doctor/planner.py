"""From what was looked at to what is to be said of it: every check, in order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.doctor import cards, place, software
from mtpd.cli.doctor.finding import ERROR
from mtpd.cli.doctor.views import CheckView, DoctorView, FindingView

if TYPE_CHECKING:
    from mtpd.cli.doctor.facts import Facts
    from mtpd.cli.doctor.finding import Check

__all__ = ["CHECKS", "examine"]

CHECKS: Final = (
    software.CONFIGURATION,
    software.ENGINE,
    software.HIDDEN,
    cards.ACCESS,
    cards.CAP,
    cards.SENSOR,
    cards.HOLDERS,
    place.LISTEN,
    place.SOCKET,
    place.DISK,
    place.MODELS,
    place.MEMORY,
    place.DESCRIPTORS,
    place.TOKENS,
    place.SYSTEM,
    software.UNITS,
    software.DAEMON,
)
"""Every check; what a later one needs is found by an earlier one."""


def examine(facts: Facts) -> DoctorView:
    """Every finding with the command that mends it; errors first. Never raises."""
    findings: list[FindingView] = []
    checks: list[CheckView] = []
    for check in CHECKS:
        found = _findings(check, facts)
        seen = check.see(facts)
        findings += found
        checks.append(
            CheckView(
                name=check.name,
                state="findings" if found else seen.state,
                says="" if found else seen.says,
            )
        )
    findings.sort(key=lambda one: one.severity != ERROR)
    return DoctorView(
        ok=not findings,
        config=facts.config.path,
        account=facts.account.name,
        daemon_pid=facts.daemon.pid,
        findings=tuple(findings),
        checks=tuple(checks),
    )


def _findings(check: Check, facts: Facts) -> list[FindingView]:
    return [
        FindingView(check=check.name, severity=one.severity, says=one.says, fix=one.fix)
        for one in check.find(facts)
    ]
