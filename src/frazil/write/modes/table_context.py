"""What every way of writing works with: the table, the sink, and files staged for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.util import inheritable_thread_target

from frazil.columns.partition import Room, distribution_options, open_file_bytes, write_defaults
from frazil.iceberg import Base, Change, IcebergTable, KeyIndex, StagedFiles
from frazil.model.commit import RowCounts
from frazil.model.evolution import Partition, TableChange
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType, leaves
from frazil.write import target

# Table properties that a sink may set, and that say the same as options of a write, which would override them.
DISTRIBUTION, FAN_OUT = "write.distribution-mode", "write.spark.fanout.enabled"

T = TypeVar("T")
U = TypeVar("U")


class Remembers(Protocol):
    """Remembers deleted keys beyond their batch, with their places in the order."""

    def rows(self, names: Sequence[str]) -> DataFrame | None:
        """These columns of what is remembered: keys and order. None: nothing was deleted yet."""

    def stage(self, deletes: DataFrame, count: int) -> Any:
        """Writes the files for so many deleted keys of the batch, to be committed before the batch; None if they are there."""


@dataclass(frozen=True)
class TableContext:
    """The table and the sink of a batch, the columns and partitions that its rows are written under, and about how many it has.

    ``keys_differ``: each key is known to come once, so that no row has to be compared with another one of the batch.
    ``seen`` is the table as it was when the batch was staged first: what came after that, the batch knows nothing of.
    ``index`` finds rows of an upsert by their keys. ``tombstones`` remember deleted keys, for a sink that ignores late rows.
    """

    table: IcebergTable
    sink: SinkSpec
    schema: StructType
    partition: Partition
    seen: Base
    rows: int | None = None
    keys_differ: bool = False
    index: KeyIndex | None = None
    tombstones: Remembers | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options of a write."""
        options = target.write_options(self.sink)
        if DISTRIBUTION in self.sink.write_properties:
            return options
        options |= distribution_options(self.sink.distribution, self.partition, self.rows, self._room)
        if self.partition and (FAN_OUT in self.sink.write_properties or self.table.sort_order):
            # Rows that are sorted come one partition after the other.
            del options["fanout-enabled"]
        return options

    @property
    def _room(self) -> Room:
        if not self.partition:
            return Room(0, 1)  # a task has one file open at a time, and nothing need be asked of Java
        columns = sum(1 for _ in leaves(self.schema))
        one = open_file_bytes(self.sink.file_format.value, columns, self.table.location)
        return Room(self.table.task_memory, one)

    def write_files(self, frame: DataFrame, evolution: tuple[TableChange, ...]) -> StagedFiles:
        """The frame's rows as data files of the table after its changes."""
        options = self.options
        return self.table.write_files(frame, options, evolution, write_defaults(options, self.partition))


def together(first: Callable[[], T], second: Callable[[], U], session: SparkSession) -> tuple[T, U]:
    """Does both at the same time: jobs too small to keep all cores busy by themselves. Raises what either raised."""
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(inheritable_thread_target(session)(second))
        mine = first()
    return mine, other.result()


@dataclass(frozen=True)
class Written:
    """A batch whose files are written: the change to commit, and what became of the rows that came in.

    ``tombstones``: what is to be committed before it, to the table that remembers its deleted keys.
    """

    change: Change
    counts: RowCounts
    tombstones: Any = None
