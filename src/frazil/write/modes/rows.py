"""Rows with what they do to the table: the operation and the order as hidden columns, whatever the source calls them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, DoubleType, FloatType, NullType, NumericType, StringType, StructType

from frazil.columns.aliases import under_new_names
from frazil.columns.coerce import Converted
from frazil.columns.common_type import common_decimal, common_type
from frazil.columns.schema import (
    Aligned,
    aligned_value,
    data_columns,
    error_of,
    hidden_columns,
    quoted,
    row_error,
    unchanged,
)
from frazil.columns.types import iceberg_type
from frazil.errors import ColumnMissing, ConfigError, DataError, KeyDiffers, KeyMissing
from frazil.model.changes import ChangeFormat, CommitMode
from frazil.model.coercion import Way, way
from frazil.model.dead_letters import OnError
from frazil.model.hidden import (
    CHANGES_MARK,
    DELETE,
    ERROR,
    EXTRA,
    HIDDEN,
    IGNORE,
    IMAGES_MARK,
    KEY_COUNT_MARK,
    KEY_MARK,
    KEYS_MARK,
    LANE,
    MOVED,
    OP,
    ORDER,
    PAIR,
    TURN,
    UNCHANGED,
)
from frazil.model.sink import SinkSpec

INSERT, UPDATE = "insert", "update"
_STEP = f"{HIDDEN}step"

# Debezium: the key moved; the row under the old key is deleted before the one under the new key is written.
_BEFORE, _AFTER = 0, 1
_READS = ("r", "read")
# Where the columns of a row are, when they are not columns of the frame.
_IMAGES = ("before", "after", "key", "value")
# Types of which texts are in the same order as their values, or that have none.
_COMPARED_AS_TEXT = ("string", "uuid", "struct", "list", "map", "variant")
_OTHER_NAME = "Give it another name, or a prefix where it comes from the message."
# What Debezium's envelopes have beside the images of the row. A column of another name was added to the envelope.
_ENVELOPE = frozenset(["before", "after", "op", "source", "ts_ms", "ts_us", "ts_ns", "transaction"])


def is_extra(frame: DataFrame) -> Column:
    """Which rows are additional to the main row of their record: no separate record was read for them."""
    return functions.coalesce(functions.col(EXTRA), functions.lit(False)) if EXTRA in frame.columns else functions.lit(False)


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
    for name in named:
        for taken in [column for column in data_columns(frame) if column.lower() == name.lower()]:
            frame = set_aside(frame, sink, taken, f"The column {taken!r}, which the sink adds, is in the data already.")
    return frame.withColumns(named) if named else frame


def keeps_columns(sink: SinkSpec) -> bool:
    """Whether plain rows, which say nothing of keys and operations, have the same columns after :func:`with_operations`."""
    named = (sink.op_field, sink.op_column, sink.diff_column, sink.time_column)
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


def set_aside(frame: DataFrame, sink: SinkSpec, name: str, why: str, *, fix: str = "") -> DataFrame:
    """The frame without a column that has the name of another. Rows with a value there are bad, where such are kept apart."""
    if sink.error_handling is not OnError.DEAD_LETTER:
        raise ConfigError("column-exists", why, fix=fix)
    there = functions.col(quoted(name)).isNotNull()
    return with_error(frame, functions.when(there, error_of("transform", "column-exists", functions.lit(why)))).drop(name)


def with_error(frame: DataFrame, wrong: Column) -> DataFrame:
    """The frame with what is wrong with its rows, unless that is known of something else already."""
    return frame.withColumn(ERROR, functions.coalesce(functions.col(ERROR), wrong) if ERROR in frame.columns else wrong)


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
        frame = _with_op(frame, functions.col(quoted(sink.op_field)), sink).drop(sink.op_field)
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
    places = [_order_value(frame, path, sink) for path in sink.order_by]
    named = [place.value.alias(f"o{number}") for number, place in enumerate(places)]
    if TURN in fields_of(frame, ORDER):
        named.append(functions.col(ORDER)[TURN].alias(TURN))
    ordered = frame.withColumn(ORDER, functions.struct(*named)).drop(LANE)
    if OP not in frame.columns:
        return ordered
    # The values of a delete are not checked when it is written, but its position in the order must be known.
    gone = functions.col(OP) == DELETE
    return _with_faults(ordered, [functions.when(gone, place.error) for place in places if place.error is not None])


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


def _with_op(frame: DataFrame, op: Column, sink: SinkSpec, *, nothing: Column | None = None) -> DataFrame:
    """The frame with the operation of each row; a row without one is an error. ``nothing``: which rows do nothing.

    A row with an error counts as an upsert, so that it is not left out before the error is handled.
    """
    pairs = [functions.lit(text) for item in sink.operations.items() for text in item]
    meant = functions.create_map(*pairs)[functions.lower(op.cast("string"))]
    if nothing is not None:
        meant = functions.when(nothing, IGNORE).otherwise(meant)
    text = functions.concat(
        functions.lit("a row's operation is not known: "), functions.coalesce(op.cast("string"), functions.lit("null"))
    )
    unknown = functions.when(meant.isNull(), error_of("decode", "operation-unknown", text))
    if ERROR not in frame.columns:
        return frame.withColumns({OP: functions.coalesce(meant, functions.lit(UPDATE)), ERROR: unknown})
    known = functions.col(ERROR)
    acts = functions.when(known.isNull(), meant)
    return frame.withColumns({OP: functions.coalesce(acts, functions.lit(UPDATE)), ERROR: functions.coalesce(known, unknown)})


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
    types = _types_within(frame, "value")
    key_types = _types_within(frame, "key") or dict.fromkeys(given, frame.schema["key"].dataType)
    kinds = {sink.key_column(name, names) or name: kind for name, kind in key_types.items()}
    columns, wrong = [], []
    for name in names:
        own = Converted(value[name])
        if name in keys:
            kind = _shared_type(name, {"value": types[name], "key": kinds[name]})
            own = _as_type(value[name], types[name], kind, f"value.{name}", sink)
            other = _as_type(keys[name], kinds[name], kind, f"key.{name}", sink)
            wrong += [own.error, None if other.error is None else functions.when(value[name].isNull(), other.error)]
            own = Converted(functions.coalesce(own.value, other.value))
        columns.append(own.value.alias(name))
    columns += [column.alias(name) for name, column in keys.items() if name not in names]
    frame = _with_faults(frame, wrong)
    gone = value.isNull() & functions.col(ERROR).isNull() if ERROR in frame.columns else value.isNull()
    op = functions.when(gone, DELETE).otherwise(UPDATE)
    return frame.select(*columns, op.alias(OP), *[name for name in hidden_columns(frame) if name != OP])


def _with_faults(frame: DataFrame, wrong: Sequence[Column | None]) -> DataFrame:
    """The frame with what is wrong with values of its rows, unless something is wrong with the row already."""
    if not (errors := [error for error in wrong if error is not None]):
        return frame
    text = row_error([Aligned("", error, error) for error in errors])
    fault = functions.when(text.isNotNull(), error_of("cast", "value-not-convertible", text))
    return with_error(frame, fault)


def envelopes(frame: DataFrame) -> DataFrame:
    """Debezium's envelopes, taken out of the `payload` that its converter for JSON puts them into."""
    if "payload" not in frame.columns or "op" in frame.columns:
        return frame
    beside = [name for name in data_columns(frame) if name not in ("schema", "payload")]
    return frame.select("payload.*", *map(quoted, beside), *hidden_columns(frame))


