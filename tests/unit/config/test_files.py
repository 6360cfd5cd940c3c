from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.config import data
from mtpd.config.files import file_problems
from mtpd.config.load import load

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def config_of(folder: Path, text: str) -> Path:
    path = folder / "mtpd.toml"
    path.write_text(text)
    return path


def test_a_missing_model_file_is_told_at_the_line_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "there.gguf").write_text("GGUF")
    (tmp_path / "page.gguf").write_text("<html>not found</html>")
    (tmp_path / "empty.gguf").touch()
    path = config_of(
        tmp_path,
        """\
[models.gone]
model = "gone.gguf"
[models.folder]
model = "folder"
[models.head]
model = "there.gguf"
drafter = { kind = "mtp-file", max_depth = 1, model = "head.gguf" }
[models.page]
model = "page.gguf"
[models.empty]
model = "empty.gguf"
""",
    )
    own = [one for one in file_problems(load(path)) if "bundled" not in one]
    assert own == [
        f"{path}:2: models.gone.model: {tmp_path}/gone.gguf does not exist",
        f"{path}:4: models.folder.model: {tmp_path}/folder is a directory, not a GGUF file",
        f"{path}:7: models.head.drafter.model: {tmp_path}/head.gguf does not exist",
        (
            f"{path}:9: models.page.model: {tmp_path}/page.gguf is not a GGUF file:"
            " it begins with b'<htm'"
        ),
        (
            f"{path}:11: models.empty.model: {tmp_path}/empty.gguf is not a GGUF file:"
            " it begins with b''"
        ),
    ]


def test_a_name_that_no_file_can_have_is_told_and_not_raised(tmp_path: Path) -> None:
    path = config_of(tmp_path, f'[models.long]\nmodel = "/{"x" * 300}"\n')
    (problem,) = (one for one in file_problems(load(path)) if "models.long" in one)
    assert problem.startswith(f"{path}:2: ")


def test_the_bundled_models_are_there() -> None:
    assert file_problems(load(None)) == ()
    assert load(None).profiles


def test_the_shipped_profiles_are_found_in_the_checkout() -> None:
    assert (data.profiles_dir() / "hardware" / "gfx906-16g-150w.toml").is_file()


def test_an_installed_package_finds_what_it_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_data" / "profiles").mkdir(parents=True)
    monkeypatch.setattr(data, "_PACKAGE", tmp_path)
    assert data.profiles_dir() == tmp_path / "_data" / "profiles"
    assert data.bundled_model("x.gguf") == tmp_path / "_data" / "models" / "x.gguf"
