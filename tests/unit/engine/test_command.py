from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.model import DrafterConfig, Fit, Profile, Purpose
from mtpd.engine.command import build, effective_flags
from mtpd.engine.flags import parse_help
from mtpd.errors import BinaryError
from mtpd.types import Command, Endpoint, EngineBinary, TcpEndpoint, UnixEndpoint
from tuner.types import Arm, Drafter

CORPUS = Path(__file__).parents[2] / "corpus"
FLAGS = json.loads((CORPUS / "llama_flags_b11434.json").read_text())["flags"]
NAMES = {name: entry for entry in FLAGS for name in entry["names"]}
DENIED = {name for name, entry in NAMES.items() if entry["class"].startswith("deny")}
TAKES_NO_VALUE = {"--metrics", "--slots", "--no-ui", "--offline"}
SOCKET = UnixEndpoint("/run/mtpd/e.sock")
MTP = DrafterConfig(kind=Drafter.MTP, max_depth=5)


def binary(help_file: str = "b11434", *, without: frozenset[str] = frozenset()) -> EngineBinary:
    flags, types = parse_help((CORPUS / "help" / f"{help_file}.txt").read_text())
    return EngineBinary(
        argv=("/opt/llama-server",),
        kind="external",
        flags=flags - without,
        spec_types=types,
        digest="d",
        label="llama-server at /opt/llama-server",
        unix_socket=True,
    )


NEW = binary()


def profile(
    *, drafter: DrafterConfig = MTP, fit: Fit = Fit.AUTO, n_gpu_layers: int | None = None
) -> Profile:
    return Profile(name="m", model="/m.gguf", drafter=drafter, fit=fit, n_gpu_layers=n_gpu_layers)


def command(
    what: Profile,
    depth: int = 0,
    *,
    engine: EngineBinary = NEW,
    endpoint: Endpoint = SOCKET,
    device_present: bool = False,
    fits: bool = False,
    extra_env: tuple[tuple[str, str], ...] = (),
) -> Command:
    return build(
        binary=engine,
        profile=what,
        arm=what.arm(depth),
        endpoint=endpoint,
        threads=None,
        device_present=device_present,
        home="/cache/engine",
        headroom_mib=256,
        fits=fits,
        extra_env=extra_env,
        instance="i1",
    )


def value(argv: tuple[str, ...], option: str) -> str:
    assert argv.count(option) == 1, argv
    return argv[argv.index(option) + 1]


def test_the_whole_command_of_a_speculating_arm() -> None:
    argv = command(profile(), depth=2).argv
    assert " ".join(argv) == (
        "/opt/llama-server --model /m.gguf --alias m --host /run/mtpd/e.sock -lv 4"
        " --log-colors off --metrics --slots --no-ui --offline --sse-ping-interval 5"
        " --timeout 120 --ctx-size 4096 --parallel 1 --cache-type-k f16 --cache-type-v f16"
        " --fit off --cache-ram 1024 --ctx-checkpoints 4 --spec-type draft-mtp"
        " --spec-draft-n-max 2 --spec-draft-type-k f16 --spec-draft-type-v f16"
    )


def test_depth_0_passes_nothing_of_speculation() -> None:
    argv = command(profile()).argv
    assert [word for word in argv if "spec" in word or "draft" in word] == []


def test_the_draft_cache_follows_the_main_one_although_the_engines_default_is_f16() -> None:
    what = Profile(name="m", model="/m", kv_type="q8_0", drafter=MTP)
    argv = command(what, depth=1).argv
    assert value(argv, "--spec-draft-type-k") == value(argv, "--cache-type-k") == "q8_0"
    assert value(argv, "--spec-draft-type-v") == value(argv, "--cache-type-v") == "q8_0"
    other = Profile(name="m", model="/m", kv_type="q8_0", draft_kv_type="q4_0", drafter=MTP)
    assert value(command(other, depth=1).argv, "--spec-draft-type-k") == "q4_0"