def key_columns_of_envelopes(frame: DataFrame) -> tuple[str, ...]:
    """The names of the columns inside of envelopes by which the messages' keys know a row."""
    return tuple(frame.schema[OP].metadata.get(KEYS_MARK, ())) if OP in frame.columns else ()


def from_debezium(
    frame: DataFrame,
    sink: SinkSpec,
    keys: Sequence[str],
    *,
    marked: Sequence[str],
    added: Mapping[str, Column] | None = None,
    images: bool = False,
) -> DataFrame:
    """Envelopes: the row is `after`, or `before` for a delete; an update that changed the key deletes the row with the old key.

    An envelope that is null, a Kafka tombstone, adds nothing to the delete before it. ``marked`` are the columns that identify
    a row by the source. With ``images`` every update comes with its previous row as a delete, for a sink that identifies rows
    by other columns; a change without that row is an error.
    """
    fields = _images(frame)
    if not fields:
        return _without_images(frame, sink)
    found = {key: sink.key_column(key, fields) for key in keys}
    known_keys = [name for name in found.values() if name is not None]
    if missing := [key for key, name in found.items() if name is None]:
        known = ", ".join(fields)
        raise KeyMissing("key-missing", f"Key field {missing[0]!r} is not among the columns of `before` and `after`: {known}")
    frame = _with_others_apart(frame, sink, fields, added or ())
    others = {name: functions.col(quoted(name)) for name in data_columns(frame) if name not in _ENVELOPE} | dict(added or {})
    (before, wrong_before), (after, wrong_after) = (_image(frame, name, fields, sink) for name in ("before", "after"))
    empty = functions.col("op").isNull() & before.isNull() & after.isNull()
    frame = _with_op(frame, functions.col("op"), sink, nothing=empty)
    if sink.commit_mode is CommitMode.UPSERT:
        # A snapshot may be taken again: what it reads may be in the table already, as it was before.
        read = functions.lower(functions.col("op")).isin(*_READS) & (functions.col(OP) == INSERT)
        frame = frame.withColumn(OP, functions.when(read, UPDATE).otherwise(functions.col(OP)))
    op = functions.col(OP)
    identify = {sink.key_column(name, fields) for name in marked}
    frame = _with_unsent(frame, fields, known_keys, sink, identify if images else None)
    wrong = _wrong_values(wrong_before, wrong_after, known_keys, sink, images=images)
    frame = _with_faults(frame, wrong)
    changed = (op == UPDATE) & before.isNotNull()
    if wrong:
        # A row with an error counts as an upsert, so that the error is handled, and has no additional row.
        frame = frame.withColumn(OP, functions.when(functions.col(ERROR).isNotNull(), UPDATE).otherwise(op))
        changed &= functions.col(ERROR).isNull()
    moved = changed & ~_same(before, after, known_keys)
    # A table that counts added and removed rows gets both images.
    both = changed if images or sink.diff_column is not None else moved
    unsent = functions.col(UNCHANGED) if UNCHANGED in frame.columns else functions.lit(None).cast("array<string>")
    old = _step(before, DELETE, _BEFORE, functions.lit(False), _unsent_before(before, after, frame, fields, sink))
    main = _step(functions.when(op == DELETE, before).otherwise(after), op, _AFTER, moved, unsent)
    steps = functions.when(both, functions.array(old, main)).otherwise(functions.array(main))
    partial = UNCHANGED in frame.columns or sink.unchanged_value is not None
    kept = [name for name in hidden_columns(frame) if name not in (OP, EXTRA, ORDER, UNCHANGED)]
    orders = [ORDER] if ORDER in frame.columns else []
    beside = [column.alias(name) for name, column in others.items()]
    # Rows are known by what they say, however often they are read: those that say the same are wrong for the same reason.
    said = functions.to_json(functions.struct(before.alias("before"), after.alias("after")))
    pair = functions.when(both, functions.md5(said.cast("binary"))).alias(PAIR)
    frame = frame.select(*beside, *kept, *orders, pair, functions.explode(steps).alias(_STEP))
    step = functions.col(_STEP)
    change_marks = {CHANGES_MARK: True, KEY_COUNT_MARK: len(marked)} | ({IMAGES_MARK: True} if images else {})
    hidden = [step["op"].alias(OP, metadata=change_marks), (step["turn"] == _BEFORE).alias(EXTRA), functions.col(PAIR)]
    if partial:
        # A value that was not sent is looked for under the key that the row had.
        hidden += [step["moved"].alias(MOVED), step["unsent"].alias(UNCHANGED)]
    if orders:
        hidden.append(functions.struct(functions.col(ORDER).alias("place"), step["turn"].alias(TURN)).alias(ORDER))
    elif images:
        hidden.append(functions.struct(step["turn"].alias(TURN)).alias(ORDER))
    marks = {name: {KEY_MARK: True} if name in identify else None for name in fields}
    rows = [step["row"][name].alias(name, metadata=mark) for name, mark in marks.items()]
    return frame.select(*rows, *map(quoted, others), *kept, *hidden)


