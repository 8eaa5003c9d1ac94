"""From tables of a Bizon file to what the engine needs: how messages are read, how they become rows, and the columns.

A record of a page is a message, too: its id is the key, its fields are the value, and its table is the topic.

A column is a field of the message's value under its own or another name, or one of Bizon's own columns, which are made here.
Fields are read as texts, and the sink's declared columns look at each value, so that `"12"` and `12` are both a `long`, and
`"twelve"` is a bad record. Those of Avro's, and those after changes of the user's, have types, and may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frazil.doors.bizon.destination import SchemaField, TimePartition
from frazil.model.coercion import MICROS, EpochUnit
from frazil.model.types import parse_type

PREFIX = "__record_"
"""How columns begin that are taken from the record, and are not kept."""

_MADE = "__made_"
"""How Bizon's own columns begin until they get their names, which fields of the message may have, too."""

# Beside the value, everything that Bizon's own columns are made of.
_RECORD = ("topic", "partition", "offset", "timestamp", "headers", "key")
_PAGED_RECORD = ("timestamp", "key", "value")

BIZON_COLUMNS = {
    "_bizon_extracted_at": "timestamp",
    "_bizon_id": "string",
    "_bizon_loaded_at": "timestamp",
    "_source_record_id": "string",
    "_source_timestamp": "timestamp",
    "_source_data": "string",
}
"""The columns of a table that declares none."""

ENVELOPE = tuple(SchemaField(name=name, type=kind) for name, kind in BIZON_COLUMNS.items())

# Iceberg's writers in Spark have no such type: the microseconds since midnight are kept instead.
TIME = "time"
TIME_AS = "long"

_MOMENTS = ("date", "timestamp", "timestamptz")
_DAY = 86_400_000_000
# The years 1 to 9999.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999


def bizon_column(field: SchemaField) -> str | None:
    """Which of Bizon's own columns a field means; the older form writes their names without the underscore, too."""
    name = field.source
    if name in BIZON_COLUMNS:
        return name
    older = f"_{name}"
    return older if field.target_field is not None and older in BIZON_COLUMNS else None


@dataclass(frozen=True)
class Reading:
    """How messages are written, and what is made of them: ``transforms`` are the user's own, as the engine takes them.

    ``paged``: they are records of pages, and not of a topic.
    """

    encoding: str
    registry: dict[str, Any] | None = None
    transforms: tuple[Any, ...] = ()
    time_field: str | None = None
    epoch_unit: EpochUnit | None = None
    paged: bool = False

    @property
    def names_known(self) -> bool:
        """Whether the columns before the last step are known: not of Avro's, and not after changes of the user's."""
        return self.encoding == "utf-8" and not self.transforms


@dataclass(frozen=True)
class Shape:
    """What the engine gets: the options of the source, changes of rows, and the declared columns of each table."""

    source: dict[str, Any]
    transforms: tuple[Any, ...]
    columns: dict[str, tuple[dict[str, str], ...]]


Fields = tuple[SchemaField, ...]


def with_partition_columns(fields: tuple[SchemaField, ...], partitions: tuple[TimePartition, ...]) -> tuple[SchemaField, ...]:
    """The columns, and those of Bizon's own that the table is partitioned by and does not declare."""
    have = {bizon_column(field) for field in fields} | {field.column for field in fields}
    lacking = dict.fromkeys(p.field for p in partitions if p.field in BIZON_COLUMNS and p.field not in have)
    return (*fields, *(SchemaField(name=name, type=BIZON_COLUMNS[name]) for name in lacking))


def shape(tables: Mapping[str, Fields], reading: Reading) -> Shape:
    """How messages become rows of tables with these columns. Messages of several tables are distinguished by their topic."""
    every = [field for fields in tables.values() for field in fields]
    # Of a column that several tables have, the first one stands for all; where they differ, the topic decides.
    fields = tuple({field.column: field for field in reversed(every)}[name] for name in dict.fromkeys(f.column for f in every))
    taken = [field for field in every if bizon_column(field) is None]
    record = _record({name for field in every if (name := bizon_column(field)) is not None}, taken, reading)
    if len(tables) > 1:
        record = list(dict.fromkeys([*record, "topic"]))
    meanings = {
        field.column: {
            table: _value(own, reading, whole=not taken)
            for table, owns in tables.items()
            for own in owns
            if own.column == field.column
        }
        for field in fields
    }
    source = _format(taken, reading) | ({"metadata": record, "metadata_prefix": PREFIX} if record else {})
    return Shape(
        source,
        _known_steps(meanings) if reading.names_known else _unknown_steps(fields, record, reading, whole=not taken),
        {name: tuple({"name": one.column, "type": table_type(one)} for one in of) for name, of in tables.items()},
    )


