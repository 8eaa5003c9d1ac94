"""Data under earlier names of columns, brought under the new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, StructField, StructType

from frazil.columns.schema import error_of, quoted
from frazil.columns.types import iceberg_type
from frazil.errors import DataError
from frazil.model.changes import ChangeFormat
from frazil.model.dead_letters import OnError
from frazil.model.evolution import fits
from frazil.model.hidden import ERROR, UNCHANGED
from frazil.model.sink import SinkSpec

# Where the rows are in what a source hands over, when they are not the columns themselves.
_IMAGES = {ChangeFormat.ROWS: (), ChangeFormat.DEBEZIUM: ("before", "after"), ChangeFormat.TOMBSTONES: ("key", "value")}

Aliases = Mapping[str, tuple[str, ...]]


def under_new_names(frame: DataFrame, sink: SinkSpec) -> DataFrame:
    """The frame with every column that the sink's aliases know under its new name, inside of envelopes too."""
    if not sink.aliases:
        return frame
    images = _IMAGES[sink.change_format]
    if UNCHANGED in frame.columns:
        frame = frame.withColumn(UNCHANGED, _new_names(functions.col(UNCHANGED), sink.aliases))
    if not images:
        apart = sink.error_handling is OnError.DEAD_LETTER
        return _renamed_columns(_one_name_a_row(frame, sink.aliases) if apart else frame, sink.aliases)
    for name in images:
        if name in frame.columns and isinstance(kind := frame.schema[name].dataType, StructType):
            frame = frame.withColumn(name, _renamed_fields(functions.col(name), kind, sink.aliases))
    return frame


def _new_names(names: Column, aliases: Aliases) -> Column:
    pairs = [functions.lit(text) for name, olds in aliases.items() for old in olds for text in (old, name)]
    new = functions.create_map(*pairs)
    return functions.transform(names, lambda name: functions.coalesce(new[name], name))


def _one_name_a_row(frame: DataFrame, aliases: Aliases) -> DataFrame:
    """The frame with an error in rows that have a column under several of its names, or under one with a type of its own."""
    kinds = {field.name: iceberg_type(field.dataType, field.name) for field in frame.schema.fields}
    for name, olds in aliases.items():
        group = [known for known in (name, *olds) if known in kinds]
        odd = [one for one in group[1:] if not (fits(kinds[one], kinds[group[0]]) or fits(kinds[group[0]], kinds[one]))]
        values = {one: functions.col(quoted(one)).isNotNull() for one in group}
        twice = sum((there.cast("int") for there in values.values()), functions.lit(0)) > 1
        for wrong, names in ((twice, group), *((values[one], [group[0], one]) for one in odd)):
            if len(names) > 1:
                text = f"aliases: {', '.join(map(repr, names))} are to be the one column {name!r}, and the record's do not agree"
                bad = functions.when(wrong, error_of("transform", "alias-ambiguous", functions.lit(text)))
                known = [functions.col(ERROR)] if ERROR in frame.columns else []
                frame = frame.withColumn(ERROR, functions.coalesce(*known, bad))
        if len(group) > 1:
            bad_row = functions.col(ERROR).isNotNull()
            left = {one: functions.when(~bad_row, functions.col(quoted(one))) for one in group if one not in odd}
            frame = frame.withColumns(left).drop(*odd)
    return frame


def _renamed_columns(frame: DataFrame, aliases: Aliases) -> DataFrame:
    columns = _merged(frame.schema.fields, lambda name: functions.col(quoted(name)), aliases)
    return frame if columns is None else frame.select(*columns)


def _renamed_fields(image: Column, kind: StructType, aliases: Aliases) -> Column:
    fields = _merged(kind.fields, image.getField, aliases)
    return image if fields is None else functions.when(image.isNotNull(), functions.struct(*fields))


def _merged(fields: Sequence[StructField], value: Callable[[str], Column], aliases: Aliases) -> list[Column] | None:
    """The columns, those with earlier names in the place of the first; None when there are none."""
    kinds = {field.name: field.dataType for field in fields}
    new = {old: name for name, olds in aliases.items() for old in olds if old in kinds}
    if not new:
        return None
    groups: dict[str, list[str]] = {}
    for field in fields:
        groups.setdefault(new.get(field.name, field.name), []).append(field.name)
    return [_one(name, group, kinds, value).alias(name) for name, group in groups.items()]


def _one(name: str, group: Sequence[str], kinds: Mapping[str, DataType], value: Callable[[str], Column]) -> Column:
    """The value under whichever name a row has it. A batch may hold rows from before a rename and from after it."""
    if len(group) == 1:
        return value(group[0])
    types = [iceberg_type(kinds[one], one) for one in group]
    names = ", ".join(repr(one) for one in group)
    if not any(all(fits(one, wide) for one in types) for wide in types):
        raise DataError(
            "alias-ambiguous",
            f"aliases: the data has {names}, which are to be one column, with types that differ: {', '.join(map(str, types))}.",
            fix="Remove one of them with a remove_field transform, or take the alias out.",
        )
    more_than_one = sum((value(one).isNotNull().cast("int") for one in group), functions.lit(0)) > 1
    complaint = functions.lit(f"[frazil-alias] a row has values in several of {names}, which are to be the one column {name!r}")
    either = functions.coalesce(*[value(one) for one in group])
    return functions.when(more_than_one, functions.raise_error(complaint)).otherwise(either)
