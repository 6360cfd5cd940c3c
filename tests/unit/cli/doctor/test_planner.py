"""The planner of ``mtpctl doctor``: facts in, findings out."""

from __future__ import annotations

import dataclasses
import io
import itertools
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.cli.doctor.facts import (
    CardFacts,
    ConfigFacts,
    DaemonFacts,
    DeviceFacts,
    DirectoryFacts,
    EngineFacts,
    Facts,
    HiddenFacts,
    Holder,
    HostFacts,
    Lack,
    Listener,
    ModelFile,
    MountFacts,
    SocketFacts,
    SystemFacts,
    TokenFacts,
    UnitFacts,
)
from mtpd.cli.doctor.planner import CHECKS, examine
from mtpd.cli.doctor.report import show
from mtpd.cli.doctor.rights import ENTER, READ, WRITE, Account, Inode, barred, may
from mtpd.cli.session import console
from mtpd.types import Absent, NotApplicable, Value
from mtpd.units import MIB
from tests.unit.cli.support import check_golden

if TYPE_CHECKING:
    from mtpd.types import Reading

MTPD = Account(name="mtpd", uid=990, gids=frozenset({990}))


def inode(path: str, mode: int = 0o755, *, uid: int = 0, gid: int = 0) -> Inode:
    return Inode(path=path, mode=mode, uid=uid, gid=gid, group="root" if gid == 0 else "render")


def card(**changes: Any) -> CardFacts:
    well = CardFacts(
        key="0000:03:00.0",
        name="Radeon Pro VII",
        vendor="amd",
        cap_state="observed",
        cap_says="the power cap is 150 W, and the card drew 149 W on average while busy",
        cap_wanted=True,
        edge_c=Value(41.0, "sysfs"),
        holders=(),
    )
    return dataclasses.replace(well, **changes)


def model(**changes: Any) -> ModelFile:
    path = "/srv/models/a.gguf"
    well = ModelFile(
        key="models.a.model",
        origin="/etc/mtpd/mtpd.toml:4",
        path=path,
        problem=None,
        inode=inode(path, 0o644),
        above=(inode("/"), inode("/srv"), inode("/srv/models")),
        size_bytes=14_000 * MIB,
        mount=MountFacts(point="/", kind="ext4"),
        hidden=False,
    )
    return dataclasses.replace(well, **changes)


def facts(**changes: Any) -> Facts:
    """A card with its daemon, all well."""
    nodes = tuple(inode(path, 0o660, gid=105) for path in ("/dev/kfd", "/dev/dri/renderD128"))
    well = Facts(
        version="0.1.0",
        account=dataclasses.replace(MTPD, gids=frozenset({990, 105})),
        service=True,
        config=ConfigFacts(path="/etc/mtpd/mtpd.toml", models=1),
        hidden=HiddenFacts(),
        device=DeviceFacts(amd=("0000:03:00.0",), cards=(card(),), nodes=nodes),
        host=HostFacts(
            available_bytes=30_000 * MIB,
            cgroup_bytes=NotApplicable("no control group limits the memory"),
            oom_kills=Value(0, "cgroup"),
            files=(65536, 65536),
            files_needed=384,
        ),
        system=SystemFacts(year=2026, boot_id=True, hides_processes=False),
        daemon=DaemonFacts(pid=4242, version="0.1.0"),
        units=(
            UnitFacts(
                path="/etc/systemd/system/mtpd.service",
                user=False,
                program="/opt/mtpd/bin/mtpd",
                program_there=True,
                differs=False,
                names_user="mtpd",
                account=MTPD,
            ),
        ),
        engine=EngineFacts(spec="auto", origin="default", label="llama-server at /usr/bin/x"),
        sockets=SocketFacts(listen="127.0.0.1:8080", taken_by=None, control="/run/mtpd/c.sock"),
        state=DirectoryFacts(
            path="/var/lib/mtpd",
            nearest=inode("/var/lib/mtpd", 0o700, uid=990),
            problem=None,
            free_bytes=Value(90_000 * MIB, "statvfs"),
            mount=MountFacts(point="/", kind="ext4"),
            above=(inode("/"), inode("/var"), inode("/var/lib")),
        ),
        models=(model(),),
        tokens=TokenFacts(path="/var/lib/mtpd/tokens.json", problem=None, count=0),
    )
    return dataclasses.replace(well, **changes)


