"""Runs the tests of a pipeline's transforms: on Spark, without a source, a catalog or a table.

The rows of a test take the types of the source's declared columns, pass through the transforms, and are brought into the sink's
declared columns as they would be before they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession, functions

from frazil.columns.alignment import alignment
from frazil.columns.coerce import json_text
from frazil.columns.schema import data_columns, hidden_columns, quoted, schema_of
from frazil.errors import ConfigError, DataError, FrazilError
from frazil.iceberg import fault_of
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.cases import CaseDifference, CaseResult, CaseSpec, Row, difference, plain
from frazil.model.coercion import admitted, require_casts, with_error_columns
from frazil.model.dead_letters import OnError
from frazil.model.hidden import ERROR, ERROR_TYPE, OP
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.model.sink import ColumnSpec, SinkSpec
from frazil.model.types import Column, parse_type
from frazil.model.types import StructType as Schema
from frazil.spark.session import spark_session, with_scratch
from frazil.write.modes.plain import unwritten
from frazil.write.shape import source_rows


def run_cases(pipelines: Sequence[PipelineSpec], settings: Settings) -> Iterator[CaseResult]:
    """The results of all tests of these pipelines, one after the other."""
    spark = spark_session(with_scratch(settings))
    for pipeline in pipelines:
        for case in pipeline.tests:
            yield run_case(spark, pipeline, case)


def run_case(spark: SparkSession, pipeline: PipelineSpec, case: CaseSpec) -> CaseResult:
    """The result of one test."""
    try:
        rows, schema, errors = _outcome(spark, pipeline, case)
    except FrazilError as error:
        rows, schema, errors = [], Schema(()), [error]
    codes = tuple(dict.fromkeys(error.code for error in errors))
    differs = CaseDifference()
    if case.expect is not None:
        differs = difference([plain(row, schema) for row in case.expect], [plain(row, schema) for row in rows])
    return CaseResult(
        pipeline.name, case.name, len(case.given), len(rows), differs, error=_complaint(case, errors), refused=codes
    )


def _complaint(case: CaseSpec, errors: Sequence[FrazilError]) -> str | None:
    """What is wrong with the errors that there were, or were not."""
    others = [error for error in errors if error.code != case.expect_error]
    if others:
        return f"[{others[0].code}] {others[0]}"
    if case.expect_error is not None and not errors:
        return f"no row was refused with {case.expect_error}"
    return None


def _outcome(spark: SparkSession, pipeline: PipelineSpec, case: CaseSpec) -> tuple[list[Row], Schema, list[FrazilError]]:
    """The rows that come out, their schema, and the errors of those that do not."""
    frame = _given(spark, pipeline, case)
    # Which rows changed their key does not affect the result, and the messages that may contain their keys are not there.
    frame = source_rows(frame, pipeline.sink.model_copy(update={"key_fields": ()}), pipeline.transforms)
    if OP in frame.columns:
        frame = frame.where(~functions.col(OP).isin(*unwritten(pipeline.sink)))
    frame = _as_the_sink_has_it(frame, pipeline.sink)
    schema = schema_of(frame)
    values = functions.struct(*[functions.col(quoted(name)) for name in data_columns(frame)])
    error = functions.col(ERROR) if ERROR in frame.columns else functions.lit(None).cast(ERROR_TYPE)
    try:
        found = frame.select(json_text(values, schema).alias("row"), error.alias("error")).collect()
    except Exception as failed:
        raise explain_staging(fault_of(failed)) from failed
    errors: list[FrazilError] = [DataError(row.error["code"], row.error["text"]) for row in found if row.error is not None]
    kept = [json.loads(row.row, parse_float=Decimal) for row in found if row.error is None]
    if errors and pipeline.sink.error_handling is OnError.STOP:
        kept = []  # nothing of a batch is written that is stopped
    return kept, schema, errors


def _given(spark: SparkSession, pipeline: PipelineSpec, case: CaseSpec) -> DataFrame:
    text = functions.lit(json.dumps(case.given))
    one = spark.range(1)
    kind = one.select(functions.schema_of_json(text)).first()
    assert kind is not None, "a range of one has a row"
    frame = one.select(functions.inline(functions.from_json(text, kind[0])))
    declared: tuple[ColumnSpec, ...] = getattr(pipeline.source, "columns", ())
    if not declared:
        return frame
    names = [column.name for column in declared]
    if unknown := [name for name in frame.columns if name not in names]:
        words = f"given: the source declares no column {unknown[0]!r}"
        raise ConfigError("given-column", words, fix=f"Columns: {', '.join(names)}.")
    schema = Schema(tuple(Column(column.name, parse_type(column.type)) for column in declared))
    return _aligned(frame, schema, None)


def _as_the_sink_has_it(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    declared = sink.declared_schema or with_error_columns(Schema(()), sink)
    data = schema_of(frame)
    if not declared.fields:
        return frame
    incoming = admitted(declared, data, sink)
    known = {column.name for column in declared.fields}
    schema = Schema((*declared.fields, *(column for column in incoming.fields if column.name not in known)))
    require_casts(schema, data, sink)
    return _aligned(frame, schema, sink)


def _aligned(frame: DataFrame, schema: Schema, sink: SinkSpec | None) -> DataFrame:
    """The frame with these columns; a row's errors are in a hidden column, unless the sink has columns for them."""
    hidden = hidden_columns(frame)
    if sink is None:
        made = alignment(schema_of(frame), schema, hidden=hidden, rejects=True)
    else:
        made = alignment(schema_of(frame), schema, sink, hidden=hidden, rejects=sink.error_handling is not OnError.COLUMNS)
    if made.columns is None:
        return frame
    wrong = [] if made.error is None else [made.error.alias(ERROR)]
    return frame.select(*made.columns, *[name for name in hidden if name != ERROR], *wrong)