@pytest.mark.parametrize(
    ("fit", "layers", "device", "fits", "words"),
    [
        (Fit.AUTO, None, True, False, ["--fit-target", "256"]),
        (Fit.AUTO, None, True, True, ["--fit", "off", "--n-gpu-layers", "99"]),
        (Fit.AUTO, None, False, True, ["--fit", "off"]),
        (Fit.AUTO, 40, True, True, ["--fit", "off", "--n-gpu-layers", "40"]),
        (Fit.OFF, None, True, False, ["--fit", "off", "--n-gpu-layers", "99"]),
        (Fit.OFF, 40, True, False, ["--fit", "off", "--n-gpu-layers", "40"]),
        (Fit.OFF, None, False, False, ["--fit", "off", "--n-gpu-layers", "99"]),
        (Fit.ENGINE, None, True, True, []),
        (Fit.ENGINE, 40, True, True, ["--n-gpu-layers", "40"]),
    ],
)
def test_who_decides_the_layers(
    fit: Fit,
    layers: int | None,
    device: bool,  # noqa: FBT001 - a column of the table
    fits: bool,  # noqa: FBT001 - a column of the table
    words: list[str],
) -> None:
    what = profile(fit=fit, n_gpu_layers=layers)
    argv = command(what, device_present=device, fits=fits).argv
    options = {"--fit", "--fit-target", "--n-gpu-layers"}
    passed = [
        part
        for name, after in itertools.pairwise(argv)
        if name in options
        for part in (name, after)
    ]
    assert passed == words


def test_a_build_without_a_fit_of_its_own_is_told_to_take_all_layers() -> None:
    old = binary(without=frozenset({"-fit", "--fit", "-fitt", "--fit-target"}))
    argv = command(profile(), engine=old, device_present=True).argv
    assert value(argv, "--n-gpu-layers") == "99"
    assert "--fit" not in argv


def test_what_a_profile_sets_is_passed() -> None:
    what = Profile(
        name="m",
        model="/m",
        context=8192,
        slots=2,
        threads=3,
        batch=512,
        ubatch=128,
        flash_attention="on",
        device="ROCm0",
        seed=7,
        drafter=DrafterConfig(kind=Drafter.MTP, max_depth=1, p_min=0.25),
    )
    argv = command(what, depth=1).argv
    assert {
        "--ctx-size": "8192",
        "--parallel": "2",
        "--threads": "3",
        "--batch-size": "512",
        "--ubatch-size": "128",
        "--flash-attn": "on",
        "--device": "ROCm0",
        "--seed": "7",
        "--spec-draft-p-min": "0.25",
    }.items() <= dict(itertools.pairwise(argv)).items()


@pytest.mark.parametrize(
    ("purpose", "pooling", "words"),
    [
        (Purpose.TEXT, None, []),
        (Purpose.EMBEDDING, None, ["--embedding"]),
        (Purpose.EMBEDDING, "mean", ["--embedding", "--pooling", "mean"]),
        (Purpose.RERANK, None, ["--embedding", "--pooling", "rank"]),
    ],
)
def test_what_the_engine_is_for(purpose: Purpose, pooling: str | None, words: list[str]) -> None:
    what = Profile(name="m", model="/m", purpose=purpose, pooling=pooling)
    argv = command(what).argv
    flags = effective_flags(binary=NEW, profile=what, threads=None, device_present=False)
    for line in (argv, flags):
        at = line.index("--embedding") if words else len(line)
        assert list(line[at : at + len(words)]) == words
    assert ("--pooling" in argv) == ("--pooling" in words)


def test_the_configured_threads_are_used_where_the_profile_names_none() -> None:
    flags = effective_flags(binary=NEW, profile=profile(), threads=2, device_present=False)
    assert value(flags, "--threads") == "2"
    own = Profile(name="m", model="/m", threads=5)
    flags = effective_flags(binary=NEW, profile=own, threads=2, device_present=False)
    assert value(flags, "--threads") == "5"


