"""Where the shipped profiles, the files for systemd and Prometheus, and the models lie.

A wheel carries all inside the package; in a checkout the first two are in their own
top-level folders. Nothing is read here.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["bundled_model", "profiles_dir", "prometheus_dir", "units_dir"]

_PACKAGE = Path(__file__).resolve().parent.parent
_CHECKOUT = _PACKAGE.parent


def profiles_dir() -> Path:
    """The folder with ``hardware``, ``models`` and ``workloads``, as shipped."""
    installed = _PACKAGE / "_data" / "profiles"
    return installed if installed.is_dir() else _CHECKOUT / "profiles"


def bundled_model(name: str) -> Path:
    """The path of a model file that comes with mtpd; it exists unless the install is broken."""
    places = (_PACKAGE / "_data" / "models" / name, _CHECKOUT / "models" / name)
    return next((place for place in places if place.is_file()), places[0])


def units_dir() -> Path:
    """The folder with the files for systemd, as shipped."""
    installed = _PACKAGE / "_data" / "systemd"
    return installed if installed.is_dir() else _CHECKOUT / "systemd"


def prometheus_dir() -> Path:
    """The folder with the alert rules and the dashboard."""
    return _PACKAGE / "_data" / "prometheus"
