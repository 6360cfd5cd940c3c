"""Finding a llama-server and asking it what it can do.

Runs ``--help`` and nothing else: whether the binary survives loading a model is found
out by the first start, whose failure is classified (``mtpd.engine.failures``).
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, Signals
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

import mtpd
from mtpd.config.directories import is_file, is_there
from mtpd.engine.flags import can_listen_on_unix_socket, parse_help
from mtpd.errors import BinaryError
from mtpd.types import EngineBinary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anyio.abc import ByteReceiveStream

__all__ = ["EMBEDDED_WHEEL", "OTHER_HINT", "digest_of", "find", "help_of", "named", "on_path"]

EMBEDDED_WHEEL = "xllamacpp"

_PROGRAM = "llama-server"
_NONE_HINT = "pip install 'mtpd[embedded]', or name a llama-server as binary under [engine]"
OTHER_HINT = "name another one as binary under [engine], or 'embedded'"
_HELP_TIMEOUT_S = 20.0
_MAX_HELP_BYTES = 1024 * 1024
_CHUNK = 1024 * 1024
_LIBRARIES_OF_A_PREFIX = ("libllama*.so*", "libggml*.so*", "libmtmd*.so*")


async def find(
    spec: str,
    *,
    path_env: str,
    extra_env: Mapping[str, str] | None = None,
    help_timeout_s: float = _HELP_TIMEOUT_S,
) -> EngineBinary:
    """Find the engine that a configuration asks for.

    Args:
        spec: "auto" (``PATH``, then embedded), "embedded", a program name or a path.
        path_env: Value of ``PATH``; relative entries are not searched.
        extra_env: Variables that it is started with, e.g. ``LD_LIBRARY_PATH``.
        help_timeout_s: Seconds that ``--help`` may take.

    Raises:
        BinaryError: There is none, or it cannot be used.
    """
    if spec == "embedded":
        return await _embedded(help_timeout_s)
    if spec == "auto":
        found = on_path(_PROGRAM, path_env)
        if found is None and importlib.util.find_spec(EMBEDDED_WHEEL) is None:
            message = "No llama-server is on the PATH, and the embedded engine is not installed."
            raise BinaryError(message, hint=_NONE_HINT)
        if found is None:
            return await _embedded(help_timeout_s)
    else:
        found = named(spec, path_env)
    return await _external(found, dict(extra_env or {}), path_env, help_timeout_s)


def on_path(name: str, path_env: str) -> Path | None:
    """The program that a shell with this ``PATH`` would start; relative entries are skipped."""
    for folder in path_env.split(os.pathsep):
        candidate = Path(folder) / name
        if folder.startswith("/") and is_file(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def named(spec: str, path_env: str) -> Path:
    """The program that a path or a name means; it is not started.

    Raises:
        BinaryError: There is none.
    """
    if "/" not in spec:
        found = on_path(spec, path_env)
        if found is None:
            message = f"There is no program {spec!r} on the PATH."
            raise BinaryError(message, hint=OTHER_HINT)
        return found
    path = Path(spec)
    if not is_there(path):
        message = f"There is no llama-server at {path}: the file does not exist."
        raise BinaryError(message, hint=OTHER_HINT)
    if not path.is_file():
        message = f"{path} is not a program."
        raise BinaryError(message, hint="name the llama-server in it, not the folder")
    if not os.access(path, os.X_OK):
        message = f"{path} is not executable."
        raise BinaryError(message, hint=f"chmod +x {path}")
    return path


async def _external(
    path: Path, extra_env: Mapping[str, str], path_env: str, timeout_s: float
) -> EngineBinary:
    argv = (str(path),)
    text = await help_of(argv, {**extra_env, "PATH": path_env}, str(path), timeout_s)
    flags, types = _capabilities(text, str(path))
    return EngineBinary(
        argv=argv,
        kind="external",
        flags=flags,
        spec_types=types,
        digest=await to_thread.run_sync(digest_of, path),
        label=f"llama-server at {path}",
        unix_socket=can_listen_on_unix_socket(text),
    )


async def _embedded(timeout_s: float) -> EngineBinary:
    if importlib.util.find_spec(EMBEDDED_WHEEL) is None:
        message = "The embedded engine is not installed."
        raise BinaryError(message, hint="pip install 'mtpd[embedded]'")
    argv = (sys.executable, "-m", "mtpd.engine.embedded")
    env = _checkout_env()
    text = await help_of(argv, dict(env), "the embedded engine", timeout_s)
    flags, types = _capabilities(text, "the embedded engine")
    version = importlib.metadata.version(EMBEDDED_WHEEL)
    return EngineBinary(
        argv=argv,
        kind="embedded",
        flags=flags,
        spec_types=types,
        digest=hashlib.sha256(f"{EMBEDDED_WHEEL} {version}".encode()).hexdigest(),
        label=f"the embedded engine ({EMBEDDED_WHEEL} {version})",
        unix_socket=can_listen_on_unix_socket(text),
        env=env,
    )


def _checkout_env() -> tuple[tuple[str, str], ...]:
    """What makes ``-m mtpd...`` work in a child when mtpd itself is not installed."""
    root = Path(mtpd.__file__).resolve().parent.parent
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return () if root in installed else (("PYTHONPATH", str(root)),)


def _capabilities(text: str, label: str) -> tuple[frozenset[str], frozenset[str]]:
    flags, types = parse_help(text)
    if "--ctx-size" not in flags:
        message = f"{label} is not a llama-server: its --help does not list --ctx-size."
        raise BinaryError(message, hint=OTHER_HINT)
    return flags, types


async def help_of(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    label: str,
    timeout_s: float = _HELP_TIMEOUT_S,
    *,
    any_code: bool = False,
) -> str:
    """Run ``--help`` and return what it prints, with a reason where it prints nothing.

    Args:
        argv: The program.
        env: Its variables.
        label: What to call it in a sentence.
        timeout_s: How long it may take.
        any_code: Whether an exit code beside 0 is taken for an answer, as of llama-quantize.

    Raises:
        BinaryError: It cannot be started, does not answer, or ends badly.
    """
    try:
        with anyio.fail_after(timeout_s):
            code, out, err = await _run((*argv, "--help"), _probe_env(env))
    except TimeoutError:
        message = f"{label} does not answer --help within {timeout_s:g} s."
        raise BinaryError(message, hint=OTHER_HINT) from None
    except OSError as error:
        raise _cannot_execute(label, error) from error
    if code != 0 and not (any_code and code > 0):
        message = f"{label} --help {_ending(code)}{_said(err or out)}."
        raise BinaryError(message, hint=OTHER_HINT)
    return out


def _probe_env(env: Mapping[str, str]) -> dict[str, str]:
    nowhere = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
    return {**env, **nowhere, "LANG": "C.UTF-8", "GGML_NO_BACKTRACE": "1"}


async def _run(argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run to the end; leaving early for any reason kills it."""
    process = await anyio.open_process(
        argv, stdin=subprocess.DEVNULL, env=env, start_new_session=True
    )
    collected: dict[str, bytes] = {}

    async def collect(name: str, stream: ByteReceiveStream) -> None:
        collected[name] = await _read(stream)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, "out", _pipe(process.stdout))
            tasks.start_soon(collect, "err", _pipe(process.stderr))
            code = await process.wait()
    except BaseException:
        # The group: a wrapper script's children would keep the pipes open.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        raise
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()
    out, err = (collected[name].decode(errors="replace") for name in ("out", "err"))
    return code, out, err


