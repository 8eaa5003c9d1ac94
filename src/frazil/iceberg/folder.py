"""A table's folder as its store shows it: whose metadata is in it, and what time it is there.

Stores that cannot be listed by a prefix show neither.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import uuid4

from frazil.iceberg.jvm import Jvm

# Written for a moment, to read the time of the store from it. Each has a name of its own: several processes may ask at once.
_CLOCK = "frazil-clock"
_METADATA = r"\.metadata\.json(\.gz)?$"


class Folder:
    """The folder of one table."""

    def __init__(self, jvm: Jvm, io: Any, location: str) -> None:
        self._jvm = jvm
        self._io = io
        self._location = location.rstrip("/")
        self._can_list = jvm.is_a(io, "io.SupportsPrefixOperations")

    def metadata_of_others(self, uuid: str, own: Collection[str]) -> str | None:
        """A metadata file of another table, in the folder or below it; ``own`` are those that the table knows to be its."""
        if not self._can_list:
            return None
        names = {_name(path) for path in own}
        parser = self._jvm.iceberg.TableMetadataParser
        for path in self._jvm.like(_METADATA, self._io.listPrefix(f"{self._location}/"), "io.FileInfo.location"):
            if _name(path) not in names and str(parser.read(self._io, path).uuid()) != uuid:
                return path
        return None

    def time_ms(self) -> int | None:
        """What time it is for the store."""
        if not self._can_list:
            return None
        path = f"{self._location}/metadata/{_CLOCK}-{uuid4().hex}"
        self._io.deleteFile(path)  # whoever may not delete leaves nothing behind
        stream = self._io.newOutputFile(path).create()
        stream.write(b"0")
        stream.close()
        try:
            times = self._jvm.each(self._io.listPrefix(path), "io.FileInfo.createdAtMillis")
            return max(times, default=None)
        finally:
            self._io.deleteFile(path)


def _name(path: str) -> str:
    """The last part of a path. Metadata files have a random number in it, and listings write what is before it in other ways."""
    return path.rpartition("/")[2]
