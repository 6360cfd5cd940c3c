"""The sentence and the evidence of a configuration that was read again."""

from __future__ import annotations

from dataclasses import replace

from mtpd.access import Scope, Token
from mtpd.config.diff import diff, engine_settings, revised
from mtpd.config.model import (
    BudgetConfig,
    Config,
    DrafterConfig,
    EngineConfig,
    Fit,
    Group,
    Pool,
    Profile,
    ServerConfig,
    TuningConfig,
)
from tuner.types import Drafter

ALPHA = Profile(name="alpha", model="/m.gguf", drafter=DrafterConfig(kind=Drafter.MTP, max_depth=3))
BETA = Profile(name="beta", model="/m.gguf")
OLD = Config(
    profiles={"alpha": ALPHA, "beta": BETA},
    pools={"both": Pool(name="both", members=("alpha", "beta"))},
    origins={"models.alpha.context": "mtpd.toml:9", "server.listen": "mtpd.toml:2"},
)


def with_alpha(**changes: object) -> Config:
    return replace(OLD, profiles={"alpha": replace(ALPHA, **changes), "beta": BETA})  # type: ignore[arg-type]


def test_a_flag_of_the_engine_changes_the_model_and_is_told_with_its_line() -> None:
    changes = diff(OLD, with_alpha(context=8192))
    assert changes.changed == ("alpha",)
    assert [str(value) for value in changes.values] == [
        "models.alpha.context: 4096 -> 8192 (mtpd.toml:9)"
    ]
    assert changes.reason == ("the configuration was read again: other engine settings: alpha")


def test_names_and_facts_need_no_other_engine() -> None:
    for changed in (
        with_alpha(aliases=("first",)),
        with_alpha(vram_mib=700),
        with_alpha(tags=("uncensored",)),
        with_alpha(drafter=replace(ALPHA.drafter, max_depth=2)),
    ):
        changes = diff(OLD, changed)
        assert (changes.changed, changes.described) == ((), ("alpha",))


def test_what_the_engine_is_told_for_every_model_changes_those_that_do_not_say_otherwise() -> None:
    own = replace(BETA, threads=2, fit=Fit.OFF)
    old = replace(OLD, profiles={"alpha": ALPHA, "beta": own})
    assert diff(old, replace(old, engine=EngineConfig(threads=4))).changed == ("alpha",)
    assert diff(old, replace(old, budget=BudgetConfig(headroom_mib=512))).changed == ("alpha",)
    assert diff(old, replace(old, engine=EngineConfig(load_stall_s=5.0))).changed == ()


def test_a_model_that_is_new_or_gone_is_told_with_its_file_only() -> None:
    new = replace(
        OLD,
        profiles={"beta": BETA, "gamma": replace(BETA, name="gamma")},
        pools={"both": Pool(name="both", members=("beta",))},
    )
    changes = diff(OLD, new)
    assert (changes.added, changes.removed, changes.pools) == (("gamma",), ("alpha",), ("both",))
    assert {value.key for value in changes.values} == {
        "models.gamma.model",
        "models.alpha.model",
        "pools.both.members",
    }
    assert changes.reason == (
        "the configuration was read again: new: gamma; gone: alpha; pools: both"
    )


def test_addresses_and_the_binary_are_kept_with_their_origin_and_named() -> None:
    new = replace(
        OLD,
        server=ServerConfig(listen_port=9000, max_waiting=3),
        engine=EngineConfig(binary="/opt/llama-server", threads=2),
        tuning=TuningConfig(min_idle_s=5.0),
        origins={"server.listen": "mtpd.toml:3", "server.max_waiting": "mtpd.toml:4"},
    )
    changes, now = diff(OLD, new), revised(OLD, new)
    assert changes.needs_restart == ("server.listen", "engine.binary")
    assert changes.settings == ("server.max_waiting", "engine.threads", "tuning.min_idle_s")
    assert (now.server.listen_port, now.server.max_waiting) == (8080, 3)
    assert (now.engine.binary, now.engine.threads) == ("auto", 2)
    assert now.tuning.min_idle_s == 5.0
    assert now.origins == {
        "server.listen": "mtpd.toml:2",
        "server.max_waiting": "mtpd.toml:4",
    }
    assert changes.reason.endswith("after a restart of the daemon: server.listen, engine.binary")


def test_device_variables_are_for_a_restart_because_the_card_was_found_with_them() -> None:
    new = replace(OLD, engine=EngineConfig(extra_env=(("HIP_VISIBLE_DEVICES", "1"),)))
    assert diff(OLD, new).needs_restart == ("engine.extra_env.HIP_VISIBLE_DEVICES",)
    assert revised(OLD, new).engine.extra_env == ()


def test_the_settings_of_an_engine_are_equal_for_equal_configurations() -> None:
    assert engine_settings(OLD, "alpha") == engine_settings(with_alpha(), "alpha")
    assert hash(engine_settings(OLD, "alpha")) == hash(engine_settings(with_alpha(), "alpha"))


def test_keys_of_clients_are_applied_and_told_without_a_value() -> None:
    key = Token(name="apiKeys[0]", digest="d" * 64, scopes=frozenset({Scope.INFER}))
    new = replace(OLD, tokens=(key,), server=ServerConfig(hosts=("gpu.lan",)))
    changes = diff(OLD, new)
    assert changes.settings == ("server.hosts", "apiKeys")
    assert key.digest not in str(changes)
    assert revised(OLD, new) == new


def test_groups_wait_for_a_restart_because_an_engine_cannot_leave_its_seat() -> None:
    new = replace(OLD, groups={"pair": Group(name="pair", members=("alpha", "beta"))})
    changes = diff(OLD, new)
    assert not changes.applied
    assert changes.needs_restart
    assert all(key.partition(".")[0] == "groups" for key in changes.needs_restart)
    assert revised(OLD, new) == OLD
