"""Lists of files that nobody needs any longer, beside a table's metadata: how they are written and read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

FOLDER = "frazil-expired"
NAME = "frazil-expired.json"
"""One list for all processes: what older versions write, and what there is where a store cannot be listed."""


@dataclass(frozen=True)
class Doomed:
    """A file that may be deleted from a time on."""

    path: str
    due_ms: int


def list_text(doomed: Sequence[Doomed], at_ms: int) -> str:
    """The content of a list. ``at_ms`` is the time by the clock that the times of the files are by."""
    return json.dumps({"version": 1, "at": at_ms, "files": [[one.due_ms, one.path] for one in doomed]})


def listed_in(text: str, created_ms: int = 0) -> tuple[Doomed, ...]:
    """What a list names.

    ``created_ms``: when it was written, as the store says. Times by a clock that was behind are put right by that: otherwise
    files would be deleted while they are still read.
    """
    found = json.loads(text)
    behind_ms = max(0, created_ms - found.get("at", created_ms))
    return tuple(Doomed(path, due + behind_ms) for due, path in found["files"])


def is_list(path: str) -> bool:
    """Whether a file is a list of files to delete."""
    return path.endswith(f"/metadata/{NAME}") or f"/metadata/{FOLDER}/" in path