def shown(given_facts: Facts) -> str:
    file = io.StringIO()
    show(console(file), examine(given_facts))
    return file.getvalue()


def test_what_is_well_is_told_as_such() -> None:
    assert examine(facts()).findings == ()
    check_golden("doctor_well", shown(facts()))


def test_what_was_found_comes_with_its_commands() -> None:
    holder = Holder(pid=4711, name="llama-server", bytes_=Value(3072 * MIB, "kfd"))
    closed = facts(
        account=MTPD,
        hidden=HiddenFacts(system="/etc/llama.cpp/config.ini"),
        device=dataclasses.replace(facts().device, cards=(card(holders=(holder,)),)),
        models=(model(inode=inode("/srv/models/a.gguf", 0o600)),),
    )
    check_golden("doctor_findings", shown(closed))


@pytest.mark.parametrize(
    ("changes", "check", "severity", "says", "fix"),
    [
        (
            {"account": MTPD},
            "card",
            "error",
            "mtpd may not open /dev/kfd and /dev/dri/renderD128",
            "sudo usermod -aG render mtpd && sudo systemctl restart mtpd",
        ),
        (
            {"visitor": Account(name="ann", uid=1000, gids=frozenset({1000}))},
            "card",
            "warning",
            "ann may not open /dev/kfd and /dev/dri/renderD128: engines that you start by hand",
            "sudo usermod -aG render ann    # then log in again",
        ),
        (
            {"models": (model(inode=inode("/m", 0o600)),)},
            "model files",
            "error",
            "mtpd may not read /srv/models/a.gguf",
            "sudo chmod o+r /srv/models/a.gguf",
        ),
        (
            {"models": (model(above=(inode("/"), inode("/srv", 0o700))),)},
            "model files",
            "error",
            "mtpd may not enter /srv",
            "sudo chmod o+x /srv",
        ),
        (
            {"system": SystemFacts(year=2026, boot_id=True, hides_processes=True)},
            "clock",
            "warning",
            "hidepid",
            "sudo mount -o remount,hidepid=0 /proc",
        ),
        (
            {
                "sockets": SocketFacts(
                    listen="[::1]:8080", taken_by=Listener(pid=None, name=None), control="/c"
                )
            },
            "port",
            "error",
            "a program of another user listens on [::1]:8080",
            "sudo ss -ltnp 'sport = :8080'",
        ),
        (
            {"device": DeviceFacts(cards=(card(holders=Absent("KFD is silent")),))},
            "memory users",
            "warning",
            "who holds its memory is not known (KFD is silent)",
            "mtpctl gpu --sources",
        ),
        (
            {"device": DeviceFacts(cards=(card(cap_state="unsupported", cap_says="no limit"),))},
            "power cap",
            "warning",
            "no limit",
            "mtpctl gpu --sources",
        ),
        (
            {"daemon": DaemonFacts(pid=1, version="0.1.0", needs_restart=("server.listen",))},
            "daemon",
            "warning",
            "not in force before a restart of the daemon: server.listen",
            "sudo systemctl restart mtpd",
        ),
        (
            {"daemon": DaemonFacts(pid=1, version="0.1.0", invalid=("/m.toml:3: x: bad",))},
            "daemon",
            "error",
            "/m.toml:3: x: bad",
            "${EDITOR:-vi} +3 /m.toml    # then: mtpctl reload",
        ),
    ],
)
def test_a_fault_is_found_with_its_command(
    changes: dict[str, Any], check: str, severity: str, says: str, fix: str
) -> None:
    [found] = examine(facts(**changes)).findings
    assert (found.check, found.severity) == (check, severity)
    assert says in found.says
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(
    ("free_bytes", "severities"),
    [(1024 * MIB, []), (1024 * MIB - 1, ["warning"]), (64 * MIB - 1, ["error"])],
)
def test_a_full_disk_is_the_worse_the_fuller_it_is(free_bytes: int, severities: list[str]) -> None:
    state = facts().state
    assert isinstance(state, DirectoryFacts)
    full = dataclasses.replace(state, free_bytes=Value(free_bytes, "statvfs"))
    assert [one.severity for one in examine(facts(state=full)).findings] == severities


