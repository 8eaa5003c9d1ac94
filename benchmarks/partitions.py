"""Peak memory of an append to many identity partitions: each in a process of its own, with the same largest heap.

The rows of each partition are spread over the whole source. Spark's own sink shuffles them to their partitions, and then holds a
file open for each: its Java ends for want of memory. So it is set to sort instead, which frazil decides by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.lab import FRAZIL, SPAN_US, Lab, Measure, events, interleaved
from benchmarks.memory import in_a_child, peak_megabytes
from benchmarks.sizes import Sizes
from benchmarks.summary import Finding, ratio

SORTED = "Spark's Iceberg sink, set not to fan out"
WHO = (SORTED, FRAZIL)


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """All appends, interleaved. None is warm: each has a process of its own."""
    sizes = replace(lab.sizes, warm_up=0)
    contestants: dict[str, Measure] = {
        _key(count, who): in_a_child("benchmarks.partitions", lab, partitions=count, contestant=who)
        for count in sizes.partitions
        for who in WHO
    }
    runs = interleaved(contestants, sizes, tell)
    return [
        Finding(
            benchmark="partitions",
            case=f"{count:,} partitions",
            goal=f"append of {sizes.partition_rows:,} rows to {count:,} partitions: peak memory relative to {SORTED}",
            value=ratio(runs[_key(count, FRAZIL)], runs[_key(count, SORTED)]),
            at_most=1.0,
            against=SORTED,
            unit="megabytes",
            runs={who: runs[_key(count, who)] for who in reversed(WHO)},
            details={"rows": sizes.partition_rows, "largest_heap": sizes.partition_heap},
        )
        for count in sizes.partitions
    ]


def _key(partitions: int, contestant: str) -> str:
    return f"{partitions:,} partitions: {contestant}"


def _rows(lab: Lab, partitions: int) -> DataFrame:
    numbers = lab.spark.range(0, lab.sizes.partition_rows, 1, 2 * lab.cores).withColumnRenamed("id", "value")
    frame = events(numbers, SPAN_US // lab.sizes.partition_rows)
    more = ["seconds * 2 AS a", "concat(path, '#', id) AS b", "id * 7 AS c", "upper(session_id) AS d"]
    return frame.selectExpr("*", *more, f"pmod(xxhash64(id, 9), {partitions}) AS part")


def _child(order: str) -> None:
    given = json.loads(order)
    sizes = Sizes(**given["sizes"])
    # The serial collector's heap grows with what lives; G1's peak differs from run to run by a fifth for the same work.
    conf = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
    lab = Lab(Path(given["folder"]), replace(sizes, heap=sizes.partition_heap), **conf)
    rows = _rows(lab, given["partitions"])
    name = lab.make_table("divided", rows, "part")
    if given["contestant"] == FRAZIL:
        lab.sink(rows, name).write()
    else:
        rows.writeTo(name).option("fanout-enabled", "false").append()
    print(peak_megabytes())
    lab.drop_table(name, sizes.partition_rows)
    lab.spark.stop()


if __name__ == "__main__":
    _child(sys.argv[1])
