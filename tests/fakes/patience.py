"""How long a test waits for what happens at once, on a machine that may stand still."""

from __future__ import annotations

SOON_S = 30.0
"""Seconds. Where it is exceeded something waits for what never comes; how long it really
takes is measured by the benchmarks."""
