"""The quick way to find rows whose key was deleted after they came, which is Java: see ``jvm/DeadRows.java``."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from frazil.engine.iceberg.debt import FileFacts
from frazil.engine.running_java import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FINDER = "frazil.DeadRows"


@dataclass(frozen=True)
class DeadRows:
    """How many rows there were, their hashes in one number, the same of the dead ones, and where these are, file by file."""

    rows: int
    hash: int
    dead_rows: int
    dead_hash: int
    positions: Mapping[str, BitMap64]


def dead_rows(
    keys: DataFrame, deletes: Sequence[FileFacts], rows: DataFrame, files: Sequence[FileFacts], scopes: Mapping[str, int]
) -> DeadRows | None:
    """Looks every row up. None when the session was started without frazil's jar.

    ``keys``: a number and the file that deletes it. ``rows``: a number, a hash, the file and the position in it.
    """
    finder = java_class(rows.sparkSession, FINDER)
    if finder is None:
        return None
    found = finder.find(keys._jdf, _told(deletes, scopes), rows._jdf, _told(files, scopes))
    positions: dict[str, BitMap64] = {}
    for number, bitmap in _parts(bytes(found.positions())):
        path = files[number].path
        positions[path] = positions[path] | bitmap if path in positions else bitmap
    seen, hashes, gone, hashes_gone = (int(number) for number in found.numbers())
    return DeadRows(seen, hashes, gone, hashes_gone, positions)


def _told(files: Sequence[FileFacts], scopes: Mapping[str, int]) -> str:
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
