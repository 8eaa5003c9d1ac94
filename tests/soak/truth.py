"""What is in a table of the soak, by readers that know nothing of frazil: PyIceberg and DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from exactly_once.ground import row_of
from helpers.lakes import doomed, is_list
from helpers.readers import EXTENSIONS, extension_file
from soak.kinds import Place, Row


class Truth:
    """One table as its metadata is now, read without Spark. Its files may go as soon as somebody commits."""

    def __init__(self, place: Place) -> None:
        self.place = place
        catalog = SqlCatalog("lake", **place.catalog)
        try:
            self.table: Table = catalog.load_table(place.name)
        finally:
            catalog.engine.dispose()
        self._entries: dict[str, list[Any]] = {}

    @property
    def snapshots(self) -> list[Snapshot]:
        """All snapshots that the metadata names."""
        return list(self.table.metadata.snapshots)

    @property
    def head(self) -> Snapshot:
        """The newest snapshot of the main branch."""
        found = self.table.current_snapshot()
        assert found is not None
        return found

    def changes_in(self, snapshot: Snapshot) -> int | None:
        """How many changes of the source a snapshot holds; None when the commits that would show it have expired."""
        if snapshot == self.head:
            ledger = json.loads(self.table.properties[f"frazil.sink.{self.place.sink_id}"])
            return int(ledger["end"]["row"]) if ledger.get("end") else 0
        at: Snapshot | None = snapshot
        while at is not None:
            summary = at.summary.additional_properties if at.summary else {}
            if (summary.get("frazil.sink"), summary.get("frazil.kind")) == (self.place.sink_id, "data"):
                return row_of(summary["frazil.end"])
            if at.parent_snapshot_id is None:
                return 0
            at = self.table.snapshot_by_id(at.parent_snapshot_id)
        return None

    def entries(self, snapshot: Snapshot) -> Iterator[Any]:
        """The files that a snapshot has, of data and of deletes."""
        for manifest in snapshot.manifests(self.table.io):
            if manifest.manifest_path not in self._entries:
                found = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
                self._entries[manifest.manifest_path] = [entry.data_file for entry in found]
            yield from self._entries[manifest.manifest_path]

    @property
    def needed(self) -> set[Path]:
        """The files that any snapshot needs, or the log of metadata."""
        found = {one.metadata_file for one in self.table.metadata.metadata_log} | {self.table.metadata_location}
        for snapshot in self.snapshots:
            found.add(snapshot.manifest_list)
            found |= {manifest.manifest_path for manifest in snapshot.manifests(self.table.io)}
            found |= {file.file_path for file in self.entries(snapshot)}
        return {path_of(one) for one in found}

    @property
    def on_disk(self) -> set[Path]:
        """The files of the table's folder."""
        found = {path for path in self.place.files.rglob("*") if path.is_file()}
        return {path for path in found if not path.name.endswith(".crc") and not is_list(path)}

    @property
    def listed(self) -> set[Path]:
        """What is on a list of files to delete."""
        return set(doomed(self.place.files))

    def by_duckdb(self, snapshot: Snapshot) -> list[Row]:
        """The rows of a snapshot, read by DuckDB."""
        with duckdb.connect() as connection:
            for name in EXTENSIONS:
                connection.load_extension(str(extension_file(name)))
            file = path_of(self.table.metadata_location)
            query = f"select id, p, v from iceberg_scan('{file}', snapshot_from_id={snapshot.snapshot_id}::ubigint)"
            return sorted(connection.sql(query).fetchall())

    def by_pyiceberg(self, snapshot: Snapshot) -> list[Row] | None:
        """The rows of a snapshot, read by PyIceberg; None where it cannot: it does not know equality deletes."""
        if any(file.content is DataFileContent.EQUALITY_DELETES for file in self.entries(snapshot)):
            return None
        rows = self.table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        return sorted(zip(*(rows[name].to_pylist() for name in ("id", "p", "v")), strict=True))

    def assert_whole(self) -> None:
        """Every file that a snapshot needs is there, and none of them is to be deleted."""
        needed = self.needed
        assert not needed - self.on_disk, "files that snapshots need are gone"
        assert not needed & self.listed, "files that snapshots need are on the list of those to delete"

    def assert_rows(self, snapshot: Snapshot) -> None:
        """The rows of a snapshot are those of the model, by all readers."""
        changes = self.changes_in(snapshot)
        if changes is None:
            return
        expected = self.place.kind.rows_after(changes)
        assert self.by_duckdb(snapshot) == expected, f"DuckDB, snapshot {snapshot.snapshot_id} after {changes} changes"
        assert self.by_pyiceberg(snapshot) in (None, expected), f"PyIceberg, snapshot {snapshot.snapshot_id}"

    def assert_bounded(self, refs: int) -> None:
        """Nothing grows with the number of commits. Each branch and tag that was ever made keeps a history of its own."""
        counts, parts = self.counts(), self.place.kind.parts
        bounds = {
            "data": 16 * parts + 4,
            "deletes": 40 * parts,
            "manifests": 30,
            "snapshots": 12 + 9 * refs,
            "metadata bytes": 2_000_000,
        }
        over = {name: counts[name] for name, most in bounds.items() if counts[name] > most}
        assert not over, f"{over} of {counts}"

    def counts(self) -> dict[str, int]:
        """What grows with every commit, unless it is looked after. What killed processes have left is not counted."""
        live = list(self.entries(self.head))
        metadata = [path for path in self.on_disk & (self.needed | self.listed) if path.parent.name == "metadata"]
        return {
            "data": sum(one.content is DataFileContent.DATA for one in live),
            "deletes": sum(one.content is not DataFileContent.DATA for one in live),
            "vectors": sum(one.file_format is FileFormat.PUFFIN for one in live),
            "manifests": len(self.head.manifests(self.table.io)),
            "snapshots": len(self.snapshots),
            "metadata files": sum(path.name.endswith(".metadata.json") for path in metadata),
            "metadata bytes": sum(path.stat().st_size for path in metadata),
        }


def path_of(location: str) -> Path:
    """A location of the table as a path."""
    return Path(unquote(urlsplit(location).path))
