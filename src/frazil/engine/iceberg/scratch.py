"""A private copy of a table, which SQL can change as it likes: what changed there is committed to the table itself afterwards.

The copy is one of metadata only, in a catalog that lives in this process's memory: it names the same files, and new ones are
written beside them. No other process sees it, and no commit to it can fail half-way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from frazil.engine.iceberg.changes import RowChanges, StagedFiles
from frazil.engine.iceberg.evolve import evolve
from frazil.engine.iceberg.jvm import Jvm, items
from frazil.model.evolution import TableChange

_NAMESPACE = "scratch"


class Scratch:
    """The copy under its name in Spark, and what was changed in it."""

    NAME = "frazil_old"

    def __init__(self, jvm: Jvm, catalog: Any, table: Any, name: str) -> None:
        self._jvm = jvm
        self._catalog = catalog
        self._table = table
        self._before = table.currentSnapshot()
        self.name = name

    def delete_where(self, condition: str) -> None:
        """Deletes the rows for which a condition in SQL holds."""
        self._jvm.spark.sql(f"DELETE FROM {self.name} WHERE {condition}")

    @property
    def summary(self) -> dict[str, str]:
        """What the snapshot that was made in the copy says of itself; nothing when none was."""
        self._table.refresh()
        snapshot = self._table.currentSnapshot()
        return {} if self._unchanged(snapshot) else {str(key): str(value) for key, value in dict(snapshot.summary()).items()}

    def changes(self, *, conflicts: Any) -> RowChanges:
        """The files that were added and removed. ``conflicts``: which rows of others must not have changed meanwhile."""
        self._table.refresh()
        snapshot = self._table.currentSnapshot()
        if self._unchanged(snapshot):
            return RowChanges(conflicts)
        io = self._table.io()
        added = tuple(file.copy() for file in items(snapshot.addedDataFiles(io)))
        staged = StagedFiles(added, sum(f.recordCount() for f in added), sum(f.fileSizeInBytes() for f in added))
        return RowChanges(
            conflicts,
            staged,
            removed=tuple(file.copy() for file in items(snapshot.removedDataFiles(io))),
            deletes=tuple(file.copy() for file in items(snapshot.addedDeleteFiles(io))),
            removed_deletes=tuple(file.copy() for file in items(snapshot.removedDeleteFiles(io))),
        )

    def _unchanged(self, snapshot: Any) -> bool:
        if snapshot is None:
            return True
        return self._before is not None and snapshot.snapshotId() == self._before.snapshotId()


@contextmanager
def scratch_of(jvm: Jvm, table: Any, evolution: Sequence[TableChange], properties: Mapping[str, str]) -> Iterator[Scratch]:
    """Opens a copy of the table as it is now, with the changes of its columns and the properties, and drops it in the end."""
    conf = jvm.spark.conf
    name = f"frazil_{uuid.uuid4().hex[:12]}"
    options = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        ".cache-enabled": "false",
    }
    for key, value in options.items():
        conf.set(f"spark.sql.catalog.{name}{key}", value)
    try:
        catalog = jvm.iceberg.spark.Spark3Util.loadIcebergCatalog(jvm.spark._jsparkSession, name)
        _share_files(catalog, table)
        catalog.createNamespace(jvm.iceberg.catalog.Namespace.of(jvm.strings([_NAMESPACE])))
        identifier = jvm.iceberg.catalog.TableIdentifier.of(jvm.strings([_NAMESPACE, Scratch.NAME]))
        copy = catalog.registerTable(identifier, table.operations().current().metadataFileLocation())
        _prepare(jvm, copy, evolution, properties)
        copy.refresh()
        yield Scratch(jvm, catalog, copy, f"{name}.{_NAMESPACE}.{Scratch.NAME}")
    finally:
        for key in options:
            conf.unset(f"spark.sql.catalog.{name}{key}")


def _share_files(catalog: Any, table: Any) -> None:
    """Lets the catalog read and write as the table does, with whatever credentials that has: it takes no such thing by itself."""
    field = catalog.getClass().getDeclaredField("io")
    field.setAccessible(True)
    field.set(catalog, table.io())


def _prepare(jvm: Jvm, copy: Any, evolution: Sequence[TableChange], properties: Mapping[str, str]) -> None:
    transaction = copy.newTransaction()
    evolve(jvm, transaction, evolution)
    update = transaction.updateProperties()
    for key, value in properties.items():
        update.set(key, value)
    update.commit()
    transaction.commitTransaction()
