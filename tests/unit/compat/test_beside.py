"""Files of mtpd beside a file of another program: what takes part, and that it is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from mtpd.cli.config_commands import check
from mtpd.cli.import_command import import_
from mtpd.config.data import profiles_dir
from mtpd.config.load import load
from mtpd.config.remarks import remark_text
from mtpd.errors import ConfigError

FLAGS = "-c 8192 -np 2 -ngl 20 -ctk q8_0 -ctv q4_0 -ub 256 -b 128"
SWAP = "models:\n  m:\n    cmd: llama-server --port ${{PORT}} -m /m.gguf {flags}\n{more}"
SHIPPED = "tiny-chained"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(flags: str = "", more: str = "") -> Path:
    path = Path("config.yaml")
    path.write_text(SWAP.format(flags=flags, more=more))
    return path


def imported() -> None:
    """What an earlier import left beside the file."""
    result = CliRunner().invoke(import_, ["config.yaml"])
    assert result.exit_code == 0, result.output


def remarks(path: Path, **overrides: object) -> list[str]:
    changed = {name.replace("__", "."): value for name, value in overrides.items()}
    return [remark_text(one) for one in load(path, overrides=changed).remarks]


@pytest.mark.usefixtures("folder")
def test_flags_that_are_taken_away_are_not_found_again_in_imported_files() -> None:
    write(FLAGS)
    imported()
    profile = load(write()).profiles["m"]
    assert (profile.context, profile.slots, profile.n_gpu_layers) == (4096, 1, None)
    assert profile.kv_type == "f16"
    told = remarks(Path("config.yaml"))
    assert (
        "config.yaml:2: models.m.-c: changed: no context means the whole context of the"
        in (told[0])
    )
    assert told[0].endswith("; in force is 4096 (default)")
    assert told[1].endswith(" four to llama-server; in force is 1 (default)")
    assert told[-1] == (
        "config.yaml:1: profiles.models: note: profiles/models belongs to an mtpd.toml: no"
        " profile of a model there takes part"
    )


@pytest.mark.usefixtures("folder")
def test_a_mistyped_table_of_models_is_not_served_from_imported_files() -> None:
    path = write(FLAGS)
    imported()
    path.write_text(path.read_text().replace("models:", "model:"))
    assert load(path).profiles == {}
    assert any("model: not honoured: this key is not known" in one for one in remarks(path))


@pytest.mark.usefixtures("folder")
def test_a_pool_cannot_name_an_imported_file() -> None:
    path = write(FLAGS)
    imported()
    path.write_text("mtpd: {pools: {p: {members: [m]}}}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.problems == (
        "config.yaml:1: mtpd.pools.p.members.0: there is no model 'm'",
    )


def test_a_preset_file_is_read_alone_too(folder: Path) -> None:
    write(FLAGS)
    imported()
    (folder / "preset.ini").write_text("[m]\nmodel = /m.gguf\n")
    assert load(folder / "preset.ini").profiles["m"].context == 4096


def test_the_imported_files_are_read_with_their_own_mtpd_toml(folder: Path) -> None:
    write(FLAGS)
    imported()
    assert load(folder / "mtpd.toml").profiles["m"].context == 8192
    assert load(folder / "mtpd.toml").remarks == ()


@pytest.mark.usefixtures("folder")
def test_a_shipped_profile_that_a_pool_names_is_told() -> None:
    path = write("-c 512 -np 1", f"mtpd: {{pools: {{p: {{members: [m, {SHIPPED}]}}}}}}\n")
    assert set(load(path).profiles) == {"m", SHIPPED}
    file = profiles_dir() / "models" / f"{SHIPPED}.toml"
    assert f"config.yaml:1: profiles.models.{SHIPPED}: note: {file} takes part" in remarks(path)


def test_hardware_and_workloads_beside_the_file_are_told(folder: Path) -> None:
    path = write("-c 512 -np 1", "mtpd: {budget: {hardware: mine}}\n")
    assert not any("takes part" in one for one in remarks(write("-c 512 -np 1")))
    for kind, name in (("hardware", "gfx906-16g-150w"), ("workloads", "prose")):
        (folder / "profiles" / kind).mkdir(parents=True)
        shutil.copy(
            profiles_dir() / kind / f"{name}.toml", folder / "profiles" / kind / "mine.toml"
        )
    path = write("-c 512 -np 1", "mtpd: {budget: {hardware: mine}}\n")
    told = remarks(path)
    for kind in ("hardware", "workloads"):
        place = f"profiles/{kind}/mine.toml"
        assert f"config.yaml:1: profiles.{kind}.mine: note: {place} takes part" in told


@pytest.mark.usefixtures("folder")
def test_a_remark_tells_the_value_that_is_in_force() -> None:
    more = "    metadata: {mtpd: {kv_type: q4_0, context: 1024, slots: 2, ubatch: 64}}\n"
    told = remarks(write("-ctk q8_0 -ctv q4_0 -ub 256 -b 128", more))
    for words in (
        "whole context of the model to llama-server; in force is 1024 (config.yaml:4)",
        "the one with more bits; in force is q4_0 (config.yaml:4)",
        "which it may not exceed; in force is 64 (config.yaml:4)",
    ):
        assert sum(words in one for one in told) == 1, told


@pytest.mark.usefixtures("folder")
def test_a_value_of_its_own_line_is_not_told_twice() -> None:
    told = remarks(write(FLAGS + " --spec-type mtp"))
    assert len(told) == 6
    assert not any("in force" in one for one in told)
    (found,) = [one for one in remarks(write(FLAGS), models__m__kv_type="f16") if "in force" in one]
    assert found.endswith("; in force is f16 (command line)")


@pytest.mark.usefixtures("folder")
def test_a_value_of_the_command_line_is_the_one_in_force() -> None:
    told = remarks(write(), models__m__context=2048)
    assert told[0].endswith("; in force is 2048 (command line)")


@pytest.mark.usefixtures("folder")
def test_a_mistake_points_to_the_page_about_foreign_files() -> None:
    path = write("-c many")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.hint is not None
    assert "docs/migrating.md" in caught.value.hint
    checked = CliRunner().invoke(check, ["--config", "config.yaml"])
    assert isinstance(checked.exception, ConfigError)
    assert checked.exception.hint == caught.value.hint
    Path("mtpd.toml").write_text("bogus = 1\n")
    with pytest.raises(ConfigError) as caught:
        load(Path("mtpd.toml"))
    assert caught.value.hint is not None
    assert "docs/configuration.md" in caught.value.hint
