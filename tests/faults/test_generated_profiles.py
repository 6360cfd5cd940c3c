"""Whatever a configuration says, an engine is started with allowed flags only.

Configurations of our own, of llama-swap and of llama.cpp's router are made up, with every flag
of the engine in every spelling as key, as value and inside of command lines. Each is refused, or
its command lines hold nothing outside the list below. ``make test`` makes some of them,
``MTPD_ENDURANCE`` 100 000.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mtpd.compat import hub
from mtpd.config.files import named_files
from mtpd.config.load import load
from mtpd.engine.command import build
from mtpd.engine.flags import parse_help
from mtpd.errors import BinaryError, ConfigError
from mtpd.types import EngineBinary, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mtpd.config.model import Profile

CORPUS = Path(__file__).parents[1] / "corpus"
TABLE = json.loads((CORPUS / "llama_flags_b11434.json").read_text())["flags"]
CLASS: Final = {name: entry["class"] for entry in TABLE for name in entry["names"]}
FLAGS, TYPES = parse_help((CORPUS / "help" / "b11434.txt").read_text())
BINARY = EngineBinary(
    argv=("/opt/llama-server",),
    kind="external",
    flags=FLAGS,
    spec_types=TYPES,
    digest="d",
    label="llama-server",
    unix_socket=True,
)
FULL = "MTPD_ENDURANCE" in os.environ
SEEDS = range(100 if FULL else 2)
EACH: Final = 1000 if FULL else 200

BARE: Final = frozenset({"--metrics", "--slots", "--no-ui", "--offline", "--embedding"})
"""Flags that take no value."""
VALUED: Final = frozenset(
    {
        *("--model", "--alias", "--host", "-lv", "--log-colors", "--sse-ping-interval"),
        *("--timeout", "--ctx-size", "--parallel", "--cache-type-k", "--cache-type-v"),
        *("--batch-size", "--ubatch-size", "--flash-attn", "--pooling", "--threads", "--seed"),
        *("--device", "--fit", "--fit-target", "--n-gpu-layers", "--cache-ram"),
        *("--ctx-checkpoints", "--spec-type", "--spec-draft-n-max", "--spec-draft-p-min"),
        *("--spec-draft-model", "--spec-draft-type-k", "--spec-draft-type-v"),
        *("--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m"),
        *("--spec-ngram-map-k-size-m", "--spec-ngram-map-k4v-size-m"),
        *("--spec-ngram-mod-n-max", "--spec-ngram-mod-n-min"),
    }
)
"""Flags that take the word behind them, whatever it looks like."""
PATHS: Final = frozenset({"--model", "--spec-draft-model"})
VARIABLES: Final = frozenset(
    {
        *("PATH", "HOME", "LANG", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
        *("GGML_NO_BACKTRACE", "LLAMA_TRACE", "MTPD_INSTANCE", "LD_LIBRARY_PATH"),
        *("LLAMA_SERVER_ROUTER_PORT", "LLAMA_API_KEY"),
    }
)

NAMES: Final = sorted(CLASS)
DANGEROUS: Final = sorted(name for name, kind in CLASS.items() if kind.startswith("deny"))
KEYS: Final = (
    *("model", "context", "slots", "kv_type", "draft_kv_type", "offload", "fit", "seed"),
    *("n_gpu_layers", "threads", "batch", "ubatch", "flash_attention", "purpose", "pooling"),
    *("device", "aliases", "served_as", "tags", "description", "env", "command", "kind"),
    *("drafter", "drafters", "upstream_model", "args", "extra_args", "flags", "cmd", "proxy"),
)
SOUND: Final = {
    "context": ("4096", "256", "65536"),
    "slots": ("1", "4"),
    "kv_type": ('"q8_0"', '"f16"', '"q4_0"'),
    "fit": ('"auto"', '"off"', '"engine"'),
    "flash_attention": ('"on"', '"auto"'),
    "n_gpu_layers": ("0", "40"),
    "threads": ("1", "2"),
    "batch": ("512",),
    "ubatch": ("128",),
    "seed": ("7",),
    "device": ('"ROCm0"',),
    "purpose": ('"embedding"', '"rerank"', '"text"'),
    "pooling": ('"mean"',),
    "drafter": (
        '{ kind = "mtp", max_depth = 3 }',
        '{ kind = "ngram", max_depth = 4 }',
        '{ kind = "draft-model", max_depth = 2, model = "/srv/d.gguf" }',
        '{ kind = "eagle3", max_depth = 2, model = "/srv/d.gguf", p_min = 0.5 }',
    ),
}


def spelled(flag: str, chance: random.Random) -> str:
    """One of the spellings that the engine takes for this flag, or that look like it."""
    changes: tuple[Callable[[str], str], ...] = (
        str,
        lambda text: text[:2] + text[2:].replace("-", "_"),
        lambda text: text.lstrip("-"),
        lambda text: text.lstrip("-").replace("-", "_"),
        str.upper,
        lambda text: f"{text}=1",
        lambda text: f" {text}",
        lambda text: text.replace("-", "\u2010"),
        lambda text: f"LLAMA_ARG_{text.lstrip('-').replace('-', '_').upper()}",
    )
    return chance.choice(changes)(flag)


def hostile(chance: random.Random) -> str:
    """A text that wants to become a flag, another file or another variable."""
    flag = spelled(chance.choice(DANGEROUS if chance.random() < 0.7 else NAMES), chance)
    return chance.choice(
        (
            flag,
            f"/m.gguf {flag} all",
            f"/m.gguf\n{flag}\nall",
            f"/m.gguf\x00{flag}",
            f"../../etc/passwd,{flag}",
            f'"; {flag} "',
            f"x' {flag} '",
            f"$({flag})",
            "${env.HOME} " + flag,
            f"hf:a/b:{flag}",
            "file:///etc/passwd",
            "http://192.0.2.1/m.gguf",
            f"m,{flag}",
        )
    )


def of_our_own(chance: random.Random) -> str:
    lines = [f"[models.{chance.choice(('m', 'a-b', json.dumps(hostile(chance))))}]"]
    keys = {"model", *chance.sample(KEYS, chance.randrange(6))}
    for key in sorted(keys):
        sound = SOUND.get(key, ('"/srv/m.gguf"',) if key == "model" else ())
        if sound and chance.random() < 0.8:
            lines.append(f"{key} = {chance.choice(sound)}")
        else:
            text = json.dumps(hostile(chance))
            lines.append(f"{key} = {chance.choice((text, f'[{text}]', f'{{ x = {text} }}'))}")
    if chance.random() < 0.2:
        lines.append(f"{json.dumps(spelled(chance.choice(NAMES), chance))} = 1")
    if chance.random() < 0.2:
        lines.insert(0, f"[engine.env]\n{json.dumps(spelled('--tools', chance))} = 'all'")
    return "\n".join(lines) + "\n"


def of_llama_swap(chance: random.Random) -> str:
    words = [chance.choice(("llama-server", "/opt/llama-server")), "--port ${PORT}"]
    words.append(f"{chance.choice(('-m', '--model'))} /srv/m.gguf")
    for _ in range(chance.randrange(4)):
        flag = spelled(chance.choice(NAMES), chance)
        words.append(f"{flag} {chance.choice(('1', 'all', 'on', '/etc/passwd', ''))}")
    chance.shuffle(words[1:])
    lines = ["models:", "  m:", f"    cmd: {json.dumps(' '.join(words))}"]
    if chance.random() < 0.3:
        lines.append(f"    env: [{json.dumps(spelled('--tools', chance) + '=all')}]")
    return "\n".join(lines) + "\n"


def of_the_router(chance: random.Random) -> str:
    given = (
        f"{spelled(chance.choice(NAMES), chance).strip()} = {hostile(chance)!r}"
        for _ in range(chance.randrange(4))
    )
    return "\n".join(("[m]", "model = /srv/m.gguf", *given)) + "\n"


MAKERS: Final = (
    (of_our_own, "mtpd.toml"),
    (of_llama_swap, "config.yaml"),
    (of_the_router, "models.ini"),
)


def words_of(argv: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Flags with their values, read as the engine reads them."""
    words = iter(argv)
    assert next(words) == "/opt/llama-server"
    for word in words:
        yield word, None if word in BARE else next(words)