def _with_others_apart(frame: DataFrame, sink: SinkSpec, fields: Iterable[str], added: Iterable[str]) -> DataFrame:
    """The frame without columns beside the envelope that have the name of one in the rows. Those that are added must not."""
    if both_have := _also_in(fields, added):
        raise ConfigError("column-exists", _taken(both_have[0]), fix=_OTHER_NAME)
    for name in _also_in(fields, [name for name in data_columns(frame) if name not in _ENVELOPE]):
        frame = set_aside(frame, sink, name, _taken(name), fix=_OTHER_NAME)
    return frame


def _also_in(fields: Iterable[str], names: Iterable[str]) -> list[str]:
    taken = {field.lower() for field in fields}
    return [name for name in names if name.lower() in taken]


def _taken(name: str) -> str:
    return f"The column {name!r}, which was added to Debezium's envelopes, is in their rows already."


def _with_unsent(
    frame: DataFrame, fields: Mapping[str, DataType], keys: Sequence[str], sink: SinkSpec, identify: Collection[str | None] | None
) -> DataFrame:
    """The frame with an error in changes without their previous row, where that row is needed.

    A delete always needs it, for its key. ``identify``: the columns of the source's own key, if the sink identifies rows by
    other columns, so that the whole row is needed. A database that logs only the key of a row has nulls in all other columns.
    """
    op, before, given = functions.col(OP), functions.col("before"), _types_within(frame, "before")
    if sink.diff_column is not None:
        lost = (op == UPDATE) & before.isNull()
        why = f"which {sink.diff_column} counts"
    elif sink.commit_mode is CommitMode.UPSERT:
        why = f"by which it is found in the table ({', '.join(sink.key_fields or keys)}); the database must log it whole: in "
        why += "PostgreSQL REPLICA IDENTITY FULL"
        if identify is None:
            nulls = [before[key].isNull() if key in given else functions.lit(True) for key in keys]
            lost = (op == DELETE) & reduce(Column.__or__, nulls, before.isNull())
        else:
            others = [name for name in fields if name not in identify]
            nulls = [before[name].isNull() for name in others if name in given]
            blank = reduce(Column.__and__, nulls, functions.lit(bool(others and identify)))
            # What a snapshot reads has nothing before it.
            read = functions.coalesce(functions.lower(functions.col("op").cast("string")).isin(*_READS), functions.lit(False))
            lost = op.isin(UPDATE, DELETE) & ~read & (before.isNull() | blank)
    else:
        return frame
    words = functions.lit(f"the change has no `before`, {why}")
    error = functions.when(lost, error_of("decode", "before-missing", words))
    return frame.withColumn(ERROR, functions.coalesce(functions.col(ERROR), error))


