"""Sphinx: the pages of docs/ as one book. ``make docs`` builds it into build/docs.

The pages are written to be read on a forge, too: plain Markdown with relative links.
Warnings are errors, so a link that leads nowhere and a page that no table of contents names
end the build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from latex2mathml.converter import convert

from mtpd import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

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
html_math_renderer = "mathml"


def setup(app: Sphinx) -> None:
    """Show the studies as they were written, and formulas without a script from elsewhere."""
    app.connect("source-read", _study)
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))


def _study(_app: Sphinx, page: str, content: list[str]) -> None:
    """Give a study, which has no markup at all, a heading; the rest stays word for word."""
    if page.startswith("studies/"):
        title, _, text = content[0].partition("\n")
        content[0] = f"# {title}\n\n````{{code-block}} none\n:class: study\n\n{text}\n````\n"


def _inline(page: HTML5Translator, formula: nodes.math) -> None:
    """Write a formula within a line as MathML, which browsers know by themselves."""
    page.body.append(convert(formula.astext()))
    raise nodes.SkipNode


def _displayed(page: HTML5Translator, formula: nodes.math_block) -> None:
    """Write a formula that has its own lines."""
    page.body.append(convert(formula.astext(), display="block"))
    raise nodes.SkipNode