@pytest.mark.parametrize(
    ("kind", "spec_type"),
    [
        (Drafter.MTP_FILE, "draft-mtp"),
        (Drafter.DRAFT_MODEL, "draft-simple"),
        (Drafter.EAGLE3, "draft-eagle3"),
    ],
)
def test_a_drafter_with_a_file_passes_it(kind: Drafter, spec_type: str) -> None:
    what = profile(drafter=DrafterConfig(kind=kind, max_depth=4, model="/draft.gguf"))
    argv = command(what, depth=4).argv
    assert value(argv, "--spec-type") == spec_type
    assert value(argv, "--spec-draft-n-max") == "4"
    assert value(argv, "--spec-draft-model") == "/draft.gguf"


def test_an_ngram_drafter_has_its_own_length() -> None:
    argv = command(profile(drafter=DrafterConfig(kind=Drafter.NGRAM, max_depth=8)), depth=8).argv
    assert value(argv, "--spec-type") == "ngram-simple"
    assert value(argv, "--spec-ngram-simple-size-m") == "8"
    # It drafts nothing that is shorter than what it looks for, which is 12 tokens by default.
    assert value(argv, "--spec-ngram-simple-size-n") == "8"
    assert "--spec-draft-n-max" not in argv
    deep = command(profile(drafter=DrafterConfig(kind=Drafter.NGRAM, max_depth=16)), depth=12).argv
    assert "--spec-ngram-simple-size-n" not in deep


@pytest.mark.parametrize(
    ("ngram", "lengths"),
    [
        ("map-k", ("--spec-ngram-map-k-size-m",)),
        ("map-k4v", ("--spec-ngram-map-k4v-size-m",)),
        ("mod", ("--spec-ngram-mod-n-max", "--spec-ngram-mod-n-min")),
    ],
)
def test_each_way_to_look_for_ngrams_has_its_type_and_its_length(
    ngram: str, lengths: tuple[str, ...]
) -> None:
    drafter = DrafterConfig(kind=Drafter.NGRAM, ngram=ngram, max_depth=8)
    argv = command(profile(drafter=drafter), depth=8).argv
    assert value(argv, "--spec-type") == drafter.word == f"ngram-{ngram}"
    assert [value(argv, name) for name in lengths] == ["8"] * len(lengths)
    assert "--spec-draft-n-max" not in argv


def test_a_fork_that_calls_the_type_mtp_gets_its_word() -> None:
    fork = EngineBinary(
        argv=("x",),
        kind="external",
        flags=NEW.flags,
        spec_types=frozenset({"none", "mtp"}),
        digest="d",
        label="x",
        unix_socket=True,
    )
    assert value(command(profile(), depth=1, engine=fork).argv, "--spec-type") == "mtp"


def test_a_type_that_the_binary_lacks_is_refused_before_the_start() -> None:
    adaptive = profile(drafter=DrafterConfig(kind=Drafter.ADAPTIVE, max_depth=2))
    with pytest.raises(
        BinaryError, match="has no speculation of type draft-mtp-adaptive"
    ) as caught:
        command(adaptive, depth=2)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    ("names", "depth"),
    [
        ({"--metrics"}, 0),
        ({"-lv", "--verbosity", "--log-verbosity"}, 0),
        ({"-np", "--parallel"}, 0),
        ({"--spec-draft-n-max"}, 1),
    ],
)
def test_a_flag_that_is_needed_and_missing_is_named(names: set[str], depth: int) -> None:
    old = binary(without=frozenset(names))
    with pytest.raises(BinaryError, match="llama-server at /opt/llama-server does not know --"):
        command(profile(), depth, engine=old)


