"""What is physically in the files of a table: rows that deletes hide are in them as much as all others."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession, functions

from frazil.columns.schema import quoted
from frazil.iceberg.debt import PATH_ID, LiveFile
from frazil.iceberg.jvm import Jvm, items
from frazil.iceberg.small import rows_of

MATCH = "__frazil_match"
"""The column that says whether a row is one of those that are looked for."""

# A file of position deletes has a column under this id, whatever its name is here.
_PATH = "__frazil_path"
_FORMATS = {".parquet": "PARQUET", ".orc": "ORC", ".avro": "AVRO"}


@dataclass(frozen=True)
class Wanted:
    """The rows that are looked for: ``mark`` adds the column that says which they are, made from some columns of the table."""

    mark: Callable[[DataFrame], DataFrame]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What is in a file. ``readable``: it could be read. ``decided``: it has the columns by which rows are looked for."""

    rows: int
    matches: int = 0
    readable: bool = True
    decided: bool = True

    @property
    def clean(self) -> bool:
        """Whether the file certainly has none of the rows."""
        return self.readable and self.decided and not self.matches


def data_format(path: str) -> str | None:
    """Iceberg's name for the format of a file with rows or deletes, by the end of its name; None for other files."""
    return next((name for end, name in _FORMATS.items() if path.endswith(end)), None)


def as_data(jvm: Jvm, path: str, size: int, rows: int = 1) -> Any:
    """A file of any kind, an unknown one or one of deletes, as if it were a data file of no partition."""
    begin = jvm.iceberg.DataFiles.builder(jvm.iceberg.PartitionSpec.unpartitioned())
    return begin.withPath(path).withFormat(data_format(path)).withFileSizeInBytes(size).withRecordCount(rows).build()


def look_into(
    jvm: Jvm, spark: SparkSession, table: Any, files: Sequence[Any], wanted: Wanted, *, kinds_known: bool
) -> dict[str, Found]:
    """Reads all rows of data files, without any deletes.

    ``kinds_known``: they certainly have the table's columns. Of another file it is not decided what is in it where a column is
    missing or always null, unless it is one of position deletes, which hold nothing of a row.
    """
    if not files:
        return {}
    whole = _with_optional_columns(jvm, table)
    spec_json, schema_json = jvm.iceberg.PartitionSpecParser.toJson, jvm.schema_to_json(whole.schema())
    none, specs = jvm.gateway.new_array(jvm.iceberg.DeleteFile, 0), table.operations().current().specsById()
    expressions = jvm.iceberg.expressions
    everything = expressions.ResidualEvaluator.unpartitioned(expressions.Expressions.alwaysTrue())
    unpartitioned = str(spec_json(jvm.iceberg.PartitionSpec.unpartitioned()))
    texts: dict[int, str] = {}

    def live(file: Any) -> LiveFile:
        number = int(file.specId())
        if number not in texts:
            texts[number] = str(spec_json(specs.get(number))) if kinds_known else unpartitioned
        return LiveFile(file, jvm.iceberg.BaseFileScanTask(file, none, schema_json, texts[number], everything))

    named = [live(file) for file in files]
    found: dict[str, Found] = {one.path: Found(0) for one in named}
    with rows_of(jvm, spark, whole, named) as rows:
        found |= _summed_up(wanted, rows, kinds_known=kinds_known)
    return found


def _summed_up(wanted: Wanted, rows: DataFrame, *, kinds_known: bool) -> dict[str, Found]:
    # How many rows there are stands first, so that the array is never empty.
    counted = [functions.lit(1), *([] if kinds_known else map(functions.col, [_PATH, *map(quoted, wanted.columns)]))]
    matches, counts = functions.count_if(functions.col(MATCH)), functions.array(*map(functions.count, counted))
    by_file = wanted.mark(rows).groupBy("_file").agg(matches, counts).toArrow()
    found = {}
    for path, matching, (count, *known) in zip(*(column.to_pylist() for column in by_file.columns), strict=True):
        decided = kinds_known or known[0] > 0 or all(known[1:])
        found[path] = Found(count, matching, decided=decided)
    return found


def live_matches(jvm: Jvm, spark: SparkSession, table: Any, files: Sequence[LiveFile], wanted: Wanted) -> dict[str, BitMap64]:
    """The positions of the rows in live files that no delete hides."""
    if not files:
        return {}
    with rows_of(jvm, spark, table, files) as rows:
        found = wanted.mark(rows).where(MATCH).groupBy("_file").agg(functions.collect_list("_pos").alias("positions"))
        table_of = found.toArrow()
    each = zip(table_of["_file"].to_pylist(), table_of["positions"], strict=True)
    return {path: BitMap64(array("Q", at.values.to_numpy().tobytes())) for path, at in each}


def _with_optional_columns(jvm: Jvm, table: Any) -> Any:
    """A view of the table in which no column is required, and that has the columns of position deletes, too.

    Delete files lack most columns, and reading one that is required and missing is an error.
    """
    metadata = table.operations().current()
    types = jvm.iceberg.types
    like = getattr(getattr(types, "Types$NestedField"), "from")
    field = getattr(types, "Types$NestedField").optional
    columns = jvm.root.java.util.ArrayList()
    for column in items(metadata.schema().columns()):
        columns.add(like(column).asOptional().build())
    columns.add(field(PATH_ID, _PATH, getattr(types, "Types$StringType").get()))
    schema = jvm.iceberg.Schema(columns)
    builder = jvm.build_metadata_from(metadata).setDefaultSortOrder(jvm.iceberg.SortOrder.unsorted())
    builder = builder.setCurrentSchema(schema, metadata.lastColumnId())
    return jvm.view(table, builder.discardChanges().build())
