"""Real programs are run: small shell scripts that answer ``--help``, and the embedded engine."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING

import anyio
import psutil
import pytest

from mtpd.engine import binary as module
from mtpd.engine.binary import find
from mtpd.errors import EXIT_FAILED, BinaryError

if TYPE_CHECKING:
    from pathlib import Path

PATH = "/usr/bin:/bin"


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def server(path: Path, corpus: Path, build: str = "b11434") -> Path:
    return program(path, f'[ "$1" = --help ] && cat {corpus}/help/{build}.txt')


async def failure(spec: str, path_env: str = PATH, timeout_s: float = 10.0) -> BinaryError:
    with pytest.raises(BinaryError) as caught:
        await find(spec, path_env=path_env, help_timeout_s=timeout_s)
    assert caught.value.exit_code == EXIT_FAILED
    assert caught.value.hint
    return caught.value


async def test_a_server_by_path_is_asked_what_it_can_do(tmp_path: Path, corpus: Path) -> None:
    path = server(tmp_path / "my-server", corpus)
    found = await find(str(path), path_env=PATH)
    assert found.argv == (str(path),)
    assert found.kind == "external"
    assert {"--ctx-size", "-c", "--spec-type"} <= found.flags
    assert "draft-mtp" in found.spec_types
    assert found.unix_socket
    assert found.label == f"llama-server at {path}"
    assert found.env == ()


async def test_auto_takes_the_one_on_the_path(tmp_path: Path, corpus: Path) -> None:
    path = server(tmp_path / "bin" / "llama-server", corpus)
    found = await find("auto", path_env=f"/nowhere:{tmp_path}/bin:{PATH}")
    assert found.argv == (str(path),)


async def test_a_bare_name_is_looked_up_on_the_path(tmp_path: Path, corpus: Path) -> None:
    path = server(tmp_path / "my-server", corpus)
    found = await find("my-server", path_env=f"{tmp_path}:{PATH}")
    assert found.argv == (str(path),)


async def test_relative_entries_of_the_path_are_not_searched(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(tmp_path / "llama-server", corpus)
    monkeypatch.chdir(tmp_path)
    assert (await find("auto", path_env=f".::{PATH}")).kind == "embedded"


async def test_auto_takes_the_embedded_engine_where_there_is_none_on_the_path() -> None:
    found = await find("auto", path_env="/nowhere")
    assert found.kind == "embedded"
    assert found.argv[1:] == ("-m", "mtpd.engine.embedded")
    assert {"--ctx-size", "--metrics", "--spec-draft-n-max"} <= found.flags
    assert "draft-mtp" in found.spec_types
    assert found.unix_socket
    assert version("xllamacpp") in found.label
    assert found == await find("embedded", path_env="/nowhere")


@pytest.mark.parametrize("spec", ["auto", "embedded"])
async def test_without_any_engine_the_hint_is_the_install_command(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EMBEDDED_WHEEL", "no_such_wheel")
    error = await failure(spec, "/nowhere")
    assert "embedded engine is not installed" in str(error)
    assert "pip install 'mtpd[embedded]'" in str(error.hint)


async def test_a_path_that_does_not_exist_is_named() -> None:
    assert str(await failure("/no/where")) == (
        "There is no llama-server at /no/where: the file does not exist."
    )
    assert str(await failure("no-such-program")) == (
        "There is no program 'no-such-program' on the PATH."
    )


async def test_a_folder_and_a_file_that_cannot_be_executed_are_told_apart(tmp_path: Path) -> None:
    assert str(await failure(str(tmp_path))) == f"{tmp_path} is not a program."
    plain = tmp_path / "plain"
    plain.write_text("")
    error = await failure(str(plain))
    assert str(error) == f"{plain} is not executable."
    assert error.hint == f"chmod +x {plain}"


async def test_a_file_for_another_processor_is_told(tmp_path: Path) -> None:
    """An ELF header for a machine that does not exist."""
    path = tmp_path / "llama-server"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xff\xff" + bytes(44))
    path.chmod(0o755)
    assert "no program for this machine (wrong architecture" in str(await failure(str(path)))


async def test_a_missing_interpreter_is_not_told_as_a_missing_file(tmp_path: Path) -> None:
    path = program(tmp_path / "x", "")
    path.write_text("#!/no/such/interpreter\n")
    assert "its loader or interpreter is missing" in str(await failure(str(path)))


async def test_a_program_that_is_no_llama_server_is_told(tmp_path: Path) -> None:
    path = program(tmp_path / "x", "echo 'usage: x [-c FILE]'")
    assert str(await failure(str(path))) == (
        f"{path} is not a llama-server: its --help does not list --ctx-size."
    )


async def test_a_server_with_a_missing_library_is_quoted(tmp_path: Path) -> None:
    line = "x: error while loading shared libraries: libllama.so: cannot open shared object file"
    path = program(tmp_path / "x", f"echo '{line}' >&2; exit 127")
    assert (
        str(await failure(str(path))) == f"{path} --help ended with exit code 127, saying: {line}."
    )


async def test_a_server_that_dies_by_a_signal_is_told_with_its_name(tmp_path: Path) -> None:
    path = program(tmp_path / "x", "kill -ILL $$")
    assert str(await failure(str(path))) == f"{path} --help was killed by SIGILL."


async def test_a_server_that_hangs_is_ended_with_all_its_children(tmp_path: Path) -> None:
    path = program(tmp_path / "x", f"echo $$ > {tmp_path}/pid\nsleep 1000 & sleep 1000")
    assert str(await failure(str(path), timeout_s=0.5)) == (
        f"{path} does not answer --help within 0.5 s."
    )
    group = int((tmp_path / "pid").read_text())
    with anyio.fail_after(10):
        while _members(group):  # noqa: ASYNC110 - another process's end makes no event here
            await anyio.sleep(0.01)


def _members(group: int) -> list[int]:
    return [one.pid for one in psutil.process_iter() if _group(one.pid) == group]


def _group(pid: int) -> int | None:
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return None
        return os.getpgid(pid)
    except (psutil.Error, ProcessLookupError):
        return None


async def test_a_server_that_prints_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = program(tmp_path / "x", "head -c 30000000 /dev/zero")
    assert "is not a llama-server" in str(await failure(str(path)))


async def test_the_probe_sees_no_environment_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", "/x")
    path = program(tmp_path / "x", f"env > {tmp_path}/env; exit 3")
    with pytest.raises(BinaryError):
        await find(str(path), path_env=PATH, extra_env={"LD_LIBRARY_PATH": "/opt/rocm"})
    names = {line.split("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    ours = {"PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "GGML_NO_BACKTRACE", "LD_LIBRARY_PATH"}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == ours


async def test_the_digest_covers_the_binary_and_its_libraries(tmp_path: Path, corpus: Path) -> None:
    path = server(tmp_path / "bin" / "llama-server", corpus)
    beside = tmp_path / "bin" / "libggml-hip.so"
    beside.write_text("one")
    in_prefix = tmp_path / "lib" / "libllama.so.1"
    in_prefix.parent.mkdir()
    in_prefix.write_text("one")
    digests = [(await find(str(path), path_env=PATH)).digest]
    for file in (beside, in_prefix):
        file.write_text("two")
        digests.append((await find(str(path), path_env=PATH)).digest)
    server(path, corpus, "b10434")
    digests.append((await find(str(path), path_env=PATH)).digest)
    assert len(set(digests)) == 4
    (tmp_path / "lib" / "libother.so").write_text("not ours")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert (await find(str(link), path_env=PATH)).digest == digests[-1]
