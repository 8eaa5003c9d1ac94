"""Batches of changes by name, from the first to the last: ``upserting.py MOMENT NTH ACT FOLDER WAY``.

A batch that the table holds already is skipped, so that the program can be started again and again.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import frazil
from exactly_once.programs.moments import act_at
from frazil.doors.python.sink import Sink
from frazil.model.settings import Settings, SparkSettings

BATCHES = 8
MERGE = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op", "upsert_strategy": "merge"}
EQUALITY = MERGE | {"upsert_strategy": "equality_delete"}
NEW_COLUMNS, OVERWRITE = "new_columns", "overwrite"
WAYS = {
    "equality_delete": EQUALITY,
    "merge": MERGE,
    "settled": EQUALITY | {"max_equality_deletes": 20},
    NEW_COLUMNS: EQUALITY,
    OVERWRITE: {"commit_mode": "overwrite"},
}


def changes(spark: SparkSession, number: int, way: str) -> DataFrame:
    """Rows 5n to 5n+10, of which the first half is there already, and the end of the five before them, which overwrites need not
    be told of. New columns come one with each batch.
    """
    rows = spark.range(5 * number, 5 * number + 10, 1, 1).selectExpr("id", f"{number} v", "'u' op")
    if way == OVERWRITE:
        return rows.drop("op")
    rows = rows.unionAll(spark.range(5 * number - 5, 5 * number, 1, 1).selectExpr("id", f"{number} v", "'d' op"))
    return rows.selectExpr("*", f"{number} c{number}") if way == NEW_COLUMNS else rows


def described(folder: Path, way: str) -> Sink:
    """The sink, as a user writes it."""
    sql = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}
    return frazil.sink().to("lake.changes.t").catalog(type="sql", sql=sql).options(format_version=3, **WAYS[way])


def write_all(spark: SparkSession, folder: Path, way: str) -> None:
    """Writes every batch that the table does not hold yet."""
    for number in range(BATCHES):
        replace(described(folder, way), frame=changes(spark, number, way)).write(batch=str(number))


if __name__ == "__main__":
    moment, nth, act, place, the_way = sys.argv[1:]
    act_at(moment, int(nth), act)
    write_all(frazil.session(Settings(spark=SparkSettings(master="local[1]"))), Path(place), the_way)
