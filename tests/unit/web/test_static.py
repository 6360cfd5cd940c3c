"""The files of the dashboard: small, from here, and what comes from elsewhere untouched."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from mtpd.web.pages import STATIC, Pages

if TYPE_CHECKING:
    from pathlib import Path

UPLOT = STATIC / "vendor" / "uplot"


def test_uplot_is_the_file_that_npm_has() -> None:
    lines = (UPLOT / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in map(str.split, lines)}
    files = {file.name for file in UPLOT.iterdir()} - {"SHA256SUMS", "VERSION"}
    assert set(sums) == files == {"LICENCE", "uPlot.esm.js", "uPlot.min.css"}
    for name, said in sums.items():
        assert hashlib.sha256((UPLOT / name).read_bytes()).hexdigest() == said, name


def test_uplot_says_its_version_and_its_licence() -> None:
    version = (UPLOT / "VERSION").read_text().strip()
    head = (UPLOT / "uPlot.esm.js").read_text(encoding="utf-8")[:500]
    assert f"(v{version})" in head
    assert "MIT" in (UPLOT / "LICENCE").read_text()


def test_no_file_of_ours_is_long() -> None:
    ours = [file for file in STATIC.rglob("*.*") if UPLOT not in file.parents]
    assert len(ours) > 20
    assert [file.name for file in ours if len(file.read_text().splitlines()) > 400] == []


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline() -> None:
    page = (STATIC / "index.html").read_text()
    links = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert links
    assert all(link.startswith("assets/") for link in links)
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", page)
    for file in STATIC.rglob("*.js"):
        imports = re.findall(
            r'^(?:import|export)[^;]*?from "([^"]+)";', file.read_text(), re.MULTILINE
        )
        assert all(one.startswith(".") for one in imports), (file, imports)


def test_modules_of_our_own_stay_small() -> None:
    own = [file for file in STATIC.rglob("*.js") if "vendor" not in file.parts]
    assert len(own) > 20
    assert [f.name for f in own if len(f.read_text().splitlines()) >= 300] == []


def test_files_are_kept_under_a_prefix_of_all_their_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="assets/a.js"></script>')

    def prefix(name: str, text: str) -> str:
        file = tmp_path / name
        file.write_text(text)
        (path,) = Pages.read(tmp_path).paths - {"/"}
        file.unlink()
        return path.removesuffix(name)

    before = prefix("a.js", "1")
    assert prefix("a.js", "1") == before
    assert before not in {prefix("a.js", "2"), prefix("b.js", "1")}
