"""Debezium's envelopes: `before`, `after`, `op`, `source` and `ts_ms`, as the engine takes them for `change_format: debezium`."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from frazil.model.format import Enveloped
from frazil.model.hidden import LANE, OP, ORDER, ORIGIN, UNCHANGED
from frazil.model.types import Column as TableColumn
from frazil.model.types import StructType as TableStruct
from frazil.model.types import parse_type
from frazil.sources.decode.infer import merged_types
from frazil.sources.decode.parts import column, fault, fault_of, field, fields_of, first_fault

UNAVAILABLE = "__debezium_unavailable_value"

_IMAGES = ("before", "after")
_KEPT = (*_IMAGES, "op", "source", "ts_ms")
# Messages that are no changes have one of these: a change of the schema, the border of a transaction, a heartbeat.
_OTHERWISE = ("ddl", "status", "ts_ms")
_SOURCE = (
    "struct<version: string, connector: string, name: string, ts_ms: long, snapshot: string, db: string, `schema`: string, "
    "`table`: string, `txId`: long, lsn: long, xmin: long, `file`: string, pos: long, `sequence`: string>"
)


def envelope_columns(columns: Sequence[TableColumn]) -> tuple[TableColumn, ...]:
    """The envelope of rows with these columns."""
    row = TableStruct(tuple(columns))
    texts = {"op": "string", "source": _SOURCE, "ts_ms": "long", "ddl": "string", "status": "string",
             "transaction": "struct<id: string, total_order: long>"}  # fmt: skip
    return (
        *(TableColumn(name, row) for name in _IMAGES),
        *(TableColumn(name, parse_type(text)) for name, text in texts.items()),
    )


def with_one_row_type(schema: StructType) -> StructType:
    """Both images have the columns of either: a batch of inserts shows no `before`."""
    images = [one.dataType for one in schema.fields if one.name in _IMAGES and isinstance(one.dataType, StructType)]
    if not images:
        return schema
    row: DataType = images[0]
    for other in images[1:]:
        row = merged_types(row, other)
    others = [one for one in schema.fields if one.name not in _IMAGES]
    return StructType([*(StructField(name, row) for name in _IMAGES), *others])


def changes(frame: DataFrame, into: str, spec: Enveloped) -> DataFrame:
    """The frame with the envelope's own fields in ``into`` and what they say of the change in hidden columns."""
    kinds = {one.name: one.dataType for one in fields_of(frame, into)}
    envelope, wrong = column(into), column(fault_of(into))
    op = field(envelope, "op") if "op" in kinds else sf.lit(None).cast("string")
    given = [field(envelope, name).isNotNull() for name in _OTHERWISE if name in kinds]
    something_else = sf.lit(False)
    for one in given:
        something_else = something_else | one
    new = [
        (wrong.isNotNull(), wrong),
        (
            envelope.isNotNull() & op.isNull() & ~something_else,
            fault("debezium-envelope", "the message is no change of Debezium: it has no `op`"),
        ),
    ]
    if spec.truncates != "ignore":
        new.append((op == "t", fault("debezium-truncate", "the source's table was truncated")))
    frame = frame.withColumn(fault_of(into), first_fault(new))
    fine = column(fault_of(into)).isNull()
    hidden: dict[str, Column] = {
        OP: sf.when(op.isNull() | op.isin("t", "m"), "ignore").otherwise("insert"),
        UNCHANGED: sf.when(fine, _unchanged(envelope, kinds.get("after"), spec.unavailable_value or UNAVAILABLE)),
        ORDER: _order(frame, envelope, kinds),
    }
    if LANE in frame.columns:
        # The database's log is one, whatever partitions its changes are in.
        hidden[LANE] = sf.when(_lsn(envelope, kinds).isNull(), column(LANE))
    if (table := _table(envelope, kinds)) is not None:
        hidden[ORIGIN] = sf.coalesce(table, *([column(ORIGIN)] if ORIGIN in frame.columns else []))
    frame = frame.withColumns(hidden)
    says_something = fine & envelope.isNotNull() & sf.coalesce(op != "t", sf.lit(True))
    return frame.withColumn(into, sf.when(says_something, _kept(envelope, kinds)))


def _kept(envelope: Column, kinds: dict[str, DataType]) -> Column:
    image = next((kinds[name] for name in reversed(_IMAGES) if name in kinds), StringType())
    missing = {"before": image, "after": image, "op": StringType()}
    fields = [
        (field(envelope, name) if name in kinds else sf.lit(None).cast(missing[name])).alias(name)
        for name in _KEPT
        if name in kinds or name in missing
    ]
    return sf.struct(*fields)


def _unchanged(envelope: Column, after: DataType | None, placeholder: str) -> Column:
    """The columns whose value Debezium did not have, since the database does not log large values that stay as they are."""
    if not isinstance(after, StructType):
        return sf.lit(None).cast("array<string>")
    row = field(envelope, "after")
    names = [
        sf.when(stands_in, sf.lit(one.name))
        for one in after.fields
        if (stands_in := _stands_in(field(row, one.name), one.dataType, placeholder)) is not None
    ]
    if not names:
        return sf.lit(None).cast("array<string>")
    found = sf.array_compact(sf.array(*names))
    return sf.when(sf.size(found) > 0, found)


def _stands_in(value: Column, kind: DataType, placeholder: str) -> Column | None:
    text = sf.lit(placeholder)
    match kind:
        case StringType():
            # Bytes are base64 in JSON, and look like text where nothing says what they are.
            return value.isin(placeholder, _base64(placeholder))
        case BinaryType():
            return value == text.cast("binary")
        case ArrayType(elementType=StringType()):
            return value == sf.array(text)
        case MapType(keyType=StringType()):
            return sf.map_contains_key(value, placeholder)
        case _:
            return None


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _order(frame: DataFrame, envelope: Column, kinds: dict[str, DataType]) -> Column:
    """The position in the database's log, if the envelope has it, then the position in the topic.

    Changes that share a place in the log are of one transaction, which counts them. Without the log position it is not known
    which of two transactions is later, so their counts cannot be compared.
    """
    lsn = _lsn(envelope, kinds)
    within = sf.when(lsn.isNotNull(), _nested_value(envelope, kinds, "transaction", "total_order"))
    offset = column("offset") if "offset" in frame.columns else sf.lit(None).cast("long")
    return sf.struct(lsn.alias("lsn"), within.alias("total_order"), offset.alias("offset"))


def _lsn(envelope: Column, kinds: dict[str, DataType]) -> Column:
    return _nested_value(envelope, kinds, "source", "lsn")


def _nested_value(envelope: Column, kinds: dict[str, DataType], outer: str, inner: str) -> Column:
    """A number within the envelope; null if the envelope does not have it."""
    kind = kinds.get(outer)
    known = isinstance(kind, StructType) and inner in kind.names
    return field(field(envelope, outer), inner).try_cast("long") if known else sf.lit(None).cast("long")


def _table(envelope: Column, kinds: dict[str, DataType]) -> Column | None:
    source = kinds.get("source")
    if not isinstance(source, StructType) or "table" not in source.names:
        return None
    origin = field(envelope, "source")
    above = [field(origin, name) for name in ("schema", "db") if name in source.names]
    table = field(origin, "table")
    return sf.when(table.isNotNull(), sf.concat_ws(".", sf.coalesce(*above), table) if above else table)
