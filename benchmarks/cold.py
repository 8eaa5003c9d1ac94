"""The first small write of a new Java: what a pipeline that is started for a few rows has to wait for.

Each write has a process of its own. Spark has started before the clock runs; the table has rows, and was never opened by it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.lab import CATALOG, FRAZIL, NAMESPACE, Lab, Measure, interleaved, merge_statement, timed
from benchmarks.memory import in_a_child
from benchmarks.sizes import Sizes
from benchmarks.summary import Finding, ratio
from benchmarks.upsert import COLUMNS

ROWS, TABLE_ROWS = 100, 10_000
SPARK = {"append": "Spark's Iceberg sink", "upsert": "Spark's MERGE"}


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """Appends and upserts, interleaved."""
    lab.spark.range(0, ROWS, 1, 1).selectExpr(*COLUMNS).write.json(str(_source(lab)))
    sizes = replace(lab.sizes, warm_up=0)
    runs = interleaved({_key(what, who): _write(lab, what, who) for what in SPARK for who in (SPARK[what], FRAZIL)}, sizes, tell)
    return [
        Finding(
            benchmark="cold",
            case=f"first {what}",
            goal=f"the first {what} of a new Java, {ROWS} rows of JSON: time relative to {spark}",
            value=ratio(runs[_key(what, FRAZIL)], runs[_key(what, spark)]),
            at_most=1.2,
            against=spark,
            unit="seconds",
            runs={FRAZIL: runs[_key(what, FRAZIL)], spark: runs[_key(what, spark)]},
        )
        for what, spark in SPARK.items()
    ]


def _key(what: str, who: str) -> str:
    return f"first {what}: {who}"


def _write(lab: Lab, what: str, who: str) -> Measure:
    child = in_a_child("benchmarks.cold", lab, what=what, contestant=who)

    def write() -> float:
        rows = lab.spark.range(0, TABLE_ROWS, 1, 1).selectExpr(*COLUMNS)
        name = lab.make_table("cold", rows)
        lab.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.merge.mode'='merge-on-read')")
        rows.writeTo(name).append()
        try:
            return child()
        finally:
            lab.spark.sql(f"DROP TABLE {name}")
            shutil.rmtree(lab.table_folder(name))

    return write


def _source(lab: Lab) -> Path:
    return lab.folder / "cold-source"


def _frazil(lab: Lab, what: str, rows: DataFrame, name: str) -> None:
    sink = lab.sink(rows, name)
    (sink.mode("upsert").keys("id") if what == "upsert" else sink).write()


def _spark(lab: Lab, what: str, rows: DataFrame, name: str) -> None:
    if what == "append":
        rows.writeTo(name).append()
        return
    rows.createOrReplaceTempView("changed")
    lab.spark.sql(merge_statement(name, "changed"))


def _child(order: str) -> None:
    given = json.loads(order)
    lab = Lab(Path(given["folder"]), Sizes(**given["sizes"]))
    write = _frazil if given["contestant"] == FRAZIL else _spark

    def first() -> None:
        rows = lab.spark.read.schema("id long, kind long, name string, amount double").json(str(_source(lab)))
        write(lab, given["what"], rows, f"{CATALOG}.{NAMESPACE}.cold")

    print(timed(first))
    lab.spark.stop()


if __name__ == "__main__":
    _child(sys.argv[1])
