"""Launch plans: what is refused before a process exists, endpoints, and the fingerprint."""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.data import bundled_model
from mtpd.config.load import load
from mtpd.config.model import DrafterConfig, Offload, Opaque
from mtpd.engine.launch import LaunchPlanner
from mtpd.engine.opaque import foreign_env
from mtpd.errors import BinaryError, EngineError
from mtpd.types import Command, EngineKey, HttpEndpoint, OpaqueStart, TcpEndpoint, UnixEndpoint
from mtpd.units import MIB, DeviceKey
from tests.unit.control.made import BINARY, arm, config, profile
from tuner.types import Arm, Drafter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mtpd.config.model import Profile
    from mtpd.types import EngineBinary, LaunchPlan

NO_SOCKETS = replace(BINARY, unix_socket=False)


@dataclass(frozen=True, slots=True)
class Bench:
    """A model file and a folder for sockets."""

    folder: Path
    model: Path

    def profile(self, **changes: Any) -> Profile:
        return profile("tiny", **{"model": str(self.model), **changes})

    def planner(
        self,
        which: Profile | None = None,
        *,
        binary: EngineBinary = BINARY,
        threads: int | None = None,
        **changes: Any,
    ) -> LaunchPlanner:
        tokens = (f"{number:012x}{'0' * 20}" for number in itertools.count(0xABC))
        plain: dict[str, Any] = {
            "device": DeviceKey("host"),
            "device_present": False,
            "sockets": self.folder,
            "home": self.folder / "home",
            "driver": None,
            "power_cap_w": None,
            "new_token": lambda: next(tokens),
            "free_port": lambda: 4711,
        }
        return LaunchPlanner(
            binary=binary,
            **{"config": config(which or self.profile(), threads=threads), **plain, **changes},
        )

    def digest(self, which: Profile | None = None, **changes: Any) -> str:
        made = which or self.profile()
        return self.planner(made, **changes).fingerprint(made).digest


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    model = tmp_path / "model.gguf"
    shutil.copy(bundled_model("tiny-chained.gguf"), model)
    return Bench(tmp_path, model)


