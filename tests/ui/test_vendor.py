"""Scripts and styles of others are those of their packages, at a pinned version, with their licences."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

VENDOR = Path(str(files("frazil.ui") / "static" / "vendor"))


def test_each_file_is_the_one_that_is_listed() -> None:
    listed = [line.split() for line in (VENDOR / "versions.txt").read_text().splitlines() if not line.startswith("#")]
    assert {name: digest for digest, name, *_ in listed} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.suffix in (".js", ".css")
    }
    assert all("copyright" in text.lower() or "permission" in text.lower() for text in
               ((VENDOR / licence).read_text() for *_, licence in listed))  # fmt: skip
