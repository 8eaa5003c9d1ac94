"""Files that Spark cannot read: their errors, and the rows that represent them among those of other files.

Such a file is a record that cannot be read, as large as a file: it stops a pipeline, or becomes one dead letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from frazil.model.hidden import AT, ERROR, ERROR_TYPE, RAW
from frazil.sources.failures import one_line, whole_text
from frazil.sources.listing import FileEntry

CODE = "file-unreadable"

# What Spark says of a file that it has looked into. A store that fails, or an option that is wrong, is something else.
_SIGNS = (
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH",
    "PARQUET_TYPE_ILLEGAL",
    "PARQUET_TYPE_NOT_SUPPORTED",
    "PARQUET_TYPE_NOT_RECOGNIZED",
    "UNSUPPORTED_TIME_TYPE",
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
    "IncompatibleSchemaException",
    "is not a Parquet file",
    "Not an Avro data file",
    "Not a data file",
)
_MISMATCH = re.compile(
    r"Parquet column \[(?P<column>.+?)\]\. Expected Spark type (?P<wanted>.+?), actual Parquet type (?P<found>.+?)\.(?:\s|$)"
)
_UNKNOWN_TYPES = ("TIME", "FLOAT16", "UUID", "INTERVAL")
_MOST_DIGITS = 38


def is_about_content(error: Exception) -> bool:
    """Whether Spark read a file and found that it cannot make rows of it."""
    text = whole_text(error)
    return any(sign in text for sign in _SIGNS)


def unreadable_among(files: Sequence[FileEntry], read: Callable[[Sequence[FileEntry]], object]) -> dict[FileEntry, Exception]:
    """The files that cannot be read, each with the error, found by bisection: halves that can be read are not split further."""
    try:
        read(files)
    except Exception as error:
        if not is_about_content(error):
            raise
        if len(files) == 1:
            return {files[0]: error}
        middle = len(files) // 2
        return unreadable_among(files[:middle], read) | unreadable_among(files[middle:], read)
    return {}


def reason(error: Exception, parquet: Path | None = None) -> str:
    """Why a file cannot be read, with column and type where they are known. ``parquet``: the file, if it is local and Parquet."""
    if (mismatch := _MISMATCH.search(whole_text(error))) is not None:
        return f"its column {mismatch['column']!r} is of type {mismatch['found']}, and not {mismatch['wanted']}"
    unknown = _unknown_columns(parquet) if parquet is not None else []
    return f"Spark cannot read {', '.join(unknown)}" if unknown else one_line(error)


def _unknown_columns(path: Path) -> list[str]:
    """The columns of a Parquet file whose types Spark does not know."""
    import pyarrow
    from pyarrow import parquet

    try:
        schema = parquet.ParquetFile(path).schema
    except (pyarrow.ArrowException, OSError):
        return []  # not even that: what Spark says is what is known
    columns = (schema.column(number) for number in range(len(schema)))
    return [f"its column {one.path!r}, which is of type {kind}" for one in columns if (kind := _unknown_type(one)) is not None]


def _unknown_type(column: object) -> str | None:
    name, text = str(column.logical_type.type), str(column.logical_type)  # type: ignore[attr-defined]
    if name in _UNKNOWN_TYPES:
        return name
    if name == "TIMESTAMP" and "nanoseconds" in text:
        return "TIMESTAMP(NANOS)"
    if name == "DECIMAL" and column.precision > _MOST_DIGITS:  # type: ignore[attr-defined]
        return f"DECIMAL({column.precision}, {column.scale})"  # type: ignore[attr-defined]
    return None


def with_unreadable(spark: SparkSession, rows: DataFrame | None, texts: Mapping[FileEntry, str]) -> DataFrame:
    """The rows of the files that can be read, and one for each that cannot, which says so in hidden columns."""
    # The placeholder for the record is not JSON, so that it is never taken for a row.
    bad = [(entry.uri.encode(), json.dumps({"file": entry.uri}), ("decode", CODE, text)) for entry, text in texts.items()]
    letters = spark.createDataFrame(bad, f"{RAW} binary, {AT} string, {ERROR} {ERROR_TYPE}")
    if rows is None:
        return letters
    file = sf.struct(rows.metadataColumn("_metadata")["file_path"].alias("file"))
    good = rows.withColumns({RAW: sf.lit(None).cast("binary"), AT: sf.to_json(file), ERROR: sf.lit(None).cast(ERROR_TYPE)})
    return good.unionByName(letters, allowMissingColumns=True)
