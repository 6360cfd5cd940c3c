"""What a configuration that was read again changes: nothing is lost, nothing is invented."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.diff import Changes, diff, engine_settings, revised
from mtpd.config.model import (
    BudgetConfig,
    Config,
    DrafterConfig,
    EngineConfig,
    HardwareProfile,
    Offload,
    Pool,
    Profile,
    Quality,
    ServerConfig,
    TuningConfig,
    TuningMode,
    Workload,
)
from tuner.types import Drafter

NAMES = ("a", "b", "with.dot")

drafters = st.builds(
    DrafterConfig,
    kind=st.sampled_from([Drafter.NONE, Drafter.MTP]),
    max_depth=st.integers(0, 2),
    depth=st.none() | st.integers(0, 1),
)


def profiles(name: str) -> st.SearchStrategy[Profile]:
    return st.builds(
        Profile,
        name=st.just(name),
        model=st.sampled_from(["/one.gguf", "/two.gguf"]),
        aliases=st.sampled_from([(), ("first",)]),
        context=st.sampled_from([2048, 4096]),
        n_gpu_layers=st.none() | st.integers(0, 1),
        threads=st.none() | st.integers(1, 2),
        offload=st.sampled_from(Offload),
        drafter=drafters,
        quality=st.none()
        | st.builds(Quality, perplexity=st.just(5.0), corpus=st.just("w"), chunks=st.just(1)),
    )


def tables(make: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    return st.dictionaries(st.sampled_from(NAMES), make)


configs = st.builds(
    Config,
    server=st.builds(
        ServerConfig,
        listen_port=st.integers(1, 2),
        control_socket=st.none() | st.just("/run/x.sock"),
        max_waiting=st.integers(1, 2),
        watch_config=st.booleans(),
    ),
    engine=st.builds(
        EngineConfig,
        binary=st.sampled_from(["auto", "embedded"]),
        threads=st.none() | st.integers(1, 2),
        extra_env=st.sampled_from([(), (("HIP_VISIBLE_DEVICES", "0"),)]),
    ),
    budget=st.builds(BudgetConfig, headroom_mib=st.integers(1, 2)),
    tuning=st.builds(TuningConfig, mode=st.sampled_from(TuningMode)),
    profiles=st.sets(st.sampled_from(NAMES)).flatmap(
        lambda names: st.fixed_dictionaries({name: profiles(name) for name in sorted(names)})
    ),
    pools=st.sets(st.sampled_from(NAMES)).flatmap(
        lambda names: st.fixed_dictionaries(
            {
                name: st.builds(
                    Pool, name=st.just(name), members=st.sampled_from([("a",), ("a", "b")])
                )
                for name in sorted(names)
            }
        )
    ),
    workloads=st.dictionaries(
        st.sampled_from(NAMES),
        st.builds(
            Workload,
            name=st.just("w"),
            description=st.sampled_from(["x", "y"]),
            max_tokens=st.just(1),
            prompts=st.just(()),
        ),
    ),
    hardware=st.none()
    | st.builds(
        HardwareProfile,
        name=st.just("card"),
        description=st.just(""),
        isa=st.just("gfx906"),
        vram_mib=st.integers(1, 2),
    ),
)


@given(configs)
def test_nothing_is_different_from_itself(config: Config) -> None:
    assert diff(config, config) == Changes()
    assert revised(config, config) == config
    assert not diff(config, config).applied


@given(configs, configs)
def test_what_is_in_force_is_the_new_one_but_for_what_needs_a_restart(
    old: Config, new: Config
) -> None:
    changes, now = diff(old, new), revised(old, new)
    rest = diff(now, new)
    assert not rest.applied
    assert rest.needs_restart == changes.needs_restart
    applied = diff(old, now)
    assert applied.needs_restart == ()
    assert applied == replace(changes, needs_restart=())


@given(configs, configs)
def test_no_difference_goes_untold(old: Config, new: Config) -> None:
    changes = diff(old, new)
    told = changes.applied or bool(changes.needs_restart)
    assert told == (old != new)
    assert (revised(old, new) == old) == (not changes.applied)


@given(configs, configs)
def test_every_model_is_told_in_one_place_by_what_its_engine_sees(old: Config, new: Config) -> None:
    changes = diff(old, new)
    places = (changes.added, changes.removed, changes.changed, changes.described)
    told = [name for names in places for name in names]
    assert len(told) == len(set(told))
    for name in {*old.profiles, *new.profiles} - set(told):
        assert old.profiles[name] == new.profiles[name]
    for name in changes.changed:
        assert engine_settings(old, name) != engine_settings(new, name)
    for name in changes.described:
        assert engine_settings(old, name) == engine_settings(new, name)


def test_every_part_of_the_configuration_is_known_to_be_applied_or_kept() -> None:
    """A part that is new here must be decided upon, in ``mtpd.config.diff`` or below."""
    kept = {"hardware", "groups"}
    now = revised(Config(sources=("old",)), Config(sources=("new",)))
    assert now.sources == ("new",)
    known = {"tuning", "pools", "profiles", "workloads", "remarks", "tokens"}
    known |= {"origins", "written", "sources"}
    partly = {"server", "engine", "budget"}
    assert {part.name for part in fields(Config)} == known | partly | kept
