"""From statements to their canonical SQL: what is kept, what SHOW CREATE tells, and what parses to an equal statement."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import singledispatchmethod

from frazil.doors.sql.grammar import (
    ANY_CONNECTION,
    CONNECTIONS,
    FILES_SOURCE,
    GENERATORS,
    KAFKA_SOURCE,
    POSTGRES_SOURCE,
    SINK,
    Envelope,
    Kind,
    Table,
    Takes,
)
from frazil.doors.sql.statements import (
    Alter,
    ColumnDef,
    Create,
    CreateConnection,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateView,
    Describe,
    Drop,
    ExplainSink,
    Format,
    FromFiles,
    FromGenerator,
    FromKafka,
    FromPostgres,
    Include,
    Option,
    Options,
    PartitionDef,
    PostgresTable,
    Query,
    Reference,
    Show,
    ShowCreate,
    Statement,
    Validate,
    Word,
)
from frazil.model.secrets import MASK, mask_uri

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PLAIN_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that would be read as something else where a name may stand.
_RESERVED = {"if", "secret", "connection", "not", "as", "for", "from", "with"}


def render(statement: Statement, *, secrets: bool = True) -> str:
    """The statement as SQL. Without ``secrets`` values that are secret are stars."""
    return _Renderer(secrets).statement(statement)


def shown_options(connection: CreateConnection) -> list[tuple[str, str]]:
    """The options of a connection as people may see them."""
    renderer, table = _Renderer(secrets=False), CONNECTIONS[connection.to]
    return [(option.name.text.lower(), renderer.value(option, table)) for option in connection.options]


def name(text: str) -> str:
    """The name of an object, quoted where it must be."""
    return text if _PLAIN_NAME.fullmatch(text) and text not in _RESERVED else '"{}"'.format(text.replace('"', '""'))


def column(text: str) -> str:
    """The name of a column, quoted where it must be."""
    plain = _PLAIN_COLUMN.fullmatch(text) and text.lower() not in _RESERVED
    return text if plain else '"{}"'.format(text.replace('"', '""'))


def literal(text: str) -> str:
    """A text in quotes."""
    return "'{}'".format(text.replace("'", "''"))


class _Renderer:
    def __init__(self, secrets: bool) -> None:
        self._secrets = secrets

    @singledispatchmethod
    def statement(self, statement: Statement) -> str:
        raise TypeError(type(statement))

    @statement.register
    def _secret(self, statement: CreateSecret) -> str:
        return f"{_head(statement)} AS {literal(statement.value if self._secrets else MASK)}"

    @statement.register
    def _connection(self, statement: CreateConnection) -> str:
        return f"{_head(statement)} TO {statement.to} {self._options(statement.options, CONNECTIONS[statement.to])}"

    @statement.register
    def _source(self, statement: CreateSource) -> str:
        columns = _listed(map(_column, statement.columns)) + " " if statement.columns else ""
        reads = statement.reads
        match reads:
            case FromKafka():
                clauses = self._kafka(reads)
            case FromPostgres():
                tables = f"TABLES {_listed(map(_table, reads.tables))}" if reads.tables is not None else "ALL TABLES"
                options = self._options(reads.options, POSTGRES_SOURCE)
                clauses = [f"POSTGRES CONNECTION {name(reads.connection.text)} {options}", f"FOR {tables}"]
            case FromFiles():
                clauses = [f"FILES {self._options(reads.options, FILES_SOURCE)}"]
            case FromGenerator():
                what = reads.generator.text
                options = f" {self._options(reads.options, GENERATORS[what])}" if reads.options else ""
                clauses = [f"LOAD GENERATOR {what}{options}"]
        return f"{_head(statement)} {columns}FROM " + "\n  ".join(clauses)

    def _kafka(self, reads: FromKafka) -> list[str]:
        clauses = [f"KAFKA CONNECTION {name(reads.connection.text)} {self._options(reads.options, KAFKA_SOURCE)}"]
        if reads.key_format is not None:
            clauses.append(f"KEY FORMAT {_format(reads.key_format)}")
        clauses.append(f"{'VALUE ' if reads.key_format is not None else ''}FORMAT {_format(reads.format)}")
        if reads.include:
            clauses.append(f"INCLUDE {', '.join(map(_include, reads.include))}")
        if reads.envelope is not Envelope.NONE:
            clauses.append(f"ENVELOPE {reads.envelope}")
        return clauses

    @statement.register
    def _view(self, statement: CreateView) -> str:
        return f"{_head(statement)} AS\n{statement.query.text}"

    @statement.register
    def _sink(self, statement: CreateSink) -> str:
        clauses = [
            f"FROM {'.'.join(name(part.text) for part in statement.item)}",
            f"INTO ICEBERG CATALOG CONNECTION {name(statement.connection.text)}"
            f" (NAMESPACE {literal(statement.namespace.text)}, TABLE {literal(statement.table.text)})",
        ]
        if statement.aws is not None:
            clauses.append(f"USING AWS CONNECTION {name(statement.aws.text)}")
        if statement.key:
            enforced = " NOT ENFORCED" if statement.not_enforced else ""
            clauses.append(f"KEY {_listed(column(key.text) for key in statement.key)}{enforced}")
        if statement.mode is not None:
            clauses.append(f"MODE {statement.mode}")
        if statement.partition:
            clauses.append(f"PARTITION BY {_listed(map(_partition, statement.partition))}")
        if statement.options:
            clauses.append(f"WITH {self._options(statement.options, SINK)}")
        return "\n  ".join([_head(statement), *clauses])

    @statement.register
    def _alter(self, statement: Alter) -> str:
        head = f"ALTER {statement.kind} {name(statement.name.text)}"
        if statement.value is not None:
            return f"{head} AS {literal(statement.value if self._secrets else MASK)}"
        if statement.reset:
            return f"{head} RESET {_listed(option.text for option in statement.reset)}"
        table = SINK if statement.kind is Kind.SINK else ANY_CONNECTION
        return f"{head} SET {self._options(statement.given, table)}"

    @statement.register
    def _drop(self, statement: Drop) -> str:
        there = "IF EXISTS " if statement.if_exists else ""
        return f"DROP {statement.kind} {there}{name(statement.name.text)}{' CASCADE' if statement.cascade else ''}"

    @statement.register
    def _show(self, statement: Show) -> str:
        return statement.title + (f" LIKE {literal(statement.like)}" if statement.like is not None else "")

    @statement.register
    def _show_create(self, statement: ShowCreate) -> str:
        return f"SHOW CREATE {statement.kind} {name(statement.name.text)}"

    @statement.register
    def _describe(self, statement: Describe) -> str:
        return f"DESCRIBE {name(statement.name.text)}"

    @statement.register
    def _explain(self, statement: ExplainSink) -> str:
        return f"EXPLAIN SINK {name(statement.name.text)}"

    @statement.register
    def _validate(self, statement: Validate) -> str:
        return f"VALIDATE CONNECTION {name(statement.name.text)}"

    @statement.register
    def _query(self, statement: Query) -> str:
        return statement.query.text

    def _options(self, options: Options, table: Table) -> str:
        return _listed(f"{option.name.text} = {self.value(option, table)}" for option in options)

    def value(self, option: Option, table: Table) -> str:
        """What an option is given."""
        takes = table[option.name.text].takes
        match option.value:
            case Reference(secret=secret):
                return f"{'SECRET ' if secret else ''}{name(option.value.name.text)}"
            case tuple():
                return _listed(literal(self._shown(one, takes)) for one in option.value)
            case _:
                return literal(self._shown(option.value, takes))

    def _shown(self, value: Word, takes: Takes) -> str:
        if self._secrets:
            return value.text
        return MASK if takes is Takes.SECRET else mask_uri(value.text)


def _head(statement: Create) -> str:
    there = "IF NOT EXISTS " if statement.if_not_exists else ""
    return f"CREATE {statement.kind} {there}{name(statement.name.text)}"


def _listed(parts: Iterable[str]) -> str:
    return f"({', '.join(parts)})"


def _column(definition: ColumnDef) -> str:
    # `float` has eight bytes in SQL, and four in Iceberg.
    kind = re.sub(r"\bfloat\b(?!:)", "real", definition.type.text)
    return f"{column(definition.name.text)} {kind}{' NOT NULL' if definition.required else ''}"


def _format(made: Format) -> str:
    match made.type.text:
        case "AVRO" if isinstance(made.using, Reference):
            return f"AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION {name(made.using.name.text)}"
        case "AVRO" if isinstance(made.using, Word):
            return f"AVRO USING SCHEMA {literal(made.using.text)}"
        case "PROTOBUF" if made.detail is not None and isinstance(made.using, Word):
            return f"PROTOBUF MESSAGE {literal(made.detail.text)} USING DESCRIPTOR FILE {literal(made.using.text)}"
        case "CSV" if made.detail is not None:
            return f"CSV DELIMITED BY {literal(made.detail.text)}"
        case other:
            return other


def _include(made: Include) -> str:
    return made.what.text + (f" AS {column(made.alias.text)}" if made.alias is not None else "")


def _table(made: PostgresTable) -> str:
    schema = f"{name(made.schema.text)}." if made.schema is not None else ""
    return f"{schema}{name(made.table.text)}{f' AS {name(made.alias.text)}' if made.alias is not None else ''}"


def _partition(made: PartitionDef) -> str:
    if made.transform is None:
        return column(made.column.text)
    size = f"{made.width}, " if made.width is not None else ""
    return f"{made.transform.text}({size}{column(made.column.text)})"
