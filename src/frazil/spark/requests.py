"""How often Spark's Java has asked catalogs and stores, which is counted in Java: see ``jvm/Requests.java``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.events import Requested
from frazil.spark.running_java import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTER = "frazil.Requests"

# Iceberg's REST catalog, whose requests are counted.
COUNTED_REST = "frazil.RestCatalog"


def requested(spark: SparkSession, pipeline: str) -> Requested | None:
    """All requests so far, of all pipelines together. None when Spark has not got frazil's jar."""
    counter = java_class(spark, COUNTER)
    if counter is None:
        return None
    since, *lines = str(counter.report()).splitlines()
    counts: dict[str, dict[str, int]] = {"catalog": {}, "store": {}}
    for whom, kind, count in map(str.split, lines):
        counts[whom][kind] = int(count)
    return Requested(pipeline, int(since), counts["catalog"], counts["store"])
