"""The quick way to find rows whose key was deleted after they came, which is Java: see ``jvm/DeadRows.java``."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap64

from frazil.iceberg.debt import FileFacts
from frazil.spark.running_java import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FINDER = "frazil.DeadRows"


@dataclass(frozen=True)
class Digest:
    """How many rows there are, and all their keys in one number."""

    rows: int
    keys: int

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.rows - other.rows, self.keys ^ other.keys)


@dataclass(frozen=True)
class DeadRows:
    """All rows in one number, the dead ones too, and the positions of these by the path of their file."""

    before: Digest
    gone: Digest
    dead: Mapping[str, BitMap64]


class DeletedKeys:
    """Keys that were deleted, each one integer, in Java's memory."""

    def __init__(self, finder: Any, keys: Any, scopes: Mapping[str, int]) -> None:
        self._finder = finder
        self._keys = keys
        self._scopes = scopes

    @classmethod
    def gathered(cls, keys: DataFrame, deletes: Sequence[FileFacts]) -> DeletedKeys | None:
        """The deleted keys, from a data frame of keys and their delete files. None when Spark has not got frazil's jar."""
        finder = java_class(keys.sparkSession, FINDER)
        if finder is None:
            return None
        scopes = scopes_of(deletes)
        return cls(finder, finder.gather(keys._jdf, _json_of(deletes, scopes)), scopes)

    def range(self) -> tuple[int, int] | None:
        """The least and the greatest of them; None when there is none but null."""
        both = [int(key) for key in self._keys.range()]
        return (both[0], both[1]) if both else None

    def looked_up(self, rows: DataFrame, files: Sequence[FileFacts], bounds: tuple[int, int] | None) -> DeadRows | None:
        """Looks up every row of a table with a key between bounds. None when the table's files cannot be read as columns.

        ``rows``: a key, the file and the position in it.
        """
        least, most = bounds or (-(2**63), 2**63 - 1)
        scopes = scopes_of(files, self._scopes)
        found = self._finder.find(self._keys, rows._jdf, _json_of(files, scopes), least, most)
        if found is None:
            return None
        positions: dict[str, BitMap64] = {}
        for number, bitmap in _parts(b64decode(found.positions())):
            path = files[number].path
            positions[path] = positions[path] | bitmap if path in positions else bitmap
        seen, hashes, gone, hashes_gone = (int(number) for number in found.numbers())
        return DeadRows(Digest(seen, hashes), Digest(gone, hashes_gone), positions)


def scopes_of(files: Sequence[FileFacts], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Numbers for the scopes of files: short to carry along with every key and row. That of all partitions is 0."""
    scopes = dict(known or {"": 0})
    for file in files:
        scopes.setdefault(file.scope, len(scopes))
    return scopes


def _json_of(files: Sequence[FileFacts], scopes: Mapping[str, int]) -> str:
    """All in one text: each value by itself would be a call to Java."""
    return "\0".join(f"{file.sequence} {scopes[file.scope]} {file.path}" for file in files)


def _parts(content: bytes) -> list[tuple[int, BitMap64]]:
    parts = []
    at = 0
    while at < len(content):
        number, length = struct.unpack_from(">ii", content, at)
        at += 8 + length
        parts.append((number, BitMap64.deserialize(content[at - length : at])))
    return parts
