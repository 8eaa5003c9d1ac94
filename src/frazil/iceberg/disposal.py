"""Files that no snapshot needs any longer, and when they may be deleted: a list beside the table's metadata.

Queries that began earlier may still read them, so that they stay for a while; a process that ends meanwhile leaves the list to
the next one. What is on the list was removed from the table for good: its names are never used again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frazil.iceberg.faults import ICEBERG
from frazil.iceberg.jvm import Jvm, fault_of

NAME = "frazil-expired.json"
# A list that grows beyond this cannot be deleted from. What is left out is found by a cleanup of orphan files.
MOST = 100_000


@dataclass(frozen=True)
class Doomed:
    """A file that may be deleted from a time on."""

    path: str
    due_ms: int


class FilesToDelete:
    """The list of one table."""

    def __init__(self, jvm: Jvm, io: Any, location: str) -> None:
        self._jvm = jvm
        self._io = io
        self.path = f"{location.rstrip('/')}/metadata/{NAME}"

    def read(self) -> tuple[Doomed, ...]:
        """What is on the list; nothing if there is none."""
        try:
            stream = self._io.newInputFile(self.path).newStream()
        except Exception as error:
            if _is_missing(error):
                return ()
            raise
        try:
            text = bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
        return tuple(Doomed(path, due) for due, path in json.loads(text)["files"])

    def write(self, doomed: Sequence[Doomed]) -> None:
        """Replaces the list."""
        text = json.dumps({"version": 1, "files": [[one.due_ms, one.path] for one in doomed[-MOST:]]})
        stream = self._io.newOutputFile(self.path).createOrOverwrite()
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files, many at a time where the store can. Those that are gone already are none to worry about."""
        if self._jvm.is_a(self._io, "io.SupportsBulkOperations"):
            self._io.deleteFiles(self._jvm.text_list(paths))
            return
        for path in paths:
            try:
                self._io.deleteFile(path)
            except Exception as error:
                if not _is_missing(error):
                    raise


def _is_missing(error: Exception) -> bool:
    return fault_of(error).find(f"{ICEBERG}NotFoundException") is not None
