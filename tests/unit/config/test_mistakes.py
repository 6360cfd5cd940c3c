"""What a user can write wrongly, and the one sentence that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.sources import MAX_BYTES
from tests.unit.config.writing import only_problem, problems, write

if TYPE_CHECKING:
    from pathlib import Path


SEVERAL_SLOTS = (
    "with 2 slots: builds of llama-server were seen to put text of one slot into another's answer,"
    " and to accept no draft: set slots = 1, or several_slots = 'accept' beside it for a build that"
    " does neither"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[servre]\n", "mtpd.toml:1: servre: unknown key; did you mean 'server'?"),
        ("server = 3\n", "mtpd.toml:1: server: must be a table, not 3"),
        (
            '[tuning]\nmode = "idl"\n',
            (
                "mtpd.toml:2: tuning.mode: must be 'off', 'observe' or 'idle', not 'idl';"
                " did you mean 'idle'?"
            ),
        ),
        (
            "[tuning]\nmin_idle_s = nan\n",
            "mtpd.toml:2: tuning.min_idle_s: must be a finite number, not nan",
        ),
        (
            '[server]\nhosts = ["*"]\n',
            (
                "mtpd.toml:2: server.hosts.0: must name each host: '*' would let any web page in,"
                " by DNS rebinding"
            ),
        ),
        (
            '[server]\nhosts = ["gpu.lan", "http://gpu.lan"]\n',
            (
                "mtpd.toml:2: server.hosts.1: must be NAME or NAME:PORT, a name or an address such"
                " as '[fd00::5]', not 'http://gpu.lan'"
            ),
        ),
        (
            '[server]\ncors_origins = ["*"]\n',
            (
                "mtpd.toml:2: server.cors_origins.0: must name each origin: '*' would let any web"
                " page use the models"
            ),
        ),
        (
            '[server]\ncors_origins = ["http://ok.lan", "https://ui.lan/"]\n',
            (
                "mtpd.toml:2: server.cors_origins.1: must be SCHEME://HOST or SCHEME://HOST:PORT,"
                " as a browser sends it, not 'https://ui.lan/'"
            ),
        ),
        (
            "[server]\nmax_waiting = true\n",
            "mtpd.toml:2: server.max_waiting: must be a whole number, not True",
        ),
        (
            '[server]\nlisten = "0.0.0.0:8080"\n',
            (
                "mtpd.toml:2: server.listen: 0.0.0.0:8080 can be reached from other machines; that"
                " needs the key 'hosts', the names under which they ask, e.g. hosts = ['gpu.lan',"
                " '192.168.1.5'], and an access token (mtpd token add)"
            ),
        ),
        (
            '[server]\nlisten = "127.0.0.1"\n',
            (
                "mtpd.toml:2: server.listen: must be ADDRESS:PORT such as '127.0.0.1:8080' or"
                " '[::1]:8080', not '127.0.0.1'"
            ),
        ),
        (
            '[server]\nlisten = "127.0.0.1:70000"\n',
            "mtpd.toml:2: server.listen: the port must be at most 65535, not 70000",
        ),
        (
            '[server]\nlisten = "example.org:80"\n',
            "mtpd.toml:2: server.listen: must name an IP address or 'localhost', not 'example.org'",
        ),
        (
            '[budget]\nhardware = "gfx906-16g-150W"\n',
            (
                "mtpd.toml:2: budget.hardware: there is no hardware profile 'gfx906-16g-150W';"
                " did you mean 'gfx906-16g-150w'?"
            ),
        ),
        (
            '[budget]\nhardware = "zzz"\n',
            (
                "mtpd.toml:2: budget.hardware: there is no hardware profile 'zzz';"
                " known are gfx906-16g-150w"
            ),
        ),
        (
            '[engine]\nextra_env = { LD_PRELOAD = "/x.so" }\n',
            (
                "mtpd.toml:2: engine.extra_env.LD_PRELOAD: may not be set for engines; allowed are"
                " HIP_*, ROCR_*, HSA_*, GPU_*, CUDA_VISIBLE_DEVICES, GGML_VK_VISIBLE_DEVICES,"
                " LD_LIBRARY_PATH"
            ),
        ),
        (
            '[engine.extra_env]\nHIP_X = "a\\nb"\n',
            "mtpd.toml:2: engine.extra_env.HIP_X: must be printable text on one line",
        ),
        (
            '[engine]\nbinary = "~/llama-server"\n',
            (
                "mtpd.toml:2: engine.binary: '~' is not expanded here; write the whole path instead"
                " of '~/llama-server'"
            ),
        ),
        (
            "[models.tiny-chaned]\nslots = 1\n",
            (
                "mtpd.toml:1: models.tiny-chaned: the key 'model' is required, as there is no"
                " profile 'tiny-chaned'; did you mean 'tiny-chained'?"
            ),
        ),
        (
            '[models."a b"]\nmodel = "m"\n',
            (
                "mtpd.toml:1: models.\"a b\": 'a b' is not a model name: letters, digits and"
                " . _ + : - (at most 100)"
            ),
        ),
        (
            '[models.m]\nmodel = "m\\u0000"\n',
            "mtpd.toml:2: models.m.model: must be printable text on one line",
        ),
        (
            '[models.m]\nmodel = "bundled:../m"\n',
            "mtpd.toml:2: models.m.model: 'bundled:../m' must name a file that comes with mtpd",
        ),
        (
            '[models.m]\nmodel = "m"\ncontext = 512\nslots = 4\n',
            "mtpd.toml:4: models.m.slots: 4 slots need a context of at least 1024 tokens",
        ),
        (
            '[models.m]\nmodel = "m"\nbatch = 64\nubatch = 128\n',
            "mtpd.toml:4: models.m.ubatch: must be at most batch (64), not 128",
        ),
        (
            '[models.m]\nmodel = "m"\nkv_type = "q8_0"\nflash_attention = "off"\n',
            (
                "mtpd.toml:3: models.m.kv_type: q8_0 needs flash attention, which"
                " flash_attention = 'off' forbids"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\ndevice = "ROCm0,ROCm1"\n',
            (
                "mtpd.toml:3: models.m.device: must match pattern '^[A-Za-z0-9_.:-]{1,64}$',"
                " not 'ROCm0,ROCm1'"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\n[models.n]\nmodel = "m"\nserved_as = "m"\n',
            "mtpd.toml:5: models.n.served_as: the alias 'm' is already the model 'm'",
        ),
        (
            '[models.m]\nmodel = "m"\nserved_as = "a,b"\n',
            (
                "mtpd.toml:3: models.m.served_as: 'a,b' is not an alias: letters, digits and"
                " . _ + : / @ -"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\naliases = ["a,b"]\n',
            (
                "mtpd.toml:3: models.m.aliases.0: 'a,b' is not an alias: letters, digits and"
                " . _ + : / @ -"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\naliases = ["tiny-chained"]\n[models.tiny-chained]\n',
            (
                "mtpd.toml:3: models.m.aliases.0: the alias 'tiny-chained' is already the model"
                " 'tiny-chained'"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\naliases = ["auto"]\n',
            "mtpd.toml:3: models.m.aliases.0: the alias 'auto' is already a reserved word",
        ),
        (
            '[models.m]\nmodel = "m"\naliases = ["x"]\n[models.n]\nmodel = "m"\naliases = ["x"]\n',
            "mtpd.toml:6: models.n.aliases.0: the alias 'x' is already an alias of 'm'",
        ),
        (
            '[models.auto]\nmodel = "m"\n',
            "mtpd.toml:1: models.auto: 'auto' is a reserved word",
        ),
        (
            '[pools.tiny-chained]\nmembers = ["tiny-chained"]\n',
            "mtpd.toml:1: pools.tiny-chained: 'tiny-chained' is already the model 'tiny-chained'",
        ),
        (
            '[pools."p q"]\nmembers = ["tiny-chained"]\n',
            "mtpd.toml:1: pools.\"p q\": 'p q' is not a pool name: letters, digits and . _ + : -",
        ),
        (
            '[pools.p]\nmembers = ["tiny-chained", "tiny-chained"]\n',
            "mtpd.toml:2: pools.p.members.1: 'tiny-chained' is listed twice",
        ),
        (
            '[groups.g]\nmembers = ["tiny-chaned"]\n',
            (
                "mtpd.toml:2: groups.g.members.0: there is no model 'tiny-chaned';"
                " did you mean 'tiny-chained'?"
            ),
        ),
        (
            '[groups.g]\nmembers = ["tiny-chained"]\n[groups.h]\nmembers = ["tiny-chained"]\n',
            "mtpd.toml:4: groups.h.members.0: 'tiny-chained' is already in the group 'g'",
        ),
        (
            '[groups.g]\nmembers = ["tiny-chained", "tiny-chained"]\n',
            "mtpd.toml:2: groups.g.members.1: 'tiny-chained' is listed twice",
        ),
        (
            '[groups."(default)"]\nmembers = ["tiny-chained"]\n',
            (
                "mtpd.toml:1: groups.\"(default)\": '(default)' is not a group name: letters,"
                " digits and . _ + : -"
            ),
        ),
        (
            '[groups.g]\nmembers = ["tiny-chained"]\nexclusif = true\n',
            "mtpd.toml:3: groups.g.exclusif: unknown key; did you mean 'exclusive'?",
        ),
        (
            "[pools.p]\nmembers = []\n",
            "mtpd.toml:2: pools.p.members: must have at least 1 item, not 0",
        ),
        (
            '[pools.p]\nmembers = ["tiny-chained"]\nmin_context = 0\n',
            "mtpd.toml:3: pools.p.min_context: must be greater than or equal to 1, not 0",
        ),
        *(
            (
                (
                    "[models.m]\nmodel = 'm'\nslots = 2\n"
                    f"drafter = {{ kind = '{kind}', max_depth = 2{more} }}\n"
                ),
                f"mtpd.toml:4: models.m.drafter.kind: '{kind}' {SEVERAL_SLOTS}",
            )
            for kind, more in (("mtp", ""), ("mtp-file", ", model = 'h'"), ("adaptive", ""))
        ),
        (
            (
                "[models.m]\nmodel = 'm'\ncontext = 8192\nslots = 2\n"
                "[pools.p]\nmembers = ['m']\nmin_context = 4097\n"
            ),
            (
                "mtpd.toml:7: pools.p.min_context: no member holds 4097 tokens in one slot;"
                " the most is 4096"
            ),
        ),
        (
            (
                "[models.m]\nmodel = 'm'\ntags = ['safe']\n"
                "[pools.p]\nmembers = ['m']\nrequire_tags = ['uncensored']\n"
            ),
            "mtpd.toml:6: pools.p.require_tags: no member has uncensored; their tags are: safe",
        ),
        (
            "[models.m]\nmodel = 'm'\ntags = ['safe', 'a,b']\n",
            (
                "mtpd.toml:3: models.m.tags.1: 'a,b' could not be asked for: no commas, and no"
                " spaces around it"
            ),
        ),
        (
            "[models.m]\nmodel = 'm'\naliases = ['auto:safe']\n",
            (
                "mtpd.toml:3: models.m.aliases.0: 'auto:safe' is reserved: it asks for a model"
                " with that tag"
            ),
        ),
        (
            '[pools.p]\nmembers = ["tiny-chained"]\nquality_bound = 0.9\n',
            "mtpd.toml:3: pools.p.quality_bound: must be greater than or equal to 1, not 0.9",
        ),
        (
            "[models.m]\nmodel = 'm'\n[pools.p]\nmembers = ['m']\nquality_bound = 1.05\n",
            ("mtpd.toml:5: pools.p.quality_bound: no member has a [quality] table to compare by"),
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { max_depth = 2 }\n',
            (
                "mtpd.toml:3: models.m.drafter.max_depth: needs the key 'kind', the drafter:"
                " name one, e.g. 'mtp'"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { kind = "none", depth = 2 }\n',
            "mtpd.toml:3: models.m.drafter.depth: must be 0 where kind is 'none', not 2",
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { kind = "MTP", max_depth = 2 }\n',
            (
                "mtpd.toml:3: models.m.drafter.kind: must be 'none', 'mtp', 'mtp-file',"
                " 'draft-model', 'eagle3', 'ngram', 'ngram-map-k', 'ngram-map-k4v', 'ngram-mod'"
                " or 'adaptive', not 'MTP'; did you mean 'mtp'?"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { kind = "mtp" }\n',
            "mtpd.toml:3: models.m.drafter.max_depth: must be at least 1 where kind is 'mtp'",
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { kind = "mtp", max_depth = 2, depth = 3 }\n',
            "mtpd.toml:3: models.m.drafter.depth: must be at most max_depth (2), not 3",
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { kind = "eagle3", max_depth = 2 }\n',
            (
                "mtpd.toml:3: models.m.drafter.kind: 'eagle3' needs the key 'model', the file of"
                " the drafter"
            ),
        ),
        (
            '[models.m]\nmodel = "m"\ndrafter = { kind = "mtp", max_depth = 2, model = "h" }\n',
            "mtpd.toml:3: models.m.drafter.model: is not used where kind is 'mtp'",
        ),
        (
            '[models.m]\nmodel = "m"\nquality = { perplexity = 5.6, corpus = "c" }\n',
            "mtpd.toml:3: models.m.quality: the key 'chunks' is required",
        ),
    ],
)
def test_each_mistake_has_its_own_sentence(tmp_path: Path, text: str, problem: str) -> None:
    assert only_problem(tmp_path, text) == problem


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ('path = "/completion"\nmessages = []\n', "'/completion' takes 'prompt' and no 'messages'"),
        (
            'path = "/v1/chat/completions"\nprompt = "x"\n',
            "'/v1/chat/completions' takes 'messages' and no 'prompt'",
        ),
        (
            'path = "/v1/chat/completions"\nmessages = [{ role = "assistant", content = "x" }]\n',
            "the last message must be the user's",
        ),
    ],
)
def test_a_prompt_that_its_endpoint_cannot_take_is_refused(
    tmp_path: Path, prompt: str, problem: str
) -> None:
    text = f'description = "d"\nmax_tokens = 1\n[[prompts]]\n{prompt}'
    workload = write(tmp_path / "profiles/workloads/w.toml", text)
    path = write(tmp_path / "mtpd.toml", "")
    assert problems(path) == (f"{workload}:3: prompts.0: {problem}",)


def test_text_that_is_not_toml_is_told_with_line_and_column(tmp_path: Path) -> None:
    assert only_problem(tmp_path, "[a]\nb = = 1\n") == "mtpd.toml:2:5: not TOML: Invalid value"


@pytest.mark.parametrize("name", ["mine", '"a.b"', '"it\'s"'])
def test_a_table_that_stands_twice_is_named_as_in_the_file(tmp_path: Path, name: str) -> None:
    table = f"[models.{name}]\n"
    said = only_problem(tmp_path, f"{table}context = 1024\n{table}slots = 1\n")
    assert said.startswith("mtpd.toml:3:")
    assert f"not TOML: the table [models.{name}] is declared twice" in said


def test_nesting_that_exhausts_the_parser_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    text = "a = " + "[" * 20_000 + "]" * 20_000
    assert "nested" in only_problem(tmp_path, text).lower()


def test_a_number_that_python_refuses_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    assert only_problem(tmp_path, "a = " + "9" * 5_000).startswith("mtpd.toml: not TOML: ")


def test_a_file_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mtpd.toml"
    path.write_bytes(b'# x\na = "\xff"\n')
    assert problems(path) == (f"{path}:2: is not UTF-8 text",)


def test_a_file_above_the_limit_is_not_parsed(tmp_path: Path) -> None:
    path = write(tmp_path / "mtpd.toml", "#" * (MAX_BYTES + 1))
    assert problems(path) == (f"{path}: is larger than 256 KiB",)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.toml") == (f"{tmp_path}/no.toml: does not exist",)
    assert problems(tmp_path) == (f"{tmp_path}: is not a regular file",)


def test_a_model_to_preload_that_is_not_there(tmp_path: Path) -> None:
    model = '[models.tiny]\nmodel = "/m.gguf"\naliases = ["x"]\n'
    problem = only_problem(tmp_path, f'[server]\npreload = ["x", "tinyy"]\n{model}')
    assert problem == (
        "mtpd.toml:2: server.preload.1: there is no model or pool 'tinyy'; did you mean 'tiny'?"
    )


def test_what_generates_no_text_drafts_none(tmp_path: Path) -> None:
    text = """
[models.e]
model = "/e.gguf"
purpose = "embedding"
drafter = { kind = "mtp", max_depth = 1 }
[models.t]
model = "/t.gguf"
pooling = "mean"
"""
    path = write(tmp_path / "mtpd.toml", text)
    drafts = "must be 'none' where purpose is 'embedding': no text is drafted"
    assert problems(path) == (
        f"{path}:5: models.e.drafter.kind: {drafts}",
        f"{path}:8: models.t.pooling: needs purpose = 'embedding'",
    )
