"""Brings a data frame into the shape of the table: columns by name, nested fields too, conversions that fail loudly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, functions
from pyspark.sql.types import DataType

from frazil.columns.coerce import CAST_MARK, Casting, Converted, complaint, converted, json_text, present
from frazil.columns.schema import error_of, quoted, with_place
from frazil.columns.types import iceberg_type, spark_type
from frazil.model.coercion import CoercionOptions, extra_paths
from frazil.model.hidden import (
    ERROR,
    KEY,
    RAW,
)
from frazil.model.types import Column as TableColumn
from frazil.model.types import ListType, MapType, StructType, Type

RECORD_MARK = "[frazil-record] "

_BETWEEN = "; "
_NO_OPTIONS = CoercionOptions()

_log = logging.getLogger("frazil")


@dataclass(frozen=True)
class Aligned:
    """A column of the table made from the data: its value, and what is wrong with it in a row (None: nothing can be)."""

    name: str
    value: Column
    error: Column | None = None


@dataclass(frozen=True)
class Alignment:
    """How rows of the data become rows of the table.

    ``columns`` are the table's, made from the data's; None when those already are the table's. ``error`` is what is wrong with
    a row as a whole, of :data:`ERROR_TYPE`; None where nothing can be, or where what is wrong stops the batch or is kept.
    """

    columns: tuple[Column, ...] | None
    error: Column | None = None


@dataclass(frozen=True)
class Doubt:
    """Something that is wrong with the rows for which a condition holds, beside their values."""

    holds: Column
    code: str
    text: str


def filled(data: StructType, path: Sequence[str]) -> Column:
    """Whether a row has a value at a path, within lists and maps in one of their elements."""
    kind = next(column.type for column in data.fields if column.name == path[0])
    return _filled(functions.col(quoted(path[0])), kind, path[1:])


def _filled(value: Column, kind: Type, path: Sequence[str]) -> Column:
    match kind:
        case _ if not path:
            return value.isNotNull()
        case StructType():
            inner = next(field.type for field in kind.fields if field.name == path[0])
            return _filled(value.getField(path[0]), inner, path[1:])
        case ListType():
            return functions.exists(value, lambda item: _filled(item, kind.element, path[1:]))
        case MapType():
            return functions.exists(functions.map_values(value), lambda item: _filled(item, kind.value, path[1:]))
        case _:
            raise AssertionError("a path leads into what has parts")


def alignment(
    data: StructType,
    table: StructType,
    options: CoercionOptions = _NO_OPTIONS,
    *,
    keys: Collection[str] = (),
    unless: Callable[[str], Column] | None = None,
    hidden: Collection[str] = (),
    rejects: bool = False,
    needed: Collection[str] = (),
    excused: Column | None = None,
    ignored: Column | None = None,
    doubts: Sequence[Doubt] = (),
    lacking: Collection[str] = (),
) -> Alignment:
    """The table's columns in its order, derived from the data's: absent ones null, nested ones aligned, required ones checked.

    An error of a row stops the batch, or is written to the column that the options name, or, with ``rejects``, is returned so
    that the row can be left out. Not checked are nulls in ``keys``, which are looked at by themselves where a row cannot be
    left out, and may be there but for those that are ``needed``, in rows that are not ``excused``; nor is a column's value
    where ``unless`` says that it means nothing, as in a row that only deletes, nor that of a key in rows that are ``ignored``.
    ``hidden`` are the columns that the data has beside its own: a row that its source could not make anything of says so in one
    of them. ``doubts`` are what else is wrong with rows, ``lacking`` columns that the data lacks and every row must have.
    """
    given = {column.name: column for column in data.fields}
    known = functions.col(ERROR) if ERROR in hidden else None
    names = [target.name for target in table.fields]
    certain = not doubts and (not rejects or all(key in given and given[key].required for key in needed))
    if known is None and certain and [*given] == names and all(_fits(given[target.name], target) for target in table.fields):
        return Alignment(None)
    if not doubts and (surplus := extra_paths(table, data)):
        _log.warning("columns that the table does not have are left out: %s", ", ".join(surplus))
    casting = Casting(options, collects=rejects or options.error_column is not None)
    heed = _Heed(keys, needed if rejects else (), lacking, excused, unless, ignored, rejects, blank=not given)
    columns = [_aligned_column(given.get(column.name), column, casting, heed) for column in table.fields]
    wrong = row_error(columns)
    doubted = [functions.when(one.holds, error_of("cast", one.code, functions.lit(one.text))) for one in doubts]
    if rejects:
        found = functions.when(wrong.isNotNull(), error_of("cast", "value-not-convertible", wrong))
        error = functions.coalesce(*([] if known is None else [known]), *doubted, found)
        return Alignment(tuple(column.value.alias(column.name) for column in columns), error)
    values = {column.name: column.value for column in columns}
    if options.error_column is not None:
        if doubted:
            wrong = _text_or_null(functions.concat_ws(_BETWEEN, *(one["text"] for one in doubted), wrong))
        error = wrong if known is None else _text_or_null(functions.concat_ws(_BETWEEN, known["text"], wrong))
        values[options.error_column] = error
        if options.raw_column is not None:
            row = functions.struct(*[functions.col(quoted(name)) for name in given])
            texts = [_readable(functions.col(RAW))] if RAW in hidden else []
            if KEY not in hidden:  # not a record of its own, which may be null
                texts.append(json_text(row, data))
            values[options.raw_column] = functions.when(error.isNotNull(), functions.coalesce(*texts))
    elif known is not None:
        first = table.fields[0].name
        message = functions.concat(known["code"], functions.lit(": "), with_place(known["text"], hidden))
        stop = functions.when(known.isNotNull(), complaint(RECORD_MARK, message).cast(spark_type(table.fields[0].type)))
        values[first] = functions.coalesce(stop, values[first])
    return Alignment(tuple(value.alias(name) for name, value in values.items()))


def _readable(raw: Column) -> Column:
    """Bytes as the text that they are, or in base64."""
    return functions.coalesce(functions.try_validate_utf8(raw.cast("string")), functions.base64(raw))


def row_error(columns: Sequence[Aligned]) -> Column:
    """What is wrong with a row as one text, null when nothing is."""
    error = _joined([column.error for column in columns])
    return functions.lit(None).cast("string") if error is None else error


@dataclass(frozen=True)
class _Heed:
    """The arguments of :func:`alignment` about columns and rows."""

    keys: Collection[str]
    needed: Collection[str]
    lacking: Collection[str]
    excused: Column | None
    unless: Callable[[str], Column] | None
    ignored: Column | None
    rejects: bool
    blank: bool
    """Whether the data has no columns at all, so that what must have a value has none in any row."""


def _aligned_column(source: TableColumn | None, target: TableColumn, casting: Casting, heed: _Heed) -> Aligned:
    given = functions.lit(None).cast(spark_type(target.type)) if source is None else functions.col(quoted(target.name))
    if source is None and not heed.blank and target.name not in heed.lacking:
        return Aligned(target.name, given)
    source = source or TableColumn(target.name, target.type)
    if (target.name in heed.keys or target.required) and not heed.rejects:
        # A wrong key or required value cannot be replaced by null.
        casting = Casting(casting.options)
    made = _aligned_value(given, source.type, target.type, target.name, casting)
    value, error = made.value, made.error
    if target.name in heed.keys:
        if target.name in heed.needed:
            lacking = present(value, given, target.name, casting).error
            error = _joined([error, lacking if heed.excused is None else functions.when(~heed.excused, lacking)])
        meaningless = heed.ignored
    else:
        if error is not None and _requires_parts(target.type):
            value = functions.when(error.isNull(), value)
        if target.required and not source.required:
            checked = present(value, given, target.name, casting)
            value, error = checked.value, _joined([error, checked.error])
        meaningless = None if heed.unless is None else heed.unless(target.name)
    if meaningless is None or (error is None and value is given):
        return Aligned(target.name, value, error)
    nothing = functions.lit(None).cast(spark_type(target.type))
    error = None if error is None else functions.when(~meaningless, error)
    return Aligned(target.name, functions.when(meaningless, nothing).otherwise(value), error)


def aligned_value(value: Column, data: DataType, kind: Type, path: str, options: CoercionOptions) -> Converted:
    """A value as one of another type, null where it has no such form; what is wrong with it then is a text."""
    return _aligned_value(value, iceberg_type(data, path), kind, path, Casting(options, collects=True))


def _fits(source: TableColumn, target: TableColumn) -> bool:
    return _same_shape(source.type, target.type) and (source.required or not target.required)


def _aligned_value(value: Column, data: Type, table: Type, path: str, casting: Casting) -> Converted:
    if _same_shape(data, table):
        return Converted(value)
    match data, table:
        case StructType(), StructType():
            return _aligned_struct(value, data, table, path, casting)
        case ListType(), ListType():
            return _aligned_list(value, data, table, path, casting)
        case MapType(), MapType():
            return _aligned_map(value, data, table, path, casting)
        case StructType(), MapType():
            return _entries(value, data, table, path, casting)
        case _:
            return converted(value, data, table, path, casting)


def _aligned_struct(value: Column, data: StructType, table: StructType, path: str, casting: Casting) -> Converted:
    given = {field.name: field for field in data.fields}
    fields, errors = [], []
    for field in table.fields:
        inner, source = f"{path}.{field.name}", given.get(field.name)
        if source is None:
            fields.append(functions.lit(None).cast(spark_type(field.type)).alias(field.name))
            continue
        own = value.getField(field.name)
        made = _aligned_value(own, source.type, field.type, inner, casting)
        errors.append(made.error)
        if field.required and not source.required:
            made = present(made.value, own, inner, casting)
            errors.append(None if made.error is None else functions.when(value.isNotNull(), made.error))
        fields.append(made.value.alias(field.name))
    return Converted(functions.when(value.isNotNull(), functions.struct(*fields)), _joined(errors))


def _aligned_list(value: Column, data: ListType, table: ListType, path: str, casting: Casting) -> Converted:
    required = table.element_required and not data.element_required

    def made(item: Column) -> Converted:
        return _aligned_item(item, data.element, table.element, f"{path}.element", casting, required=required)

    return Converted(functions.transform(value, lambda item: made(item).value), _errors_within(value, made))


def _aligned_map(value: Column, data: MapType, table: MapType, path: str, casting: Casting) -> Converted:
    required = table.value_required and not data.value_required

    def key(entry: Column) -> Converted:
        return _aligned_value(entry.getField("key"), data.key, table.key, f"{path}.key", casting)

    def item(entry: Column) -> Converted:
        return _aligned_item(entry.getField("value"), data.value, table.value, f"{path}.value", casting, required=required)

    entries = functions.map_entries(value)
    keys = functions.transform(entries, lambda entry: key(entry).value)
    wrong_keys = _errors_within(entries, key)
    made = functions.map_from_arrays(keys, functions.transform(entries, lambda entry: item(entry).value))
    # A map has no key that is null.
    whole = made if wrong_keys is None else functions.when(wrong_keys.isNull(), made)
    wrong_items = _errors_within(entries, item)
    if _same_shape(data.key, table.key):
        return Converted(whole, _joined([wrong_keys, wrong_items]))
    # Nor one twice, as '1' and '01' are when they become numbers.
    repeated = functions.size(functions.array_distinct(keys)) < functions.size(keys)
    given = functions.array_join(functions.map_keys(value).cast("array<string>"), ", ")
    message = functions.concat(functions.lit(f"column {path!r} has keys that become the same as {table.key}: "), given)
    if not casting.collects:
        stop = complaint(CAST_MARK, message).cast(spark_type(table))
        return Converted(functions.when(repeated, stop).otherwise(whole), wrong_items)
    apart = repeated if wrong_keys is None else wrong_keys.isNull() & repeated
    error = _joined([wrong_keys, wrong_items, functions.when(apart, message)])
    return Converted(functions.when(~repeated, whole), error)


def _aligned_item(value: Column, data: Type, table: Type, path: str, casting: Casting, *, required: bool) -> Converted:
    made = _aligned_value(value, data, table, path, casting)
    if not required:
        return made
    checked = present(made.value, value, path, casting)
    return Converted(checked.value, _joined([made.error, checked.error]))


def _entries(value: Column, data: StructType, table: MapType, path: str, casting: Casting) -> Converted:
    """The fields that have a value as entries of a map: an object of JSON looks like a struct of all fields of all rows."""
    kind = spark_type(table.value)
    made = {
        field.name: _aligned_value(value.getField(field.name), field.type, table.value, f"{path}.{field.name}", casting)
        for field in data.fields
    }
    if not made:
        return Converted(functions.when(value.isNotNull(), functions.create_map().cast(spark_type(table))))
    entries = [
        functions.struct(functions.lit(name).alias("key"), one.value.cast(kind).alias("value")) for name, one in made.items()
    ]
    kept = functions.filter(functions.array(*entries), lambda entry: entry.getField("value").isNotNull())
    whole = functions.when(value.isNotNull(), functions.map_from_entries(kept))
    return Converted(whole, _joined([one.error for one in made.values()]))


def _errors_within(values: Column, made: Callable[[Column], Converted]) -> Column | None:
    """What is wrong in a list, or None when nothing can be."""
    if made(functions.lit(None)).error is None:
        return None
    return _text_or_null(functions.array_join(functions.transform(values, lambda item: made(item).error), _BETWEEN))  # type: ignore[arg-type,return-value]


def _joined(errors: Sequence[Column | None]) -> Column | None:
    found = [error for error in errors if error is not None]
    if len(found) < 2:
        return found[0] if found else None
    return _text_or_null(functions.concat_ws(_BETWEEN, *found))


def _text_or_null(text: Column) -> Column:
    return functions.nullif(text, functions.lit(""))


def _requires_parts(kind: Type) -> bool:
    """Whether something inside must have a value."""
    match kind:
        case StructType():
            return any(field.required or _requires_parts(field.type) for field in kind.fields)
        case ListType():
            return kind.element_required or _requires_parts(kind.element)
        case MapType():
            return kind.value_required or _requires_parts(kind.value)
        case _:
            return False


def _same_shape(data: Type, table: Type) -> bool:
    """Whether Spark's writer needs no help: the same type in Spark, nothing to look at, and nothing null that must not be."""
    match data, table:
        case StructType(), StructType():
            return len(data.fields) == len(table.fields) and all(
                one.name == other.name and _same_shape(one.type, other.type) and (one.required or not other.required)
                for one, other in zip(data.fields, table.fields, strict=True)
            )
        case ListType(), ListType():
            return (data.element_required or not table.element_required) and _same_shape(data.element, table.element)
        case MapType(), MapType():
            nulls = data.value_required or not table.value_required
            return nulls and _same_shape(data.key, table.key) and _same_shape(data.value, table.value)
        case _:
            # Texts and bytes carry types that Spark does not have: not every one of them is a value of those.
            return spark_type(data) == spark_type(table) and (data == table or table.name not in ("uuid", "fixed"))
