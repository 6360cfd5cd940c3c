from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.checks import parse_host
from mtpd.config.load import load
from mtpd.config.model import (
    BudgetConfig,
    DrafterConfig,
    EngineConfig,
    Objective,
    Offload,
    Profile,
    ServerConfig,
    TuningConfig,
    TuningMode,
)
from tests.unit.config.writing import problems, write
from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_file_the_defaults_and_the_shipped_profiles_are_in_force() -> None:
    config = load(None)
    assert config.server == ServerConfig()
    assert config.engine == EngineConfig()
    assert config.budget == BudgetConfig()
    assert config.tuning == TuningConfig()
    assert {"tiny-chained", "tiny-unchained"} <= set(config.profiles)
    assert set(config.workloads) == {"short", "prose", "code", "long-reasoning"}
    assert config.hardware is None


def test_a_profile_that_names_only_its_model_has_the_default_everything_else(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "mtpd.toml", '[models.plain]\nmodel = "/m.gguf"\n')
    assert load(path).profiles["plain"] == Profile(name="plain", model="/m.gguf")


def test_the_example_of_the_documentation_is_read_completely(tmp_path: Path) -> None:
    write(
        tmp_path / "profiles/models/qwen3.6-27b-b2.toml",
        """
model = "/srv/models/Qwen3.6-27B-B2.gguf"
aliases = ["default"]
tags = ["big"]
context = 16384
kv_type = "q8_0"
[drafter]
kind = "mtp"
max_depth = 5
depth = 2
[quality]
perplexity = 5.6553
stderr = 0.15
corpus = "wikitext-2"
chunks = 32
""",
    )
    path = write(
        tmp_path / "mtpd.toml",
        """
[server]
listen = "[::1]:9000"
control_socket = "control.sock"
[engine]
binary = "bin/llama-server"
extra_env = { HIP_VISIBLE_DEVICES = "0" }
[budget]
hardware = "gfx906-16g-150w"
[tuning]
mode = "idle"
[pools.best]
members = ["qwen3.6-27b-b2"]
objective = "speed"
require_tags = ["big"]
offload = "accept"
min_context = 4096
quality_bound = 1.05
""",
    )
    config = load(path)
    assert (config.server.listen_host, config.server.listen_port) == ("::1", 9000)
    assert config.server.control_socket == str(tmp_path / "control.sock")
    assert config.engine.binary == str(tmp_path / "bin/llama-server")
    assert config.engine.extra_env == (("HIP_VISIBLE_DEVICES", "0"),)
    assert config.hardware is not None
    assert (config.hardware.row_cost, config.hardware.row_cost_sd) == (0.41, 0.1)
    assert config.tuning.mode is TuningMode.IDLE
    pool = config.pools["best"]
    assert (pool.objective, pool.offload) == (Objective.SPEED, Offload.ACCEPT)
    assert (pool.min_context, pool.quality_bound) == (4096, 1.05)
    profile = config.profile_for("default")
    assert profile is config.profiles["qwen3.6-27b-b2"]
    assert profile.drafter == DrafterConfig(kind=Drafter.MTP, max_depth=5, depth=2)
    assert profile.quality is not None
    assert profile.quality.chunks == 32
    assert config.profile_for("nobody") is None


def test_each_layer_is_laid_over_the_one_before_it(tmp_path: Path) -> None:
    write(
        tmp_path / "profiles/hardware/card.toml",
        """
description = "a card"
isa = "gfx906"
vram_mib = 16368
[model_defaults]
context = 1024
slots = 2
kv_type = "q8_0"
flash_attention = "on"
""",
    )
    write(
        tmp_path / "profiles/models/m.toml",
        'model = "m.gguf"\nslots = 3\nkv_type = "f16"\nflash_attention = "auto"\n',
    )
    path = write(
        tmp_path / "mtpd.toml",
        '[budget]\nhardware = "card"\n[models.m]\nkv_type = "q4_0"\nflash_attention = "auto"\n',
    )
    config = load(path, overrides={"models.m.flash_attention": "on"})
    profile = config.profiles["m"]
    seen = (profile.context, profile.slots, profile.kv_type, profile.flash_attention)
    assert seen == (1024, 3, "q4_0", "on")
    assert profile.ubatch is None
    origins = {key: config.origins[f"models.m.{key}"] for key in ("context", "slots", "kv_type")}
    assert origins == {
        "context": f"{tmp_path}/profiles/hardware/card.toml:6",
        "slots": f"{tmp_path}/profiles/models/m.toml:2",
        "kv_type": f"{path}:4",
    }
    assert config.origins["models.m.flash_attention"] == "command line"
    assert config.origins["models.m.ubatch"] == "default"
    assert config.origins["hardware.vram_mib"] == f"{tmp_path}/profiles/hardware/card.toml:4"


