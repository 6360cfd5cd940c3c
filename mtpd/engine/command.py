"""From an arm to the exact command line and environment of its engine.

One pure function builds the list; option and value follow each other as separate
words. Every option is typed here: there is no way to pass an argument through, so a
profile cannot reach flags that run programs, open networks or write files
(docs/configuration.md lists what is passed). Whether the arm fits into memory is not
decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.config.model import SIMPLE, Fit, Purpose, may_set_for_engine
from mtpd.errors import BinaryError
from mtpd.types import Command, HttpEndpoint, TcpEndpoint, UnixEndpoint
from tuner.types import Drafter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mtpd.config.model import Profile
    from mtpd.types import Endpoint, EngineBinary
    from tuner.types import Arm

__all__ = [
    "Words",
    "build",
    "cache_types",
    "device_variables",
    "effective_flags",
    "environment",
    "given",
    "placement",
]

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

ALL_LAYERS = 99
"""More layers than any model has: everything goes to the device."""

CACHE_RAM_MIB = 1024
"""Bound of the prompt cache in host memory; the engine's own default is 8 GiB."""

CONTEXT_CHECKPOINTS = 4
"""Bound per slot: each holds a recurrent state row and the draft head's cache so far, some
280 MiB for a 27B hybrid at 32K tokens, and the engine's own default is 32."""

_NO_ENV: Mapping[str, str] = {}

PING_S = 5
TIMEOUT_S = 120

SPEC_TYPES: dict[Drafter, tuple[str, ...]] = {
    # Forks that had the head first call the type "mtp".
    Drafter.MTP: ("draft-mtp", "mtp"),
    Drafter.MTP_FILE: ("draft-mtp", "mtp"),
    Drafter.DRAFT_MODEL: ("draft-simple",),
    Drafter.EAGLE3: ("draft-eagle3",),
    Drafter.ADAPTIVE: ("draft-mtp-adaptive",),
}

NGRAM_LENGTHS = {
    "simple": ("--spec-ngram-simple-size-m",),
    "map-k": ("--spec-ngram-map-k-size-m",),
    "map-k4v": ("--spec-ngram-map-k4v-size-m",),
    # Its shortest draft is 48 tokens by default: it would never draft less.
    "mod": ("--spec-ngram-mod-n-max", "--spec-ngram-mod-n-min"),
}
"""What takes the depth of a drafter that looks into the text itself, by the way it does."""

NGRAM_SIZE = 12
"""Tokens that "ngram-simple" looks for by default; it makes no draft that is shorter, so that a
smaller depth would never draft (seen on b11434)."""

_HINT = "use a newer llama-server, or binary = 'embedded' under [engine]"


class Words:
    """Collects arguments, spelled as this binary spells them."""

    def __init__(self, binary: EngineBinary) -> None:
        self.binary = binary
        self.words: list[str] = []

    def need(self, spellings: tuple[str, ...], *value: object) -> None:
        """Pass an option without which the arm would not be what it says."""
        name = self._known(spellings)
        if name is None:
            message = f"{self.binary.label} does not know {max(spellings, key=len)}."
            raise BinaryError(message, hint=_HINT)
        self._add(name, value)

    def want(self, spellings: tuple[str, ...], *value: object) -> None:
        """Pass an option if the binary has it."""
        name = self._known(spellings)
        if name is not None:
            self._add(name, value)

    def _known(self, spellings: tuple[str, ...]) -> str | None:
        return next((name for name in spellings if name in self.binary.flags), None)

    def _add(self, name: str, value: Iterable[object]) -> None:
        words = [name, *(str(part) for part in value)]
        for word in words:
            if not word.isprintable():
                message = f"The value {word!r} of {name} is not printable text."
                raise BinaryError(message, hint="correct the profile")
        self.words += words


def build(
    *,
    binary: EngineBinary,
    profile: Profile,
    arm: Arm,
    endpoint: Endpoint,
    threads: int | None,
    device_present: bool,
    home: str,
    headroom_mib: int = 256,
    fits: bool = False,
    extra_env: tuple[tuple[str, str], ...] = (),
    device_env: Mapping[str, str] = _NO_ENV,
    instance: str = "",
    path_env: str = DEFAULT_PATH,
) -> Command:
    """Build the command of one engine start.

    Args:
        binary: What is started, with the flags that it lists.
        profile: The model and how it is loaded.
        arm: Which depth; must belong to the profile.
        endpoint: Where it will listen.
        threads: Engine threads where the profile names none.
        device_present: Whether the host has a device that layers could go to.
        home: Private directory for the engine's caches. ``home/config`` must exist and be
            empty, or stay absent: the engine reads options from files below it.
        headroom_mib: Device memory that the engine's own fit leaves free.
        fits: Whether the arm is certain to fit, so that all layers go to the device and
            the engine's fit has nothing to decide.
        extra_env: Device variables from the configuration.
        device_env: Variables that leave the engine one card only; left out where the
            configuration chooses devices itself, because the two would be counted within
            each other.
        instance: Mark by which leftovers of a dead daemon are recognised.
        path_env: ``PATH`` of the engine.

    Raises:
        BinaryError: The binary lacks a flag that the arm needs.
    """
    if arm.profile != profile.name:
        message = f"arm {arm} does not belong to profile {profile.name}"
        raise ValueError(message)
    words = Words(binary)
    _serving(words, profile, endpoint)
    words.words += effective_flags(
        binary=binary,
        profile=profile,
        threads=threads,
        device_present=device_present,
        headroom_mib=headroom_mib,
        fits=fits,
    )
    if arm.depth > 0:
        _speculation(words, profile, arm)
    variables = environment(binary, endpoint, home=home, instance=instance, path_env=path_env)
    if arm.p_min > 0.0:
        variables["LLAMA_TRACE"] = "1"  # the only source of a single draft's length
    variables |= device_variables(profile, extra_env, device_env)
    return Command(argv=(*binary.argv, *words.words), env=variables)


