"""The profiles and workloads that come with mtpd hold what the studies and the demo need."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from mtpd.config.load import load
from tuner.types import Drafter

if TYPE_CHECKING:
    from mtpd.config.model import Config


@pytest.fixture(scope="module")
def config() -> Config:
    return load(None, overrides={"budget.hardware": "gfx906-16g-150w"})


def test_the_card_of_the_studies_has_their_facts(config: Config) -> None:
    card = config.hardware
    assert card is not None
    assert (card.isa, card.vram_mib, card.power_cap_w) == ("gfx906", 16368, 150.0)
    assert card.gate_edge_c == 44.0


def test_the_row_cost_follows_from_the_resident_cells_of_study_000(config: Config) -> None:
    """Table "The measurement matrix": serving at depth 2 over 32.4 tok/s raw."""
    cells = [((0.961, 0.885), 50.3), ((0.932, 0.735), 46.0), ((0.907, 0.725), 45.8)]
    costs = [((1 + a1 + a1 * a2) / (tps / 32.4) - 1) / 2 for (a1, a2), tps in cells]
    assert [round(cost, 4) for cost in costs] == [0.4055, 0.4216, 0.4071]
    assert config.hardware is not None
    assert config.hardware.row_cost == round(statistics.fmean(costs), 2)
    for cost in (".4055", ".4216", ".4071"):
        assert cost in (config.hardware.row_cost_source or "")


@pytest.mark.parametrize("name", ["tiny-chained", "tiny-unchained"])
def test_the_bundled_models_start_with_one_slot_and_allow_three_drafts(
    config: Config, name: str
) -> None:
    profile = config.profiles[name]
    assert (profile.context, profile.slots, profile.kv_type) == (2048, 1, "f16")
    assert (profile.drafter.kind, profile.drafter.max_depth) == (Drafter.MTP, 3)


@pytest.mark.parametrize("name", ["short", "prose", "code", "long-reasoning"])
def test_a_workload_has_several_different_prompts(config: Config, name: str) -> None:
    workload = config.workloads[name]
    assert len(workload.prompts) >= 3
    assert len(set(workload.prompts)) == len(workload.prompts)


def test_the_long_conversations_fill_most_of_the_bundled_models_context(config: Config) -> None:
    """Their tokenizer makes some 2.6 characters to a token of this text."""
    workload = config.workloads["long-reasoning"]
    for prompt in workload.prompts:
        text = "".join(message.content for message in prompt.messages)
        assert len(text) > 1500 * 2.2
        assert len(text) < (2048 - workload.max_tokens) * 2.4
        assert len(prompt.messages) >= 7