def test_the_hardware_on_the_command_line_wins_and_none_means_not_given(tmp_path: Path) -> None:
    path = write(tmp_path / "mtpd.toml", '[budget]\nhardware = "nobody-knows"\n')
    config = load(path, overrides={"budget.hardware": "gfx906-16g-150w", "engine.binary": None})
    assert config.hardware is not None
    assert config.hardware.name == "gfx906-16g-150w"
    assert config.engine.binary == "auto"


def test_a_profile_of_the_user_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    write(tmp_path / "profiles/models/tiny-chained.toml", 'model = "own.gguf"\n')
    profile = load(write(tmp_path / "mtpd.toml", "")).profiles["tiny-chained"]
    assert profile.model == str(tmp_path / "profiles/models/own.gguf")
    assert profile.drafter.kind is Drafter.NONE


def test_relative_paths_start_at_the_file_that_names_them(tmp_path: Path) -> None:
    write(
        tmp_path / "profiles/models/m.toml",
        'model = "../m.gguf"\n[drafter]\nkind = "mtp-file"\nmax_depth = 2\nmodel = "head.gguf"\n',
    )
    path = write(tmp_path / "mtpd.toml", '[models.m.drafter]\nmodel = "other.gguf"\n')
    profile = load(path).profiles["m"]
    assert profile.model == str(tmp_path / "profiles/models/../m.gguf")
    assert profile.drafter.model == str(tmp_path / "other.gguf")


def test_a_missing_model_file_is_no_error_of_loading(tmp_path: Path) -> None:
    path = write(tmp_path / "mtpd.toml", '[models.m]\nmodel = "/nowhere/m.gguf"\n')
    assert load(path).profiles["m"].model == "/nowhere/m.gguf"


def test_all_problems_of_all_files_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path / "profiles/models/m.toml", 'model = "m.gguf"\nslots = "one"\n')
    write(tmp_path / "profiles/models/broken.toml", "model = \n")
    write(tmp_path / "profiles/workloads/w.toml", 'description = "d"\nmax_tokens = 0\n')
    path = write(
        tmp_path / "mtpd.toml",
        """\
[server]
max_waitng = 3
queue_timeout_s = "long"
[pools.default]
members = ["m", "tiny-chaned"]
[models.m.drafter]
kind = "mtp"
max_depth = 99
""",
    )
    found = [one.removeprefix(f"{tmp_path}/") for one in problems(path)]
    assert found == [
        "mtpd.toml:2: server.max_waitng: unknown key; did you mean 'max_waiting'?",
        "mtpd.toml:3: server.queue_timeout_s: must be a number, not 'long'",
        (
            "mtpd.toml:5: pools.default.members.1: there is no model 'tiny-chaned';"
            " did you mean 'tiny-chained'?"
        ),
        "mtpd.toml:8: models.m.drafter.max_depth: must be less than or equal to 16, not 99",
        "profiles/models/broken.toml:1:9: not TOML: Invalid value",
        "profiles/models/m.toml:2: slots: must be a whole number, not 'one'",
        "profiles/workloads/w.toml:1: the key 'prompts' is required",
        "profiles/workloads/w.toml:2: max_tokens: must be greater than or equal to 1, not 0",
    ]


