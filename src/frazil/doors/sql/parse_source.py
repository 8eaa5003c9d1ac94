"""`CREATE SOURCE`: a topic, tables of a database, a folder, made-up rows."""

from __future__ import annotations

from typing import Any

from frazil.doors.sql.cursor import Cursor
from frazil.doors.sql.grammar import FILES_SOURCE, GENERATORS, KAFKA_SOURCE, POSTGRES_SOURCE, Envelope
from frazil.doors.sql.options import option_list
from frazil.doors.sql.statements import (
    ColumnDef,
    CreateSource,
    Format,
    FromFiles,
    FromGenerator,
    FromKafka,
    FromPostgres,
    Include,
    PostgresTable,
    Reference,
    Word,
)
from frazil.doors.sql.types import column_type

_FORMATS = ("JSON", "AVRO", "TEXT", "BYTES", "CSV", "PROTOBUF")
_INCLUDED = ("KEY", "PARTITION", "OFFSET", "TIMESTAMP", "HEADERS", "TOPIC")


def create_source(cursor: Cursor, **common: Any) -> CreateSource:
    """What comes after the name."""
    if cursor.sees("IN", "CLUSTER"):
        cursor.fail("there are no clusters here: Spark's settings say where work is done", fix="Leave out IN CLUSTER.")
    columns = cursor.listed(lambda: _column(cursor)) if cursor.sees("(") else ()
    cursor.expect("FROM")
    what, _ = cursor.one_of("KAFKA", "POSTGRES", "LOAD GENERATOR", "FILES", what="a source")
    match what:
        case "KAFKA":
            reads: FromKafka | FromPostgres | FromGenerator | FromFiles = _kafka(cursor)
        case "POSTGRES":
            reads = _postgres(cursor)
        case "FILES":
            reads = FromFiles(option_list(cursor, FILES_SOURCE))
        case _:
            reads = _generator(cursor)
    if columns and isinstance(reads, FromPostgres | FromGenerator):
        cursor.fail("this source has columns of its own", at=columns[0].name.at, fix="Leave the list of columns out.")
    return CreateSource(reads=reads, columns=columns, **common)


def _column(cursor: Cursor) -> ColumnDef:
    name = cursor.column()
    kind = column_type(cursor)
    required = cursor.take("NOT")
    if required:
        cursor.expect("NULL")
    return ColumnDef(name, kind, required)


def _kafka(cursor: Cursor) -> FromKafka:
    cursor.expect("CONNECTION")
    connection = cursor.name("a connection")
    options = option_list(cursor, KAFKA_SOURCE)
    key_format = None
    if cursor.take("KEY"):
        cursor.expect("FORMAT")
        key_format = _format(cursor)
        cursor.expect("VALUE")
    if not cursor.take("FORMAT"):
        raise cursor.refusal("FORMAT is expected here: how the messages are written", near=("FORMAT", "KEY"))
    value_format = _format(cursor)
    include: list[Include] = []
    while cursor.take("INCLUDE") or (include and cursor.take(",")):
        include.append(_include(cursor))
    envelope = Envelope.NONE
    if cursor.take("ENVELOPE"):
        envelope = Envelope(cursor.one_of(*Envelope, what="an envelope")[0])
    return FromKafka(connection, options, value_format, key_format, tuple(include), envelope)


def _include(cursor: Cursor) -> Include:
    what, at = cursor.one_of(*_INCLUDED, what="a part of the message")
    return Include(Word(what, at), cursor.column() if cursor.take("AS") else None)


def _format(cursor: Cursor) -> Format:
    what, at = cursor.one_of(*_FORMATS, what="a format")
    name = Word(what, at)
    if what == "AVRO":
        cursor.expect("USING")
        if cursor.take("CONFLUENT", "SCHEMA", "REGISTRY"):
            cursor.expect("CONNECTION")
            return Format(name, Reference(cursor.name("a connection")))
        cursor.expect("SCHEMA")
        at = cursor.at
        return Format(name, Word(cursor.literal("the Avro schema"), at))
    if what == "PROTOBUF":
        cursor.expect("MESSAGE")
        message = cursor.text("the name of the message")
        cursor.expect("USING", "DESCRIPTOR", "FILE")
        return Format(name, cursor.text("the file of descriptors"), message)
    if what == "CSV" and cursor.take("DELIMITED"):
        cursor.expect("BY")
        return Format(name, detail=cursor.text("what stands between values"))
    return Format(name)


def _postgres(cursor: Cursor) -> FromPostgres:
    cursor.expect("CONNECTION")
    connection = cursor.name("a connection")
    options = option_list(cursor, POSTGRES_SOURCE)
    if cursor.take("FOR", "TABLES"):
        tables = cursor.listed(lambda: _table(cursor), last_comma=True)
        if not tables:
            cursor.fail("FOR TABLES names at least one table")
        return FromPostgres(connection, options, tables)
    if cursor.take("FOR", "SCHEMAS"):
        cursor.fail("tables are named one by one here, or all of them", fix="Write FOR TABLES (...) or FOR ALL TABLES.")
    if cursor.take("FOR"):
        cursor.expect("ALL", "TABLES")
    return FromPostgres(connection, options)


def _table(cursor: Cursor) -> PostgresTable:
    first = cursor.name_part("a table")
    schema, table = (first, cursor.name_part("a table")) if cursor.take(".") else (None, first)
    return PostgresTable(table, schema, cursor.name_part("the table") if cursor.take("AS") else None)


def _generator(cursor: Cursor) -> FromGenerator:
    what, at = cursor.one_of(*GENERATORS, what="a load generator")
    options = option_list(cursor, GENERATORS[what]) if cursor.sees("(") else ()
    return FromGenerator(Word(what, at), options)
