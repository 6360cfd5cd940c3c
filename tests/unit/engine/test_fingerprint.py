from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from mtpd.config.model import DrafterConfig, Profile
from mtpd.engine.fingerprint import FileIdentity, Fingerprint, fingerprint, identify
from mtpd.types import EngineBinary
from tuner.types import Drafter

if TYPE_CHECKING:
    from pathlib import Path

BINARY = EngineBinary(
    argv=("/x",),
    kind="external",
    flags=frozenset(),
    spec_types=frozenset(),
    digest="a" * 64,
    label="x",
)
PROFILE = Profile(
    name="m",
    model="/m.gguf",
    context=8192,
    drafter=DrafterConfig(kind=Drafter.MTP, max_depth=3, depth=2),
)
FILE = FileIdentity(size=10, mtime_ns=20, header="b12")


def make(
    *,
    profile: Profile = PROFILE,
    binary: EngineBinary = BINARY,
    flags: tuple[str, ...] = ("--ctx-size", "8192"),
    model_file: FileIdentity = FILE,
    draft_file: FileIdentity | None = None,
    device: str = "0000:03:00.0",
    driver: str | None = "6.10.5",
    power_cap_w: float | None = 225.0,
    threads: int | None = None,
    gate: str | None = None,
) -> Fingerprint:
    return fingerprint(
        binary=binary,
        profile=profile,
        flags=flags,
        model_file=model_file,
        draft_file=draft_file,
        device=device,
        driver=driver,
        power_cap_w=power_cap_w,
        threads=threads,
        gate=gate,
    )


def test_the_digest_is_the_sha256_of_the_sorted_json_of_the_named_fields() -> None:
    made = make()
    text = json.dumps(made.describe(), sort_keys=True, separators=(",", ":"))
    assert made.digest == hashlib.sha256(text.encode()).hexdigest()
    assert list(made.describe()) == sorted(made.describe())


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (make(power_cap_w=150.0), "power cap 225 W -> 150 W"),
        (make(gate="relative"), "gate none -> relative"),
        (make(power_cap_w=None), "power cap 225 W -> none"),
        (make(driver="6.12"), "driver 6.10.5 -> 6.12"),
        (make(device="host"), "device 0000:03:00.0 -> host"),
        (make(threads=2), "threads none -> 2"),
        (make(flags=("--parallel", "1")), "engine flags --ctx-size 8192 -> --parallel 1"),
        (
            make(binary=dataclasses.replace(BINARY, digest="c" * 64)),
            "engine aaaaaaaaaaaa -> cccccccccccc",
        ),
        (
            make(model_file=dataclasses.replace(FILE, size=11)),
            "model file 10 bytes, header b12, mtime 20 -> 11 bytes, header b12, mtime 20",
        ),
        (
            make(draft_file=FILE),
            "draft file none -> 10 bytes, header b12, mtime 20",
        ),
        (
            make(profile=dataclasses.replace(PROFILE, context=4096)),
            "context 8192 tokens -> 4096 tokens",
        ),
        (make(profile=dataclasses.replace(PROFILE, slots=2)), "slots 1 -> 2"),
        (
            make(profile=dataclasses.replace(PROFILE, draft_kv_type="q4_0")),
            "draft KV type f16 -> q4_0",
        ),
        (
            make(profile=dataclasses.replace(PROFILE, drafter=DrafterConfig())),
            "drafter mtp -> none",
        ),
    ],
)
def test_each_thing_that_a_result_depends_on_changes_the_digest_and_is_named(
    other: Fingerprint, difference: str
) -> None:
    assert make().digest != other.digest
    assert make().differences(other) == (difference,)


def test_the_depth_and_the_names_of_a_profile_change_nothing() -> None:
    drafter = dataclasses.replace(PROFILE.drafter, depth=3, max_depth=5)
    renamed = dataclasses.replace(
        PROFILE, name="n", model="/other/place.gguf", aliases=("a",), tags=("t",), drafter=drafter
    )
    assert make(profile=renamed).digest == make().digest
    assert make().differences(make(profile=renamed)) == ()


def test_a_header_that_begins_alike_still_is_another_model() -> None:
    other = dataclasses.replace(FILE, header="b123")
    assert make(model_file=other).digest != make().digest


def test_a_file_is_told_apart_by_size_time_and_header(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"12345")
    found = identify(path, header="h")
    assert (found.size, found.mtime_ns, found.header) == (5, path.stat().st_mtime_ns, "h")


def test_a_whole_number_of_watts_is_the_same_cap() -> None:
    assert make(power_cap_w=150).digest == make(power_cap_w=150.0).digest


def test_the_order_of_the_fields_does_not_matter() -> None:
    assert Fingerprint({"b": 1, "a": 2}).digest == Fingerprint({"a": 2, "b": 1}).digest
