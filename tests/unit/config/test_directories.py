from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mtpd.config.directories import Directories, find_config, private_directory
from mtpd.errors import EXIT_CONFIG, StateError

SYSTEMD = {
    "STATE_DIRECTORY": "/var/lib/mtpd:/var/lib/other",
    "RUNTIME_DIRECTORY": "/run/mtpd",
    "CACHE_DIRECTORY": "/var/cache/mtpd",
}
XDG = {
    "XDG_STATE_HOME": "/h/state",
    "XDG_RUNTIME_DIR": "/run/user/7",
    "XDG_CACHE_HOME": "/h/cache",
    "HOME": "/h",
}


def paths(directories: Directories) -> tuple[str, str, str]:
    return str(directories.state), str(directories.runtime), str(directories.cache)


def test_the_command_line_wins_over_systemd_and_xdg() -> None:
    chosen = Directories.resolve(
        SYSTEMD | XDG, state=Path("/a"), runtime=Path("/b"), cache=Path("/c")
    )
    assert paths(chosen) == ("/a", "/b", "/c")


def test_systemd_wins_over_xdg_and_its_first_directory_is_ours() -> None:
    assert paths(Directories.resolve(SYSTEMD | XDG)) == (
        "/var/lib/mtpd",
        "/run/mtpd",
        "/var/cache/mtpd",
    )


def test_xdg_is_the_place_of_a_user() -> None:
    assert paths(Directories.resolve(XDG)) == ("/h/state/mtpd", "/run/user/7/mtpd", "/h/cache/mtpd")


def test_with_a_home_only_everything_is_below_it() -> None:
    assert paths(Directories.resolve({"HOME": "/h"})) == (
        "/h/.local/state/mtpd",
        "/h/.local/state/mtpd/run",
        "/h/.cache/mtpd",
    )


def test_a_relative_xdg_path_is_ignored_as_its_specification_says() -> None:
    environment = {"HOME": "/h", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    assert Directories.resolve(environment).state == Path("/h/.local/state/mtpd")


def test_a_named_state_directory_is_enough_without_a_home() -> None:
    chosen = Directories.resolve({}, state=Path("/a"))
    assert paths(chosen) == ("/a", "/a/run", "/a/cache")


def test_without_any_place_the_error_says_what_to_name() -> None:
    with pytest.raises(StateError, match=r"Neither \$XDG_STATE_HOME nor \$HOME") as caught:
        Directories.resolve({})
    assert caught.value.hint == "Name one with --state-dir."
    assert caught.value.exit_code == EXIT_CONFIG


def test_they_are_made_for_their_owner_only(tmp_path: Path) -> None:
    made = Directories.resolve({"HOME": str(tmp_path)}).create()
    for path in (made.state, made.runtime, made.cache):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert made.create() == made


def test_the_control_socket_is_in_the_runtime_directory_unless_configured() -> None:
    directories = Directories.resolve(XDG)
    assert directories.control_socket(None) == Path("/run/user/7/mtpd/control.sock")
    assert directories.control_socket("/x.sock") == Path("/x.sock")


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StateError, match="is a symbolic link"):
        private_directory(tmp_path / "link")


def test_a_dangling_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(StateError):
        private_directory(tmp_path / "link")
    assert not (tmp_path / "nothing").exists()


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o770)
    with pytest.raises(StateError, match="can be written by other users") as caught:
        private_directory(open_to_all)
    assert caught.value.hint == f"chmod 700 {open_to_all}"
    open_to_all.chmod(0o1777)
    with pytest.raises(StateError, match="can be written by other users") as shared:
        private_directory(open_to_all)
    assert shared.value.hint == f"Name one of your own below it, e.g. {open_to_all}/mtpd."


def test_a_directory_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = private_directory(tmp_path / "own")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StateError, match=f"belongs to user {owner}, not to user {owner + 1}"):
        private_directory(path)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="is not a directory"):
        private_directory(tmp_path / "file")


def test_a_place_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be made: Not a directory"):
        private_directory(tmp_path / "file" / "below" / "deeper")


def test_the_users_configuration_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "mtpd" / "mtpd.toml"
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert find_config({"HOME": str(tmp_path)}) == file
    assert find_config({"XDG_CONFIG_HOME": str(tmp_path / ".config")}) == file


def test_no_configuration_file_is_none(tmp_path: Path) -> None:
    assert find_config({"HOME": str(tmp_path)}) is None
