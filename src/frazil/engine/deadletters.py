"""Rows that cannot be written, kept in a table of their own: the record as it came, where it was, and why.

The table follows the one that the rows were for: it gets the letters of a batch before that gets its rows, and its ledger says
which batch they are of, so that a batch that is cut off in between is found and repeated without writing them twice.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, functions

from frazil.engine.coerce import json_text
from frazil.engine.schema import AT, ERROR, KEY, RAW, data_columns, quoted, schema_of
from frazil.engine.types import spark_type
from frazil.errors import Halted
from frazil.model.dead_letters import LETTERS
from frazil.model.sink import SinkSpec


def letters_sink(sink: SinkSpec) -> SinkSpec:
    """The table of a sink's dead letters as a sink of its own, in the same catalog and store."""
    namespace, table = sink.letters_name
    kept = ("catalog", "s3", "gcs", "azure", "format_version")
    columns = [{"name": c.name, "type": str(c.type), "doc": c.doc} for c in LETTERS.fields]
    given: dict[str, Any] = {name: getattr(sink, name) for name in kept}
    return SinkSpec.model_validate(given | {"namespace": namespace, "table": table, "schema": columns})


def require_letters_apart(sink: SinkSpec) -> None:
    """Letters in the table itself would be rows of it."""
    if sink.letters_name == (sink.namespace, sink.table):
        raise Halted("dead-letter-table", f"dead_letter_table is the sink's own table {sink.full_name}.", fix="Name another one.")


def with_record(frame: DataFrame) -> DataFrame:
    """The source's rows with the record that each was made from: what the source says, or the row itself as JSON."""
    if RAW in frame.columns:
        return frame
    names = data_columns(frame)
    row = functions.struct(*[functions.col(quoted(name)) for name in names])
    return frame.withColumn(RAW, json_text(row, schema_of(frame)).cast("binary"))


def letters(frame: DataFrame, pipeline: str, table: str, batch: int) -> DataFrame:
    """The rows of the frame that have an error, as rows of the table of dead letters."""
    error = functions.col(ERROR)

    def given(name: str, kind: str) -> Any:
        return functions.col(name) if name in frame.columns else functions.lit(None).cast(kind)

    values = {
        "pipeline": functions.lit(pipeline),
        "table": functions.lit(table),
        "stage": error["stage"],
        "code": error["code"],
        "error": error["text"],
        "at": given(AT, "string"),
        "key": given(KEY, "binary"),
        "raw": functions.col(RAW),
        "failed_at": functions.current_timestamp(),
        "batch": functions.lit(batch),
    }
    columns = [values[c.name].cast(spark_type(c.type)).alias(c.name) for c in LETTERS.fields]
    return frame.where(error.isNotNull()).select(*columns)


def require_few(sink: SinkSpec, rows: int, rejected: int, before: int) -> None:
    """Stops a batch with more dead letters than the sink allows; nothing of it is written."""
    example = "Look at what the source sends, or raise the limit."
    most, rate = sink.max_dead_letters, sink.max_dead_letter_rate
    if most is not None and before + rejected > most:
        raise Halted(
            "too-many-dead-letters",
            f"{rejected} of the batch's {rows} rows cannot be written, which makes {before + rejected} since the pipeline was "
            f"started; max_dead_letters is {most}. The batch was not written.",
            fix=example,
        )
    if rate is not None and rejected > rate * rows:
        raise Halted(
            "too-many-dead-letters",
            f"{rejected} of the batch's {rows} rows cannot be written; max_dead_letter_rate is {rate:g}. "
            "The batch was not written.",
            fix=example,
        )