def value(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def refused(bench: Bench, which: Profile | None = None) -> EngineError:
    with pytest.raises(EngineError) as caught:
        bench.planner(which).plan(arm())
    assert caught.value.failure == "config"
    assert caught.value.hint
    return caught.value


def test_a_plan_says_all_that_a_start_needs(bench: Bench) -> None:
    made = bench.planner(threads=2).plan(arm(depth=2))
    assert made.key == EngineKey(DeviceKey("host"), "tiny")
    assert made.arm == arm(depth=2)
    assert made.command.argv[0] == BINARY.argv[0]
    assert value(made.command.argv, "--model") == str(bench.model)
    assert value(made.command.argv, "--spec-draft-n-max") == "2"
    assert value(made.command.argv, "--threads") == "2"
    assert made.fingerprint == bench.digest(threads=2)
    assert made.load_stall_s == 120.0
    assert not made.accept_offload
    assert bench.planner(bench.profile(offload=Offload.ACCEPT)).plan(arm()).accept_offload


def test_an_engine_listens_on_a_private_socket_of_its_own(bench: Bench) -> None:
    planner = bench.planner()
    first, second = planner.plan(arm()), planner.plan(arm())
    assert isinstance(first.endpoint, UnixEndpoint)
    assert isinstance(second.endpoint, UnixEndpoint)
    assert first.endpoint.path != second.endpoint.path
    assert first.endpoint.path.startswith(str(bench.folder))
    assert value(first.command.argv, "--host") == first.endpoint.path


def test_an_engine_on_a_socket_gets_a_key_that_the_name_of_the_socket_does_not_tell(
    bench: Bench,
) -> None:
    planner = bench.planner()
    keys = set()
    for made in (planner.plan(arm()), planner.plan(arm())):
        assert isinstance(made.endpoint, UnixEndpoint)
        key = made.endpoint.api_key
        assert made.command.env["LLAMA_API_KEY"] == key
        assert not any(key in word for word in made.command.argv)
        assert key not in repr(made)
        assert not key.startswith(made.endpoint.path.rpartition("/")[2].removesuffix(".sock"))
        keys.add(key)
    assert len(keys) == 2


def test_a_path_that_is_too_long_for_a_socket_falls_back_to_a_port_with_a_key(
    bench: Bench,
) -> None:
    # 12 characters of the token and ".sock" follow the folder and its slash.
    long = bench.folder / ("x" * (100 - len(str(bench.folder)) - 1 - len("/000000000000.sock")))
    fits = bench.planner(sockets=long).plan(arm()).endpoint
    assert isinstance(fits, UnixEndpoint)
    assert len(fits.path) == 100
    made = bench.planner(sockets=long.with_name(f"{long.name}x")).plan(arm())
    assert isinstance(made.endpoint, TcpEndpoint)
    assert (made.endpoint.host, made.endpoint.port) == ("127.0.0.1", 4711)
    assert len(made.endpoint.api_key) == 32
    assert value(made.command.argv, "--port") == "4711"


def test_bytes_count_for_a_socket_path_not_letters(bench: Bench) -> None:
    letters = (100 - len(str(bench.folder)) - 1 - len("/000000000000.sock")) // 2
    assert isinstance(
        bench.planner(sockets=bench.folder / ("ä" * letters)).plan(arm()).endpoint, UnixEndpoint
    )
    assert isinstance(
        bench.planner(sockets=bench.folder / ("ä" * (letters + 1))).plan(arm()).endpoint,
        TcpEndpoint,
    )


def test_an_engine_without_unix_sockets_gets_a_key_in_its_environment_only(bench: Bench) -> None:
    planner = bench.planner(binary=NO_SOCKETS)
    first, second = planner.plan(arm()), planner.plan(arm(depth=1))
    for made in (first, second):
        assert isinstance(made.endpoint, TcpEndpoint)
        key = made.endpoint.api_key
        assert made.command.env["LLAMA_API_KEY"] == key
        assert not any(key in word for word in made.command.argv)
        assert key not in repr(made.endpoint)
        assert value(made.command.argv, "--host") == "127.0.0.1"
    assert first.command.env["LLAMA_API_KEY"] != second.command.env["LLAMA_API_KEY"]


def test_a_missing_model_file_is_refused_by_name(bench: Bench) -> None:
    bench.model.unlink()
    error = refused(bench)
    assert str(error) == (
        f"the model file of tiny cannot be read: {bench.model}: No such file or directory"
    )
    assert error.hint == "correct `model` in its profile, or put the file there"


def test_a_missing_drafter_file_is_refused_too(bench: Bench) -> None:
    drafter = DrafterConfig(
        kind=Drafter.DRAFT_MODEL, max_depth=3, model=str(bench.folder / "draft.gguf")
    )
    assert "draft.gguf: No such file" in str(refused(bench, bench.profile(drafter=drafter)))


def test_a_file_that_is_no_gguf_is_refused(bench: Bench) -> None:
    bench.model.write_text("not a model")
    error = refused(bench)
    assert str(error).startswith("the model file of tiny is damaged: ")
    assert error.hint == "download or copy the file again"


@pytest.mark.parametrize("kept", [0.9999, 0.5], ids=["its last bytes", "half"])
def test_a_file_without_the_end_of_its_tensors_is_refused(bench: Bench, kept: float) -> None:
    with bench.model.open("r+b") as file:
        file.truncate(int(bench.model.stat().st_size * kept))
    error = refused(bench)
    assert str(error) == (
        f"the model file of tiny is cut short: {bench.model} ends before its last tensor"
    )
    assert error.hint == "download or copy the file again"


def test_a_file_that_ends_in_its_header_is_refused(bench: Bench) -> None:
    with bench.model.open("r+b") as file:
        file.truncate(100)
    assert str(refused(bench)).startswith("the model file of tiny is damaged: ")


def test_a_folder_is_no_model(bench: Bench) -> None:
    bench.model.unlink()
    bench.model.mkdir()
    assert str(bench.model) in str(refused(bench))


def test_a_file_that_was_mended_is_taken_the_next_time(bench: Bench) -> None:
    whole = bench.model.read_bytes()
    bench.model.write_bytes(whole[:-1])
    planner = bench.planner()
    with pytest.raises(EngineError, match="cut short"):
        planner.plan(arm())
    bench.model.write_bytes(whole)
    assert planner.plan(arm()).arm == arm()


def test_a_file_that_was_cut_short_meanwhile_is_refused_the_next_time(bench: Bench) -> None:
    planner = bench.planner()
    assert planner.plan(arm()).arm == arm()
    with bench.model.open("r+b") as file:
        file.truncate(bench.model.stat().st_size // 2)
    with pytest.raises(EngineError, match="cut short"):
        planner.plan(arm())


def test_a_binary_without_a_needed_flag_is_refused_before_any_start(bench: Bench) -> None:
    blind = replace(BINARY, flags=BINARY.flags - {"--metrics"})
    with pytest.raises(BinaryError, match="does not know --metrics"):
        bench.planner(binary=blind).plan(arm())
    plain = replace(BINARY, spec_types=frozenset({"none"}))
    assert bench.planner(binary=plain).plan(arm()).arm == arm()
    with pytest.raises(BinaryError, match="no speculation of type"):
        bench.planner(binary=plain).plan(arm(depth=1))


def test_the_depth_is_not_in_the_fingerprint(bench: Bench) -> None:
    planner = bench.planner()
    prints = {planner.plan(arm(depth=depth)).fingerprint for depth in range(4)}
    deeper = bench.profile(drafter=DrafterConfig(kind=Drafter.MTP, max_depth=5, depth=2))
    assert prints == {bench.digest(), bench.digest(deeper)}
    assert len(prints) == 1


def test_two_starts_of_one_arm_have_one_fingerprint(bench: Bench) -> None:
    planner = bench.planner()
    assert planner.plan(arm()).fingerprint == planner.plan(arm()).fingerprint
    # Nor does it matter where the engine listens, which every start decides anew.
    assert bench.digest(sockets=bench.folder / ("x" * 100)) == bench.digest()


CHANGES: tuple[tuple[str, Callable[[Bench], str]], ...] = (
    ("the engine", lambda b: b.digest(binary=replace(BINARY, digest="0" * 64))),
    ("the context", lambda b: b.digest(b.profile(context=2048))),
    ("the slots", lambda b: b.digest(b.profile(slots=2))),
    ("the cache type", lambda b: b.digest(b.profile(kv_type="q8_0"))),
    ("the drafter's cache type", lambda b: b.digest(b.profile(draft_kv_type="q8_0"))),
    ("the model's threads", lambda b: b.digest(b.profile(threads=3))),
    ("the engine's threads", lambda b: b.digest(threads=2)),
    ("the drafter", lambda b: b.digest(b.profile(drafter=DrafterConfig()))),
    ("the device", lambda b: b.digest(device=DeviceKey("0000:03:00.0"))),
    ("the driver", lambda b: b.digest(driver="6.10.5")),
    ("the power cap", lambda b: b.digest(power_cap_w=150.0)),
)


@pytest.mark.parametrize("change", [c for _, c in CHANGES], ids=[name for name, _ in CHANGES])
def test_what_a_result_depends_on_changes_the_fingerprint(
    bench: Bench, change: Callable[[Bench], str]
) -> None:
    assert change(bench) != bench.digest()


@pytest.mark.parametrize(
    ("gate", "on_card", "differs"),
    [("absolute", True, False), ("relative", True, True), ("relative", False, False)],
)
def test_a_gate_without_a_temperature_changes_the_fingerprint_of_a_card(
    bench: Bench,
    gate: str,
    on_card: bool,  # noqa: FBT001
    differs: bool,  # noqa: FBT001
) -> None:
    which = bench.profile()
    hardware = load(None, overrides={"budget.hardware": "gfx906-16g-150w"}).hardware
    assert hardware is not None
    planner = bench.planner(
        which,
        device_present=on_card,
        config=replace(config(which), hardware=replace(hardware, gate=gate)),
        power_cap_w=150.0,
    )
    same = bench.planner(which, device_present=on_card, power_cap_w=150.0).fingerprint(which)
    assert (planner.fingerprint(which).digest != same.digest) == differs


@pytest.mark.parametrize(("on_card", "differs"), [(True, False), (False, True)])
def test_a_declared_cap_is_the_one_of_the_fingerprint_whatever_the_card_had_at_the_start(
    bench: Bench,
    on_card: bool,  # noqa: FBT001
    differs: bool,  # noqa: FBT001
) -> None:
    which = bench.profile()
    hardware = load(None, overrides={"budget.hardware": "gfx906-16g-150w"}).hardware
    assert hardware is not None
    assert hardware.power_cap_w == 150.0
    digests = {
        bench.planner(
            which,
            device_present=on_card,
            config=replace(config(which), hardware=hardware),
            power_cap_w=cap_w,
        )
        .fingerprint(which)
        .digest
        for cap_w in (150.0, 190.0, None)
    }
    assert (len(digests) > 1) == differs


def test_the_file_changes_the_fingerprint_by_its_time_alone(bench: Bench) -> None:
    planner, which = bench.planner(), bench.profile()
    before = planner.fingerprint(which).digest
    os.utime(bench.model, ns=(1, 1))
    assert planner.fingerprint(which).digest != before


def test_another_file_of_the_same_size_and_time_is_another_model(bench: Bench) -> None:
    before, found = bench.digest(), bench.model.stat()
    name = b"general.name"
    changed = bench.model.read_bytes().replace(name, name.upper(), 1)
    bench.model.write_bytes(changed)
    os.utime(bench.model, ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert bench.model.stat().st_size == found.st_size
    assert bench.digest() != before


def test_the_threads_of_a_profile_come_before_the_engines(bench: Bench) -> None:
    which = bench.profile(threads=3)
    assert bench.digest(which, threads=2) == bench.digest(which)
    made = bench.planner(which, threads=2).plan(Arm(profile="tiny"))
    assert value(made.command.argv, "--threads") == "3"


def test_the_files_of_a_model_are_told_apart_by_size_and_time_also_its_drafter(
    bench: Bench,
) -> None:
    draft = bench.folder / "draft.gguf"
    drafter = DrafterConfig(kind=Drafter.DRAFT_MODEL, max_depth=3, model=str(draft))
    mine = bench.profile(drafter=drafter)
    before = LaunchPlanner.files(mine)
    assert before == ((bench.model.stat().st_size, bench.model.stat().st_mtime_ns), None)
    draft.write_bytes(b"12345")
    os.utime(draft, ns=(1, 1))
    assert LaunchPlanner.files(mine) == (before[0], (5, 1))
    os.utime(bench.model, ns=(1, 1))
    assert LaunchPlanner.files(mine) != (before[0], (5, 1))


# Programs that are no llama-server ------------------------------------------------------

PROGRAM = Opaque(
    command=("sh", "-c", "serve ${PORT}"),
    proxy="http://127.0.0.1:${PORT}/api",
    check="/ready",
    env=(("URL", "at ${PORT}"), ("HOME", "/its")),
)
SHELL = shutil.which("sh")


def foreign(bench: Bench, **changes: Any) -> LaunchPlan:
    which = profile("w", max_depth=0, model="", opaque=PROGRAM, **{"vram_mib": 900, **changes})
    env = {"PATH": os.environ["PATH"], "HOME": "/daemons", "LANG": "C"}
    return bench.planner(which, foreign_env=env, device_env={"HIP_VISIBLE_DEVICES": "1"}).plan(
        arm("w")
    )


def test_a_program_is_planned_as_it_is_written_with_a_free_port(bench: Bench) -> None:
    plan = foreign(bench, stop_command=("sh", "-c", "stop ${PORT} ${PID}"))
    assert plan.command.argv == (SHELL, "-c", "serve 4711")
    assert plan.endpoint == HttpEndpoint("http://127.0.0.1:4711/api")
    assert plan.command.env == {
        "PATH": os.environ["PATH"],
        "HOME": "/its",
        "LANG": "C",
        "HIP_VISIBLE_DEVICES": "1",
        "URL": "at 4711",
    }
    assert plan.stop_command == Command(
        argv=(SHELL or "", "-c", "stop 4711 ${PID}"), env=plan.command.env
    )
    assert plan.opaque == OpaqueStart(check="/ready")
    assert plan.memory_bytes == 900 * MIB


def test_a_program_is_waited_for_as_long_as_in_llama_swap(bench: Bench) -> None:
    plan = foreign(bench)
    assert (plan.ready_timeout_s, plan.load_stall_s, plan.stop_timeout_s) == (120.0, 120.0, 4.0)
    plan = foreign(bench, ready_timeout_s=600.0, stop_timeout_s=9.0)
    assert (plan.ready_timeout_s, plan.load_stall_s, plan.stop_timeout_s) == (600.0, 600.0, 9.0)


def test_an_engine_has_half_an_hour_and_its_own_way_to_end(bench: Bench) -> None:
    assert bench.planner().plan(arm()).ready_timeout_s == 1800.0
    assert bench.planner().plan(arm()).stop_command is None
    which = bench.profile(stop_command=("sh", "-c", "x"), ready_timeout_s=60.0)
    plan = bench.planner(which, foreign_env={"PATH": os.environ["PATH"]}).plan(arm())
    assert plan.ready_timeout_s == 60.0
    assert plan.stop_command is not None
    assert plan.stop_command.argv == (SHELL, "-c", "x")


def test_two_programs_are_told_apart(bench: Bench) -> None:
    planner = bench.planner()
    one = profile("w", max_depth=0, model="", opaque=PROGRAM)
    other = replace(one, opaque=replace(PROGRAM, check=None))
    assert planner.digest(one) == planner.digest(one) != planner.digest(other)
    assert planner.digest(replace(one, vram_mib=1)) == planner.digest(one), "it is only said"
    assert planner.digest(bench.profile()) == planner.fingerprint(bench.profile()).digest


def test_only_some_of_the_daemons_variables_are_handed_on() -> None:
    given = {"HOME": "/h", "SECRET": "s", "XDG_RUNTIME_DIR": "/r", "PATH": "/other"}
    assert foreign_env("/bin", given) == {"PATH": "/bin", "HOME": "/h", "XDG_RUNTIME_DIR": "/r"}