def _pipe(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    if stream is None:
        raise TypeError("the process was opened without pipes")
    return stream


async def _read(stream: ByteReceiveStream) -> bytes:
    """All that is written, of which the beginning is kept."""
    kept = bytearray()
    async for chunk in stream:
        kept += chunk[: max(0, _MAX_HELP_BYTES - len(kept))]
    return bytes(kept)


def _cannot_execute(label: str, error: OSError) -> BinaryError:
    if error.errno == errno.ENOEXEC:
        message = f"{label} is no program for this machine (wrong architecture or damaged file)."
        return BinaryError(message, hint="install the build for this processor")
    if error.errno == errno.ENOENT:
        message = f"{label} cannot be started: its loader or interpreter is missing."
        return BinaryError(message, hint="install the build for this system")
    return BinaryError(f"{label} cannot be started: {error.strerror}.", hint=OTHER_HINT)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {Signals(-code).name}"
    return f"was killed by signal {-code}"


def _said(text: str) -> str:
    lines = text.strip().splitlines()
    return f", saying: {lines[-1].strip()[:200]}" if lines else ""


def digest_of(path: Path) -> str:
    """SHA-256 over the binary and its own libraries, each with its name."""
    binary = path.resolve()
    total = hashlib.sha256()
    for file in (binary, *_libraries(binary)):
        total.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                total.update(chunk)
    return total.hexdigest()


def _libraries(binary: Path) -> Iterable[Path]:
    """Shared objects beside the binary, and llama.cpp's own in the ``lib`` of its prefix."""
    beside = list(binary.parent.glob("*.so*"))
    prefix = binary.parent.parent / "lib"
    installed = [file for pattern in _LIBRARIES_OF_A_PREFIX for file in prefix.glob(pattern)]
    files = {file.resolve() for file in (*beside, *installed) if file.is_file()}
    return sorted(files, key=lambda file: (file.name, str(file)))
