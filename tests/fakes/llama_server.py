"""A scripted llama-server: `python -m tests.fakes.llama_server ARGS`, knobs in FAKE_LLAMA.

A real process with llama-server's flags, log lines, replies, exit codes and signals
(build b11434). It differs from the embedded engine where llama-server does: with a
stream open, the first SIGTERM only stops the tokens, a second one exits with 1.
The contract suite runs against it, so that it stays a verified fake.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.arguments import HELP, Arguments, BadArgumentsError, read
from tests.fakes.generation import Spec
from tests.fakes.gguf_bounds import complaint
from tests.fakes.http_api import Engine, application
from tests.fakes.log_lines import Log, Start, load_lines
from tests.fakes.script import VARIABLE, Script

if TYPE_CHECKING:
    from tests.fakes.card_memory import Share

VERSION = "version: 0.6.0-dev (build 0, commit unknown)\nbuilt with a test, for tests"
OUT_OF_MEMORY = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: "
    "allocating 1197.00 MiB on device 0: cudaMalloc failed: out of memory"
)
LISTENER_S = 0.01


def main(site_type: type[web.SockSite] = web.SockSite) -> int:
    """Read the command line and serve on such a site; returns the exit code."""
    try:
        arguments = read(sys.argv[1:])
    except BadArgumentsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the program's own output
        return 1
    if "--version" in arguments:
        print(VERSION, file=sys.stderr)  # noqa: T201 - the program's own output
        return 0
    if "--help" in arguments:
        print(HELP)  # noqa: T201 - the program's own output
        return 0
    model = arguments.text("--model")
    script = Script.parse(os.environ.get(VARIABLE, ""), model=Path(model).stem)
    log = Log(arguments.number("--verbosity", 3))
    _say_hello(script, log)
    if script.exit_code_at_start is not None:
        return _die(script.exit_code_at_start)
    return asyncio.run(_serve(script, log, arguments, site_type))


def _say_hello(script: Script, log: Log) -> None:
    log.say("I", "srv  llama_server: initializing ...")
    log.say("I", f"cmn  common_param: common_params_print_info: verbosity = {log.verbosity}")
    log.say("T", "cmn  common_param: device_info:")
    if script.device:
        device = script.device
        memory = f"({device.total_mib} MiB, {device.free_mib} MiB free)"
        log.say("T", f"cmn  common_param:   - {device.name:<8}: {device.description} {memory}")
    log.say("T", "cmn  common_param:   - CPU     : AMD EPYC (24105 MiB, 24105 MiB free)")
    for line in script.say_at_start:
        log.raw(line)


def _die(code: int) -> int:
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


async def _serve(
    script: Script, log: Log, arguments: Arguments, site_type: type[web.SockSite]
) -> int:
    slots = arguments.number("--parallel", -1)
    keys = arguments.text("--api-key", os.environ.get("LLAMA_API_KEY", ""))
    engine = Engine(
        script=script,
        log=log,
        spec=_spec(arguments),
        slots=slots if slots > 0 else 4,
        context=arguments.number("--ctx-size", 0) or 4096,
        seed=arguments.number("--seed", -1),
        keys=tuple(key for key in keys.split(",") if key),
        with_metrics="--metrics" in arguments,
        with_slots="--no-slots" not in arguments,
        model=arguments.text("--model"),
    )
    host, port = arguments.text("--host", "127.0.0.1"), arguments.number("--port", 8080)
    try:
        listener = _listen(host, port)
    except OSError:
        where = f"hostname: {host}, port: {port}"
        log.say("E", f"srv         start: couldn't bind HTTP server socket, {where}")
        return _give_up(log, "exiting due to HTTP server error")
    runner = web.AppRunner(application(engine), handler_cancellation=True, access_log=None)
    await runner.setup()
    site = site_type(runner, listener)
    await site.start()
    lines = await _load(engine, arguments)
    if not lines:
        return _give_up(log, "exiting due to model loading error")
    share = _share(engine, lines)
    if share is not None:
        share.take()
    _announce(engine, listener)
    await _until_stopped(engine, site)
    log.say("I", "srv    operator(): operator(): cleaning up before exit...")
    await asyncio.sleep(script.slow_exit_s)
    if share is not None:
        share.give_back()
    sys.stderr.flush()
    os._exit(0)


def _give_up(log: Log, why: str) -> int:
    log.say("I", "srv    operator(): operator(): cleaning up before exit...")
    log.say("E", f"srv  llama_server: {why}")
    sys.stderr.flush()
    os._exit(1)


def _spec(arguments: Arguments) -> Spec:
    if "draft-mtp" not in arguments.text("--spec-type").split(","):
        return Spec()
    rates = arguments.text("--spec-synth-rates")
    synthetic = tuple(float(rate) for rate in rates.split(",")) if rates else ()
    return Spec(arguments.number("--spec-draft-n-max", 3), synthetic)


def _listen(host: str, port: int) -> socket.socket:
    """Bind as llama-server does: a socket file that is there already is in use."""
    family = socket.AF_UNIX if host.endswith(".sock") else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(host if family == socket.AF_UNIX else (host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _share(engine: Engine, lines: list[str]) -> Share | None:
    """What it takes of the fake card, if there is one."""
    if engine.script.machine is None:
        return None
    from tests.fakes.card_memory import Share  # noqa: PLC0415 - few engines need it

    return Share(engine.script, lines, depth=engine.spec.depth)


async def _load(engine: Engine, arguments: Arguments) -> list[str]:
    """Write the log of a load; returns its lines, none if it failed."""
    script, log = engine.script, engine.log
    start = Start(
        model=engine.model,
        slots=engine.slots,
        context=engine.context,
        depth=engine.spec.depth,
        layers_on_device=arguments.number("--gpu-layers", -1)
        if "--gpu-layers" in arguments
        else None,
    )
    why = complaint(Path(engine.model))
    if why is not None:
        log.say("I", f"srv    load_model: loading model '{engine.model}'")
        log.say("E", why)
        log.say("E", "llama_model_load_from_file_impl: failed to load model")
        log.say("E", f"srv    load_model: failed to load model, '{engine.model}'")
        return []
    lines = list(load_lines(script, start))
    log.say(*lines[0])
    if script.load_stall:
        await asyncio.Event().wait()
    for line in script.say_while_loading:
        log.raw(line)
    for number in range(script.spam_log):
        log.raw(f"noise {number} {'x' * 200}")
    await asyncio.sleep(script.load_s)
    if _runs_out(script, engine.spec.depth):
        log.say("E", OUT_OF_MEMORY)
        log.say("E", f"srv    load_model: failed to load model, '{engine.model}'")
        return []
    for kind, text in lines[1:]:
        log.say(kind, text)
    return [text for _, text in lines]


def _runs_out(script: Script, depth: int) -> bool:
    """Whether the card lacks the memory for this depth."""
    if script.oom_at_depth is None or depth < script.oom_at_depth:
        return False
    if script.oom_below_mib is None or script.machine is None:
        return True
    from tests.fakes.card_memory import free  # noqa: PLC0415 - few engines need it

    return free(Path(script.machine)) < script.oom_below_mib * 2**20


def _announce(engine: Engine, listener: socket.socket) -> None:
    name = listener.getsockname()
    url = f"unix://{name}" if isinstance(name, str) else f"http://{name[0]}:{name[1]}"
    if engine.script.hold_stdout_grandchild:
        subprocess.Popen(["/bin/sleep", "600"], stdin=subprocess.DEVNULL)
    engine.ready = True
    engine.log.say("I", "srv  llama_server: model loaded")
    engine.log.say("I", f"srv  llama_server: listening on {url}")
    engine.log.say("T", "srv  update_slots: all slots are idle")


async def _until_stopped(engine: Engine, site: web.SockSite) -> None:
    """Return when a signal came and the last client has left."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if engine.script.ignore_sigterm:
            return
        if engine.stopping.is_set():
            engine.log.raw("Received second interrupt, terminating immediately.")
            os._exit(1)
        engine.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await engine.stopping.wait()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(site.stop(), LISTENER_S)
    if engine.open_requests:
        await engine.empty.wait()


if __name__ == "__main__":
    sys.exit(main())