def effective_flags(
    *,
    binary: EngineBinary,
    profile: Profile,
    threads: int | None,
    device_present: bool,
    headroom_mib: int = 256,
    fits: bool = False,
) -> tuple[str, ...]:
    """The part of the command line that a result depends on, whatever the depth.

    Belongs to the fingerprint, without ``fits``: how a resident arm came to be resident
    changes no result. Files, addresses and the drafter are told apart elsewhere.

    Raises:
        BinaryError: The binary lacks a flag that the profile needs.
    """
    words = Words(binary)
    words.need(("--ctx-size", "-c"), profile.context)
    # The engine's own default is four slots, each with recurrent state rows of its own.
    words.need(("--parallel", "-np"), profile.slots)
    cache_types(words, profile)
    given(words, ("--batch-size", "-b"), profile.batch)
    given(words, ("--ubatch-size", "-ub"), profile.ubatch)
    if profile.flash_attention != "auto":
        words.need(("--flash-attn", "-fa"), profile.flash_attention)
    _purpose(words, profile)
    count = profile.threads if profile.threads is not None else threads
    given(words, ("--threads", "-t"), count)
    given(words, ("--seed", "-s"), profile.seed)
    given(words, ("--device", "-dev"), profile.device)
    placement(words, profile, device_present=device_present, headroom_mib=headroom_mib, fits=fits)
    words.want(("--cache-ram", "-cram"), CACHE_RAM_MIB)
    words.want(("--ctx-checkpoints", "-ctxcp", "--swa-checkpoints"), CONTEXT_CHECKPOINTS)
    return tuple(words.words)


def _serving(words: Words, profile: Profile, endpoint: Endpoint) -> None:
    words.need(("--model", "-m"), profile.model)
    words.want(("--alias", "-a"), profile.shown_name)
    match endpoint:
        case UnixEndpoint(path=path):
            _listen_on_unix_socket(words, path)
        case TcpEndpoint(host=host, port=port):
            words.need(("--host",), host)
            words.need(("--port",), port)
        case HttpEndpoint(url=url):
            message = f"llama-server is not started at {url}: that is for other programs"
            raise ValueError(message)
    # At the default verbosity the lines that prove residency are not printed at all.
    words.need(("-lv", "--verbosity", "--log-verbosity"), 4)
    words.want(("--log-colors",), "off")
    words.need(("--metrics",))
    words.want(("--slots",))
    words.want(("--no-ui", "--no-webui"))
    words.want(("--offline",))
    words.want(("--sse-ping-interval",), PING_S)
    words.want(("--timeout", "-to"), TIMEOUT_S)


def _listen_on_unix_socket(words: Words, path: str) -> None:
    binary = words.binary
    if not binary.unix_socket:
        message = f"{binary.label} cannot listen on a unix socket."
        raise BinaryError(message, hint="give it a loopback port")
    if not path.endswith(".sock") or "," in path:
        # The engine takes any other text for a host name, and a comma for two of them.
        message = f"{path!r} must end in .sock and hold no comma"
        raise ValueError(message)
    words.need(("--host",), path)


def _purpose(words: Words, profile: Profile) -> None:
    """For embeddings and ranking; ``--reranking`` is both flags in one."""
    if profile.purpose is Purpose.TEXT:
        return
    words.need(("--embedding", "--embeddings"))
    given(words, ("--pooling",), "rank" if profile.purpose is Purpose.RERANK else profile.pooling)


def cache_types(words: Words, profile: Profile) -> None:
    """Pass the types of the key and value cache."""
    for option in (("--cache-type-k", "-ctk"), ("--cache-type-v", "-ctv")):
        if profile.kv_type == "f16":
            words.want(option, profile.kv_type)
        else:
            words.need(option, profile.kv_type)


