"""The columns that a table may have, and those among them that identify a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from frazil.errors import ColumnsRefused, ConfigError, DataError, Halted, KeyDiffers, KeyMissing, NoColumns
from frazil.model.changes import Combine, CommitMode
from frazil.model.coercion import ExtraColumns
from frazil.model.dead_letters import OnError
from frazil.model.evolution import optional
from frazil.model.evolving import SchemaEvolution
from frazil.model.refusals import METADATA_COLUMNS, surplus, without
from frazil.model.sink import SinkSpec
from frazil.model.types import NOT_KEYS, Column, Decimal, ListType, MapType, Primitive, StructType, Type

# As many digits more as Spark gives to a sum.
_MORE_DIGITS, _MOST_DIGITS = 10, 38


def new_table_schema(data: StructType, sink: SinkSpec, unfilled: Collection[str] = ()) -> StructType:
    """The columns of a new table that is made for this data. None is required: that the first rows have no null is no promise."""
    schema = StructType(tuple(column for column in data.fields if column.name not in unfilled) or data.fields)
    if sink.error_handling is not OnError.STOP:
        refused = surplus(StructType(()), schema, ExtraColumns.EVOLVE, SchemaEvolution.ADD_COLUMNS)
        schema = without(schema, [one.path for one in refused])
    if not schema.fields:
        raise NoColumns(
            "no-columns",
            "The data has no columns, so that no table can be made for it.",
            fix="Declare the columns in the sink's schema, or make the table.",
        )
    require_distinct(schema)
    return with_room(StructType(tuple(Column(c.name, optional(c.type), doc=c.doc) for c in schema.fields)), sink)


def with_room(schema: StructType, sink: SinkSpec, known: Collection[str] = ()) -> StructType:
    """New columns as the table is to have them: those of sums hold more than one value needs. ``known`` ones stay."""
    return StructType(
        tuple(
            replace(c, type=_wider(c.type)) if sink.way_of(c.name) is Combine.SUM and c.name not in known else c
            for c in schema.fields
        )
    )


def _wider(kind: Type) -> Type:
    if isinstance(kind, Decimal):
        return Decimal(min(kind.precision + _MORE_DIGITS, _MOST_DIGITS), kind.scale)
    return {"int": Primitive("long"), "float": Primitive("double")}.get(kind.name, kind)


def require_own_names(schema: StructType) -> None:
    """Iceberg has columns of its own, which Spark shows in every table: one with such a column could not be read."""
    if taken := [column.name for column in schema.fields if column.name.lower() in METADATA_COLUMNS]:
        raise DataError(
            "column-reserved",
            f"Iceberg keeps these names for columns of its own: {', '.join(taken)}.",
            fix="Rename them with a rename_field transform.",
        )


def require_distinct(kind: Type, path: str = "") -> None:
    """Spark does not distinguish columns by case: a table with such columns could be written, but never read."""
    match kind:
        case StructType():
            names = [field.name.lower() for field in kind.fields]
            if twice := sorted({field.name for field in kind.fields if names.count(field.name.lower()) > 1}):
                inside = f" inside {path!r}" if path else ""
                raise ColumnsRefused(
                    "columns-differ-by-case",
                    f"These columns{inside} have the same name, but for upper and lower case: {', '.join(twice)}.",
                    fix="Rename one of them with a rename_field transform.",
                )
            for field in kind.fields:
                require_distinct(field.type, f"{path}.{field.name}".lstrip("."))
        case ListType():
            require_distinct(kind.element, f"{path}.element")
        case MapType():
            require_distinct(kind.value, f"{path}.value")


def keys_of(sink: SinkSpec, schema: StructType, had: tuple[str, ...], source_keys: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that identify rows of an existing table: the sink's, or else the table's own."""
    if sink.key_fields or not had:
        return key_columns(sink, schema, source_keys)
    of_rows = tuple(name for name in had if sink.history is None or name != sink.history.valid_from)
    if source_keys and set(source_keys) != set(of_rows):
        raise Halted(
            "key-changed",
            f"The rows of {sink.full_name} are identified by {', '.join(of_rows)}; in the source they now are by "
            f"{', '.join(source_keys)}.",
            fix="Earlier rows cannot be found by the new key. Read the source into a new table.",
        )
    return _of_versions(sink, of_rows)


def key_columns(sink: SinkSpec, schema: StructType, source_keys: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns that identify a row, by their names in the table: the sink's keys, or those that the source provides."""
    keys = tuple(_key_column(sink, key, schema) for key in sink.key_fields)
    if sink.commit_mode is not CommitMode.UPSERT:
        return keys
    if not keys and not source_keys:
        raise KeyMissing(
            "key-missing",
            f"{sink.full_name}: upsert sinks must specify a key: the table has no identifier fields, "
            "and the source has no primary key to take.",
            fix="Name the columns that identify a row (key_fields; in a Bizon file join_cols), or give the table of the source a "
            "primary key.",
        )
    if keys and source_keys and set(keys) != set(source_keys):
        raise KeyDiffers(
            "key-differs",
            f"{sink.full_name}: key_fields are {', '.join(keys)}, but the source identifies its rows by "
            f"{', '.join(source_keys)}: a row whose key changes could not be followed.",
            fix="Leave key_fields out, or name the same columns.",
        )
    return _of_versions(sink, keys or tuple(source_keys))


def _of_versions(sink: SinkSpec, keys: tuple[str, ...]) -> tuple[str, ...]:
    """What identifies a row of the table; where it keeps versions, one of these."""
    return keys if sink.history is None else (*keys, sink.history.valid_from)


def _key_column(sink: SinkSpec, key: str, schema: StructType) -> str:
    columns = {column.name: column for column in schema.fields}
    name = sink.key_column(key, columns)
    if name is None:
        raise KeyMissing("key-missing", f"Key field {key!r} is not among the data's columns: {', '.join(columns)}")
    column = columns[name]
    if column.type.name in NOT_KEYS:
        text = f"column {column.name} has type {column.type.name} which cannot be used as an Iceberg equality delete key"
        raise ConfigError("key-type", text)
    return column.name
