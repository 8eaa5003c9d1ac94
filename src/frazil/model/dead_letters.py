"""What becomes of rows that cannot be written: the options, and the table that keeps them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from frazil.model.base import Model, Problem
from frazil.model.types import Column, ListType, Primitive, StructType

SUFFIX = "__dead_letters"


class OnError(StrEnum):
    """What a row does that cannot be decoded, converted, routed or written."""

    STOP = "stop"
    DEAD_LETTER = "dead_letter"
    COLUMNS = "columns"


class DeadLetterOptions(Model):
    """The part of a sink that says what becomes of rows that cannot be written."""

    on_error: OnError = Field(
        OnError.STOP,
        description="A row that cannot be decoded, converted or written stops the pipeline; goes into the dead letter table; "
        "or is kept with null values and an error column.",
    )
    dead_letter_table: str | None = Field(
        None,
        min_length=1,
        description=f"Table of dead letters, in the sink's namespace unless it names one; `<table>{SUFFIX}` when left out.",
    )
    max_dead_letters: int | None = Field(
        None,
        ge=0,
        description="Most dead letters since the start of the pipeline; a batch with more is not written and stops it.",
    )
    max_dead_letter_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Largest share of dead letters in a batch; one with more is not written and stops the pipeline.",
    )


_HEADER = StructType((Column("key", Primitive("string")), Column("value", Primitive("binary"))))

LETTERS = StructType(
    (
        Column("pipeline", Primitive("string"), doc="The pipeline that read the record."),
        Column("table", Primitive("string"), doc="The table that it was for, where that is known."),
        Column("stage", Primitive("string"), doc="What could not be done: decode, transform, route, cast, expect, write."),
        Column("code", Primitive("string"), doc="Why, as a code."),
        Column("error", Primitive("string"), doc="Why, in words."),
        Column("at", Primitive("string"), doc="Where the record is in its source, as JSON."),
        Column("key", Primitive("binary"), doc="The record's key."),
        Column("raw", Primitive("binary"), doc="The record as it came; of a source of rows, the row as JSON."),
        Column("sent_at", Primitive("timestamptz"), doc="When the record was made, where the source says so."),
        Column("headers", ListType(_HEADER), doc="The record's headers, where it has any."),
        Column("failed_at", Primitive("timestamptz"), doc="When the batch was read."),
        Column("sink", Primitive("string"), doc="The sink's id in the ledger."),
        Column("batch", Primitive("long"), doc="The number of the batch in the sink's ledger."),
    )
)
"""The columns of a table of dead letters."""


def dead_letter_problems(options: DeadLetterOptions, error_column: str | None) -> list[Problem]:
    """What does not fit together."""
    problems = []
    if options.on_error is OnError.COLUMNS and error_column is None:
        problems.append(Problem("on_error: columns needs error_column, which names the column", "on_error"))
    if error_column is not None and options.on_error is not OnError.COLUMNS and "on_error" in options.model_fields_set:
        words = f"error_column has no meaning with on_error: {options.on_error}; it belongs to columns"
        problems.append(Problem(words, "error_column"))
    if options.on_error is not OnError.DEAD_LETTER:
        problems += [
            Problem(f"{name} has no meaning with on_error: {options.on_error}; it belongs to dead_letter", name)
            for name in ("dead_letter_table", "max_dead_letters", "max_dead_letter_rate")
            if getattr(options, name) is not None
        ]
    return problems
