"""The rows that differ between two snapshots of a table.

Rows never change within a data file: a row is gone when its file is, or when a delete hides it there that did not before. So only
files are read that one of the snapshots lacks, or in which other rows are deleted: see ``jvm/ChangedFiles.java``. Rows that were
only moved to other files are among those that are gone, and among those that came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from frazil.columns.schema import quoted
from frazil.errors import EnvironmentFault
from frazil.iceberg.branches import head_of, line_of, parents_of, steps_between
from frazil.iceberg.jvm import Jvm, items
from frazil.iceberg.small import rows_of_tasks
from frazil.iceberg.splits import USUAL_TASKS
from frazil.model.publishing import MAIN, Step
from frazil.spark.running_java import java_class

_FILES = "frazil.ChangedFiles"
_PLACE, _DELETED = ["_file", "_pos"], "_deleted"


@dataclass(frozen=True)
class ChangedRows:
    """The rows that are gone, and those that came, with the columns of the later snapshot; None if no file can have such rows."""

    gone: DataFrame | None
    came: DataFrame | None


@dataclass(frozen=True)
class TableNow:
    """A table as it is in its catalog: its identity, the snapshot of main, and all snapshots that it has, with their parents."""

    uuid: str
    head: int | None
    parents: Mapping[int, int | None]
    _jvm: Jvm = field(repr=False)
    _table: Any = field(repr=False)

    def steps_since(self, snapshot: int) -> list[Step] | None:
        """The snapshots after one up to the head, from old to new; None if the head does not come from it by known ones."""
        if self.head is None or snapshot not in line_of(self.parents, self.head):
            return None
        return steps_between(self._jvm, self._table.operations().current(), snapshot, self.head)

    def step(self, snapshot: int) -> Step:
        """A snapshot that the table still has."""
        found = self._table.snapshot(snapshot)
        return Step(snapshot, str(found.operation()), self._jvm.texts(found.summary()))

    def made_at_us(self, snapshot: int) -> int:
        """The time of a snapshot that the table still has, in microseconds since 1970."""
        return int(self._table.snapshot(snapshot).timestampMillis()) * 1000

    def column_ids(self, snapshot: int) -> dict[str, int]:
        """The columns of a snapshot, with the ids that they keep when they are renamed."""
        return self._jvm.field_ids(self._as_of(snapshot).schema())

    def identifiers(self, snapshot: int) -> tuple[str, ...]:
        """The columns of a snapshot that identify a row, as far as the table says so now; none if the snapshot lacks one."""
        schema = self._as_of(snapshot).schema()
        names = [schema.findColumnName(number) for number in items(self._table.schema().identifierFieldIds())]
        return () if None in names else tuple(map(str, names))

    @contextmanager
    def rows_between(self, then: int, now: int) -> Iterator[ChangedRows]:
        """What differs between two snapshots, whether one comes from the other or not. The rows can be read within the block."""
        view = self._as_of(now)
        compare = java_class(self._jvm.spark, _FILES)
        if compare is None:
            raise EnvironmentFault(
                "jars-missing",
                "Spark was started without frazil's jar, which finds the files that differ between two snapshots.",
                fix='Start it with `--jars "$(frazil jars)"`, or by frazil.session().',
            )
        files = compare.between(view, then, now)
        with ExitStack() as stack:
            yield _Reads(self._jvm, view, stack).changed(files)

    def _as_of(self, snapshot: int) -> Any:
        """The table with the columns of one of its snapshots."""
        metadata = self._table.operations().current()
        number = metadata.snapshot(snapshot).schemaId()
        if number is None or int(number) == int(metadata.currentSchemaId()):
            return self._table
        return self._jvm.view(
            self._table, self._jvm.build_metadata_from(metadata).setCurrentSchema(int(number)).discardChanges().build()
        )


class FollowedTable:
    """An Iceberg table by its name in Spark."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._jvm = Jvm(spark)
        self._name = name

    def now(self) -> TableNow:
        """The table as it is now. A catalog may cache tables, and the name may have gone to another table."""
        spark = self._jvm.spark
        spark.catalog.refreshTable(self._name)
        table = self._jvm.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, self._name)
        metadata = table.operations().current()
        return TableNow(str(metadata.uuid()), head_of(metadata, MAIN), parents_of(self._jvm, metadata), self._jvm, table)


@dataclass(frozen=True)
class _Reads:
    """Reads of single files of a table, which last as long as a stack."""

    jvm: Jvm
    view: Any
    stack: ExitStack

    def changed(self, files: Any) -> ChangedRows:
        """The rows that differ, in files that do."""
        names = [quoted(name) for name in self.jvm.field_ids(self.view.schema())]
        gone = [self._live(files.removed()), self._dead(files.after(), but=files.before())]
        came = [self._live(files.added()), self._dead(files.restored(), but=files.after())]
        return ChangedRows(_together(gone, names), _together(came, names))

    def _live(self, tasks: Any) -> DataFrame | None:
        """The rows of files that are not deleted there."""
        return None if tasks.isEmpty() else self._rows(tasks)

    def _dead(self, tasks: Any, *, but: Any) -> DataFrame | None:
        """The rows that are deleted in files, except those that are deleted by other deletes of the same files, too."""
        if tasks.isEmpty():
            return None
        dead = self._rows(tasks, deleted=True).where(_DELETED)
        if but.isEmpty():
            return dead
        return dead.join(self._rows(but, deleted=True).where(_DELETED).select(*_PLACE), _PLACE, "left_anti")

    def _rows(self, tasks: Any, *, deleted: bool = False) -> DataFrame:
        return self.stack.enter_context(rows_of_tasks(self.jvm, self.jvm.spark, self.view, tasks, USUAL_TASKS, deleted=deleted))


def _together(frames: list[DataFrame | None], names: list[str]) -> DataFrame | None:
    """All rows, with the table's own columns alone."""
    there = [frame.select(*names) for frame in frames if frame is not None]
    return reduce(DataFrame.unionAll, there) if there else None
