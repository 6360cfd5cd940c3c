"""README and docs: what they point to exists, and no part of the house is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as a forge makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads)
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if ":" not in link]
    lost = []
    for link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_every_page_that_the_code_names_exists() -> None:
    sources = [*(ROOT / "mtpd").rglob("*.py"), *(ROOT / "tuner").rglob("*.py")]
    named = {name for p in sources for name in re.findall(r"docs/[\w/]+\.md", p.read_text())}
    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert "docs/configuration.md" in named


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(?:.* <)?([\w/-]+)>?$", contents, re.MULTILINE))
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages - listed == set()
    assert "(docs/index.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_architecture_tells_of_every_package() -> None:
    told = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {f"mtpd.{init.parent.name}" for init in (ROOT / "mtpd").glob("*/__init__.py")}
    assert {package for package in packages if f"`{package}`" not in told} == set()
    assert len(packages) > 8
