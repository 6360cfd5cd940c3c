"""``python -m tests.documents``: write the parts of the documentation that the code makes."""

from __future__ import annotations

import sys

from tests.documents.pages import FILES, ROOT, pages, written


def main() -> None:
    """Write every page and drawing that has changed, and name it."""
    made = {page: written(page.read_text(encoding="utf-8")) for page in pages()}
    made |= {ROOT / name: text for name, text in FILES.items()}
    for path, new in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
