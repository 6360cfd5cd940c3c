"""The environment of a process of which coverage counts nothing.

For processes whose files are made to fail, because the counting writes files of its own, and for
those that run a copy of the tree, which would be counted as code that nothing tests.
"""

from __future__ import annotations

import os

__all__ = ["uncounted"]


def uncounted() -> dict[str, str]:
    """Our environment without what starts coverage."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}
