"""Every target of ``tests.fuzz.targets`` on mutants of its seeds, as plain calls.

``make fuzz`` has atheris look for more, which is guided by coverage.
"""

from __future__ import annotations

import random

import pytest

from tests.fuzz.targets import SEEDS, TARGETS

MUTANTS = 100
SEED = 20261130
TOKENS = (
    *(b"", b"\0", b"\xff\xfe", b"\n", b"\r\n", b'"', b"[", b"{", b"\xe2\x80\xa8"),
    *(b"9" * 21, b"nan", b"-1"),
)


def mutant(rng: random.Random, seed: bytes) -> bytes:
    """Some bytes cut out, doubled, or replaced."""
    data = seed
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.choice((0, 1, 4, 64)))
        middle = rng.choice((rng.randbytes(2), data[at:end] * 2, *TOKENS))
        data = data[:at] + middle + data[end:]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_no_mutant_of_a_seed_breaks_a_promise(name: str) -> None:
    rng = random.Random(SEED)  # noqa: S311 - reproducible, not secret
    seeds = SEEDS[name]()
    assert seeds
    for seed in seeds:
        TARGETS[name](seed)
    for _ in range(MUTANTS):
        TARGETS[name](mutant(rng, rng.choice(seeds)))