def check(profile: Profile) -> int:
    """Look at every command line of a profile; how many there were."""
    built = 0
    if any(hub.parse(text) for _, text in named_files(profile)):
        return built  # nobody has downloaded it: the planner refuses it before any command
    for depth in range(profile.drafter.max_depth + 1):
        try:
            command = build(
                binary=BINARY,
                profile=profile,
                arm=profile.arm(depth),
                endpoint=UnixEndpoint("/run/mtpd/e.sock"),
                threads=None,
                device_present=True,
                home="/cache/engine",
            )
        except BinaryError:
            continue
        built += 1
        for flag, value in words_of(command.argv):
            assert flag in BARE | VALUED, command.argv
            assert not CLASS.get(flag, "typed").startswith("deny"), command.argv
            assert flag not in PATHS or (value and value.startswith("/")), command.argv
            assert value is None or value.isprintable(), command.argv
        assert set(command.env) <= VARIABLES, command.env
    return built


def test_the_list_is_made_of_flags_that_the_engine_has_and_none_that_is_denied() -> None:
    assert set(CLASS) >= BARE | VALUED
    assert {CLASS[flag] for flag in BARE | VALUED} <= {
        *("typed", "bounded", "tuner", "daemon", "path_in_root"),
    }
    assert len(TABLE) == 256


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_made_up_configuration_gets_a_flag_past_the_list(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    shipped = set(load(None).profiles)
    built = refused = 0
    for _ in range(EACH):
        make, name = chance.choice(MAKERS)
        path = tmp_path / name
        path.write_text(make(chance), encoding="utf-8")
        try:
            config = load(path)
        except ConfigError:
            refused += 1
            continue
        for profile in config.profiles.values():
            if profile.name not in shipped and profile.opaque is None:
                built += check(profile)
    # Both happen, else nothing was tried.
    assert built > EACH // 20
    assert refused > EACH // 4
