"""Rows out of Debezium's envelopes: what each change does to the table, by the images of its row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, StringType

from frazil.columns.coerce import Converted
from frazil.columns.schema import (
    data_columns,
    error_of,
    hidden_columns,
    quoted,
    unchanged,
)
from frazil.errors import ConfigError, KeyMissing
from frazil.model.changes import CommitMode
from frazil.model.hidden import (
    CHANGED_AT,
    CHANGES_MARK,
    DELETE,
    ERROR,
    EXTRA,
    HIDDEN,
    IGNORE,
    IMAGES_MARK,
    INSERT,
    KEY_COUNT_MARK,
    KEY_MARK,
    KEYS_MARK,
    MOVED,
    OP,
    ORDER,
    PAIR,
    ROW_MARK,
    TURN,
    UNCHANGED,
    UPDATE,
)
from frazil.model.sink import SinkSpec
from frazil.write.modes.row_state import set_aside, with_faults, with_op
from frazil.write.modes.shared_types import as_type, shared_type, types_within

_STEP = f"{HIDDEN}step"

# The key moved; the row under the old key is deleted before the one under the new key is written.
_BEFORE, _AFTER = 0, 1
_READS = ("r", "read")
_OTHER_NAME = "Give it another name, or a prefix where it comes from the message."
# What envelopes have beside the images of the row. A column of another name was added to the envelope.
_ENVELOPE = frozenset(["before", "after", "op", "source", "ts_ms", "ts_us", "ts_ns", "transaction"])


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
    frame, fields = _with_changed_at(frame), _images(frame)
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
    frame = with_op(frame, functions.col("op"), sink, nothing=empty)
    if sink.commit_mode is CommitMode.UPSERT:
        # A snapshot may be taken again: what it reads may be in the table already, as it was before.
        read = functions.lower(functions.col("op")).isin(*_READS) & (functions.col(OP) == INSERT)
        frame = frame.withColumn(OP, functions.when(read, UPDATE).otherwise(functions.col(OP)))
    op = functions.col(OP)
    identify = {sink.key_column(name, fields) for name in marked}
    frame = _with_unsent(frame, fields, known_keys, sink, identify if images else None)
    wrong = _wrong_values(wrong_before, wrong_after, known_keys, sink, images=images)
    frame = with_faults(frame, wrong)
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
    marks = {name: {ROW_MARK: True} | ({KEY_MARK: True} if name in identify else {}) for name in fields}
    rows = [step["row"][name].alias(name, metadata=mark) for name, mark in marks.items()]
    return frame.select(*rows, *map(quoted, others), *kept, *hidden)


def _with_changed_at(frame: DataFrame) -> DataFrame:
    """The frame with the time at which the database made a change, if the envelopes say so."""
    kinds = types_within(frame, "source") if "source" in frame.columns else {}
    units = {"ts_us": functions.timestamp_micros, "ts_ms": functions.timestamp_millis}
    times = [of(functions.col("source")[name].try_cast("long")) for name, of in units.items() if name in kinds]
    return frame.withColumn(CHANGED_AT, functions.coalesce(*times)) if times else frame


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
    op, before, given = functions.col(OP), functions.col("before"), types_within(frame, "before")
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
    frame = with_op(frame, op, sink, nothing=op.isNull())
    return frame.select(*hidden_columns(frame))


def _images(frame: DataFrame) -> dict[str, DataType]:
    """The columns of both images, each with a type for both. An image that is null in every row has no columns of its own."""
    before, after = types_within(frame, "before"), types_within(frame, "after")
    columns_of = {"after": after, "before": before}
    return {
        name: shared_type(name, {image: types[name] for image, types in columns_of.items() if name in types})
        for name in {**before, **after}
    }


def _image(frame: DataFrame, name: str, fields: Mapping[str, DataType], sink: SinkSpec) -> tuple[Column, dict[str, Column]]:
    """An image of the row, and what is wrong with its columns where something can be."""
    own, image = types_within(frame, name), functions.col(name)
    made = {
        field: as_type(image[field], own[field], kind, f"{name}.{field}", sink)
        if field in own
        else Converted(functions.lit(None).cast(kind))
        for field, kind in fields.items()
    }
    row = functions.when(image.isNotNull(), functions.struct(*[one.value.alias(field) for field, one in made.items()]))
    return row, {field: one.error for field, one in made.items() if one.error is not None}


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
