"""Rows with what they do to the table: the operation and the order as hidden columns, whatever the source calls them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StringType

from frazil.columns.aliases import under_new_names
from frazil.columns.alignment import aligned_value
from frazil.columns.coerce import Converted
from frazil.columns.schema import data_columns, error_of, hidden_columns, is_of_value, quoted
from frazil.errors import ColumnMissing, ConfigError, KeyDiffers, KeyMissing
from frazil.model.changes import ChangeFormat, CommitMode
from frazil.model.dead_letters import OnError
from frazil.model.hidden import (
    DELETE,
    ERROR,
    LANE,
    OP,
    ORDER,
    TURN,
    UNCHANGED,
    UPDATE,
)
from frazil.model.sink import SinkSpec
from frazil.write.modes.envelopes import envelopes, from_debezium, key_columns_of_envelopes
from frazil.write.modes.history import version_columns
from frazil.write.modes.row_state import set_aside, with_error, with_faults, with_op
from frazil.write.modes.shared_types import as_type, fields_of, shared_type, types_within

# Where the columns of a row are, when they are not columns of the frame.
_IMAGES = ("before", "after", "key", "value")
# Types of which texts are in the same order as their values, or that have none.
_COMPARED_AS_TEXT = ("string", "uuid", "struct", "list", "map", "variant")


def with_operations(frame: DataFrame, sink: SinkSpec, *, proven: bool = False) -> DataFrame:
    """The frame's rows as they are written to the table, with the hidden columns that the sink's options need.

    Plain rows have gone through :func:`without_marks` before. ``proven``: there is a table that has such rows.
    """
    if proven and sink.error_handling is OnError.DEAD_LETTER:
        frame = _completed(frame, sink)
    frame = _operations(frame, sink)
    if sink.change_format is not ChangeFormat.ROWS:
        frame = _without_marks(frame, sink)
    new = {sink.op_column: _op(frame), sink.diff_column: functions.when(_op(frame) == DELETE, -1).otherwise(1)}
    new[sink.time_column] = functions.current_timestamp()
    named = {name: column for name, column in new.items() if name is not None}
    if sink.history is not None:
        named |= version_columns(frame, sink, sink.history)
    for name in named:
        for taken in [column for column in data_columns(frame) if column.lower() == name.lower()]:
            frame = set_aside(frame, sink, taken, f"The column {taken!r}, which the sink adds, is in the data already.")
    return frame.withColumns(named) if named else frame


def keeps_columns(sink: SinkSpec) -> bool:
    """Whether plain rows, which say nothing of keys and operations, have the same columns after :func:`with_operations`."""
    named = (sink.op_field, sink.op_column, sink.diff_column, sink.time_column, sink.history)
    return sink.change_format is ChangeFormat.ROWS and not sink.aliases and not sink.order_by and not any(named)


def _completed(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """The frame with null for columns that the sink's options need and no record of the batch has."""
    needed = {ChangeFormat.DEBEZIUM: ("op", "before", "after"), ChangeFormat.TOMBSTONES: ("key", "value")}
    named = (*needed.get(sink.change_format, ()), *sink.order_by, *([sink.op_field] if sink.op_field else []))
    if not data_columns(frame) or "payload" in frame.columns:
        return frame
    if sink.change_format is ChangeFormat.DEBEZIUM and "op" not in frame.columns:
        text = functions.lit("the record is no change of Debezium: it has no `op`")
        frame = with_error(frame, error_of("decode", "debezium-envelope", text))
    lacking = [name for name in named if name not in frame.columns and name.partition(".")[0] not in frame.columns]
    return frame.withColumns({name.partition(".")[0]: functions.lit(None).cast("string") for name in lacking})


