"""The columns of a data frame: those of the data, those beside it, and what marks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StructType as SparkStruct

from frazil.columns.coerce import JSON_OPTIONS
from frazil.columns.types import iceberg_schema
from frazil.errors import ConfigError, DataError, KeyDiffers
from frazil.model.changes import CommitMode
from frazil.model.hidden import (
    AT,
    CHANGES_MARK,
    COLUMN_MARK,
    ERROR,
    ERROR_TYPE,
    HIDDEN,
    IMAGES_MARK,
    KEY_COUNT_MARK,
    KEY_MARK,
    OF_KEY_MARK,
    OP,
    UNCHANGED,
    VALUE_MARK,
)
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType


def data_columns(frame: DataFrame) -> list[str]:
    """The columns that go into the table."""
    return [name for name in frame.columns if not name.startswith(HIDDEN)]


def hidden_columns(frame: DataFrame) -> list[str]:
    """The columns that a frame has beside its data."""
    return [name for name in frame.columns if name.startswith(HIDDEN)]


def require_data(names: Iterable[str], what: str) -> None:
    """Refuses data columns with the names of hidden ones: they would be mistaken for frazil's own information about a row."""
    if taken := [name for name in names if name.lower().startswith(HIDDEN)]:
        raise DataError(
            "column-reserved",
            f"{what} has columns whose names begin with {HIDDEN}, as frazil's own do: {', '.join(taken)}.",
            fix="Give them other names before they come here.",
        )


def or_unread(frame: DataFrame, condition: Column) -> Column:
    """The condition, which holds for records that could not be read, too: nothing in them says that they should be left out."""
    return functions.col(ERROR).isNotNull() | condition if ERROR in frame.columns else condition


def keys_from_source(frame: DataFrame, sink: SinkSpec) -> tuple[str, ...]:
    """The columns that identify a row, as far as the source says so; none where the sink has a key of its own that can do it."""
    marked = tuple(name for name in data_columns(frame) if is_key(frame, name))
    count = frame.schema[OP].metadata.get(KEY_COUNT_MARK, len(marked)) if OP in frame.columns else len(marked)
    if sink.commit_mode is not CommitMode.UPSERT:
        return marked
    if sink.key_fields and tells_changes(frame) and data_columns(frame):
        if follows_key(frame, sink):
            return ()
        raise KeyDiffers(
            "key-differs",
            f"{sink.full_name}: rows are known by {', '.join(sink.key_fields)} here, and by other columns in the source. When a "
            "row changes these, its old key would stay in the table; and a row that is deleted would not be found.",
            fix="Leave key_fields out, or name columns that are made from the source's key alone. A source that tells what rows "
            "were before can be followed by any key: Debezium with `before`, PostgreSQL with REPLICA IDENTITY FULL. Where "
            "messages without a value delete nothing, say so: tombstones: ignore.",
        )
    if len(marked) == count:
        return marked
    left = f"only {', '.join(marked)} is left" if marked else "none is left"
    raise ConfigError(
        "key-lost",
        f"{sink.full_name}: the source identifies its rows by {count} columns, of which {left} after the transforms: "
        "different rows would be taken for one.",
        fix="Keep these columns, under whatever names, or say in key_fields what identifies a row.",
    )


def follows_key(frame: DataFrame, sink: SinkSpec) -> bool:
    """Whether changes contain the sink's key of their row: it is derived from the source's key, or changes come with images."""
    marks = frame.schema[OP].metadata
    if marks.get(IMAGES_MARK) or KEY_COUNT_MARK not in marks:
        return True
    names = [sink.key_column(key, data_columns(frame)) for key in sink.key_fields]
    return all(name is None or is_of_key(frame, name) for name in names)


def is_of_key(frame: DataFrame, name: str) -> bool:
    """Whether a column is one of those that identify a row of the source, or is made from these alone."""
    return is_key(frame, name) or bool(frame.schema[name].metadata.get(OF_KEY_MARK))


def is_key(frame: DataFrame, name: str) -> bool:
    """Whether the source says of a column that it is one of those that identify a row."""
    return bool(frame.schema[name].metadata.get(KEY_MARK))


def is_of_value(frame: DataFrame, name: str) -> bool:
    """Whether a column is one of a message's value, or is made from such alone: a message that deletes its row has none of it."""
    return bool(frame.schema[name].metadata.get(VALUE_MARK))


def tells_changes(frame: DataFrame) -> bool:
    """Whether the rows are changes of rows with keys, of which each is the last word on its row until another comes."""
    return OP in frame.columns and bool(frame.schema[OP].metadata.get(CHANGES_MARK))


def column_ids_from_source(frame: DataFrame) -> dict[str, str]:
    """The columns that the source identifies by an id, with that id. An id that several columns have, because one is a copy, is
    ignored.
    """
    marked = {name: frame.schema[name].metadata.get(COLUMN_MARK) for name in data_columns(frame)}
    times = Counter(marked.values())
    return {name: column for name, column in marked.items() if column is not None and times[column] == 1}


def schema_of(frame: DataFrame) -> StructType:
    """The frame's data columns in Iceberg's types."""
    schema = iceberg_schema(frame.schema)
    return StructType(tuple(column for column in schema.fields if not column.name.startswith(HIDDEN)))


def error_of(stage: str, code: str, text: Column) -> Column:
    """What is wrong with a row, as a value of :data:`ERROR_TYPE`."""
    parts = {"stage": functions.lit(stage), "code": functions.lit(code), "text": text}
    return functions.struct(*[value.alias(name) for name, value in parts.items()]).cast(ERROR_TYPE)


def with_place(text: Column, hidden: Collection[str]) -> Column:
    """What is wrong with a record, and where in its source that is, as far as the source says so."""
    if AT not in hidden:
        return text
    place = functions.concat(functions.lit("the record at "), functions.col(AT), functions.lit(": "))
    is_named = functions.coalesce(text.contains(functions.get_json_object(AT, "$.file")), functions.lit(False))
    # Before the text, of which only the first line is shown.
    return functions.concat(functions.when(~is_named & place.isNotNull(), place).otherwise(""), text)


def from_json_text(text: Column, row: SparkStruct, broken: str) -> Column:
    """A row that was written by :func:`json_text`, with the text itself in the column ``broken`` when it is no such row."""
    return functions.from_json(text, row, {**JSON_OPTIONS, "columnNameOfCorruptRecord": broken})


def unchanged(name: str) -> Column:
    """Whether a row, of a frame with the column for it, does not have the value of a column because that did not change."""
    return functions.coalesce(functions.array_contains(UNCHANGED, name), functions.lit(False))


def quoted(name: str) -> str:
    """A column's name that Spark takes as it is, dots too."""
    return "`" + name.replace("`", "``") + "`"


def table_name(catalog: str, levels: Sequence[str], table: str) -> str:
    """A table's name in Spark's SQL, whatever characters its parts have."""
    return ".".join(quoted(part) for part in (catalog, *levels, table))
