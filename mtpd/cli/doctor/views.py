"""What ``mtpctl doctor`` says, in the shape of its JSON: plain values. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CheckView", "DoctorView", "FindingView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One thing that is wrong.

    Attributes:
        check: The check that found it, one of ``DoctorView.checks``.
        severity: error where models are not served or not as they should be; warning where
            they are served, slower or less safely than they could be.
        says: One sentence: what it is and why it matters.
        fix: The command that mends it.
    """

    check: str
    severity: str
    says: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView:
    """One check.

    Attributes:
        name: Of the check.
        state: ok, findings, unknown where it could not be made, or not_applicable.
        says: What was looked at and how it was found; empty where the findings say it.
    """

    name: str
    state: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorView:
    """Everything that was looked at.

    Attributes:
        ok: Whether nothing was found.
        config: The configuration file; None where the defaults are looked at.
        account: The user that the daemon runs as.
        daemon_pid: The daemon that answers, or None.
        findings: Errors first, otherwise in the order of the checks.
    """

    ok: bool
    config: str | None
    account: str
    daemon_pid: int | None
    findings: tuple[FindingView, ...]
    checks: tuple[CheckView, ...]
