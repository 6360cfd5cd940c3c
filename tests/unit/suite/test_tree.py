"""What lies at the top of the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = {"mtpd", "tuner", "profiles", "systemd", "tests", "docs"}


def test_the_repository_has_these_folders_and_what_git_ignores() -> None:
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line}
    there = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".")
        if not any(path.match(pattern) for pattern in ignored)
    }
    assert there == FOLDERS
