"""A table with thousands of small delete files, as a stream of changes leaves them where nobody maintains it.

Half of them are equality deletes, half position deletes. frazil settles and compacts them in the heap of all benchmarks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow
from pyarrow import parquet

from benchmarks.lab import CATALOG, NAMESPACE, Lab, timed
from benchmarks.summary import Finding
from frazil.model.maintenance import MaintenanceTask
from frazil.model.settings import Settings
from frazil.runtime.maintain import maintain

PUBLISHED = "RisingWave on 16 processors, as published"
PUBLISHED_SECONDS = 518.0
FILE_PATH, POSITION = 2147483546, 2147483545  # the ids that Iceberg reserves for these columns
PER_FILE = 10

Tell = Callable[[str], None]


def measure(lab: Lab, tell: Tell) -> list[Finding]:
    """Maintenance of copies of one table, one after the other; each must hold the rows that Spark read before."""
    count, rows = lab.sizes.delete_files, lab.sizes.delete_rows
    first = _table(lab, rows, count)
    left = lab.spark.table(first).count()
    tell(f"{count:,} delete files; {left:,} of {rows:,} rows are left")
    times = []
    for number in range(lab.sizes.rounds):
        name = _copy(lab, first, number)
        seconds = timed(lambda name=name: _maintain(lab, name))  # type: ignore[misc]
        deletes = lab.spark.table(f"{name}.delete_files").count()
        if lab.spark.table(name).count() != left:
            raise RuntimeError(f"{name} has other rows after its maintenance")
        tell(f"round {number + 1}: {seconds:.1f} s, {deletes} delete files are left")
        times.append(round(seconds, 2))
    return [
        Finding(
            benchmark="deletes",
            case="settled",
            goal=f"{count:,} delete files settled in a heap of {lab.sizes.heap}: seconds",
            value=round(median(times), 3),
            at_most=PUBLISHED_SECONDS,
            against=PUBLISHED,
            unit="seconds",
            runs={"frazil": times, PUBLISHED: [PUBLISHED_SECONDS] * len(times)},
            details={"rows": rows, "rows_per_delete_file": PER_FILE},
        )
    ]


def _maintain(lab: Lab, name: str) -> None:
    sink = lab.sink(None, name).options(maintenance={"enabled": True, "reader_grace_minutes": 0}).spec
    tasks = (MaintenanceTask.SETTLE, MaintenanceTask.COMPACT)
    maintain(sink, Settings(), tasks, dry_run=False, orphan_age_hours=72, listen=lambda _: None)


def _copy(lab: Lab, name: str, number: int) -> str:
    newest = lab.spark.sql(f"SELECT file FROM {name}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1").collect()[0]
    lab.spark.sql(f"CALL {CATALOG}.system.register_table('{NAMESPACE}.deletes{number}', '{newest.file}')").collect()
    return f"{CATALOG}.{NAMESPACE}.deletes{number}"


def _table(lab: Lab, rows: int, count: int) -> str:
    """A table with ten data files, and deletes of its rows that are spread over all of them."""
    name = f"{CATALOG}.{NAMESPACE}.deletes"
    numbers = lab.spark.range(0, rows, 1, 10).selectExpr("id", "id % 97 AS kind", "concat('name-', id % 1000) AS name")
    numbers.writeTo(name).using("iceberg").tableProperty("format-version", "2").create()
    data = [row.file_path for row in lab.spark.table(f"{name}.files").select("file_path").collect()]
    folder = lab.table_folder(name) / "data"
    catalog = lab.spark._jvm.org.apache.iceberg.spark.Spark3Util
    table = catalog.loadIcebergTable(lab.spark._jsparkSession, name)
    delta = table.newRowDelta()
    builder = lab.spark._jvm.org.apache.iceberg.FileMetadata
    parquet_format = lab.spark._jvm.org.apache.iceberg.FileFormat.PARQUET
    for path, written, referenced in _files(folder, data, rows, count):
        delete = builder.deleteFileBuilder(table.spec()).withPath(f"file://{path}").withFormat(parquet_format)
        delete.withFileSizeInBytes(path.stat().st_size).withRecordCount(written)
        if referenced is None:
            delete.ofEqualityDeletes(_ints(lab, 1))
        else:
            delete.ofPositionDeletes().withReferencedDataFile(referenced)
        delta.addDeletes(delete.build())
    delta.commit()
    return name


def _ints(lab: Lab, *values: int) -> Any:
    array = lab.spark.sparkContext._gateway.new_array(lab.spark._jvm.int, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def _files(folder: Path, data: list[str], rows: int, count: int) -> Iterator[tuple[Path, int, str | None]]:
    """Delete files in turns: keys, then positions of one data file."""
    keys = pyarrow.schema([_field("id", pyarrow.int64(), 1)])
    places = pyarrow.schema([_field("file_path", pyarrow.string(), FILE_PATH), _field("pos", pyarrow.int64(), POSITION)])
    each = rows // len(data)
    for number in range(count):
        path = folder / f"deletes-{number}.parquet"
        if number % 2 == 0:
            # A prime spreads them.
            values = [(number * PER_FILE + one) * 7919 % rows for one in range(PER_FILE)]
            parquet.write_table(pyarrow.table({"id": values}, keys), path)
            yield path, PER_FILE, None
        else:
            file = data[number // 2 % len(data)]
            values = sorted({(number * PER_FILE + one) * 104729 % each for one in range(PER_FILE)})
            parquet.write_table(pyarrow.table({"file_path": [file] * len(values), "pos": values}, places), path)
            yield path, len(values), file


def _field(name: str, kind: pyarrow.DataType, number: int) -> pyarrow.Field:
    return pyarrow.field(name, kind, nullable=False, metadata={"PARQUET:field_id": json.dumps(number)})