def quarrels(tables: Mapping[str, Fields], reading: Reading) -> list[str]:
    """What keeps tables from being made of the same records."""
    notes = []
    read: dict[str, str] = {}
    meant: dict[str, str] = {}
    for field in (field for fields in tables.values() for field in fields):
        own = bizon_column(field)
        kind = _read_as(field)
        if own is None and read.setdefault(field.source, kind) != kind and reading.names_known:
            notes.append(f"the field {field.source!r} is read as {read[field.source]} for one table and as {kind} for another")
        value = _value(field, reading, whole=False)
        if not reading.names_known and meant.setdefault(field.column, value) != value:
            notes.append(f"with transforms the column {field.column!r} must be of the same field in all tables")
    return list(dict.fromkeys(notes))


def _value(field: SchemaField, reading: Reading, *, whole: bool) -> str:
    """What a column is made of, in Spark SQL."""
    own = bizon_column(field)
    return _taken(field, reading) if own is None else _expression(own, reading, whole=whole)


def table_type(field: SchemaField) -> str:
    """The type of the column in the table."""
    return TIME_AS if _is_time(field) else field.column_type


def _format(taken: list[SchemaField], reading: Reading) -> dict[str, Any]:
    if reading.encoding == "avro":
        return {"format": {"type": "avro", "schema_registry": reading.registry}}
    if not reading.names_known:
        return {"format": {"type": "json"}}
    if not taken:
        return {"format": {"type": "string"}}
    read = {field.source: _read_as(field) for field in taken}
    if reading.time_field is not None:
        read.setdefault(reading.time_field, "string")
    return {"format": {"type": "json", "schema": read}}


def _read_as(field: SchemaField) -> str:
    return "binary" if parse_type(field.column_type).name == "binary" else "string"  # base64, in JSON


def _record(own: set[str], taken: list[SchemaField], reading: Reading) -> list[str]:
    """What of the record, beside its fields, Bizon's own columns are made of."""
    if not own:
        return []
    if reading.paged:
        return list(_PAGED_RECORD)
    asks = "_source_data" in own or ("_source_timestamp" in own and reading.time_field is not None and not reading.names_known)
    if not asks or (reading.names_known and not taken):
        return list(_RECORD)
    return [*_RECORD, "json" if reading.encoding == "avro" else "value"]


def _known_steps(meanings: Mapping[str, Mapping[str, str]]) -> tuple[Any, ...]:
    """All columns in one step, so that names may be exchanged."""
    expressions = [f"{_one_of(by_table)} AS {quoted(column)}" for column, by_table in meanings.items()]
    return ({"type": "select", "expressions": expressions},)


def _one_of(by_table: Mapping[str, str]) -> str:
    if len(set(by_table.values())) == 1:
        return next(iter(by_table.values()))
    cases = " ".join(f"WHEN {_text(table)} THEN {value}" for table, value in by_table.items())
    return f"CASE {PREFIX}topic {cases} END"


def _unknown_steps(fields: Fields, record: list[str], reading: Reading, *, whole: bool) -> tuple[Any, ...]:
    """Bizon's own columns are added, and at last all columns get their names at once."""
    own = [field for field in fields if bizon_column(field) is not None]
    # Changes of the user's know them by their names.
    made = {field.column: field.column if reading.transforms else f"{_MADE}{number}" for number, field in enumerate(own)}
    steps: list[Any] = [
        {"type": "add_field", "field": made[field.column], "expression": _value(field, reading, whole=whole)} for field in own
    ]
    if record:
        steps.append({"type": "remove_field", "fields": [f"{PREFIX}{name}" for name in record]})
    steps += reading.transforms
    steps.append({"type": "map_fields", "columns": {field.column: made.get(field.column, field.source) for field in fields}})
    if times := {f.column: _micros(quoted(f.column)) for f in fields if _is_time(f) and f.column not in made}:
        every = {field.column: quoted(field.column) for field in fields} | times
        steps.append({"type": "select", "expressions": [f"{text} AS {quoted(name)}" for name, text in every.items()]})
    return tuple(steps)


def _taken(field: SchemaField, reading: Reading) -> str:
    name = quoted(field.source)
    kind = parse_type(field.column_type).name
    if kind in _MOMENTS and reading.epoch_unit is not None and reading.names_known:
        return _moment(name, kind, reading.epoch_unit)
    return _micros(name) if kind == TIME else name


def _is_time(field: SchemaField) -> bool:
    return parse_type(field.column_type).name == TIME


def quoted(name: str) -> str:
    """A column's name in Spark SQL."""
    return f"`{name.replace('`', '``')}`"


# Bizon's own columns.


def _expression(name: str, reading: Reading, *, whole: bool) -> str:
    if name in ("_bizon_extracted_at", "_bizon_loaded_at"):
        return "current_timestamp()"
    k = {one: f"{PREFIX}{one}" for one in (*_RECORD, "value", "json")}
    if reading.paged:
        return _of_page(name, k)
    match name:
        case "_bizon_id":
            # The same message has the same id however often it is read.
            return _uuid(f"md5(concat({k['topic']}, ':', {k['partition']}, ':', {k['offset']}))")
        case "_source_record_id":
            return f"concat('partition_', {k['partition']}, '_offset_', {k['offset']})"
        case "_source_timestamp":
            return _time_of(reading, k, whole=whole)
        case _:
            return _envelope(k, reading, whole=whole)