def given(words: Words, spellings: tuple[str, ...], value: object | None) -> None:
    """Pass an option that the profile sets."""
    if value is not None:
        words.need(spellings, value)


def placement(
    words: Words, profile: Profile, *, device_present: bool, headroom_mib: int, fits: bool
) -> None:
    """Decide who counts the layers.

    The engine's own fit keeps 1 GiB free by default and so evicts layers that would have
    fitted. With ``fit = "auto"`` it is switched off where the arm is certain to fit, because
    it also counts what the drafter needs on top of its margin; else it is told the
    configured headroom. A number of layers and its fit exclude each other.
    """
    fit, layers = ("--fit", "-fit"), ("--n-gpu-layers", "-ngl", "--gpu-layers")
    if profile.fit is Fit.ENGINE:
        given(words, layers, profile.n_gpu_layers)
        return
    if profile.fit is Fit.OFF or profile.n_gpu_layers is not None:
        words.want(fit, "off")
        count = ALL_LAYERS if profile.n_gpu_layers is None else profile.n_gpu_layers
        words.need(layers, count)
    elif not device_present:
        words.want(fit, "off")
    elif fits:
        words.want(fit, "off")
        words.need(layers, ALL_LAYERS)
    elif {"--fit-target", "-fitt"} & words.binary.flags:
        words.need(("--fit-target", "-fitt"), headroom_mib)
    else:
        # A build without a fit of its own loads no layer to the device unless told to.
        words.need(layers, ALL_LAYERS)


def _speculation(words: Words, profile: Profile, arm: Arm) -> None:
    """Depth 0 must not come here: the engine aborts on a depth of 0, so it gets no option."""
    binary = words.binary
    ngram = profile.drafter.ngram
    own = (f"ngram-{ngram}",) if arm.drafter is Drafter.NGRAM else ()
    choices = own or SPEC_TYPES.get(arm.drafter, ())
    kind = next((choice for choice in choices if choice in binary.spec_types), None)
    if kind is None:
        wanted = choices[0] if choices else arm.drafter.value
        message = f"{binary.label} has no speculation of type {wanted}."
        raise BinaryError(message, hint=_HINT)
    words.need(("--spec-type",), kind)
    if arm.drafter is Drafter.NGRAM:
        for length in NGRAM_LENGTHS[ngram]:
            words.need((length,), arm.depth)
        if ngram == SIMPLE and arm.depth < NGRAM_SIZE:
            words.need(("--spec-ngram-simple-size-n",), arm.depth)
        return
    words.need(("--spec-draft-n-max",), arm.depth)
    if arm.p_min > 0.0:
        words.need(("--spec-draft-p-min", "--draft-p-min"), arm.p_min)
    given(words, ("--spec-draft-model", "--model-draft", "-md"), profile.drafter.model)
    kv_type = profile.draft_kv_type or profile.kv_type
    for option in (
        ("--spec-draft-type-k", "--cache-type-k-draft", "-ctkd"),
        ("--spec-draft-type-v", "--cache-type-v-draft", "-ctvd"),
    ):
        if kv_type == "f16":
            words.want(option, kv_type)
        else:
            words.need(option, kv_type)


def device_variables(
    profile: Profile, extra_env: tuple[tuple[str, str], ...], device_env: Mapping[str, str]
) -> dict[str, str]:
    """Which devices a process sees: what the configuration says, else the one card."""
    own = {} if _chooses(profile, extra_env) else dict(device_env)
    return own | {name: value for name, value in extra_env if may_set_for_engine(name)}


def _chooses(profile: Profile, extra_env: tuple[tuple[str, str], ...]) -> bool:
    """Whether the configuration says which devices an engine sees or uses."""
    visible = any(name.endswith("_VISIBLE_DEVICES") for name, _ in extra_env)
    return visible or profile.device is not None


def environment(
    binary: EngineBinary, endpoint: Endpoint | None, *, home: str, instance: str, path_env: str
) -> dict[str, str]:
    """Everything the engine sees; nothing is inherited.

    So no ``LLAMA_ARG_*`` reaches it, and none of the variables that turn a lack of device
    memory into silent slowness (``GGML_CUDA_ENABLE_UNIFIED_MEMORY``,
    ``GGML_VK_ALLOW_SYSMEM_FALLBACK``).
    """
    key = "" if endpoint is None or isinstance(endpoint, HttpEndpoint) else endpoint.api_key
    variables = dict(binary.env) | {
        "PATH": path_env,
        "HOME": home,
        "LANG": "C.UTF-8",
        # llama-server adds options from $XDG_CONFIG_HOME/llama.cpp/config.ini on its own.
        "XDG_CONFIG_HOME": f"{home}/config",
        # An abort would start gdb, wait for it, and only then end.
        "GGML_NO_BACKTRACE": "1",
        "MTPD_INSTANCE": instance,
    }
    return variables | ({"LLAMA_API_KEY": key} if key else {})
