"""Dead letters of a source of rows, whose records are rows written as JSON."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from frazil.columns.schema import data_columns, error_of, from_json_text, quoted
from frazil.errors import ConfigError
from frazil.model.hidden import AT, ERROR, HIDDEN, KEY, RAW
from frazil.sources.base import Source

_ROW, _BROKEN = f"{HIDDEN}row", f"{HIDDEN}broken"


def rows_like(letters: DataFrame, source: Source) -> DataFrame:
    """The letters' records as rows with the columns that the source has now. One that is no such row says so."""
    schema = _columns_of(source)
    whole = StructType([*schema.fields, StructField(_BROKEN, StringType())])
    text = sf.col("raw").cast("string")
    rows = letters.select(from_json_text(text, whole, _BROKEN).alias(_ROW), "raw", "key", "at")
    row = sf.col(_ROW)
    broken = row.isNull() | row[_BROKEN].isNotNull()
    message = sf.concat(sf.lit("the record is not a row of the source as JSON: "), sf.coalesce(text, sf.lit("null")))
    return rows.select(
        *(row.getField(field.name).alias(field.name) for field in schema.fields),
        sf.col("raw").alias(RAW),
        sf.col("key").alias(KEY),
        sf.col("at").alias(AT),
        sf.when(broken, error_of("decode", "message-invalid", message)).alias(ERROR),
    )


def _columns_of(source: Source) -> StructType:
    """As the first rows of the source have them."""
    try:
        part = source.plan(None, 1)
        if part is None:
            raise ConfigError(
                "replay-impossible",
                "The source has nothing now, so that its columns are not known.",
                fix="Put the records into the source again.",
            )
        frame = source.read(part)
        return frame.select(*(quoted(name) for name in data_columns(frame))).schema
    finally:
        source.close()