def _of_page(name: str, k: dict[str, str]) -> str:
    text = {one: f"CAST({k[one]} AS STRING)" for one in ("key", "value")}
    match name:
        case "_bizon_id":
            # A record has no place of its own; the same record with the same fields has the same id.
            return _uuid(f"md5(concat({text['key']}, ':', {text['value']}))")
        case "_source_record_id":
            return text["key"]
        case "_source_timestamp":
            return k["timestamp"]
        case _:
            return text["value"]


def _uuid(digest: str) -> str:
    return f"regexp_replace({digest}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '$1-$2-$3-$4-$5')"


def _time_of(reading: Reading, k: dict[str, str], *, whole: bool) -> str:
    if reading.time_field is None:
        return k["timestamp"]
    if reading.names_known and not whole:
        text = quoted(reading.time_field)
    else:
        # From the message's text, since it need not have the field.
        text = f"get_json_object({_message(k, reading, whole=whole)}, {_text(f'$.{reading.time_field}')})"
    # Avro has a type for times, which are texts in its JSON.
    moment = f"try_cast({text} AS TIMESTAMP), " if reading.encoding == "avro" else ""
    return f"coalesce(timestamp_millis(try_cast({text} AS BIGINT)), {moment}{k['timestamp']})"


def _message(k: dict[str, str], reading: Reading, *, whole: bool) -> str:
    """The text of the message's value."""
    if reading.encoding == "avro":
        return k["json"]
    return "value" if whole and reading.names_known else f"CAST({k['value']} AS STRING)"


def _envelope(k: dict[str, str], reading: Reading, *, whole: bool) -> str:
    """The record as Bizon keeps it: JSON, with the value inside as it came."""
    value = _message(k, reading, whole=whole)
    if reading.encoding == "avro":
        value = f"coalesce({value}, 'null')"
    elif whole and reading.names_known:
        value = _embedded(value)  # it need not be JSON
    key = f"coalesce(try_validate_utf8(CAST({k['key']} AS STRING)), base64({k['key']}))"
    keys = f"CASE WHEN {k['key']} IS NULL THEN '{{}}' ELSE {_embedded(key)} END"
    entry = f"concat({_literal('h.key')}, ':', {_literal('try_validate_utf8(CAST(h.value AS STRING))')})"
    headers = f"concat('{{', array_join(transform(coalesce({k['headers']}, array()), h -> {entry}), ','), '}}')"
    parts = [
        ("topic", _literal(k["topic"])),
        ("offset", k["offset"]),
        ("partition", k["partition"]),
        ("timestamp", f"unix_millis({k['timestamp']})"),
        ("keys", keys),
        ("headers", headers),
        ("value", value),
        ("schema", "'{}'"),
    ]
    return "concat('{', " + ", ',', ".join(f"'\"{name}\":', {text}" for name, text in parts) + ", '}')"


def _literal(text: str) -> str:
    """A text as a JSON string, null as null."""
    listed = f"to_json(array({text}))"
    return f"substr({listed}, 2, length({listed}) - 2)"


def _embedded(text: str) -> str:
    """A text that is JSON as it is, any other as a JSON string."""
    return f"CASE WHEN try_parse_json({text}) IS NOT NULL THEN {text} ELSE {_literal(text)} END"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _micros(name: str) -> str:
    """A time of day as microseconds since midnight. Any other text stays what it is, and then does not fit the column."""
    midnight = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
    text = f"CAST({name} AS STRING)"
    moment = f"try_cast(concat('1970-01-01 ', {text}) AS TIMESTAMP_NTZ)"
    form = "'^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?$'"
    since = f"CAST(timestampdiff(MICROSECOND, {midnight}, {moment}) AS STRING)"
    return f"CASE WHEN {text} RLIKE {form} THEN coalesce({since}, {text}) ELSE {text} END"


def _moment(name: str, kind: str, unit: EpochUnit) -> str:
    """A number since 1970 as the text of its moment, or of its day. Any other text stays what it is."""
    number = f"try_cast({name} AS BIGINT)"
    if unit is EpochUnit.NANOS:
        micros = f"try_subtract({number}, pmod({number}, 1000)) div 1000"  # no column can hold the rest
    else:
        micros = f"try_multiply({number}, {MICROS[unit]})"
    if kind == "date":
        fits = f"pmod({micros}, {_DAY}) = 0"
        text = f"date_add(DATE'1970-01-01', CAST({micros} div {_DAY} AS INT))"
    else:
        fits = "true"
        text = f"timestampadd(MICROSECOND, {micros}, TIMESTAMP_NTZ'1970-01-01 00:00:00')"
    return f"CASE WHEN {micros} BETWEEN {_FIRST} AND {_LAST} AND {fits} THEN CAST({text} AS STRING) ELSE {name} END"