def test_a_flag_that_is_only_wanted_is_left_out_where_it_is_missing() -> None:
    wanted = {"--slots", "--no-ui", "--no-webui", "--offline", "--cache-ram", "-cram", "-fit"}
    old = binary(without=frozenset(wanted | {"--fit"}))
    assert set(command(profile(), engine=old).argv).isdisjoint(wanted | {"--fit"})


def test_an_older_spelling_is_used_where_the_binary_has_only_that() -> None:
    old = binary(without=frozenset({"--no-ui", "-lv"}))
    argv = command(profile(), engine=old).argv
    assert "--no-webui" in argv
    assert value(argv, "--verbosity") == "4"


def test_a_tcp_engine_listens_on_loopback_with_its_key_in_the_environment() -> None:
    made = command(profile(), endpoint=TcpEndpoint("127.0.0.1", 8123, "secret"))
    assert value(made.argv, "--host") == "127.0.0.1"
    assert value(made.argv, "--port") == "8123"
    assert made.env["LLAMA_API_KEY"] == "secret"
    assert "secret" not in made.argv


def test_a_binary_without_unix_sockets_is_not_given_one() -> None:
    tcp_only = EngineBinary(
        argv=("x",),
        kind="external",
        flags=NEW.flags,
        spec_types=NEW.spec_types,
        digest="d",
        label="the old one",
    )
    with pytest.raises(BinaryError, match="the old one cannot listen on a unix socket"):
        command(profile(), engine=tcp_only)


@pytest.mark.parametrize("path", ["/run/e", "/run/a,b.sock"])
def test_a_socket_path_that_the_engine_would_misread_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"must end in \.sock"):
        command(profile(), endpoint=UnixEndpoint(path))


def test_an_arm_of_another_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="does not belong to profile m"):
        build(
            binary=NEW,
            profile=profile(),
            arm=Arm(profile="other"),
            endpoint=SOCKET,
            threads=None,
            device_present=False,
            home="/h",
        )


def test_the_environment_is_made_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    given_env = (("HIP_VISIBLE_DEVICES", "0"), ("LD_PRELOAD", "/x"), ("LLAMA_ARG_MODEL", "/y"))
    made = command(profile(), extra_env=(*given_env, ("HSA_TOOLS_LIB", "/z")))
    assert made.env == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/cache/engine",
        "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": "/cache/engine/config",
        "GGML_NO_BACKTRACE": "1",
        "MTPD_INSTANCE": "i1",
        "HIP_VISIBLE_DEVICES": "0",
    }


def test_steps_are_traced_only_where_p_min_cuts_drafts() -> None:
    for p_min, traced in ((0.0, None), (0.25, "1")):
        cut = profile(drafter=DrafterConfig(kind=Drafter.MTP, max_depth=2, p_min=p_min))
        assert command(cut, depth=2).env.get("LLAMA_TRACE") == traced
        assert command(cut, depth=0).env.get("LLAMA_TRACE") is None


def test_an_engine_is_pinned_to_its_card_unless_the_configuration_chooses_devices() -> None:
    pins = {"ROCR_VISIBLE_DEVICES": "GPU-2172c0de5eed0906"}

    def pinned(what: Profile, extra: tuple[tuple[str, str], ...] = ()) -> object:
        made = build(
            binary=NEW,
            profile=what,
            arm=what.arm(0),
            endpoint=SOCKET,
            threads=None,
            device_present=True,
            home="/cache/engine",
            device_env=pins,
            extra_env=extra,
        )
        return made.env.get("ROCR_VISIBLE_DEVICES")

    assert pinned(profile()) == "GPU-2172c0de5eed0906"
    assert pinned(profile(), (("HSA_ENABLE_SDMA", "0"),)) == "GPU-2172c0de5eed0906"
    # A second variable would count within the one card that the first one leaves.
    assert pinned(profile(), (("HIP_VISIBLE_DEVICES", "1"),)) is None
    assert pinned(profile(), (("ROCR_VISIBLE_DEVICES", "1"),)) == "1"
    assert pinned(replace(profile(), device="ROCm1")) is None


