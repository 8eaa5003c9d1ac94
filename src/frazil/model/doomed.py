"""The list of files that nobody needs any longer, beside a table's metadata: how it is written and read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

NAME = "frazil-expired.json"


@dataclass(frozen=True)
class Doomed:
    """A file that may be deleted from a time on."""

    path: str
    due_ms: int


def list_text(doomed: Sequence[Doomed]) -> str:
    """The content of a list."""
    return json.dumps({"version": 1, "files": [[one.due_ms, one.path] for one in doomed]})


def listed_in(text: str) -> tuple[Doomed, ...]:
    """What a list names."""
    return tuple(Doomed(path, due) for due, path in json.loads(text)["files"])