@pytest.mark.parametrize(
    ("sizes", "refused"), [((14_000,), False), ((14_000, 14_001), True), ((None, 14_000), False)]
)
def test_the_control_groups_must_hold_the_largest_model_and_some_more(
    sizes: tuple[int | None, ...], *, refused: bool
) -> None:
    well = facts()
    limit = Value(15_024 * MIB, "cgroup")
    files = tuple(model(size_bytes=None if one is None else one * MIB) for one in sizes)
    host = dataclasses.replace(well.host, cgroup_bytes=limit)
    found = examine(facts(host=host, models=files)).findings
    assert [one.check for one in found] == ["memory"] * refused


def test_what_could_not_be_looked_at_is_unknown_and_never_fine() -> None:
    broken = facts(
        config=ConfigFacts(path="/m.toml", problems=("/m.toml:1: x: bad",)),
        engine=None,
        sockets=None,
        tokens=None,
        models=(),
        state=Absent("there is no home"),
    )
    states = {one.name: one.state for one in examine(broken).checks}
    unknown = {"engine", "port", "control socket", "state", "model files", "tokens"}
    assert {name for name, state in states.items() if state == "unknown"} == unknown


@pytest.mark.parametrize("wanted", [READ, WRITE, ENTER, READ | WRITE])
def test_rights_are_those_of_one_class_of_users(wanted: int) -> None:
    users = (
        (Account(name="owner", uid=1, gids=frozenset({9})), 6),
        (Account(name="member", uid=2, gids=frozenset({7, 9})), 3),
        (Account(name="other", uid=3, gids=frozenset({9})), 0),
    )
    for mode, (account, shift) in itertools.product(range(0o1000), users):
        file = Inode(path="/f", mode=mode, uid=1, gid=7, group="g")
        assert may(account, file, wanted) is ((mode >> shift) & wanted == wanted)


def test_root_passes_everything_but_runs_nothing_that_nobody_may() -> None:
    root = Account(name="root", uid=0, gids=frozenset({0}))
    assert may(root, inode("/f", 0o000, uid=5), READ | WRITE)
    assert not may(root, inode("/f", 0o666, uid=5), ENTER)
    assert barred(MTPD, (inode("/"), inode("/a", 0o700))) == inode("/a", 0o700)
    assert barred(MTPD, (inode("/"),)) is None


TEXT = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
MAYBE = st.none() | TEXT


def reading(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Reading[Any]]:
    known = values.map(lambda value: Value(value, "sysfs"))
    return st.one_of(known, TEXT.map(Absent), TEXT.map(NotApplicable))


