"""How many different values columns have, in a Puffin file that engines plan joins by. There is one for a table."""

from __future__ import annotations

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


def moved(jvm: Jvm, metadata: Any, builder: Any, snapshot: Any, new: Any = None) -> Any:
    """With the newest statistics as those of a new snapshot, and no others.

    Spark uses only those of the very snapshot that it reads, and a few rows more leave them about as right as before.
    """
    known = list(items(metadata.statisticsFiles()))
    for one in known:
        builder = builder.removeStatistics(int(one.snapshotId()))
    if new is None and not known:
        return builder
    newest = new if new is not None else known[-1]
    size, footer = newest.fileSizeInBytes(), newest.fileFooterSizeInBytes()
    file = jvm.iceberg.GenericStatisticsFile(snapshot.snapshotId(), newest.path(), size, footer, newest.blobMetadata())
    return builder.setStatistics(file)
