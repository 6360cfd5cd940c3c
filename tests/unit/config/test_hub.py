"""Models that are named by their repository: what is found of them, and what is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.cli.loading import load_config
from mtpd.compat import hub
from mtpd.compat.hub import HubModel
from mtpd.config.files import file_problems
from mtpd.config.hub import find_cached
from mtpd.config.load import load
from mtpd.config.remarks import not_honoured
from mtpd.errors import ConfigError
from tests.unit.compat.translating import one_model, profile, swap, told
from tests.unit.config.writing import only_problem, write

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("m-Q4_K_M.gguf", "m-IQ4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-Q8_0.gguf", "bf/m-BF16.gguf")


def download(cache: Path, *names: str, repo: str = "org--m") -> None:
    """Lay files where ``hf download`` lays them."""
    main = cache / f"models--{repo}"
    (main / "refs").mkdir(parents=True, exist_ok=True)
    (main / "refs" / "main").write_text("abc")
    for name in names:
        file = main / "snapshots" / "abc" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"GGUF")


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("hf:org/m", HubModel("org/m")),
        ("hf:org/m:q8_0", HubModel("org/m", quant="q8_0")),
        ("hf:org/m:bf/m-BF16.gguf", HubModel("org/m", file="bf/m-BF16.gguf")),
        ("hf:m", None),
        ("hf:org/../m", None),
        ("hf:org/m:../x.gguf", None),
        ("hf:org/m:a/b", None),
        ("/srv/m.gguf", None),
    ],
)
def test_a_name(text: str, model: HubModel | None) -> None:
    assert hub.parse(text) == model


@pytest.mark.parametrize(
    ("there", "model", "found"),
    [
        (ALL, HubModel("org/m"), "m-Q4_K_M.gguf"),
        (ALL, HubModel("org/m", quant="q8_0"), "m-Q8_0.gguf"),
        (ALL, HubModel("org/m", quant="bf16"), "bf/m-BF16.gguf"),
        (ALL, HubModel("org/m", quant="Q4"), None),
        (ALL, HubModel("org/m", file="bf/m-BF16.gguf"), "bf/m-BF16.gguf"),
        (ALL, HubModel("org/m", file="m-BF16.gguf"), None),
        (ALL, HubModel("org/other"), None),
        (("m-Q6_K.gguf", "mmproj-F16.gguf"), HubModel("org/m"), "m-Q6_K.gguf"),
        (("m-Q6_K.gguf", "m-Q5_K.gguf"), HubModel("org/m"), None),
        (("m-Q6_K.gguf",), HubModel("org/m", quant="Q8_0"), None),
        (("a/m-Q8_0.gguf", "b/m-Q8_0.gguf"), HubModel("org/m", quant="Q8_0"), None),
        (
            ("m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"),
            HubModel("org/m"),
            "m-Q8_0-00001-of-00002.gguf",
        ),
    ],
)
def test_what_is_found(
    there: tuple[str, ...], model: HubModel, found: str | None, tmp_path: Path
) -> None:
    download(tmp_path, *there)
    path = find_cached(model, {"HF_HUB_CACHE": str(tmp_path)})
    expected = None if found is None else tmp_path / "models--org--m" / "snapshots" / "abc" / found
    assert path == expected


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("LLAMA_CACHE", ""),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
def test_where_it_is_looked_for(variable: str, below: str, tmp_path: Path) -> None:
    download(tmp_path / below, "m-Q8_0.gguf")
    assert find_cached(HubModel("org/m"), {variable: str(tmp_path)}) is not None
    assert find_cached(HubModel("org/m"), {}) is None


@pytest.mark.parametrize(("variable", "below"), [("LLAMA_CACHE", ""), ("HOME", ".cache/llama.cpp")])
def test_the_folder_of_older_builds(variable: str, below: str, tmp_path: Path) -> None:
    folder = tmp_path / below
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("org_m_m-Q8_0.gguf", "org_m_m-Q8_0.gguf.json", "org_mx_m-Q4_K_M.gguf"):
        (folder / name).write_bytes(b"GGUF")
    environment = {variable: str(tmp_path)}
    assert find_cached(HubModel("org/m"), environment) == folder / "org_m_m-Q8_0.gguf"


def test_what_is_there_is_served_and_what_is_not_is_told(tmp_path: Path) -> None:
    text = (
        '[models.m]\nmodel = "hf:org/m:Q8_0"\n[models.n]\nmodel = "hf:org/n"\n[models.m.drafter]\n'
        'kind = "draft-model"\nmax_depth = 1\nmodel = "hf:org/m"\n'
    )
    path = write(tmp_path / "mtpd.toml", text)
    download(tmp_path, "m-Q8_0.gguf")
    config = load(path, environment={"HF_HUB_CACHE": str(tmp_path)})
    file = config.profiles["m"].model
    assert file.endswith("/snapshots/abc/m-Q8_0.gguf")
    assert config.profiles["m"].drafter.model == file
    (missing,) = file_problems(config)
    assert missing == (
        f"{path}:4: models.n.model: hf:org/n is not in the cache of Hugging Face or llama.cpp, and"
        " mtpd downloads nothing: hf download org/n --include '*Q4_K_M*.gguf', then mtpctl reload"
    )


def test_a_name_that_is_none(tmp_path: Path) -> None:
    assert "models.m.model: must be 'hf:OWNER/NAME' or" in only_problem(
        tmp_path, '[models.m]\nmodel = "hf:m"\n'
    )


def test_llama_swap_commands_name_a_repository() -> None:
    def made(flags: str) -> object:
        return profile(swap(f"models:\n  m:\n    cmd: llama-server --port ${{PORT}} {flags}\n"))[
            "model"
        ]

    assert made("-hf org/m") == "hf:org/m"
    assert made("-hf org/m:Q8_0") == "hf:org/m:Q8_0"
    assert made("--hf-repo org/m:Q8_0 --hf-file x/y.gguf") == "hf:org/m:x/y.gguf"
    assert any(
        "-hf" in one and "mtpd downloads nothing" in one for one in told(one_model("-hf a/b"))
    )


def test_a_foreign_file_tells_what_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    path = tmp_path / "config.yaml"
    path.write_text(
        "models: {m: {cmd: 'llama-server --port ${PORT} -np 1 -c 512 -hf org/m:Q8_0'}}\n"
    )
    (lost,) = not_honoured(load_config(path))
    assert lost.startswith(f"{path}:1: models.m.cmd.-hf: not honoured: hf:org/m:Q8_0 is not in the")
    assert "hf download org/m --include '*Q8_0*.gguf'" in lost
    with pytest.raises(ConfigError):
        load_config(path, strict=True)
    download(tmp_path, "m-Q8_0.gguf")
    assert not_honoured(load_config(path, strict=True)) == ()
