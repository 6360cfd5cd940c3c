"""``python -m tests.documents``: write the parts of the documentation that the code makes."""

from __future__ import annotations

import sys

from tests.documents.pages import ROOT, pages, written


def main() -> None:
    """Write every page that has changed, and name it."""
    for page in pages():
        old = page.read_text(encoding="utf-8")
        if (new := written(old)) != old:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