BYTES = st.integers(0, 1 << 45)
NODE = st.builds(
    Inode,
    path=TEXT,
    mode=st.integers(0, 0o777),
    uid=st.integers(0, 3),
    gid=st.integers(0, 3),
    group=TEXT,
)
NODES = st.lists(NODE, max_size=3).map(tuple)
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
ADVICE = st.none() | st.tuples(TEXT, TEXT)
WHO = st.builds(
    Account, name=TEXT, uid=st.integers(0, 3), gids=st.frozensets(st.integers(0, 3), max_size=2)
)
MOUNT = st.none() | st.builds(
    MountFacts, point=TEXT, kind=st.sampled_from(["ext4", "nfs4", "tmpfs"])
)
HOLDERS = st.lists(
    st.builds(
        Holder,
        pid=st.integers(1, 9),
        name=st.sampled_from([None, "llama-server", "Xorg"]),
        bytes_=reading(BYTES),
    ),
    max_size=2,
).map(tuple)
CARD = st.builds(
    CardFacts,
    key=TEXT,
    name=MAYBE,
    vendor=st.sampled_from(["amd", "nvidia"]),
    cap_state=st.sampled_from(
        ["not_applicable", "unsupported", "unknown", "undeclared", "wrong", "declared", "observed"]
    ),
    cap_says=TEXT,
    cap_wanted=st.booleans(),
    edge_c=reading(st.floats(0, 120)),
    holders=HOLDERS | TEXT.map(Absent),
)
FACTS = st.builds(
    Facts,
    version=TEXT,
    account=WHO,
    service=st.booleans(),
    config=st.builds(
        ConfigFacts,
        path=MAYBE,
        problems=TEXTS,
        ignored=TEXTS,
        unread=TEXTS,
        models=st.integers(0, 3),
    ),
    hidden=st.builds(HiddenFacts, system=MAYBE, own=MAYBE, variables=TEXTS),
    device=st.builds(
        DeviceFacts,
        amd=TEXTS,
        nvidia=TEXTS,
        cards=st.lists(CARD, max_size=2).map(tuple),
        nodes=NODES,
        missing=TEXTS,
        refused=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
        silent=MAYBE,
    ),
    host=st.builds(
        HostFacts,
        available_bytes=BYTES,
        cgroup_bytes=reading(BYTES),
        oom_kills=reading(st.integers(0, 3)),
        files=st.tuples(st.integers(0, 999), st.integers(0, 999)),
        files_needed=st.integers(0, 999),
    ),
    system=st.builds(
        SystemFacts,
        year=st.integers(1970, 2100),
        boot_id=st.booleans(),
        hides_processes=st.booleans(),
    ),
    daemon=st.builds(
        DaemonFacts,
        pid=st.none() | st.integers(1, 9),
        version=MAYBE,
        unreachable=ADVICE,
        engines=st.lists(st.tuples(TEXT, TEXT, MAYBE), max_size=2).map(tuple),
        invalid=TEXTS,
        needs_restart=TEXTS,
        unusable=TEXTS,
    ),
    units=st.lists(
        st.builds(
            UnitFacts,
            path=TEXT,
            user=st.booleans(),
            program=TEXT,
            program_there=st.booleans(),
            differs=st.none() | st.booleans(),
            names_user=MAYBE,
            account=st.none() | WHO,
        ),
        max_size=2,
    ).map(tuple),
    engine=st.none()
    | st.builds(
        EngineFacts,
        spec=st.sampled_from(["auto", "embedded", "/x"]),
        origin=TEXT,
        label=MAYBE,
        path=MAYBE,
        mode=st.none() | st.integers(0, 0o777),
        error=MAYBE,
        lacks=st.lists(st.builds(Lack, arm=TEXT, says=TEXT), max_size=2).map(tuple),
        odd=TEXTS,
    ),
    sockets=st.none()
    | st.builds(
        SocketFacts,
        listen=TEXT,
        taken_by=st.none() | st.builds(Listener, pid=st.none() | st.integers(1, 9), name=MAYBE),
        control=st.text(min_size=1, max_size=120),
        remote=st.booleans(),
    ),
    state=TEXT.map(Absent)
    | st.builds(
        DirectoryFacts,
        path=TEXT,
        nearest=NODE,
        problem=ADVICE,
        free_bytes=reading(BYTES),
        mount=MOUNT,
        above=NODES,
    ),
    models=st.lists(
        st.builds(
            ModelFile,
            key=TEXT,
            origin=TEXT,
            path=TEXT,
            problem=MAYBE,
            inode=st.none() | NODE,
            above=NODES,
            size_bytes=st.none() | BYTES,
            mount=MOUNT,
            hidden=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    visitor=st.none() | WHO,
    tokens=st.none() | st.builds(TokenFacts, path=TEXT, problem=ADVICE, count=st.integers(0, 2)),
)


@settings(max_examples=40)
@given(FACTS)
def test_whatever_is_found_every_finding_says_what_and_how(found: Facts) -> None:
    view = examine(found)
    assert [one.name for one in view.checks] == [check.name for check in CHECKS]
    assert view.ok is not bool(view.findings)
    named = {one.check for one in view.findings}
    assert named == {one.name for one in view.checks if one.state == "findings"}
    severities = [one.severity for one in view.findings]
    assert severities == sorted(severities), "errors come first"
    for one in view.findings:
        assert one.says
        assert one.fix
        assert "\n" not in one.fix
    for check in view.checks:
        assert bool(check.says) is (check.state != "findings")
    assert examine(found) == view


def test_a_path_with_a_blank_is_one_word_of_the_command() -> None:
    path = "/srv/my models/a b.gguf"
    [found] = examine(facts(models=(model(path=path, inode=inode(path, 0o600)),))).findings
    assert shlex.split(found.fix) == ["sudo", "chmod", "o+r", path]
