"""Batches of changes by name, from the first to the last, in several ways of writing: ``upserting.py FOLDER MOMENTS``.

``MOMENTS`` is JSON with a moment for each way, and how often it comes. The process writes in one way after the other, each up to
its moment, and is killed when all of them are there: a process takes longer to start than all of them to write. Each way has a
folder of its own. A batch that the table holds already is skipped, so that the program can be started again and again.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import frazil
from exactly_once.programs.moments import act_at, kill_all
from frazil.doors.python.sink import Sink
from frazil.model.settings import Settings, SparkSettings

BATCHES = 5
MERGE = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op", "upsert_strategy": "merge"}
EQUALITY = MERGE | {"upsert_strategy": "equality_delete"}
POSITION = MERGE | {"upsert_strategy": "position"}
EVOLVING, OVERWRITE, HISTORY, COMPLETED = "evolving", "overwrite", "history", "completed"
# Both versions of the format, so that positions are files for some and vectors for others.
WAYS = {
    "equality_delete": EQUALITY | {"format_version": 3},
    "merge": MERGE | {"format_version": 2},
    "position": POSITION | {"format_version": 3},
    COMPLETED: POSITION | {"format_version": 2, "partial_updates": True},
    "settled": EQUALITY | {"format_version": 3, "max_equality_deletes": 20},
    "compacted": EQUALITY | {"format_version": 2, "max_delete_files": 0},
    EVOLVING: EQUALITY | {"format_version": 2, "schema_evolution": "full"},
    "late": EQUALITY | {"format_version": 2, "order_by": ["v"], "late": "ignore"},
    HISTORY: MERGE | {"format_version": 3, "upsert_strategy": "auto", "order_by": ["v"], "history": "scd2"},
    OVERWRITE: {"format_version": 3, "commit_mode": "overwrite"},
    "delete_insert": {"format_version": 2, "commit_mode": "delete_insert", "replace_by": ["id"], "op_field": "op"},
}
# From this batch on the table is another one: `v` is called `w` and is wider, and new rows are divided.
RENAMED_IN = 2
RENAMED = {"aliases": {"w": "v"}, "partition_by": ["bucket(2, id)"]}


def changes(spark: SparkSession, number: int, way: str) -> DataFrame:
    """Rows 5n to 5n+10, of which the first half is there already, and the end of the five before them, which overwrites need not
    be told of. Where the table evolves, a new column comes with each batch; where rows are completed, one of two columns does.
    """
    value = f"{number}L w" if way == EVOLVING and number >= RENAMED_IN else f"{number} v"
    rows = spark.range(5 * number, 5 * number + 10, 1, 1).selectExpr("id", value, "'u' op")
    if way == OVERWRITE:
        return rows.drop("op")
    rows = rows.unionAll(spark.range(5 * number - 5, 5 * number, 1, 1).selectExpr("id", value, "'d' op"))
    column = {EVOLVING: number, COMPLETED: number % 2}.get(way)
    return rows if column is None else rows.selectExpr("*", f"{number} c{column}")


def described(folder: Path, way: str, number: int) -> Sink:
    """The sink, as a user writes it when a batch comes."""
    sql = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()}
    options = WAYS[way] | (RENAMED if way == EVOLVING and number >= RENAMED_IN else {})
    return frazil.sink().to("lake.changes.t").catalog(type="sql", sql=sql).options(**options)


def write_all(spark: SparkSession, folder: Path, way: str) -> None:
    """Writes every batch that the table does not hold yet."""
    for number in range(BATCHES):
        replace(described(folder, way, number), frame=changes(spark, number, way)).write(batch=str(number))


def killed_amid_all(spark: SparkSession, folder: Path, moments: Mapping[str, tuple[str, int]]) -> None:
    """Writes in each way up to its moment, then kills this process and its JVM."""
    for way, (moment, nth) in moments.items():
        there = threading.Event()
        act_at(moment, nth, lambda there=there: wait_for_the_end(there))
        writing = threading.Thread(target=write_all, args=(spark, folder / way, way), daemon=True)
        writing.start()
        while not there.wait(0.05):
            if not writing.is_alive():
                sys.exit(f"{way}: it has ended, and {moment} did not come {nth} times")
    kill_all()


def wait_for_the_end(there: threading.Event) -> None:
    """Says that the moment is there, and stays in it."""
    there.set()
    threading.Event().wait()


if __name__ == "__main__":
    place, given = sys.argv[1:]
    killed_amid_all(frazil.session(Settings(spark=SparkSettings(master="local[1]"))), Path(place), json.loads(given))
