"""How many files a task may hold open, and what is done where a batch needs more: without Spark, but for the last test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from frazil.columns.partition import Room, distribution_options, most_partitions, open_file_bytes
from frazil.errors import EnvironmentFault, SparkDied
from frazil.iceberg.faults import JavaFault
from frazil.iceberg.staging_faults import explain_staging

GIGABYTE = 1024**3
ROOM = Room(GIGABYTE, open_file_bytes("parquet", 14, "file:///lake"))


@pytest.mark.parametrize(
    ("partition", "rows", "most"),
    [
        ([], None, 1),
        ([("id", "bucket[16]")], None, 17),
        ([("id", "bucket[16]"), ("x", "void")], None, 17),
        ([("id", "bucket[16]")], 5, 5),
        ([("country", "identity")], None, None),
        ([("country", "identity")], 100, 100),
        ([("ts", "day"), ("id", "bucket[4]")], None, None),
    ],
)
def test_how_many_partitions_a_batch_can_touch(partition: list[tuple[str, str]], rows: int | None, most: int | None) -> None:
    assert most_partitions(partition, rows) == most


def test_more_heap_and_fewer_columns_make_more_room() -> None:
    assert Room(2 * GIGABYTE, ROOM.file_bytes).files > ROOM.files
    assert Room(GIGABYTE, open_file_bytes("parquet", 200, "file:///lake")).files < ROOM.files
    assert Room(GIGABYTE, open_file_bytes("parquet", 14, "gs://lake")).files < ROOM.files
    assert Room(1024, ROOM.file_bytes).files == 1


@pytest.mark.parametrize(
    ("distribution", "partition", "rows", "room", "expected"),
    [
        ("auto", [("id", "bucket[16]")], None, ROOM, ("none", "true")),
        ("auto", [("id", "bucket[16]")], None, Room(GIGABYTE // 1000, ROOM.file_bytes), ("none", "false")),
        ("auto", [("ts", "day")], None, ROOM, ("none", "false")),
        ("auto", [("ts", "day")], 50, ROOM, ("none", "true")),
        ("auto", [("country", "identity")], 200_000, ROOM, ("hash", "false")),
        ("hash", [("country", "identity")], 200_000, ROOM, ("hash", "false")),
        ("hash", [("id", "bucket[16]")], None, ROOM, ("hash", "true")),
        ("none", [("country", "identity")], None, ROOM, ("none", "false")),
        ("range", [("country", "identity")], None, ROOM, ("range", "false")),
    ],
)
def test_files_stay_open_only_where_there_is_room_for_all(
    distribution: str, partition: list[tuple[str, str]], rows: int | None, room: Room, expected: tuple[str, str]
) -> None:
    options = distribution_options(distribution, partition, rows, room)
    assert (options["distribution-mode"], options["fanout-enabled"]) == expected


def test_a_heap_that_is_too_small_is_called_that() -> None:
    text = "Job aborted due to stage failure: Lost task 0.0\n: java.lang.OutOfMemoryError: Java heap space\n\tat java.base"
    error = explain_staging(JavaFault(("org.apache.spark.SparkException",), text))
    assert isinstance(error, EnvironmentFault)
    assert (error.code, "memory was exhausted (OutOfMemoryError: Java heap space)" in error.message) == ("out-of-memory", True)
    assert "spark.driver.memory" in error.fix
    ended = explain_staging(JavaFault(("org.apache.spark.SparkException",), "Job 1 cancelled because SparkContext was shut down"))
    assert (type(ended), ended.code, "memory" in ended.message) == (SparkDied, "spark-died", True)


PARTITIONS = 800
PROGRAM = f"""
import json, sys
import frazil
from frazil.model.settings import Settings, SparkSettings
spark = frazil.session(Settings(spark=SparkSettings(master="local[1]", conf={{"spark.driver.memory": "512m"}})))
catalog = dict(type="hadoop", name="lake", hadoop=dict(warehouse=sys.argv[1]))
rows = spark.range(0, {2 * PARTITIONS}, 1, 1).selectExpr("id", "id % {PARTITIONS} as part")
done = frazil.sink(rows).catalog(**catalog).to("lake.db.t").options(distribution="none").partition_by("part").write()
print(json.dumps([done.files, spark.table("lake.db.t").count()]))
"""


@pytest.mark.slow
def test_more_partitions_than_files_fit_into_the_heap(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [PARTITIONS, 2 * PARTITIONS]
