"""Sources and views as what a pipeline reads: a source of the model, and what is done to its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.doors.sql.columns import Columns, columns_after
from frazil.doors.sql.connections import cluster, database, registry
from frazil.doors.sql.definitions import DefinitionChange
from frazil.doors.sql.expressions import without_windows
from frazil.doors.sql.given import Given, World, built, seconds
from frazil.doors.sql.grammar import Envelope, Kind, Target
from frazil.doors.sql.query import Expression
from frazil.doors.sql.statements import (
    CreateSource,
    CreateView,
    Format,
    FromFiles,
    FromGenerator,
    FromKafka,
    FromPostgres,
    PostgresTable,
    Reference,
    Statement,
    Word,
)
from frazil.doors.sql.view import view_query
from frazil.model.source import FilesSource, GeneratorSource, KafkaSource, PostgresCdcSource, SourceSpec
from frazil.model.transform import RenameField, RowTransform, SelectColumns, UnwrapDebezium, Way, WhereRows
from frazil.model.types import Primitive, Type, parse_type

_FORMATS = {"JSON": "json", "AVRO": "avro", "TEXT": "string", "BYTES": "bytes", "CSV": "csv", "PROTOBUF": "protobuf"}
# Formats of one column; that of a key is named `key`, as in Materialize.
_PLAIN = ("TEXT", "BYTES")
# What comes from a message beside its value has names that no column of the value has, until it gets its own.
_KEY_PREFIX, _METADATA_PREFIX = "__of_key_", "__of_message_"

# The types of what INCLUDE takes; that of a key is its format's.
_INCLUDED: dict[str, Type] = {
    "partition": Primitive("int"),
    "offset": Primitive("long"),
    "timestamp": Primitive("timestamptz"),
    "topic": Primitive("string"),
}


@dataclass(frozen=True)
class SinkInput:
    """What a sink reads. ``keys`` and ``combine`` are those of a grouped view; ``types`` are the columns, where
    they are declared, or a view names them.

    ``guesses``: which columns there are is found in each batch anew.
    """

    name: str
    source: SourceSpec
    transforms: tuple[RowTransform, ...] = ()
    keys: tuple[str, ...] = ()
    combine: Mapping[str, str] = field(default_factory=dict)
    types: Columns | None = None
    guesses: bool = False

    @property
    def tells_operations(self) -> bool:
        """Whether its rows can say that they are gone."""
        return isinstance(self.source, PostgresCdcSource) or (
            isinstance(self.source, KafkaSource) and self.source.tells_operations
        )

    @property
    def tells_times(self) -> bool:
        """Whether its rows say when they were changed, also when they are gone."""
        return isinstance(self.source, PostgresCdcSource) or (isinstance(self.source, KafkaSource) and self.source.enveloped)

    @property
    def tells_keys(self) -> bool:
        """Whether it knows itself what identifies its rows."""
        by_source = isinstance(self.source, PostgresCdcSource) or (
            isinstance(self.source, KafkaSource) and self.source.tells_keys
        )
        return bool(self.keys) or by_source


def stream(world: World, by: Statement, item: tuple[Word, ...], reader: str) -> SinkInput:
    """What an item of a sink or view means. ``reader`` is the sink, whose replication slot is its own."""
    first = item[0]
    owner = world.owner(first.text)
    table: PostgresTable | None = None
    if owner is not None and owner != first.text:
        source = world.objects[owner]
        assert isinstance(source, CreateSource) and isinstance(source.reads, FromPostgres), "only such have tables"  # noqa: PT018
        table = next(one for one in source.reads.tables or () if one.name.text == first.text)
        first = replace(first, text=owner)
    found = world.find(by, first, Kind.SOURCE, Kind.VIEW, Kind.MATERIALIZED_VIEW)
    if isinstance(found, CreateView):
        if len(item) > 1:
            raise by.wrong("sql-wrong-kind", item[1].at, f"{first.text!r} is a view, which has no tables")
        return _view(world, found, reader)
    assert isinstance(found, CreateSource), "its kind says so"
    return _source(world, by, found, item, table=table, reader=reader)


def _view(world: World, view: CreateView, reader: str) -> SinkInput:
    query = view_query(view)
    below = stream(world, view, query.item, reader)
    if below.keys:
        words = f"{query.item[0].text} groups rows, and what was grouped cannot be read on: groups change as rows come"
        fix = "Make a sink of the grouped view, and compute with its table when you read it."
        raise view.wrong("sql-view", query.item[0].at, words, fix=fix)
    if query.keys and below.tells_operations:
        words = "rows of this source are updated and deleted, and GROUP BY follows only rows that are added"
        raise view.wrong("sql-view", view.query.at + query.group_at, words, fix="Group when you read the table.")
    if query.steps and below.guesses:
        words = f"the columns of {below.name!r} are not declared: a batch in which one is missing would stop the view"
        fix = f"Declare them: CREATE SOURCE {below.name} (id bigint, ...) FROM ..."
        raise view.wrong("sql-view", query.item[0].at, words, fix=fix)
    types = columns_after(view, query.steps, below.types, query.keys)
    transforms = list(below.transforms)
    for step in query.steps:
        if step.where is not None:
            made: RowTransform = _built(view, WhereRows, {"condition": without_windows(step.where.text)}, step.where)
            transforms.append(made.placed({(): _place(view, step.where)}))
        if step.columns:
            texts = [without_windows(one.text) for one in step.columns]
            made = _built(view, SelectColumns, {"expressions": texts}, step.columns[0])
            places: dict[Way, Any] = {("expressions", number): _place(view, one) for number, one in enumerate(step.columns)}
            transforms.append(made.placed({**places, (): _place(view, step.columns[0])}))
    return replace(below, transforms=tuple(transforms), keys=query.keys, combine=query.combine, types=types)


def _built(view: CreateView, model: type[Any], values: dict[str, Any], at: Expression) -> Any:
    return built(view, model, values, {}, at=view.query.at + at.at)


def _place(view: CreateView, one: Expression) -> Any:
    return view.origin.script.location(view.query.at + one.at)


def check_view(world: World, view: CreateView) -> None:
    """Refuses a view that could not be computed. For its own query it is not there: a view cannot read itself."""
    _view(world.after(DefinitionChange(removed=(view.name.text,))), view, "check")


def check_source(world: World, source: CreateSource) -> None:
    """Refuses a source whose options do not fit together."""
    reads = source.reads
    tables = reads.tables if isinstance(reads, FromPostgres) else None
    for table in tables or ():
        owner = world.owner(table.name.text)
        if owner != source.name.text:
            there = "is there already" if owner == table.name.text else f"is a table of the source {owner!r} already"
            raise source.wrong("sql-exists", table.name.at, f"{table.name.text!r} {there}", fix="Add AS and another name.")
    names = [table.name.text for table in tables or ()]
    for table in tables or ():
        if names.count(table.name.text) > 1:
            raise source.wrong(
                "sql-twice", table.name.at, f"two tables are named {table.name.text!r}", fix="Add AS and another name."
            )
    item = (source.name,) if not tables else (tables[0].name,)
    table = tables[0] if tables else PostgresTable(Word("t"))
    _source(world, source, source, item, table=table, reader="check")


def _source(
    world: World, by: Statement, source: CreateSource, item: tuple[Word, ...], *, table: PostgresTable | None, reader: str
) -> SinkInput:
    reads = source.reads
    _require_declared_once(source)
    if len(item) > 1 and not isinstance(reads, FromPostgres):
        raise by.wrong("sql-wrong-kind", item[1].at, f"the source {source.name.text!r} has no tables of its own")
    match reads:
        case FromKafka():
            return _kafka(world, source, reads)
        case FromPostgres():
            chosen = table or _table_of(by, source, reads, item)
            return SinkInput(source.name.text, _postgres(world, source, reads, chosen, reader))
        case FromFiles():
            return _files(world, source, reads)
        case FromGenerator():
            return _generator(world, source, reads)


def _require_declared_once(source: CreateSource) -> None:
    declared: set[str] = set()
    for column in source.columns:
        name = column.name.text
        if name.lower() in declared:
            words = f"column {name!r} is declared twice; names are compared without regard to case"
            raise source.wrong("sql-twice", column.name.at, words, fix="Give one of them another name.")
        declared.add(name.lower())


def _columns(source: CreateSource) -> list[dict[str, Any]] | None:
    return [{"name": one.name.text, "type": one.type.text, "required": one.required} for one in source.columns] or None


def _types(source: CreateSource) -> dict[str, Type | None] | None:
    return {one.name.text: parse_type(one.type.text) for one in source.columns} or None


def _kafka(world: World, source: CreateSource, reads: FromKafka) -> SinkInput:
    given = Given(world, source, reads.options, at=reads.connection.at)
    connection = world.connection(source, reads.connection, Target.KAFKA)
    brokers = cluster(world, connection)
    start = given.choice("START OFFSET", "earliest", "latest")
    if start is not None:
        given.refuse("beside START OFFSET", "START TIMESTAMP")
    time = given.text("START TIMESTAMP")
    keyed = reads.key_format is not None
    debezium, upserts = reads.envelope is Envelope.DEBEZIUM, reads.envelope is Envelope.UPSERT
    key = reads.key_format or (reads.format if (debezium or upserts) and isinstance(reads.format.using, Reference) else None)
    if upserts and key is None:
        words = "ENVELOPE UPSERT needs the key of the messages"
        raise source.wrong("sql-source", reads.format.type.at, words, fix="Write KEY FORMAT ... VALUE FORMAT ...")
    plain_key = reads.key_format is not None and reads.key_format.type.text in _PLAIN and not debezium
    values: dict[str, Any] = {
        **{name: getattr(brokers, name) for name in type(brokers).model_fields},
        "topics": [given.required("TOPIC")],
        "consumer_group": given.text("GROUP ID"),
        "start_offset": "timestamp" if time is not None else start or "earliest",
        "start_timestamp": time,
        "format": _format(world, source, reads.format, debezium=debezium, columns=_columns(source)),
        "key_format": _format(world, source, key) if key is not None else None,
        "tombstones": "ignore" if keyed and reads.envelope is Envelope.NONE else None,
        "key_prefix": _KEY_PREFIX if plain_key else None,
        "metadata": [one.what.text.lower() for one in reads.include] or None,
        "metadata_prefix": _METADATA_PREFIX if reads.include else None,
    }
    places = {
        "topics": given.place("TOPIC"),
        "start_timestamp": given.place("START TIMESTAMP"),
        "format": reads.format.type.at,
        "key_format": reads.key_format.type.at if reads.key_format is not None else reads.format.type.at,
        "metadata": reads.include[0].what.at if reads.include else source.name.at,
    }
    named = {f"{_METADATA_PREFIX}{one.what.text.lower()}": one.alias or _in_small_letters(one.what) for one in reads.include}
    if plain_key and reads.key_format is not None:
        named[f"{_KEY_PREFIX}value"] = Word("key", reads.key_format.type.at)
    _require_apart(source, reads, list(named.values()))
    renames = [_renamed(source, name, to) for name, to in named.items()]
    unwrap = [UnwrapDebezium().placed({(): source.origin.script.location(reads.format.type.at)})] if debezium else []
    types = None if keyed and not (plain_key or debezium) else _types(source)
    if types is not None:
        types |= {to.text: _INCLUDED.get(name.removeprefix(_METADATA_PREFIX)) for name, to in named.items()}
    guesses = reads.format.type.text == "JSON" and not source.columns
    made = given.built(KafkaSource, values, places)
    return SinkInput(source.name.text, made, (*renames, *unwrap), types=types, guesses=guesses)


def _in_small_letters(word: Word) -> Word:
    return Word(word.text.lower(), word.at)


def _renamed(source: CreateSource, name: str, to: Word) -> RenameField:
    place = source.origin.script.location(to.at)
    return RenameField(from_=name, to=to.text).placed({(): place, ("to",): place})


def _require_apart(source: CreateSource, reads: FromKafka, beside: list[Word]) -> None:
    """Refuses columns of one name, as far as they are known before messages come: of the value, the key, and what is included."""
    taken = {one.name.text.lower(): "is declared already" for one in source.columns}
    if reads.format.type.text in _PLAIN:
        taken["value"] = "is the value of the messages already"
    for word in beside:
        if why := taken.get(word.text.lower()):
            fix = "Write INCLUDE ... AS and another name."
            if reads.key_format is not None and word.at == reads.key_format.type.at:
                fix = "Give the other column another name."
            raise source.wrong("sql-twice", word.at, f"the column {word.text!r} {why}", fix=fix)
        taken[word.text.lower()] = "is there already, of the key or of INCLUDE"


def _format(
    world: World, source: CreateSource, made: Format, *, debezium: bool = False, columns: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    kind = made.type.text
    if columns and kind not in ("JSON", "CSV"):
        raise source.wrong("sql-source", source.columns[0].name.at, f"{kind} brings its own columns: leave the list out")
    values: dict[str, Any] = {"type": _FORMATS[kind]}
    if columns:
        values["schema"] = columns
    if debezium:
        if kind not in ("JSON", "AVRO"):
            raise source.wrong("sql-source", made.type.at, f"ENVELOPE DEBEZIUM is for JSON and AVRO, not for {kind}")
        values["envelope"] = "debezium"
    if isinstance(made.using, Reference):
        values["schema_registry"] = registry(world, world.connection(source, made.using.name, Target.REGISTRY))
    elif kind == "AVRO" and made.using is not None:
        values["schema"] = made.using.text
    elif kind == "PROTOBUF" and made.using is not None and made.detail is not None:
        values |= {"descriptor_file": made.using.text, "message": made.detail.text}
    elif kind == "CSV" and made.detail is not None:
        values["separator"] = made.detail.text
    return values


def _table_of(by: Statement, source: CreateSource, reads: FromPostgres, item: tuple[Word, ...]) -> PostgresTable:
    """The table that `source.table` or `source.schema.table` means."""
    tables = reads.tables
    names = [table.name.text for table in tables or ()]
    if len(item) == 1:
        if tables is not None and len(tables) == 1:
            return tables[0]
        fix = f"Name one of them: {', '.join(names)}." if names else f"Write FROM {source.name.text}.table."
        raise by.wrong(
            "sql-source", item[0].at, f"the source {source.name.text!r} has several tables, and a sink takes one", fix=fix
        )
    if len(item) > 3:
        raise by.wrong("sql-source", item[3].at, "a table is source.table or source.schema.table")
    if tables is None:
        return PostgresTable(item[-1], item[1] if len(item) == 3 else None)
    schema = item[1].text if len(item) == 3 else None
    for table in tables:
        same = table.table.text == item[-1].text and (schema is None or (table.schema or Word("public")).text == schema)
        if same or (schema is None and table.name.text == item[-1].text):
            return table
    raise by.wrong("sql-source", item[-1].at, f"the source has no table {item[-1].text!r}", fix=f"There are: {', '.join(names)}.")


def _postgres(world: World, source: CreateSource, reads: FromPostgres, table: PostgresTable, reader: str) -> PostgresCdcSource:
    given = Given(world, source, reads.options, at=reads.connection.at)
    values = database(world, world.connection(source, reads.connection, Target.POSTGRES))
    values |= {
        "publication": given.required("PUBLICATION"),
        # As in Materialize, the publication is made by whoever owns the database.
        "create_publication": False,
        "slot_name": given.text("SLOT") or f"frazil_{re.sub(r'[^a-z0-9_]', '_', reader.lower())}"[:63],
        "streams": [{"name": table.table.text, "namespace": (table.schema or Word("public")).text}],
    }
    return given.built(PostgresCdcSource, values, {"slot_name": given.place("SLOT")})


def _files(world: World, source: CreateSource, reads: FromFiles) -> SinkInput:
    given = Given(world, source, reads.options)
    given.required("PATH")
    given.required("FORMAT")
    if "HEADER" in given and (given.text("FORMAT") or "").lower() != "csv":
        given.refuse("for files that are not CSV", "HEADER")
    values = {
        "path": given.text("PATH"),
        "format": given.choice("FORMAT", "json", "csv", "parquet", "avro"),
        "pattern": given.text("PATTERN"),
        "recursive": given.flag("RECURSIVE"),
        "schema": _columns(source),
        "options": {"header": given.flag("HEADER")} if "HEADER" in given else None,
    }
    guesses = values["format"] in ("json", "csv") and not source.columns
    return SinkInput(source.name.text, given.built(FilesSource, values), types=_types(source), guesses=guesses)


def _generator(world: World, source: CreateSource, reads: FromGenerator) -> SinkInput:
    given = Given(world, source, reads.options, at=reads.generator.at)
    if reads.generator.text == "SHOP":
        fields = {"rows": "ROWS", "rows_per_second": "ROWS PER SECOND", "seed": "SEED"}
        values: dict[str, Any] = {field: given.text(option) for field, option in fields.items()}
        made = given.built(GeneratorSource, values, {field: given.place(option) for field, option in fields.items()})
        return SinkInput(source.name.text, made)
    tick = seconds(given, "TICK INTERVAL")
    rate = 1.0 if tick is None else (1 / tick if tick else 0)
    if rate < 1 or abs(rate - round(rate)) > 1e-9:
        raise given.wrong(
            "TICK INTERVAL", "TICK INTERVAL is at most a second, and a whole number of them is one", fix="Write '100ms'."
        )
    values = {"rows": given.text("UP TO"), "rows_per_second": round(rate)}
    made = given.built(GeneratorSource, values, {"rows": given.place("UP TO"), "rows_per_second": given.place("TICK INTERVAL")})
    return SinkInput(source.name.text, made, (SelectColumns(expressions=("event_number + 1 AS counter",)),))
