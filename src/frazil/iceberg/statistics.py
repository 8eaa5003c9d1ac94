"""How many different values columns have, in a Puffin file that engines plan joins by. There is one for a table."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from frazil.iceberg.jvm import Jvm, active, items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def computed(jvm: Jvm, spark: SparkSession, table: Any, snapshot: int | None) -> Any:
    """Lets the executors count the values of a snapshot, and writes the file; commits nothing.

    Iceberg's own action would commit by itself: it gets a transaction that nobody commits.
    """
    loose = jvm.iceberg.BaseTable(table.newTransaction().table().operations(), table.name())
    with active(spark):
        action = jvm.iceberg.spark.actions.SparkActions.get(spark._jsparkSession).computeTableStats(loose)
        return (action if snapshot is None else action.snapshot(snapshot)).execute().statisticsFile()


def paths(metadata: Any) -> list[str]:
    """The statistics files that the metadata names."""
    return [str(one.path()) for one in items(metadata.statisticsFiles())]


def replaced(metadata: Any, builder: Any, new: Any) -> Any:
    """With new statistics in place of all that there are: engines take the first that they find."""
    for one in items(metadata.statisticsFiles()):
        builder = builder.removeStatistics(int(one.snapshotId()))
    return builder.setStatistics(new)


def carried(jvm: Jvm, metadata: Any, builder: Any, expired: Collection[int], snapshot: Any) -> Any:
    """With the statistics of snapshots that expire as those of a new snapshot: they are still about as right as before."""
    for one in items(metadata.statisticsFiles()):
        if int(one.snapshotId()) in expired:
            size, footer = one.fileSizeInBytes(), one.fileFooterSizeInBytes()
            moved = jvm.iceberg.GenericStatisticsFile(snapshot.snapshotId(), one.path(), size, footer, one.blobMetadata())
            builder = builder.setStatistics(moved)
    return builder
