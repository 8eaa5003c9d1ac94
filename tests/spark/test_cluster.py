"""The same pipeline on a cluster: executors that are processes of their own, on Spark's small cluster and on a real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.spark.java import java_home
from helpers.children import COMMAND, RUN_FILE, finished, write_project
from services.standalone import SparkCluster, spark_home

ROWS = 50_000  # enough for more than one task


def project(folder: Path, master: str, tables: dict[str, dict[str, Any]]) -> Path:
    catalog = {"type": "sql", "sql": {"uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": str(folder / "warehouse")}}
    log = folder / "events"
    log.mkdir()
    conf = {
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": False,
    }
    sinks = {
        name: {
            "connector": "iceberg",
            "config": {"catalog": catalog, "namespace": "db", "table": name, "batch_size": 30_000, **more},
        }
        for name, more in tables.items()
    }
    return write_project(
        folder,
        {
            "sources": {"events": {"connector": "generator", "config": {"rows": ROWS}}},
            "sinks": sinks,
            "pipelines": {name: {"source": "events", "sink": name} for name in tables},
            "settings": {"spark": {"master": master, "conf": conf}},
        },
    )


def numbers(folder: Path, table: str) -> list[int]:
    """The numbers of the events in the table, in order."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder / 'catalog.db'}")
    try:
        found = catalog.load_table(f"db.{table}").scan(selected_fields=("event_number",)).to_arrow()
    finally:
        catalog.engine.dispose()
    return sorted(found["event_number"].to_pylist())


def executors(folder: Path) -> set[str]:
    """Who ran the tasks, by Spark's own event log."""
    lines = (line for path in (folder / "events").rglob("events_*") for line in path.read_text().splitlines())
    ends = (json.loads(line) for line in lines if '"SparkListenerTaskEnd"' in line)
    return {end["Task Info"]["Executor ID"] for end in ends}


@pytest.mark.slow(seconds=60)
def test_a_pipeline_runs_on_sparks_small_cluster_also_with_brotli(tmp_path: Path) -> None:
    tables: dict[str, dict[str, Any]] = {"plain": {}, "small": {"compression": "brotli", "partition_by": ["bucket(2, user_id)"]}}
    done = finished([*RUN_FILE, str(project(tmp_path, "local-cluster[2,1,1024]", tables))])
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(tmp_path, "plain") == numbers(tmp_path, "small") == list(range(ROWS))
    files = list((tmp_path / "warehouse" / "db" / "small").rglob("*.parquet"))
    assert {pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression for path in files} == {"BROTLI"}
    assert executors(tmp_path) == {"0", "1"}


@pytest.mark.slow(seconds=60)
def test_a_pipeline_runs_on_a_standalone_cluster(tmp_path: Path, spark_cluster: SparkCluster) -> None:
    done = finished([*RUN_FILE, str(project(tmp_path, spark_cluster.master, {"plain": {}}))])
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(tmp_path, "plain") == list(range(ROWS))
    assert executors(tmp_path) == {"0", "1"}


PROGRAM = """
import sys
import frazil

catalog = {"type": "sql", "sql": {"uri": f"sqlite:///{sys.argv[1]}/catalog.db", "warehouse": f"{sys.argv[1]}/warehouse"}}
spark = frazil.session()
frame = spark.range(1000).withColumnRenamed("id", "event_number").repartition(4)
frazil.sink(frame).catalog(**catalog).to("lake.db.sink").write()
for rows in (frame, frame.where("event_number % 10 = 0")):
    changes = frazil.sink(rows).catalog(**catalog).to("lake.db.settled").mode("upsert").keys("event_number")
    changes.options(upsert_strategy="equality_delete", max_equality_deletes=0).write()
sink = {"catalog": catalog, "namespace": "db", "table": "pipeline"}
frazil.Pipeline({"connector": "generator", "rows": 1000}, sink).run(once=True)
print("master:", spark.sparkContext.master)
"""


def submitted(folder: Path, master: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The program, under `spark-submit`."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    size = ["--driver-memory", "512m", "--executor-memory", "768m", "--conf", "spark.driver.host=127.0.0.1"]
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master, *size, *options, str(program), str(folder)]
    environment = {"JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    return finished(command, environment)


@pytest.mark.slow(seconds=130)
def test_a_program_under_spark_submit_runs_on_the_cluster_that_the_command_names(
    tmp_path: Path, spark_cluster: SparkCluster
) -> None:
    without = submitted(tmp_path, "local[1]")
    assert 'spark-submit --jars "$(frazil jars core)"' in without.stdout
    jars = finished([*COMMAND, "jars"])
    kryo = "spark.serializer=org.apache.spark.serializer.KryoSerializer"
    done = submitted(tmp_path, spark_cluster.master, "--jars", jars.stdout.strip(), "--conf", kryo)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"master: {spark_cluster.master}" in done.stdout
    assert numbers(tmp_path, "sink") == numbers(tmp_path, "pipeline") == numbers(tmp_path, "settled") == list(range(1000))
