"""Pages of the documentation that must keep up with the code, and with each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_page_of_error_codes_is_that_of_the_code() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "error_codes.py", "--check"], check=False)
    assert done.returncode == 0, "write it anew: make docs"


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    assert [page.name for page in sorted(DOCS.glob("*.md")) if page.name != "index.md" and f"({page.name})" not in index] == []
