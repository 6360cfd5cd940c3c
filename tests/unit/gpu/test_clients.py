"""Who holds the memory of an AMD card: group 10 of docs/gpu.md, "What is tested"."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from mtpd.gpu.sysfs import SysfsProvider
from mtpd.types import Absent, ProcessMemory, Value
from mtpd.units import MIB
from tests.fakes import sysfs

if TYPE_CHECKING:
    from pathlib import Path

MODEL = 14_680 * MIB


def _processes(
    tree: sysfs.Tree, *, pids: tuple[int, ...] | None = None
) -> tuple[ProcessMemory, ...]:
    found = SysfsProvider(files=tree.files()).processes(sysfs.FIRST, pids=pids)
    assert not isinstance(found, Absent)
    return found


def test_a_rocm_process_is_counted_by_kfd_and_not_twice(tmp_path: Path) -> None:
    (found,) = _processes(sysfs.build(tmp_path, "serving"))
    assert found == ProcessMemory(
        pid=4242,
        name="llama-server",
        vram_bytes=Value(MODEL, "kfd"),
        gtt_bytes=Value(18 * MIB, "fdinfo"),
        evicted_bytes=Value(0, "fdinfo"),
        evicted_ms=Value(0, "kfd"),
    )


def test_a_vulkan_client_is_seen_by_its_open_files_each_client_once(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "vulkan_client")
    tree.write(
        "proc/4242/fdinfo/9",
        sysfs.fdinfo(78, sysfs.FIRST, vram_bytes=2 * MIB) + "amd-evicted-vram:\t3 MiB\n",
    )
    (found,) = _processes(tree)
    assert found.vram_bytes == Value(MODEL + 2 * MIB, "fdinfo")
    assert found.evicted_bytes == Value(3 * MIB, "fdinfo")
    assert found.evicted_ms == Absent("KFD does not list the process")


def test_the_larger_of_both_counts_is_taken(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    tree.write("proc/4242/fdinfo/9", sysfs.fdinfo(78, sysfs.FIRST, vram_bytes=MIB))
    (found,) = _processes(tree)
    assert found.vram_bytes == Value(MODEL + MIB, "fdinfo")


def test_units_are_bytes_kibibytes_and_mebibytes(tmp_path: Path) -> None:
    tree = sysfs.no_gpu(tmp_path)
    sysfs.card(tree)
    head = f"drm-pdev:\t{sysfs.FIRST}\ndrm-memory-gtt:\t0\namd-evicted-vram:\t0\n"
    for client, amount in enumerate(("4096", "4 KiB", "4 MiB", "1 GiB")):
        text = f"{head}drm-client-id:\t{client}\ndrm-memory-vram:\t{amount}\n"
        tree.write(f"proc/77/fdinfo/{client}", text)
    (found,) = _processes(tree)
    assert found.vram_bytes == Value(4096 + 4096 + 4 * MIB + 1024 * MIB, "fdinfo")


def test_newer_kernels_call_it_resident(tmp_path: Path) -> None:
    tree = sysfs.no_gpu(tmp_path)
    sysfs.card(tree)
    text = sysfs.fdinfo(1, sysfs.FIRST, vram_bytes=MIB) + "drm-resident-vram:\t5 MiB\n"
    tree.write("proc/77/fdinfo/3", text)
    (found,) = _processes(tree)
    assert found.vram_bytes == Value(5 * MIB, "fdinfo")


def test_an_unknown_unit_is_absent_and_not_zero(tmp_path: Path) -> None:
    tree = sysfs.no_gpu(tmp_path)
    sysfs.card(tree)
    for amount in ("5 pages", "many KiB", "-5 KiB", "9" * 19, "999999999999 GiB"):
        text = f"drm-pdev:\t{sysfs.FIRST}\ndrm-client-id:\t1\ndrm-memory-vram:\t{amount}\n"
        tree.write("proc/77/fdinfo/3", text)
        (found,) = _processes(tree)
        assert isinstance(found.vram_bytes, Absent)
        assert isinstance(found.gtt_bytes, Absent)


def test_other_cards_and_idle_clients_are_left_out(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "two_gpus")
    tree.process(50, vram_bytes=MIB, kfd=False, key=sysfs.SECOND)
    tree.process(51, vram_bytes=0, gtt_bytes=0, kfd=False)
    tree.write("proc/52/fdinfo/0", "pos:\t0\n")
    assert _processes(tree) == ()
    second = SysfsProvider(root=tmp_path).processes(sysfs.SECOND)
    assert not isinstance(second, Absent)
    assert [one.pid for one in second] == [50]


def test_a_rocm_process_stays_listed_until_kfd_forgets_it(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    tree.process(4242, vram_bytes=0, gtt_bytes=0)
    assert [one.vram_bytes for one in _processes(tree)] == [Value(0, "kfd")]
    tree.end(4242)
    assert _processes(tree) == ()


def test_a_process_of_another_card_under_kfd_says_nothing_of_this_one(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.process(60, vram_bytes=MIB, key=sysfs.SECOND, gpu_id=51234)
    (found,) = _processes(tree)
    assert isinstance(found.vram_bytes, Absent)


def test_files_of_others_that_may_not_be_seen_are_a_reason(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    fdinfo = tmp_path / "proc/4242/fdinfo"
    for path in fdinfo.iterdir():
        path.unlink()
    fdinfo.rmdir()
    fdinfo.write_text("not a folder")  # root is refused nothing, but this fails as EACCES would
    (found,) = _processes(tree)
    assert found.vram_bytes == Value(MODEL, "kfd")
    assert found.gtt_bytes == Absent("its open files cannot be seen: ENOTDIR")


def test_a_process_that_dies_during_the_look_is_left_out(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    tree.process(99, vram_bytes=MIB, kfd=False)
    files = tree.files()

    def gone_meanwhile(path: str) -> bytes:
        if "/proc/99/fdinfo" in path:
            tree.end(99)
        return type(files).once(files, path)

    provider = SysfsProvider(files=files)
    provider.devices()
    files.once = gone_meanwhile  # type: ignore[method-assign]  # this one reader only
    found = provider.processes(sysfs.FIRST)
    assert not isinstance(found, Absent)
    assert [one.pid for one in found] == [4242]


def test_a_rocm_process_that_dies_during_the_look_is_left_out(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    # Listed, and gone when it is looked at.
    (tmp_path / "sys/devices/virtual/kfd/kfd/proc/77").symlink_to("gone")
    assert _processes(tree) == ()


def test_memory_that_kfd_cannot_tell_is_taken_from_the_open_files(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    for text, code in (("", None), ("nonsense", None), ("1", errno.EPERM)):
        path = f"sys/devices/virtual/kfd/kfd/proc/4242/vram_{sysfs.GPU_ID}"
        tree.write(path, text)
        if code is not None:
            tree.fail(path, code)
        (found,) = _processes(tree)
        assert found.vram_bytes == Value(MODEL, "fdinfo")


def test_only_those_asked_for_are_looked_at(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "serving")
    tree.process(99, vram_bytes=MIB)
    assert [one.pid for one in _processes(tree, pids=(99, 12345))] == [99]


def test_a_descriptor_of_another_file_is_not_read(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "vulkan_client")
    (tmp_path / "proc/4242/fd").mkdir()
    (tmp_path / "proc/4242/fd/5").symlink_to("/dev/dri/renderD128")
    for number in (6, 7):
        (tmp_path / f"proc/4242/fd/{number}").symlink_to("/home/somebody/model.gguf")
    files = tree.files()
    found = SysfsProvider(files=files).processes(sysfs.FIRST)
    assert not isinstance(found, Absent)
    assert [one.vram_bytes for one in found] == [Value(MODEL, "fdinfo")]
    read = {path.rpartition("/")[2] for path in files.reads if "fdinfo" in path}
    assert read == {"0", "5"}
