"""Loads of dlt pipelines, warm: the load step against bare Spark that reads the same Parquet files and writes the same table.

The load step is all that `pipeline.load()` does: dlt's own tables are read and written, too. What comes before it, extract and
normalize, is dlt's own, and is done before the clock runs. The last line is the whole process, from its start to its end, beside
dlt's own Iceberg tables, which PyIceberg writes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lab import NAMESPACE, SPAN_US, Lab, events, interleaved, merge_statement, timed
from benchmarks.summary import Finding, ratio

if TYPE_CHECKING:
    import pyarrow

SPARK, MERGE, APPEND, PYICEBERG = "bare Spark", "Spark's MERGE", "an append of the same rows", "dlt's own Iceberg tables"
UPSERT = {"write_disposition": {"disposition": "merge", "strategy": "upsert"}, "primary_key": "id"}
DELETE_INSERT = {"write_disposition": "merge", "primary_key": "id"}


class Loads:
    """A pipeline, and tables of the same rows for bare Spark."""

    def __init__(self, lab: Lab) -> None:
        import dlt

        from frazil.dlt import iceberg_rest

        os.environ |= {"DLT_DATA_DIR": f"{lab.folder}/dlt-data", "RUNTIME__DLTHUB_TELEMETRY": "false"}
        uri = f"sqlite:///{lab.folder}/dlt.db"
        destination = iceberg_rest(catalog_uri=uri, warehouse=f"{lab.folder}/dlt", namespace=NAMESPACE)
        self._lab = lab
        self._dlt: Any = dlt
        self._turn = 0
        self.pipeline = dlt.pipeline(
            "loads", destination=destination, dataset_name="loads", pipelines_dir=f"{lab.folder}/pipelines"
        )

    def rows(self, count: int, of: int, seed: int) -> pyarrow.Table:
        """Rows whose keys are spread over as many, each once; other values for each seed."""
        numbers = self._lab.spark.range(0, count, 1, 1).selectExpr(f"id * {of // count} AS value")
        return events(numbers, SPAN_US // of).selectExpr("*", f"{seed} AS turn").toArrow()

    def package(self, table: str, rows: pyarrow.Table, **hints: Any) -> list[str]:
        """Extracts and normalizes the rows; the files that are to be loaded."""
        self.pipeline.extract(self._dlt.resource([rows], name=table, **hints))
        self.pipeline.normalize()
        (load,) = self.pipeline.list_normalized_load_packages()
        jobs = self.pipeline.get_load_package_info(load).jobs["new_jobs"]
        return [job.file_path for job in jobs if job.job_file_info.table_name == table]

    def load(self) -> float:
        """`pipeline.load()`."""
        return timed(lambda: self.pipeline.load().raise_on_failed_jobs())

    def next_table(self) -> str:
        """The name of a table that is not there."""
        self._turn += 1
        return f"t{self._turn}"

    def held(self, table: str) -> int:
        """How many rows a table of the pipeline has."""
        return int(self.pipeline.dataset()(f"SELECT count(*) FROM {table}").fetchall()[0][0])

    def bare(self, files: list[str], name: str) -> float:
        """`spark.read.parquet(...).writeTo(table).append()`."""
        spark = self._lab.spark
        return timed(lambda: spark.read.parquet(*files).writeTo(name).append())

    def merge(self, files: list[str], name: str) -> float:
        """`MERGE INTO` with merge-on-read, from the same files."""
        spark = self._lab.spark

        def work() -> None:
            spark.read.parquet(*files).createOrReplaceTempView("loaded")
            spark.sql(merge_statement(name, "loaded"))

        return timed(work)


def measure(lab: Lab, tell: Callable[[str], None]) -> list[Finding]:
    """Appends, merges into empty tables, upserts; then whole processes."""
    loads = Loads(lab)
    return [*_appends(lab, loads, tell), _upserts(lab, loads, tell), *_processes(lab, loads, tell)]


def _appends(lab: Lab, loads: Loads, tell: Callable[[str], None]) -> list[Finding]:
    count = lab.sizes.load_rows
    rows = loads.rows(count, count, 0)

    def spark() -> float:
        table = loads.next_table()
        files = loads.package(table, rows)
        name = lab.make_table(table, lab.spark.read.parquet(*files))
        seconds = loads.bare(files, name)
        lab.drop_table(name, count)
        loads.pipeline.drop_pending_packages()
        return seconds

    def ours(**hints: Any) -> float:
        table = loads.next_table()
        loads.package(table, rows, **hints)
        seconds = loads.load()
        if (held := loads.held(table)) != count:
            raise RuntimeError(f"{table} holds {held} rows, not {count}")
        with loads.pipeline.destination_client() as client:
            client.drop_tables(table, delete_schema=False)  # type: ignore[attr-defined]
        return seconds

    contestants = {
        SPARK: spark,
        APPEND: ours,
        "upsert": lambda: ours(**UPSERT),
        "delete-insert": lambda: ours(**DELETE_INSERT),
    }
    runs = interleaved(contestants, lab.sizes, tell)
    first = Finding(
        benchmark="loads",
        case="append",
        goal=f"dlt, append of {count:,} rows: time relative to {SPARK}",
        value=ratio(runs[APPEND], runs[SPARK]),
        at_most=1.2,
        against=SPARK,
        unit="seconds",
        runs={"frazil": runs[APPEND], SPARK: runs[SPARK]},
    )
    return [first, *(_into_empty(count, runs, strategy) for strategy in ("upsert", "delete-insert"))]


def _into_empty(count: int, runs: dict[str, list[float]], strategy: str) -> Finding:
    return Finding(
        benchmark="loads",
        case=f"{strategy} into an empty table",
        goal=f"dlt, {strategy} of {count:,} rows into an empty table: time relative to {APPEND}",
        value=ratio(runs[strategy], runs[APPEND]),
        at_most=1.2,
        against=APPEND,
        unit="seconds",
        runs={"frazil": runs[strategy], APPEND: runs[APPEND]},
    )


def _upserts(lab: Lab, loads: Loads, tell: Callable[[str], None]) -> Finding:
    count = lab.sizes.load_rows
    changed = count // 10
    table = loads.next_table()
    files = loads.package(table, loads.rows(count, count, 0), **UPSERT)
    name = lab.make_table(table, lab.spark.read.parquet(*files))
    lab.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.merge.mode'='merge-on-read')")
    loads.bare(files, name)
    loads.load()
    seed = 0

    def files_of_turn() -> list[str]:
        nonlocal seed
        seed += 1
        return loads.package(table, loads.rows(changed, count, seed), **UPSERT)

    def spark() -> float:
        seconds = loads.merge(files_of_turn(), name)
        loads.pipeline.drop_pending_packages()
        return seconds

    def ours() -> float:
        files_of_turn()
        return loads.load()

    # Each changes the same rows of its own table.
    runs = interleaved({MERGE: spark, "frazil": ours}, lab.sizes, tell)
    return Finding(
        benchmark="loads",
        case="upsert",
        goal=f"dlt, upsert of {changed:,} rows into {count:,}: time relative to {MERGE}",
        value=ratio(runs["frazil"], runs[MERGE]),
        at_most=1.5,
        against=MERGE,
        unit="seconds",
        runs=runs,
    )


def _processes(lab: Lab, loads: Loads, tell: Callable[[str], None]) -> list[Finding]:
    """The whole process of a pipeline, for the record."""
    if not lab.sizes.load_processes:
        return []
    import pyarrow.parquet

    path = lab.folder / "whole.parquet"
    pyarrow.parquet.write_table(loads.rows(lab.sizes.load_rows, lab.sizes.load_rows, 0), path)

    def whole(kind: str) -> float:
        folder = lab.folder / "whole"
        command = [sys.executable, str(Path(__file__).with_name("load_process.py")), kind, str(path), str(folder)]
        try:
            return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    sizes = replace(lab.sizes, rounds=lab.sizes.load_processes, warm_up=0)
    runs = interleaved({"frazil": lambda: whole("frazil"), PYICEBERG: lambda: whole("dlt")}, sizes, tell)
    return [
        Finding(
            benchmark="loads",
            case="process",
            goal=f"dlt, whole process that appends {lab.sizes.load_rows:,} rows: time relative to {PYICEBERG}",
            value=ratio(runs["frazil"], runs[PYICEBERG]),
            against=PYICEBERG,
            unit="seconds",
            runs=runs,
        )
    ]
