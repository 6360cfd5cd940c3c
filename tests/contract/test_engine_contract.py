"""What mtpd relies on when it starts an engine: command line, readiness, failures.

Asked of the embedded engine, of the fake one, and of the user's own llama-server where
MTPD_TEST_LLAMA_SERVER names it. What a running engine owes is in
`test_engine_contract_serving.py`.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from mtpd.config.model import DrafterConfig, Profile
from mtpd.engine.client import EngineClient, Health
from mtpd.engine.command import build
from mtpd.engine.evidence import judge
from mtpd.engine.failures import classify
from mtpd.engine.flags import can_listen_on_unix_socket, parse_help
from mtpd.engine.logs import fact
from mtpd.types import EngineBinary, FailureClass, TcpEndpoint, UnixEndpoint, Value
from tests.contract.harness import (
    KINDS,
    MODEL,
    STOP_S,
    Kind,
    finished,
    running,
    serving,
    serving_on_a_port,
    until_ready,
)
from tests.contract.requests import MTP, completion
from tuner.types import Drafter

HALF_A_MODEL = Path(MODEL).read_bytes()[:2_000_000]

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", KINDS)]


class TestTheCommandLine:
    async def test_the_help_tells_flags_and_kinds_of_speculation(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        ended = await finished(kind, "--help", home=tmp_path)

        flags, types = parse_help(ended.stdout)

        assert ended.code == 0
        assert {"--model", "-m", "--ctx-size", "-np", "--spec-draft-n-max", "-lv"} <= flags
        assert {"none", "draft-mtp"} <= types
        assert can_listen_on_unix_socket(ended.stdout)

    async def test_it_starts_with_the_command_line_that_mtpd_builds(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        flags, types = parse_help((await finished(kind, "--help", home=tmp_path)).stdout)
        profile = Profile(
            name="tiny",
            model=MODEL,
            seed=1,
            kv_type="q8_0",
            flash_attention="on",
            batch=512,
            ubatch=256,
            drafter=DrafterConfig(kind=Drafter.MTP, max_depth=2, p_min=0.1),
        )
        where = tmp_path / "e.sock"
        command = build(
            binary=EngineBinary(
                argv=tuple(kind.argv),
                kind="embedded",
                flags=flags,
                spec_types=types,
                digest="",
                label=kind.name,
                unix_socket=True,
            ),
            profile=profile,
            arm=profile.arm(2),
            endpoint=UnixEndpoint(str(where)),
            threads=1,
            device_present=False,
            home=str(tmp_path),
        )
        arguments = command.argv[len(kind.argv) :]

        async with (
            running(kind, *arguments, home=tmp_path, env=command.env) as engine,
            EngineClient(UnixEndpoint(str(where))) as client,
        ):
            await until_ready(client)

            assert engine.alive()

    async def test_an_unknown_flag_ends_it_with_1_and_its_name(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        ended = await finished(kind, "--no-such-flag", home=tmp_path)

        assert ended.code == 1
        assert ended.log.startswith("error: invalid argument: --no-such-flag")

    async def test_a_bad_value_ends_it_with_1_and_the_flags_name(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        ended = await finished(kind, "-m", MODEL, "--spec-type", "mtp", home=tmp_path)

        assert ended.code == 1
        assert 'error while handling argument "--spec-type": unknown speculative type' in ended.log

    async def test_an_underscore_reads_as_a_dash(self, kind: Kind, tmp_path: Path) -> None:
        async with serving(kind, "--spec_type", "none", home=tmp_path) as (engine, _):
            assert engine.alive()


class TestTheStart:
    async def test_it_listens_on_a_unix_socket_and_is_the_process_that_was_started(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving(kind, home=tmp_path) as (engine, client):
            assert engine.said(f"listening on unix://{tmp_path}/engine.sock")
            assert await client.peer_pid() == Value(engine.process.pid, "SO_PEERCRED")

    async def test_it_listens_on_a_free_port_and_takes_the_key_from_its_environment(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving_on_a_port(kind, home=tmp_path, key="s3cret") as (engine, endpoint):
            wrong = TcpEndpoint(endpoint.host, endpoint.port, "other")
            async with EngineClient(endpoint) as client, EngineClient(wrong) as stranger:
                reply = await client.complete("/completion", completion(4), timeout_s=10)
                status, _ = await stranger.post_json("/completion", completion(4), timeout_s=10)

                assert await stranger.health() is Health.OK
                assert reply["tokens_predicted"] == 4
                assert status == 401
                assert "s3cret" not in engine.log

    async def test_health_goes_from_refused_over_loading_to_ok_and_never_back(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        where = tmp_path / "engine.sock"
        flags = ("-m", MODEL, "-np", "1", "-t", "1", "--host", str(where))
        async with (
            running(kind, *flags, home=tmp_path),
            EngineClient(UnixEndpoint(str(where))) as client,
        ):
            seen = await until_ready(client)

        assert seen == [
            state for state in (Health.REFUSED, Health.LOADING, Health.OK) if state in seen
        ]
        assert Health.OK in seen

    async def test_the_log_at_verbosity_4_proves_where_everything_lies(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with serving(kind, *MTP, "2", home=tmp_path) as (engine, _):
            pairs = [(line, found) for line in engine.lines if (found := fact(line)) is not None]

        assert judge(pairs).label == "host"
        for line in engine.lines:
            if any(
                word in line for word in ("buffer size =", "n_rs_seq ", "listening on", "n_max=")
            ):
                assert fact(line) is not None, line

    async def test_a_stale_socket_file_is_an_address_in_use(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        stale = tmp_path / "stale.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(stale))

        ended = await finished(kind, "-m", MODEL, "--host", str(stale), home=tmp_path)

        assert ended.code == 1
        assert "couldn't bind HTTP server socket" in ended.log
        assert "exiting due to HTTP server error" in ended.log

    async def test_a_taken_port_ends_it_with_1(self, kind: Kind, tmp_path: Path) -> None:
        with socket.socket(socket.AF_INET) as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]

            ended = await finished(kind, "-m", MODEL, "--port", str(port), home=tmp_path)

        assert ended.code == 1
        assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}" in ended.log

    async def test_a_missing_model_ends_it_with_1_and_the_path(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        path = str(tmp_path / "none.gguf")

        ended = await finished(kind, "-m", path, "--port", "0", home=tmp_path)

        assert ended.code == 1
        assert f"failed to open GGUF file '{path}'" in ended.log
        assert f"failed to load model, '{path}'" in ended.log
        assert "exiting due to model loading error" in ended.log
        failure = classify(
            exit_code=1, signal=None, ready_before=False, lines=ended.log.splitlines()
        )
        assert failure.failure is FailureClass.CONFIG

    async def test_a_truncated_model_ends_it_with_1_and_the_tensor(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        path = tmp_path / "half.gguf"
        path.write_bytes(HALF_A_MODEL)

        ended = await finished(kind, "-m", str(path), "--port", "0", home=tmp_path)

        assert ended.code == 1
        assert "data is not within the file bounds, model is corrupted or incomplete" in ended.log

    async def test_a_file_that_is_no_gguf_ends_it_with_1(self, kind: Kind, tmp_path: Path) -> None:
        path = tmp_path / "x.gguf"
        path.write_text("GARBAGE, not a model")

        ended = await finished(kind, "-m", str(path), "--port", "0", home=tmp_path)

        assert ended.code == 1
        assert "invalid magic characters: 'GARB', expected 'GGUF'" in ended.log

    async def test_a_signal_during_the_load_ends_it_at_once(
        self, kind: Kind, tmp_path: Path
    ) -> None:
        async with running(kind, "-m", MODEL, "--port", "0", home=tmp_path) as engine:
            await engine.until_said("initializing")

            os.kill(engine.process.pid, signal.SIGTERM)

            # 0 where the tiny model was ready before the signal came.
            assert await engine.exit_code(within_s=STOP_S) in {-signal.SIGTERM, 0}
