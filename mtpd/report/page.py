"""Writes a report as one HTML page that needs nothing else. Pure.

Its content security policy allows its own style sheet, by digest, and nothing more: no script,
no picture, no address. It follows the reader's choice of light or dark.
"""

from __future__ import annotations

import base64
import hashlib
import html
from typing import TYPE_CHECKING

from mtpd.report.svg import SHEET as PLOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.report.document import Document, Figure, Section, Table

__all__ = ["page"]

_SHEET = (
    """\
:root{color-scheme:light dark;--ink:#1f2328;--soft:#59636e;--line:#d0d7de;--back:#fff;\
--band:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#30363d;\
--back:#0d1117;--band:#151b23}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1.5rem;background:var(--back);color:var(--ink);\
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0 0 .5rem}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.3rem}
h3{font-size:1.05rem;margin:1.4rem 0 .4rem}
p,ol,ul{max-width:52rem}
.lead p,figcaption,ol.notes,ul{color:var(--soft)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{background:var(--band);white-space:nowrap}
td{white-space:nowrap}
td.n,th.n{text-align:right}
td.w{white-space:normal;min-width:20rem}
tr.strong td{font-weight:600}
.figures{display:flex;flex-wrap:wrap;gap:1rem;margin-top:1rem}
figure{flex:1 1 26rem;max-width:44rem;margin:0;border:1px solid var(--line);border-radius:6px;\
padding:.6rem}
figcaption{font-size:.85rem;padding:.3rem .4rem}
svg{display:block;width:100%;height:auto}
code{font:.9em ui-monospace,monospace;background:var(--band);padding:.1em .3em;border-radius:4px}
ol.notes{font-size:.9rem;padding-left:1.6rem}
@media print{body{max-width:none;padding:0}figure,tr{break-inside:avoid}}
"""
    + PLOTS
)


def page(document: Document) -> str:
    """The text of the HTML file."""
    digest = base64.b64encode(hashlib.sha256(_SHEET.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = html.escape(document.title)
    lead = "".join(f"<p>{_prose(one)}</p>" for one in document.lead)
    body = "".join(part for section in document.sections for part in _section(section))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_SHEET}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<div class="lead">{lead}</div>\n{body}</body>\n</html>\n'
    )


def _section(section: Section) -> Iterator[str]:
    tag = f"h{section.level}"
    yield f"<{tag}>{html.escape(section.title)}</{tag}>\n"
    yield from (f"<p>{_prose(one)}</p>\n" for one in section.paragraphs)
    if section.table is not None:
        yield _table(section.table)
        yield _items(section.table.notes, "ol", "notes")
    yield _items(section.remarks, "ul", "remarks")
    if section.figures:
        yield f'<div class="figures">{"".join(map(_figure, section.figures))}</div>\n'


def _items(sentences: tuple[str, ...], tag: str, class_: str) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{_prose(one)}</li>" for one in sentences)
    return f'<{tag} class="{class_}">{items}</{tag}>\n'


def _table(table: Table) -> str:
    classes = [
        "w" if column.sentences else "n" if column.right else "t" for column in table.columns
    ]
    heads = "".join(
        f'<th scope="col" class="{class_}">{html.escape(column.head)}</th>'
        for column, class_ in zip(table.columns, classes, strict=True)
    )
    body = ""
    for index, row in enumerate(table.rows):
        cells = "".join(
            f'<td class="{class_}">{html.escape(cell)}</td>'
            for cell, class_ in zip(row, classes, strict=True)
        )
        strong = ' class="strong"' if index in table.strong else ""
        body += f"<tr{strong}>{cells}</tr>\n"
    head = f"<thead><tr>{heads}</tr></thead>\n"
    return f'<div class="wide"><table>\n{head}<tbody>{body}</tbody></table></div>\n'


def _figure(figure: Figure) -> str:
    return f"<figure>{figure.svg}<figcaption>{html.escape(figure.caption)}</figcaption></figure>"


def _prose(text: str) -> str:
    """A sentence of ours, in which `commands` are code."""
    parts = (html.escape(part) for part in text.split("`"))
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))
