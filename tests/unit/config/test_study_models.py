"""The six variants of study 000 as shipped profiles, and what the pools make of them.

Figures: docs/studies/000-three-models-one-draft-head.md, "The measurement matrix".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from mtpd.config.data import profiles_dir
from mtpd.config.load import load
from mtpd.config.model import Offload
from tuner.compare import PerplexityRun, Quality
from tuner.pools import Candidate, Objective, choose_model
from tuner.types import Arm, Drafter, Evicted, Residency, Resident, Unknown

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.config.model import Config

GIB: Final = 2**30
NOT_PROVEN: Final = Unknown("the study measured it above the residency threshold")


class Row(NamedTuple):
    """One row: size in GiB, serving at depth 2 in tok/s, perplexity, residency, alpha."""

    gib: float
    tps: float
    perplexity: float
    residency: Residency
    printed: tuple[str, ...]
    alphas: tuple[float, float] | None


MATRIX: Final = {
    "qwen3.8-27b-uncensored-q4_k_m": Row(15.6, 27.0, 5.5997, Evicted(layers=None), (), None),
    "qwen3.6-27b-b2": Row(14.3, 50.3, 5.6553, Resident(), ("96.1 %", "87-90 %"), (0.961, 0.885)),
    "qwen3.8-27b-q4_0": Row(14.95, 38.0, 5.6942, NOT_PROVEN, ("88.1 %", "76.1 %"), (0.881, 0.761)),
    "qwen3.8-27b-b2": Row(14.3, 46.0, 5.7722, Resident(), ("93.2 %", "73.5 %"), (0.932, 0.735)),
    "qwen3.8-27b-uncensored-i1-q4_0": Row(
        14.6, 42.0, 5.8041, NOT_PROVEN, ("88.6 %", "73.6 %"), (0.886, 0.736)
    ),
    "qwen3.8-27b-uncensored-b2": Row(
        14.3, 45.8, 5.8404, Resident(), ("90.7 %", "72.5 %"), (0.907, 0.725)
    ),
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "mtpd.toml"
    members = ", ".join(f'"{name}"' for name in MATRIX)
    path.write_text(
        f'[budget]\nhardware = "gfx906-16g-150w"\n[pools.all]\nmembers = [{members}]\n',
        encoding="utf-8",
    )
    return load(path)


def candidates(config: Config) -> list[Candidate]:
    out: list[Candidate] = []
    for name, row in MATRIX.items():
        profile = config.profiles[name]
        assert profile.quality is not None
        out.append(
            Candidate(
                arm=profile.arm(2),
                tps=row.tps,
                residency=row.residency,
                quality=Quality(
                    value=profile.quality.perplexity,
                    stderr=profile.quality.stderr,
                    run=PerplexityRun(corpus=profile.quality.corpus, chunks=profile.quality.chunks),
                ),
                memory_bytes=round(row.gib * GIB),
                tags=frozenset(profile.tags),
                alphas=row.alphas,
            )
        )
    return out


def chosen(name: str) -> Arm:
    return Arm(profile=name, drafter=Drafter.MTP, depth=2)


def test_a_pool_that_names_them_loads_all_six_and_nothing_else(config: Config) -> None:
    assert set(config.profiles) == set(MATRIX)
    for profile in config.profiles.values():
        assert profile.drafter.kind is Drafter.MTP
        assert profile.drafter.depth == 2, "the depth that the study served"
        assert profile.model.endswith(".gguf")


def test_without_a_configuration_only_the_bundled_models_take_part() -> None:
    assert set(load(None).profiles) == {"tiny-chained", "tiny-unchained"}
    asked = load(None, overrides={"pools.p.members": ["qwen3.6-27b-b2"]})
    assert "qwen3.6-27b-b2" in asked.profiles


@pytest.mark.parametrize("name", sorted(MATRIX))
def test_a_profile_has_the_figures_of_its_row(config: Config, name: str) -> None:
    row, profile = MATRIX[name], config.profiles[name]
    assert profile.quality is not None
    assert profile.quality.perplexity == row.perplexity
    assert (profile.quality.stderr, profile.quality.chunks) == (0.15, 32)
    assert (profile.offload is Offload.ACCEPT) == isinstance(row.residency, Evicted)
    assert profile.tags == (("uncensored",) if "uncensored" in name else ())
    text = (profiles_dir() / "models" / f"{name}.toml").read_text(encoding="utf-8")
    comment = " ".join(line.removeprefix("# ") for line in text.splitlines() if line[:1] == "#")
    for figure in (f"{row.gib} GiB", f"depth 2 {row.tps} tok/s", *row.printed):
        assert figure in comment


def test_the_three_recommendations_come_out_with_the_names_of_their_rules(config: Config) -> None:
    rows = candidates(config)
    default = choose_model(rows, subject="default")
    assert default.arm == chosen("qwen3.6-27b-b2")
    assert default.reason.startswith("R2 balanced: qwen3.6-27b-b2@2 (50.3 tok/s")
    assert "guessed" not in default.reason, "its alpha2 is a row of the matrix"
    uncensored = choose_model(rows, require=frozenset({"uncensored"}))
    assert uncensored.arm == chosen("qwen3.8-27b-uncensored-b2")
    assert uncensored.reason.startswith("R2 balanced: ")
    assert any("lacks the tag uncensored (R1)" in line for line in uncensored.evidence)
    quality = choose_model(rows, objective=Objective.QUALITY, accept_offload=True)
    assert quality.arm == chosen("qwen3.8-27b-uncensored-q4_k_m")
    assert quality.reason.startswith("R3 quality: ")
    assert quality.reason.endswith("no other depth is guessed (R4)"), "it has no alpha2"