def _wrong_values(
    before: Mapping[str, Column], after: Mapping[str, Column], keys: Sequence[str], sink: SinkSpec, *, images: bool
) -> list[Column]:
    """What is wrong with the values of a change that something is made of: of the row as it was, the key, and what is kept."""
    op = functions.col(OP)
    kept = op.isin(DELETE, UPDATE) if images or sink.diff_column is not None else op == DELETE
    used = {name: op != IGNORE if name in keys else kept for name in before if name in keys or images or sink.keeps_deletes}
    written = ~op.isin(IGNORE, DELETE)
    return [functions.when(use, before[name]) for name, use in used.items()] + [
        functions.when(written, error) for error in after.values()
    ]


def _without_images(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """A batch of nothing but empty envelopes, as a delete's tombstone that comes alone: nothing is known of its rows' columns."""
    op = functions.col("op").cast("string")
    frame = _with_op(frame, op, sink, nothing=op.isNull())
    return frame.select(*hidden_columns(frame))


def _images(frame: DataFrame) -> dict[str, DataType]:
    """The columns of both images, each with a type for both. An image that is null in every row has no columns of its own."""
    before, after = _types_within(frame, "before"), _types_within(frame, "after")
    held = {"after": after, "before": before}
    return {
        name: _shared_type(name, {image: types[name] for image, types in held.items() if name in types})
        for name in {**before, **after}
    }


def _shared_type(name: str, types: Mapping[str, DataType]) -> DataType:
    """The type for values that come from several places, by these: that of the first where none is wider."""
    known = [kind for kind in types.values() if not isinstance(kind, NullType)] or list(types.values())
    first, *others = known
    if all(kind == first for kind in others):
        return first
    common = common_type(first, others[0], _looked_at)
    if common is None:
        held = " and ".join(f"{iceberg_type(kind, name)} in `{place}`" for place, kind in types.items())
        raise DataError(
            "images-differ",
            f"The column {name!r} is {held}: no type holds the values of both.",
            fix="Let the source send one type, or say the columns' types where it is read.",
        )
    return common


def _looked_at(first: DataType, second: DataType) -> DataType | None:
    """A type for two types without a common one: the wider one, or else the first. Values must then be checked.

    If one is a text, the first counts: a JSON reader infers text for a column that is null in all rows.
    """
    both = (first, second)
    if all(isinstance(kind, NumericType) for kind in both) and any(isinstance(kind, FloatType | DoubleType) for kind in both):
        return DoubleType()
    if (decimal := common_decimal(first, second)) is not None:
        return decimal
    pairs = ((second, first), (first, second))
    ways = {kind: way(iceberg_type(data), iceberg_type(kind)) for data, kind in pairs}
    able = [kind for kind, how in ways.items() if how not in (Way.NONE, Way.EPOCH)]
    if not able or StringType() in ways:
        return able[0] if able else None
    return next((kind for kind in able if ways[kind] is Way.EXACT), able[0])


def _as_type(value: Column, data: DataType, kind: DataType, path: str, sink: SinkSpec) -> Converted:
    if data == kind or isinstance(data, NullType):
        return Converted(value.cast(kind))
    made = aligned_value(value, data, iceberg_type(kind, path), path, sink)
    # What is the same for Iceberg may still be narrower in Spark.
    return Converted(made.value.cast(kind), made.error)


def _image(frame: DataFrame, name: str, fields: Mapping[str, DataType], sink: SinkSpec) -> tuple[Column, dict[str, Column]]:
    """An image of the row, and what is wrong with its columns where something can be."""
    own, image = _types_within(frame, name), functions.col(name)
    made = {
        field: _as_type(image[field], own[field], kind, f"{name}.{field}", sink)
        if field in own
        else Converted(functions.lit(None).cast(kind))
        for field, kind in fields.items()
    }
    row = functions.when(image.isNotNull(), functions.struct(*[one.value.alias(field) for field, one in made.items()]))
    return row, {field: one.error for field, one in made.items() if one.error is not None}


def _types_within(frame: DataFrame, column: str) -> dict[str, DataType]:
    kind = frame.schema[column].dataType
    return {field.name: field.dataType for field in kind.fields} if isinstance(kind, StructType) else {}


def _same(before: Column, after: Column, keys: Sequence[str]) -> Column:
    equal = [before[key].eqNullSafe(after[key]) for key in keys]
    return reduce(Column.__and__, equal, functions.lit(True))


def _step(row: Column, op: Column | str, turn: int, moved: Column, unsent: Column) -> Column:
    meaning = functions.lit(op) if isinstance(op, str) else op
    parts = {"row": row, "op": meaning, "turn": functions.lit(turn), "moved": moved, "unsent": unsent}
    return functions.struct(*[column.alias(name) for name, column in parts.items()])


def _unsent_before(before: Column, after: Column, frame: DataFrame, fields: Mapping[str, DataType], sink: SinkSpec) -> Column:
    """The columns that neither image has a value of: of the row as it was before there may be nothing but its key."""

    def lacks(name: str, kind: DataType) -> Column:
        lost = unchanged(name) if UNCHANGED in frame.columns else functions.lit(False)
        return lost | (after[name] == sink.unchanged_value) if isinstance(kind, StringType) and sink.unchanged_value else lost

    each = [functions.when(before[n].isNull() & lacks(n, kind), functions.lit(n)) for n, kind in fields.items()]
    names = functions.array_compact(functions.array(*each).cast("array<string>"))
    return functions.when(functions.size(names) > 0, names)


def fields_of(frame: DataFrame, column: str) -> list[str]:
    """The names of a struct's fields; none of another column, or of one that is not there."""
    kind = frame.schema[column].dataType if column in frame.columns else None
    return list(kind.names) if isinstance(kind, StructType) else []
