"""``mtpctl doctor`` finds what is planted, names the command that mends it, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import resource
import shutil
import socket
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.access import Scope
from mtpd.cli.doctor.look import Wanted
from mtpd.cli.install_command import install_units
from mtpd.clock import SystemClock
from mtpd.config import sandbox
from mtpd.store.token_file import TokenFile
from mtpd.units import MIB
from mtpd.views import ConfigFileView
from tests.fakes import devices, sysfs, views
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.cli.doctor.world import HELP, MOUNTS, World
from tests.unit.cli.offline import run

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_machine_that_is_well_has_no_finding(world: World) -> None:
    view = world.examine()
    assert view.findings == ()
    assert view.ok
    states = {check.name: check.state for check in view.checks}
    assert set(states.values()) == {"ok", "not_applicable"}
    assert states["engine"] == states["state"] == states["model files"] == "ok"


def test_a_card_that_is_well_has_no_finding(world: World) -> None:
    world.card()
    view = world.examine()
    assert view.findings == ()
    said = {check.name: check.says for check in view.checks}
    assert said["card"].startswith(sysfs.FIRST)
    assert said["power cap"] == "declared: the power cap is 150 W"
    assert said["sensor"] == "the edge is at 38 °C"


def test_the_demo_models_and_the_embedded_engine_are_well(world: World) -> None:
    path = world.configure("[engine]\nbinary = 'embedded'\n[pools.p]\nmembers = ['tiny-chained']\n")
    view = world.examine(Wanted(config=path))
    assert view.findings == ()
    assert next(one.says for one in view.checks if one.name == "engine").startswith("the embedded")


def test_a_key_that_there_is_not(world: World) -> None:
    path = world.configure(server="[server]\nlistn = 1\n")
    found = world.finds("configuration")
    assert "server.listn: unknown key; did you mean 'listen'?" in found.says
    assert found.fix == f"${{EDITOR:-vi}} +2 {path}"


def test_no_engine_at_all(world: World) -> None:
    path = world.configure("[engine]\nbinary = '/no/server'\n")
    found = world.finds("engine")
    assert "/no/server: the file does not exist. No model can be started." in found.says
    assert found.fix.startswith(f"${{EDITOR:-vi}} +4 {path}")


def test_an_engine_that_may_not_be_run(world: World) -> None:
    engine = world.engine("exit 0", mode=0o644)
    world.configure(f"[engine]\nbinary = {str(engine)!r}\n")
    found = world.finds("engine")
    assert "is not executable" in found.says
    assert found.fix == f"chmod +x {engine}"
    subprocess.run(found.fix, shell=True, check=True, env={"PATH": os.defpath})  # noqa: S602
    assert "is not executable" not in world.finds("engine").says, "the fix mends it"


def test_an_engine_for_another_processor(world: World) -> None:
    world.engine("kill -ILL $$")
    found = world.finds("engine")
    assert "was killed by SIGILL" in found.says
    assert "GGML_NATIVE=OFF" in found.fix


def test_an_engine_that_lacks_an_option_of_the_configuration(world: World) -> None:
    text = HELP.read_text().replace("--spec-draft-n-max", "--draft-most").replace("-mtp", "-eh")
    old = world.home / "help.txt"
    old.write_text(text)
    world.engine(f"exec /bin/cat {old}")
    found = world.finds("engine")
    assert found.says.startswith("m@2 cannot be started: ")
    assert "has no speculation of type draft-mtp" in found.says
    assert "a newer llama-server" in found.fix


def test_a_file_that_adds_options_to_every_engine(world: World) -> None:
    world.tree.write("etc/llama.cpp/config.ini", "ctx-size = 512\n")
    found = world.finds("hidden options")
    assert "adds options to every llama-server" in found.says
    assert found.fix == "sudo mv /etc/llama.cpp/config.ini /etc/llama.cpp/config.ini.off"


def test_a_users_file_and_variables_that_change_what_is_started_by_hand(world: World) -> None:
    ini = world.home / ".config/llama.cpp/config.ini"
    ini.parent.mkdir(parents=True)
    ini.write_text("")
    world.environment["LLAMA_ARG_CTX_SIZE"] = "512"
    found = world.examine().findings
    assert [one.severity for one in found] == ["warning", "warning"]
    assert found[0].fix == f"mv {ini} {ini}.off"
    assert found[1].fix == "unset LLAMA_ARG_CTX_SIZE"


def test_a_card_without_the_device_that_computes(world: World) -> None:
    world.card()
    world.tree.remove("dev/kfd")
    found = world.finds("card")
    assert found.says.startswith("/dev/kfd is not there")
    assert found.fix.startswith("sudo modprobe amdgpu")


def test_a_card_whose_driver_is_not_loaded(world: World) -> None:
    world.card()
    world.tree.remove(f"{sysfs.device()}/mem_info_vram_total")
    found = world.finds("card")
    assert f"a card ({sysfs.FIRST}) of AMD" in found.says
    assert found.fix.startswith("sudo modprobe amdgpu")


def test_a_card_of_nvidia_that_nobody_can_read(world: World) -> None:
    world.tree.write("sys/bus/pci/devices/0000:0b:00.0/class", "0x030200\n")
    world.tree.write("sys/bus/pci/devices/0000:0b:00.0/vendor", "0x10de\n")
    found = world.finds("card")
    assert "a card (0000:0b:00.0) of NVIDIA" in found.says
    assert found.fix == "pip install 'mtpd[nvidia]' && nvidia-smi"


def test_a_service_that_is_not_in_the_groups_of_the_card(world: World) -> None:
    world.card()
    world.service(("SupplementaryGroups=render video\n", ""))
    node = world.tree.root / "dev/kfd"
    node.chmod(0o660)
    group = node.stat().st_gid
    found = [one for one in world.examine().findings if one.check == "card"]
    assert [one.says.split(":")[0] for one in found] == ["nobody may not open /dev/kfd"]
    assert found[0].fix.startswith("sudo usermod -aG" if group else "sudo chgrp render /dev/kfd")


def test_a_driver_that_hangs(world: World) -> None:
    world.card()
    world.driver_s = 0.1
    sensor = world.tree.root / sysfs.device() / "mem_info_vram_total"
    sensor.unlink()
    os.mkfifo(sensor)  # a read of it waits for a writer
    found = world.finds("card")
    writer = os.open(sensor, os.O_RDWR | os.O_NONBLOCK)
    sensor.unlink()
    os.close(writer)
    for thread in threading.enumerate():
        if thread.name == "mtpd-telemetry":
            thread.join(20)
    assert found.says.startswith("the driver has not answered within 0.1 s")
    assert found.fix.startswith("sudo dmesg")


def test_a_power_cap_that_the_daemon_saw_the_card_exceed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.card()
    seen = devices.card()
    cap = dataclasses.replace(seen.power_cap, state="wrong", reason="the card drew 190 W")
    backend = ScriptedBackend()
    monkeypatch.setattr(devices, "card", lambda: dataclasses.replace(seen, power_cap=cap))
    backend.view = dataclasses.replace(views.status(), pid=os.getpid())
    with served_in_thread(backend, world.socket):
        found = [one for one in world.examine().findings if one.check == "power cap"]
    assert [one.says.split(";")[0] for one in found] == [f"{sysfs.FIRST}: the card drew 190 W"]


def test_a_power_cap_that_is_another(world: World) -> None:
    world.card()
    world.tree.sensors(cap_w=190)
    found = world.finds("power cap")
    assert "190 W, not the 150 W that are configured" in found.says
    assert found.fix.startswith("sudo mtpd powercap apply --config ")


def test_a_power_cap_that_nobody_declares(world: World) -> None:
    world.card(hardware="")
    found = world.finds("power cap")
    assert (found.severity, "no hardware profile declares one" in found.says) == ("warning", True)
    assert '# hardware = "NAME" under [budget]' in found.fix


def test_a_card_without_an_edge_sensor(world: World) -> None:
    world.card()
    world.tree.remove(f"{sysfs.hwmon()}/temp1_input")
    found = world.finds("sensor")
    assert "the edge temperature is unknown" in found.says
    assert found.fix.startswith("sudo dmesg")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else's, called llama-server."""
    program = tmp_path / "llama-server"
    shutil.copy("/bin/sleep", program)
    process = subprocess.Popen([str(program), "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_another_llama_server_on_the_card(world: World, other: subprocess.Popen[bytes]) -> None:
    world.card()
    world.tree.process(other.pid, vram_bytes=3072 * MIB)
    world.tree.process(1, vram_bytes=200 * MIB, name="Xorg")
    found = world.finds("memory users")
    assert f"llama-server (pid {other.pid})" in found.says
    assert "holds 3.00 GiB" in found.says
    assert found.fix.startswith(f"kill {other.pid} ")
    assert other.poll() is None, "it is never touched"


def test_a_port_that_is_taken(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        world.configure(server=f"[server]\nlisten = '127.0.0.1:{port}'\n")
        found = world.finds("port")
        assert f"(pid {os.getpid()}) listens on 127.0.0.1:{port} already" in found.says
        assert f"sudo ss -ltnp 'sport = :{port}'" in found.fix
    assert world.examine().ok, "the port is free again"


def test_a_control_socket_whose_path_is_too_long(world: World) -> None:
    path = f"/run/{'x' * 100}.sock"
    world.configure(server=f"[server]\nlisten = '127.0.0.1:0'\ncontrol_socket = {path!r}\n")
    found = world.finds("control socket")
    assert f"has {len(path)} bytes, and the kernel takes at most 107" in found.says
    assert 'control_socket = "/run/mtpd-control.sock"' in found.fix


def test_a_state_directory_that_others_may_write(world: World) -> None:
    world.state.mkdir(parents=True, mode=0o700)
    assert world.examine().ok
    world.state.chmod(0o770)
    found = world.finds("state")
    assert "can be written by other users" in found.says
    assert found.fix == f"chmod 700 {world.state}"


@pytest.mark.parametrize(("kind", "says"), [("nfs4", "write-ahead log"), ("tmpfs", "next boot")])
def test_a_state_directory_on_the_wrong_file_system(kind: str, says: str, world: World) -> None:
    world.state.mkdir(parents=True, mode=0o700)
    mount = f"40 22 0:50 / {world.state} rw - {kind} there rw\n"
    world.tree.write("proc/self/mountinfo", MOUNTS + mount)
    found = world.finds("state")
    assert says in found.says
    assert found.fix.startswith("mtpd serve --state-dir /var/lib/mtpd")


@pytest.mark.parametrize(("mount", "filesystem"), [("ro,relatime", "rw"), ("rw", "ro,data=x")])
def test_a_state_directory_that_takes_no_writes(mount: str, filesystem: str, world: World) -> None:
    world.state.mkdir(parents=True, mode=0o700)
    line = f"40 22 0:50 / {world.state} {mount} - ext4 /dev/sdb1 {filesystem}\n"
    world.tree.write("proc/self/mountinfo", MOUNTS + line)
    found = world.finds("state")
    assert "takes no writes" in found.says
    assert found.fix == f"sudo mount -o remount,rw {world.state}"


def test_a_model_file_that_is_not_there(world: World) -> None:
    world.model.unlink()
    found = world.finds("model files")
    assert f"models.m.model: {world.model} does not exist" in found.says
    assert found.fix.startswith("${EDITOR:-vi} +4 ")


def test_a_model_that_was_never_downloaded(world: World) -> None:
    path = world.configure()
    path.write_text(path.read_text().replace(f"{str(world.model)!r}", "'hf:org/name:Q4_K_M'"))
    assert world.finds("model files").fix == "hf download org/name --include '*Q4_K_M*.gguf'"


def test_a_download_that_was_cut_short(world: World) -> None:
    whole = world.model.read_bytes()
    world.model.write_bytes(whole[:-1000])
    found = world.finds("model files")
    assert "bytes of its tensors are missing" in found.says
    assert "fetch the file again" in found.fix


def test_a_model_on_a_network_file_system(world: World) -> None:
    world.tree.write(
        "proc/self/mountinfo", f"{MOUNTS}40 22 0:50 / {world.model} rw - nfs there rw\n"
    )
    found = world.finds("model files")
    assert "network file system (nfs" in found.says
    assert found.fix == f"sudo cp {world.model} /srv/models/"


def test_a_model_below_a_folder_that_the_service_may_not_enter(world: World) -> None:
    world.service()
    world.home.chmod(0o700)
    found = [one for one in world.examine().findings if one.check == "model files"]
    assert found[0].says.startswith("nobody may not enter ")
    assert found[0].fix.startswith("sudo chmod o+x ")


def test_a_model_that_the_sandbox_of_the_service_hides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.service(("User=nobody\n", "User=root\n"))
    monkeypatch.setattr(sandbox, "HIDDEN", (world.home,))
    found = [one for one in world.examine().findings if one.check == "model files"]
    assert "is hidden from the service" in found[0].says
    assert found[0].fix.endswith("/srv/models/m.gguf")


def test_control_groups_that_allow_less_than_a_model(world: World) -> None:
    world.tree.write("sys/fs/cgroup/memory.max", f"{64 * MIB}\n")
    world.tree.write("sys/fs/cgroup/memory.current", "0\n")
    found = world.finds("memory")
    assert "the control groups allow 64.0 MiB more" in found.says
    assert found.fix == "sudo systemctl set-property mtpd.service MemoryMax=infinity"


def test_too_few_files_may_be_open(world: World) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        found = world.finds("open files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.says.startswith("300 files may be open at once and 384 are needed")
    assert found.fix == f"ulimit -n {min(hard, 65536)}"


def test_tokens_that_others_can_read(world: World) -> None:
    file = TokenFile(world.state, SystemClock())
    file.add("laptop", frozenset({Scope.INFER}), expires=None)
    assert world.examine().ok
    file.path.chmod(0o644)
    found = world.finds("tokens")
    assert "is open to other users" in found.says
    assert found.fix == f"chmod 600 {file.path}"


def test_a_port_for_other_machines_without_a_token(world: World) -> None:
    world.configure(server="[server]\nlisten = '0.0.0.0:0'\nhosts = ['gpu.lan']\n")
    found = world.finds("tokens")
    assert "there is no access token" in found.says
    assert found.fix == "mtpd token add NAME"


def test_a_clock_that_is_wrong(world: World) -> None:
    world.clock._utc = datetime(1970, 1, 1, tzinfo=UTC)
    found = world.finds("clock")
    assert found.says.startswith("the clock says 1970")
    assert found.fix == "sudo timedatectl set-ntp true"


def test_a_proc_that_does_not_say_which_boot_this_is(world: World) -> None:
    world.tree.remove("proc/sys/kernel/random/boot_id")
    assert world.finds("clock").fix == "sudo mount -t proc proc /proc"


def test_a_unit_that_is_older_than_the_package(world: World) -> None:
    world.service(("WatchdogSec=20s\n", ""))
    found = [one for one in world.examine().findings if one.check == "units"]
    assert [one.severity for one in found] == ["warning"]
    assert "is not what this version of mtpd installs" in found[0].says
    assert found[0].fix == "sudo mtpd install-units --force && sudo systemctl daemon-reload"


@pytest.mark.parametrize("for_user", ["--user", None])
def test_units_that_were_just_installed_are_not_old(for_user: str | None, world: World) -> None:
    program = world.home / "bin/mtpd"
    program.touch(mode=0o755)
    config = world.configure(server="[server]\nlisten = '127.0.0.1:8099'\n")
    prefix = world.home / ".config" if for_user else world.tree.root / "etc"
    words = ("--program", str(program), "--config", str(config), "--prefix", str(prefix))
    done = run(install_units, *words, *((for_user,) if for_user else ()))
    assert done.exit_code == 0, done.output
    view = world.examine()
    found = [one.says for one in view.findings if one.check == "units"]
    assert [one for one in found if "no such user" not in one] == []
    if for_user:
        own = prefix / "systemd/user/mtpd.service"
        assert next(one.says for one in view.checks if one.name == "units") == str(own)


def test_a_unit_whose_program_and_user_are_gone(world: World) -> None:
    world.service(("User=nobody\n", "User=no-such-user\n"))
    (world.home / "bin/mtpd").unlink()
    found = [one for one in world.examine().findings if one.check == "units"]
    assert "which is not there" in found[0].says
    assert "there is no such user" in found[1].says
    assert found[1].fix.startswith("sudo systemd-sysusers")


def test_a_daemon_that_is_old_and_whose_model_left_the_card(world: World) -> None:
    view = views.status()
    engine = dataclasses.replace(view.engines[0], residency=views.residency("evicted"))
    backend = ScriptedBackend()
    backend.view = dataclasses.replace(
        view, pid=os.getpid(), version="0.0.1", engines=(engine,), unusable=()
    )
    with served_in_thread(backend, world.socket):
        found = [one for one in world.examine().findings if one.check == "daemon"]
    assert [one.severity for one in found] == ["error", "warning"]
    assert found[0].says.startswith(f"{views.QWEN}: evicted: ")
    assert found[0].fix == f"mtpctl models {views.QWEN}"
    assert "mtpd 0.0.1" in found[1].says
    assert found[1].fix == f"kill {os.getpid()} && mtpd serve"


def test_a_daemon_with_files_elsewhere_is_looked_at_where_it_says(world: World) -> None:
    backend = ScriptedBackend()
    backend.view = dataclasses.replace(
        views.status(), pid=os.getpid(), control_socket="/elsewhere/control.sock", listen="[::1]:9"
    )
    with served_in_thread(backend, world.socket):
        view = world.examine()
    said = {check.name: (check.state, check.says) for check in view.checks}
    assert said["port"] == ("ok", "[::1]:9 is the daemon")
    assert said["control socket"] == ("ok", "/elsewhere/control.sock")
    assert said["state"][0] == said["tokens"][0] == "unknown"
    assert "name --state-dir" in said["state"][1]
    assert "refused" not in said["tokens"][1]


@pytest.mark.parametrize(("here", "told"), [(True, False), (False, True)])
def test_the_file_of_the_daemon_is_read_wherever_it_lies(
    world: World, *, here: bool, told: bool
) -> None:
    found = world.configure()
    named = shutil.copy(found, Path.cwd() / "mtpd.toml")
    config = ConfigFileView(
        path=str(named if here else found),
        read_at="2026-11-29T20:41:12.000Z",
        watched=False,
        invalid_since=None,
        problems=(),
        needs_restart=(),
    )
    backend = ScriptedBackend()
    backend.view = dataclasses.replace(views.status(), pid=os.getpid(), config=config)
    with served_in_thread(backend, world.socket):
        said = [one.says for one in world.examine().findings if one.check == "configuration"]
    assert bool(said) is told, said


def test_a_daemon_that_hangs(world: World) -> None:
    world.answer_s = 0.05
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(world.socket))
        silent.listen()
        found = world.finds("daemon")
    assert "It hangs." in found.says
    assert found.fix == "sudo systemctl restart mtpd"
