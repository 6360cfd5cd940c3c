"""What the system's service sees of the machine, as its shipped unit says."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["HIDDEN", "SERVICE_PATH", "is_hidden"]

HIDDEN: Final = (Path("/home"), Path("/root"), Path("/run/user"))
"""What ``ProtectHome=yes`` of the system's service hides."""

SERVICE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
"""Where a service looks for programs, whatever the ``PATH`` of the one who installs it."""


def is_hidden(file: str) -> bool:
    """Whether the service cannot see a file, by its own path or by that of what it links to."""
    places = (Path(file).absolute(), Path(file).resolve())
    return any(place.is_relative_to(folder) for place in places for folder in HIDDEN)