def test_an_error_in_the_defaults_of_a_card_is_told_once_at_the_card(tmp_path: Path) -> None:
    card = write(
        tmp_path / "profiles/hardware/card.toml",
        'description = "d"\nisa = "i"\nvram_mib = 1\n[model_defaults]\nslots = 0\n',
    )
    path = write(tmp_path / "mtpd.toml", '[budget]\nhardware = "card"\n')
    assert problems(path) == (
        f"{card}:5: model_defaults.slots: must be greater than or equal to 1, not 0",
    )


def test_a_row_cost_needs_its_source(tmp_path: Path) -> None:
    card = write(
        tmp_path / "profiles/hardware/card.toml",
        'description = "d"\nisa = "i"\nvram_mib = 1\nrow_cost = 0.4\n',
    )
    (problem,) = problems(write(tmp_path / "mtpd.toml", '[budget]\nhardware = "card"\n'))
    assert problem == (
        f"{card}:4: row_cost: needs row_cost_source: the cells that it was fitted to"
    )


def test_a_deviation_of_the_row_cost_needs_the_row_cost(tmp_path: Path) -> None:
    card = write(
        tmp_path / "profiles/hardware/card.toml",
        'description = "d"\nisa = "i"\nvram_mib = 1\nrow_cost_sd = 0.2\n',
    )
    path = write(tmp_path / "mtpd.toml", '[budget]\nhardware = "card"\n')
    assert problems(path) == (f"{card}:4: row_cost_sd: says nothing without row_cost",)


def test_localhost_is_the_loopback_address(tmp_path: Path) -> None:
    path = write(tmp_path / "mtpd.toml", '[server]\nlisten = "localhost:0"\n')
    server = load(path).server
    assert (server.listen_host, server.listen_port) == ("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("gpu.lan", "gpu.lan"),
        ("GPU.lan:8443", "gpu.lan:8443"),
        ("192.168.1.5", "192.168.1.5"),
        ("[fd00::5]", "[fd00::5]"),
        ("[FD00::5]:80", "[fd00::5]:80"),
        ("fd00::5", None),
        ("gpu.lan:", None),
        ("gpu.lan:99999", None),
        ("a b", None),
        ("gpu.lan/x", None),
        ("", None),
        ("*.lan", None),
    ],
)
def test_a_host(text: str, host: str | None) -> None:
    assert parse_host(text) == host


def test_other_machines_are_answered_under_the_names_that_are_given(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mtpd.toml", '[server]\nlisten = "0.0.0.0:80"\nhosts = ["GPU.lan", "[::2]:1"]\n'
    )
    server = load(path).server
    assert (server.listen, server.hosts, server.remote) == (
        "0.0.0.0:80",
        ("gpu.lan", "[::2]:1"),
        True,
    )
    assert not ServerConfig(listen_host="::1").remote


def test_a_wrong_value_from_the_command_line_is_told_as_such() -> None:
    assert problems(None, {"server.listen": "1.2.3.4:5", "tuning.mode": 3, "a..b": 1}) == (
        "command line: 'a..b' is not a key path",
        "command line: tuning.mode: must be 'off', 'observe' or 'idle', not 3",
        (
            "command line: server.listen: 1.2.3.4:5 can be reached from other machines; that needs"
            " the key 'hosts', the names under which they ask, e.g. hosts = ['gpu.lan',"
            " '192.168.1.5'], and an access token (mtpd token add)"
        ),
    )


def test_a_profile_makes_the_arms_that_it_allows() -> None:
    profile = load(None).profiles["tiny-chained"]
    assert profile.arm(0) == Arm(profile="tiny-chained")
    assert profile.arm(2) == Arm(profile="tiny-chained", drafter=Drafter.MTP, depth=2)
    assert profile.initial_arm() == profile.arm(0)
    with pytest.raises(ValueError, match="allows depths 0 to 3, not 4"):
        profile.arm(4)


def test_origins_of_web_pages_are_those_that_a_browser_sends(tmp_path: Path) -> None:
    text = (
        '[server]\ncors_origins = ["https://UI.lan:443", "http://localhost:3000", '
        '"chrome-extension://abc", "http://ui.lan:80"]\n'
    )
    assert load(write(tmp_path / "mtpd.toml", text)).server.cors_origins == (
        "https://ui.lan",
        "http://localhost:3000",
        "chrome-extension://abc",
        "http://ui.lan",
    )