def without_marks(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """Plain rows without marks, before transforms are applied to them; rows in envelopes are checked after they are unwrapped."""
    return _without_marks(frame, sink) if sink.change_format is ChangeFormat.ROWS else frame


def _without_marks(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """The frame with null for placeholder texts of values that were not sent, and a hidden column with the names of these
    columns.
    """
    mark = sink.unchanged_value
    names = [name for name in data_columns(frame) if isinstance(frame.schema[name].dataType, StringType)]
    if mark is None or not names:
        return frame
    marked = {name: functions.col(quoted(name)) == mark for name in names}
    found = functions.array_compact(
        functions.array(*[functions.when(held, functions.lit(name)) for name, held in marked.items()])
    )
    if UNCHANGED in frame.columns:
        found = functions.array_union(
            found, functions.coalesce(functions.col(UNCHANGED), functions.array().cast("array<string>"))
        )
    sent = {
        name: functions.when(~functions.coalesce(held, functions.lit(False)), functions.col(quoted(name)))
        for name, held in marked.items()
    }
    without = frame.withColumns(sent | {UNCHANGED: functions.when(functions.size(found) > 0, found)})
    for name in names:
        if marks := frame.schema[name].metadata:
            without = without.withMetadata(name, marks)
    return without


def _op(frame: DataFrame) -> Column:
    return functions.col(OP) if OP in frame.columns else functions.lit("insert")


def _operations(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    if sink.change_format is ChangeFormat.DEBEZIUM:
        frame = under_new_names(envelopes(frame), sink)
        require_columns(frame, ("op", "before", "after", *sink.order_by), "change_format: debezium")
        known = key_columns_of_envelopes(frame)
        keys, marked = sink.key_fields or known, known or sink.key_fields
        own = sink.commit_mode is CommitMode.UPSERT and any(sink.key_column(key, marked) is None for key in keys)
        return from_debezium(_ordered(frame, sink), sink, keys, marked=marked, images=own)
    frame = under_new_names(frame, sink)
    if sink.change_format is ChangeFormat.TOMBSTONES:
        return _from_tombstones(frame, sink)
    if sink.op_field is not None:
        require_columns(frame, (sink.op_field,), "op_field")
        frame = with_op(frame, functions.col(quoted(sink.op_field)), sink).drop(sink.op_field)
    return _ordered(frame, sink)


def require_columns(frame: DataFrame, paths: tuple[str, ...], option: str) -> None:
    """The columns that an option names must be there; of a path its first part."""
    for path in paths:
        if path not in frame.columns and path.partition(".")[0] not in frame.columns:
            known = ", ".join(data_columns(frame))
            raise ColumnMissing("column-missing", f"{option}: there is no column {path!r} in the data. Columns: {known}")


def _column(frame: DataFrame, path: str) -> Column:
    return functions.col(quoted(path) if path in frame.columns else path)


def _ordered(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    if not sink.order_by:
        return frame
    require_columns(frame, sink.order_by, "order_by")
    _require_order_of_deletes(frame, sink)
    places = [_order_value(frame, path, sink) for path in sink.order_by]
    named = [place.value.alias(f"o{number}") for number, place in enumerate(places)]
    if TURN in fields_of(frame, ORDER):
        named.append(functions.col(ORDER)[TURN].alias(TURN))
    ordered = frame.withColumn(ORDER, functions.struct(*named)).drop(LANE)
    if OP not in frame.columns:
        return ordered
    # The values of a delete are not checked when it is written, but its position in the order must be known.
    gone = functions.col(OP) == DELETE
    return with_faults(ordered, [functions.when(gone, place.error) for place in places if place.error is not None])


def _require_order_of_deletes(frame: DataFrame, sink: SinkSpec) -> None:
    """A message without a value, which deletes its row, has no columns of the row: it would not count as the last change."""
    name = sink.order_by[0] if sink.order_by[0] in frame.columns else sink.order_by[0].partition(".")[0]
    if sink.commit_mode is CommitMode.UPSERT and is_of_value(frame, name):
        raise ConfigError(
            "order-of-row",
            f"order_by: {sink.order_by[0]!r} is a column of the rows, and a message without a value, which deletes its row, does "
            "not have it: it would count as the first change of its row, not as the last.",
            fix="Name what each message has: order_by: [kafka_timestamp, kafka_offset], with metadata: [timestamp, offset] in "
            "the source. Or, where no message deletes, set tombstones: error in the source.",
        )


def _order_value(frame: DataFrame, path: str, sink: SinkSpec) -> Converted:
    """What rows are ordered by. A text is converted if the table has another type: as a text, 9 comes after 10."""
    value = _column(frame, path)
    place, _, within = path.partition(".")
    inside = sink.change_format is not ChangeFormat.ROWS and place in _IMAGES
    declared = sink.declared_schema.column(within if inside else path) if sink.declared_schema is not None else None
    if declared is None or declared.type.name in _COMPARED_AS_TEXT:
        return Converted(value)
    kind = frame.select(value).schema[0].dataType
    return aligned_value(value, kind, declared.type, path, sink) if isinstance(kind, StringType) else Converted(value)


def _from_tombstones(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """`key` and `value`: the row is the value; without a value, the row with the key is deleted."""
    require_columns(frame, ("key", "value"), "change_format: tombstones")
    frame = _ordered(frame, sink)
    value, key = functions.col("value"), functions.col("key")
    names = fields_of(frame, "value")
    if fields_of(frame, "key"):
        given = {name: key[name] for name in fields_of(frame, "key")}
    elif len(sink.key_fields) == 1:
        given = {sink.key_fields[0]: key}
    else:
        words = "change_format: tombstones: a `key` that is no struct is one column, so that key_fields must be one name"
        raise KeyMissing("key-missing", words)
    keys = {sink.key_column(name, names) or name: part for name, part in given.items()}
    strange = [key for key in sink.key_fields if sink.key_column(key, keys) is None]
    if strange and sink.commit_mode is CommitMode.UPSERT:
        words = f"change_format: tombstones: key_fields has {strange[0]!r}, which is not in the messages' key: {', '.join(keys)}"
        fix = "Name columns of the key alone: by others a row that changes, or is gone, would not be found."
        raise KeyDiffers("key-differs", words, fix=fix)
    types = types_within(frame, "value")
    key_types = types_within(frame, "key") or dict.fromkeys(given, frame.schema["key"].dataType)
    kinds = {sink.key_column(name, names) or name: kind for name, kind in key_types.items()}
    columns, wrong = [], []
    for name in names:
        own = Converted(value[name])
        if name in keys:
            kind = shared_type(name, {"value": types[name], "key": kinds[name]})
            own = as_type(value[name], types[name], kind, f"value.{name}", sink)
            other = as_type(keys[name], kinds[name], kind, f"key.{name}", sink)
            wrong += [own.error, None if other.error is None else functions.when(value[name].isNull(), other.error)]
            own = Converted(functions.coalesce(own.value, other.value))
        columns.append(own.value.alias(name))
    columns += [column.alias(name) for name, column in keys.items() if name not in names]
    frame = with_faults(frame, wrong)
    gone = value.isNull() & functions.col(ERROR).isNull() if ERROR in frame.columns else value.isNull()
    op = functions.when(gone, DELETE).otherwise(UPDATE)
    return frame.select(*columns, op.alias(OP), *[name for name in hidden_columns(frame) if name != OP])
