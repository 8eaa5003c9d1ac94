"""What Avro and JSON files of a table's metadata name, read as files: also those that no snapshot names any longer."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import dataclass
from typing import Any

DELETED = 2
"""The status of a manifest's entry whose file was removed. Its column bounds are still in the manifest."""

DATA, POSITIONS, KEYS = 0, 1, 2
"""What a file has as its content: rows, deleted positions, deleted keys."""

# The ids of fields of a manifest that the specification gives them.
_STATUS, _SNAPSHOT, _FILE, _, _ADDED = range(5)
_PATH, _ROWS, _SIZE, _CONTENT, _OFFSET = 100, 103, 104, 134, 144

_LIST, _MANIFEST = "manifest_path", "data_file"
_PARENT = "parent-snapshot-id"


@dataclass(frozen=True)
class Entry:
    """A file that a manifest names.

    ``snapshot`` and ``added``: the snapshot that added it, and its sequence number; None if they are those of the manifest.
    """

    path: str
    status: int
    content: int = DATA
    snapshot: int | None = None
    added: int | None = None
    size: int = 0
    rows: int = 0
    offset: int | None = None

    @property
    def live(self) -> bool:
        """Whether the file is part of the snapshots that have the manifest."""
        return self.status != DELETED


@dataclass(frozen=True)
class ManifestList:
    """The manifests of a snapshot, and the snapshot before it."""

    parent: int | None
    manifests: tuple[str, ...]


def entries_of(content: bytes) -> tuple[Entry, ...]:
    """All entries of a manifest, those of removed files, too."""
    schema, records = _read(content)
    place = {field.field_id: number for number, field in enumerate(schema.fields)}
    inner = {field.field_id: number for number, field in enumerate(schema.find_type(_FILE).fields)}

    def entry(record: Any) -> Entry:
        file = record[place[_FILE]]
        path, kind, size, rows, offset = (
            file[inner[number]] if number in inner else None for number in (_PATH, _CONTENT, _SIZE, _ROWS, _OFFSET)
        )
        added = record[place[_ADDED]] if _ADDED in place else 0
        return Entry(
            str(path), record[place[_STATUS]], kind or DATA, record[place[_SNAPSHOT]], added, size or 0, rows or 0, offset
        )

    return tuple(entry(record) for record in records)


def read_metadata_avro(content: bytes) -> ManifestList | tuple[Entry, ...]:
    """A manifest list or a manifest, whichever it is."""
    meta, names = _header(content)
    if _MANIFEST in names:
        return entries_of(content)
    if _LIST not in names:
        raise ValueError("it is neither a manifest nor a list of manifests")
    parent = meta.get(_PARENT, "null")
    paths = tuple(str(record[0]) for record in _read(content)[1])
    return ManifestList(None if parent == "null" else int(parent), paths)


def snapshots_in(content: bytes) -> frozenset[int]:
    """The ids of the snapshots in a metadata file."""
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    return frozenset(int(one["snapshot-id"]) for one in json.loads(text).get("snapshots", ()))


def _header(content: bytes) -> tuple[dict[str, str], frozenset[str]]:
    from pyiceberg.avro.file import AvroFile

    with AvroFile[Any](_bytes_file(content)) as reader:
        names = frozenset(field["name"] for field in json.loads(reader.header.meta["avro.schema"])["fields"])
        return dict(reader.header.meta), names


def _read(content: bytes) -> tuple[Any, list[Any]]:
    """The file's own schema, and the records: PyIceberg cannot leave out maps when it reads."""
    from pyiceberg.avro.file import AvroFile

    with AvroFile[Any](_bytes_file(content)) as reader:
        return reader.schema, list(reader)


def _bytes_file(content: bytes) -> Any:
    """Bytes as PyIceberg reads a file."""
    from pyiceberg.io import InputFile

    class Bytes(InputFile):
        def __len__(self) -> int:
            return len(content)

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - as PyIceberg calls it
            return io.BytesIO(content)

    return Bytes("memory")
