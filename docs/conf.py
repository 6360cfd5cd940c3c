"""Sphinx: the pages of docs/ as one book. ``make docs`` builds it into build/docs.

The pages are written to be read on a forge, too: plain Markdown with relative links.
Warnings are errors, so a link that leads nowhere and a page that no table of contents names
end the build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "mtpd"
author = "the authors of mtpd"
release = version = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]

html_theme = "furo"
html_title = "mtpd"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["mtpd.css"]


def setup(app: Sphinx) -> None:
    """Show the studies as they were written."""
    app.connect("source-read", _study)


def _study(_app: Sphinx, page: str, content: list[str]) -> None:
    """Give a study, which has no markup at all, a heading; the rest stays word for word."""
    if page.startswith("studies/"):
        title, _, text = content[0].partition("\n")
        content[0] = f"# {title}\n\n````{{code-block}} none\n:class: study\n\n{text}\n````\n"