@pytest.mark.parametrize(
    "name", ["GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_VK_ALLOW_SYSMEM_FALLBACK"]
)
def test_a_variable_that_turns_a_lack_of_memory_into_slowness_reaches_no_engine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert name not in command(profile(), extra_env=((name, "1"),)).env


def test_a_value_that_is_no_line_of_text_is_refused() -> None:
    with pytest.raises(BinaryError, match="is not printable text"):
        command(Profile(name="m", model="/m\n--tools all"))


def test_the_flags_that_a_result_depends_on_are_the_same_at_every_depth() -> None:
    flags = effective_flags(binary=NEW, profile=profile(), threads=None, device_present=False)
    for depth in (0, 1, 5):
        argv = command(profile(), depth).argv
        start = argv.index("--ctx-size")
        assert argv[start : start + len(flags)] == flags


drafters = st.one_of(
    st.just(DrafterConfig()),
    st.builds(
        DrafterConfig,
        kind=st.just(Drafter.MTP),
        max_depth=st.integers(1, 16),
        p_min=st.floats(0.0, 0.99),
    ),
    st.builds(
        DrafterConfig,
        kind=st.just(Drafter.NGRAM),
        max_depth=st.integers(1, 16),
        ngram=st.sampled_from(["simple", "map-k", "map-k4v", "mod"]),
    ),
    st.builds(
        DrafterConfig,
        kind=st.sampled_from([Drafter.MTP_FILE, Drafter.DRAFT_MODEL, Drafter.EAGLE3]),
        max_depth=st.integers(1, 16),
        model=st.just("/--tools"),
    ),
)
maybe = st.none() | st.integers(0, 4096)
profiles = st.builds(
    Profile,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True),
    model=st.text(min_size=1, max_size=20),
    context=st.integers(256, 262_144),
    slots=st.integers(1, 8),
    kv_type=st.sampled_from(["f16", "q8_0", "q4_0"]),
    draft_kv_type=st.none() | st.sampled_from(["f16", "q4_0"]),
    fit=st.sampled_from(Fit),
    n_gpu_layers=maybe,
    threads=maybe,
    batch=maybe,
    ubatch=maybe,
    flash_attention=st.sampled_from(["auto", "on", "off"]),
    device=st.none() | st.just("ROCm0"),
    seed=maybe,
    drafter=drafters,
)
endpoints = st.sampled_from([SOCKET, TcpEndpoint("127.0.0.1", 1, "k")])


def options_of(argv: tuple[str, ...]) -> list[str]:
    """The options as the engine reads them: a value is never taken for one."""
    options, words = [], list(argv[1:])
    while words:
        name = words.pop(0)
        options.append(name)
        if name not in TAKES_NO_VALUE:
            words.pop(0)
    return options


@given(profiles, st.data(), endpoints, st.sampled_from(["b10434", "b11434"]), st.booleans())
def test_no_profile_reaches_a_denied_flag(
    what: Profile,
    data: st.DataObject,
    endpoint: Endpoint,
    build_name: str,
    device: bool,  # noqa: FBT001 - drawn, not passed by hand
) -> None:
    depth = data.draw(st.integers(0, what.drafter.max_depth))
    engine = binary(build_name)
    try:
        made = command(what, depth, engine=engine, endpoint=endpoint, device_present=device)
    except BinaryError:
        assert not what.model.isprintable()
        return
    assert all(word.isprintable() for word in made.argv)
    options = options_of(made.argv)
    assert len(options) == len(set(options))
    assert set(options) <= engine.flags
    assert set(options).isdisjoint(DENIED)
    assert not any(name.startswith("LLAMA_ARG") for name in made.env)
    speculative = [name for name in options if "spec" in name or "draft" in name]
    assert bool(speculative) == (depth > 0)
