"""Sinks as pipelines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from frazil.doors.sql.columns import Columns, read_from
from frazil.doors.sql.connections import CatalogAndStores, lake, why_not_for_files
from frazil.doors.sql.cures import ORDER_BY_MESSAGES, sink_advice
from frazil.doors.sql.cursor import did_you_mean
from frazil.doors.sql.definitions import Trace
from frazil.doors.sql.given import Given, World, seconds, size
from frazil.doors.sql.grammar import HISTORY_COLUMNS, PERIOD, Mode, Target
from frazil.doors.sql.groups import shape
from frazil.doors.sql.sources import SinkInput, stream
from frazil.doors.sql.statements import CreateSink, Option, PartitionDef, Word
from frazil.errors import ConfigError
from frazil.model.catalog import CatalogType
from frazil.model.changes import WITHOUT_ORDER, CommitMode
from frazil.model.format import JsonFormat
from frazil.model.history import WITHOUT_TIME_OF_DELETES
from frazil.model.late import MOST_HOURS
from frazil.model.partition import PartitionField, transform_problem
from frazil.model.partition import Transform as PartitionTransform
from frazil.model.pipeline import PipelineSpec, ProjectSpec, pipeline_problems
from frazil.model.settings import Settings
from frazil.model.sink import MAX_FILE_MB, MOST_ROWS, SinkSpec
from frazil.model.source import KafkaSource, PostgresCdcSource, SourceSpec
from frazil.model.transform import RowTransform, SelectColumns, WhereRows
from frazil.model.types import NOT_KEYS

# Without a size and a period a commit is made each second, when anything is there.
TICK_SECONDS = 1
# With a period alone it decides; a commit has so many rows at most, whatever its size.
LONGEST_SECONDS = 3600
_HOUR = 3600
# The options that only have a meaning where the last row of a key counts.
_OF_ORDER = ("LATEST BY", "LATE", "TOMBSTONE RETENTION", "HISTORY", *HISTORY_COLUMNS)
# Iceberg keeps the widths of transforms in 32 bits.
_WIDEST = 2**31 - 1

_MIXED = "sql-view-changed"
_OWN_TABLE = "Choose another TABLE, for this sink alone. A view that is created again as it was goes on with its sums."


def sink_id(name: str) -> str:
    """The identity of a sink in the ledger of its table."""
    return f"sql/{name}"


def project(world: World, settings: Settings) -> ProjectSpec:
    """All sinks as pipelines."""
    pipelines = tuple(pipeline(world, one) for one in world.objects.values() if isinstance(one, CreateSink))
    return ProjectSpec(
        file=world.file,
        sources={one.source_name: one.source for one in pipelines},
        sinks={one.sink_name: one.sink for one in pipelines},
        pipelines=pipelines,
        settings=settings,
    )


def pipeline(world: World, sink: CreateSink) -> PipelineSpec:
    """The pipeline that a sink is."""
    given = Given(world, sink, sink.options)
    read = _with_message_keys(sink, stream(world, sink, sink.item, sink.name.text))
    mode = _mode(sink, read)
    there = lake_of(world, sink)
    values: dict[str, Any] = {
        "catalog": there.catalog,
        **there.stores,
        "namespace": sink.namespace.text,
        "table": sink.table.text,
        "id": sink_id(sink.name.text),
        "commit_mode": mode.value,
        "partition_by": _partitions(sink) or None,
        "file_format": given.choice("FORMAT", "parquet", "orc", "avro"),
        "compression": given.choice("COMPRESSION", "none", "snappy", "gzip", "lz4", "zstd", "brotli"),
        "target_file_size_mb": _megabytes(given),
        "format_version": _version(given),
        "order_by": given.texts("LATEST BY") or None,
        "history": _history(given),
        **_lateness(given),
        "diff_column": given.text("DIFF COLUMN"),
        "time_column": given.text("TIMESTAMP COLUMN"),
        **_letters(given),
        **_pace(given),
    }
    if mode is CommitMode.UPSERT:
        values |= _keys(sink, read)
        given.refuse("with MODE UPSERT: it belongs to MODE APPEND", "DIFF COLUMN", "TIMESTAMP COLUMN")
        if read.keys:
            given.refuse("for a view with GROUP BY: all rows of a group are added up, and none is the last", *_OF_ORDER)
    else:
        given.refuse("without a KEY: all rows are added", *_OF_ORDER)
    if not (isinstance(read.source, KafkaSource) and read.source.enveloped):
        given.refuse("where the source does not tell what a row was before: it belongs to ENVELOPE DEBEZIUM", "DIFF COLUMN")
    places = {
        "namespace": sink.namespace.at,
        "table": sink.table.at,
        "key_fields": sink.key[0].at if sink.key else sink.name.at,
        "partition_by": sink.partition[0].column.at if sink.partition else sink.name.at,
        "commit_mode": sink.mode_at or sink.name.at,
        "catalog": sink.connection.at,
        "compression": given.place("COMPRESSION"),
        "target_file_size_mb": given.place("TARGET FILE SIZE"),
        "diff_column": given.place("DIFF COLUMN"),
        "order_by": given.place("LATEST BY"),
        "history": given.place("HISTORY"),
        "late": given.place("LATE"),
        "tombstone_retention_hours": given.place("TOMBSTONE RETENTION"),
        "dead_letter_table": given.place("DEAD LETTER TABLE"),
        "max_dead_letters": given.place("MAX DEAD LETTERS"),
        "max_dead_letter_rate": given.place("MAX DEAD LETTER RATE"),
    }
    if values["history"]:
        _require_times(given, read)
    if isinstance(read.source, KafkaSource) and (keys := read.source.declared_key_columns) is not None:
        require_order(given, read.source, read.transforms, keys)
    made = given.built(SinkSpec, values, places)
    source = _ordered(read, mode)
    for problem in pipeline_problems(source, made, read.transforms):
        place = next((places[name] for name in problem.at if name in places), sink.name.at)
        raise sink.wrong("sql-sink", place, str(problem))
    _require_columns(sink, read)
    return PipelineSpec(
        name=sink.name.text,
        source_name=read.name,
        source=source,
        sink_name=sink.name.text,
        sink=made,
        transforms=read.transforms,
        place=sink.origin.script.location(sink.name.at),
        advice=sink_advice(world, sink, read.name),
    )


def _with_message_keys(sink: CreateSink, read: SinkInput) -> SinkInput:
    """What is read, with the keys of Debezium's messages where nothing else tells by what rows are known.

    Debezium writes keys as it writes values, so that KEY FORMAT need not be said. The schema of AVRO values is not that of keys.
    """
    source = read.source
    if sink.key or sink.mode is Mode.APPEND or not isinstance(source, KafkaSource):
        return read
    if not source.enveloped or source.key_format is not None or not isinstance(source.format, JsonFormat):
        return read
    return replace(read, source=source.model_copy(update={"key_format": JsonFormat(type="json")}))


def _ordered(read: SinkInput, mode: CommitMode) -> SourceSpec:
    """What is read, with an order of rows over all partitions where the last of a key counts.

    Messages of a key may be in several partitions: then their times tell, and within a partition the offsets. Changes that
    Debezium tells of have the order of the database's log, and sums have none.
    """
    source = read.source
    if mode is not CommitMode.UPSERT or read.keys or not isinstance(source, KafkaSource) or source.enveloped:
        return source
    return source.model_copy(update={"order": "time"})


def check_sink(world: World, sink: CreateSink) -> None:
    """Refuses a sink that could not run beside the others, or whose table could not be made or written."""
    made = pipeline(world, sink)
    types = stream(world, sink, sink.item, sink.name.text).types
    _require_partition(sink, made.sink.partition_by, types)
    _require_added_columns_apart(Given(world, sink, sink.options), types)
    _require_letters_apart(Given(world, sink, sink.options), made.sink)
    _require_like_before(world, sink, made)
    for other in world.objects.values():
        if not isinstance(other, CreateSink) or other.name == sink.name:
            continue
        try:
            beside = pipeline(world, other)
        except ConfigError:
            continue  # what is wrong with it is reported where it is used
        if words := _mixed(made, beside):
            raise sink.wrong(_MIXED, sink.item[0].at, words, fix=_OWN_TABLE)
        slots = [one.source.slot for one in (made, beside) if isinstance(one.source, PostgresCdcSource)]
        if len(slots) == 2 and slots[0] == slots[1]:
            words = (
                f"the sink {other.name.text!r} reads through the replication slot {slots[0]!r} already, and a slot has one reader"
            )
            raise sink.wrong("sql-sink", sink.item[0].at, words, fix="Leave SLOT out of the source: each sink then has its own.")


def require_own_sums(pipelines: Iterable[PipelineSpec]) -> None:
    """Refuses sinks that would mix sums with something else in one table: definitions may be older than this rule."""
    first_of: dict[tuple[object, ...], PipelineSpec] = {}
    for one in pipelines:
        if words := _mixed(one, first_of.setdefault(_table_of(one), one)):
            raise ConfigError(_MIXED, f"sink {one.name}: {words}", fix=_OWN_TABLE, location=one.place)


def trace_of(made: PipelineSpec) -> Trace:
    """What a sink writes, as far as another one under its name, or into its table, must write the same."""
    table = f"{made.sink.catalog.name}.{made.sink.full_name}"
    match made.source:
        case KafkaSource():
            reads = f"topic {', '.join(made.source.topics)}"
        case PostgresCdcSource():
            reads = f"{', '.join(one.full_name for one in made.source.streams)} of the database {made.source.database}"
        case _:
            reads = ""  # what is read stands in the table's ledger, and another one is refused when it starts
    return Trace(made.name, table, reads, _sums(made))


def _sums(made: PipelineSpec) -> str:
    """Which sums a sink writes, as a digest: how a query is laid out changes nothing. Empty for rows that are no sums."""
    if not made.sink.combine:
        return ""
    steps = [_said_by(step) for step in made.transforms]
    text = json.dumps([steps, made.sink.key_fields, made.sink.combine], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _said_by(step: RowTransform) -> Any:
    match step:
        case WhereRows():
            return ["where", shape(step.condition)]
        case SelectColumns():
            return ["select", *map(shape, step.expressions)]
        case _:
            return step.model_dump(mode="json", by_alias=True)


def _mixed(made: PipelineSpec, beside: PipelineSpec) -> str:
    """Why a sink cannot write into the table of another one that is defined; nothing when it can, or has another table."""
    if _table_of(made) != _table_of(beside) or _sums(made) == _sums(beside):
        return ""
    return _mixed_words(made.sink.full_name, beside.name, theirs=bool(beside.sink.combine), own=bool(made.sink.combine))


def _mixed_words(table: str, other: str, *, theirs: bool, own: bool) -> str:
    if not theirs:
        return f"{table} holds the rows of the sink {other!r}, with which sums cannot be mixed"
    what = "those of this one would be added" if own else "rows that are no sums cannot be added"
    return f"{table} holds sums of another view, that of the sink {other!r}, to which {what}"


def _table_of(made: PipelineSpec) -> tuple[object, ...]:
    """What two sinks have in common that write into one table, whatever their connections are called."""
    catalog = made.sink.catalog
    region = getattr(getattr(catalog, catalog.type.value, None), "region", None)
    scope = catalog.name if catalog.type is CatalogType.SQL else ""
    return catalog.type, catalog.address, catalog.location, region, scope, made.sink.full_name


def _require_like_before(world: World, sink: CreateSink, made: PipelineSpec) -> None:
    """A table goes on with what it has: places in another topic mean nothing here, and sums of another view are other sums."""
    now = trace_of(made)
    for before in (one for one in world.traces if one.table == now.table):
        if before.sums != now.sums:
            words = _mixed_words(now.table, before.sink, theirs=bool(before.sums), own=bool(now.sums))
            raise sink.wrong(_MIXED, sink.item[0].at, words, fix=_OWN_TABLE)
        if before.sink == now.sink and before.reads != now.reads:
            words = f"a sink of this name has written {before.reads or 'another source'} into {now.table}"
            fix = "Choose another name for the sink: it then begins at the start of its source."
            raise sink.wrong("sql-source-changed", sink.name.at, words, fix=fix)


def lake_of(world: World, sink: CreateSink) -> CatalogAndStores:
    """The catalog of a sink, and how the sink reaches the files of its table."""
    connection = world.connection(sink, sink.connection, Target.ICEBERG)
    if sink.aws is None:
        return lake(world, connection)
    files = world.connection(sink, sink.aws, Target.AWS)
    if why_not := why_not_for_files(world, connection, files):
        raise sink.wrong("sql-option", sink.aws.at, why_not)
    return lake(world, connection, files)


def _mode(sink: CreateSink, read: SinkInput) -> CommitMode:
    """What was asked for; otherwise rows with a key are upserted, and others are appended."""
    if sink.mode is Mode.APPEND:
        if sink.key:
            raise sink.wrong("sql-sink", sink.key[0].at, "KEY is not supported for MODE APPEND Iceberg sinks")
        if read.keys:
            words = "a view with GROUP BY changes the rows of its groups, which MODE APPEND cannot"
            raise sink.wrong("sql-sink", sink.mode_at, words, fix="Write MODE UPSERT, or leave MODE out.")
        return CommitMode.APPEND
    changes = sink.mode is Mode.UPSERT or read.tells_operations
    if changes and not sink.key and not read.tells_keys:
        fix = "Add KEY (column, ...), or MODE APPEND." if sink.mode is None else "Add KEY (column, ...)."
        raise sink.wrong("sql-sink", sink.mode_at or sink.item[0].at, "upsert sinks must specify a key", fix=fix)
    keyed = sink.mode is Mode.UPSERT or bool(sink.key) or read.tells_keys
    return CommitMode.UPSERT if keyed else CommitMode.APPEND


def _keys(sink: CreateSink, read: SinkInput) -> dict[str, Any]:
    if not read.keys:
        return {"key_fields": [key.text for key in sink.key] or None, "case_sensitive": False if sink.key else None}
    if sink.key and {key.text.lower() for key in sink.key} != {key.lower() for key in read.keys}:
        words = f"KEY must be the columns of GROUP BY: {', '.join(read.keys)}"
        raise sink.wrong("sql-key", sink.key[0].at, words, fix="Leave KEY out: they are the key.")
    return {"key_fields": read.keys, "combine": dict(read.combine)}


def _partitions(sink: CreateSink) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = []
    taken: set[tuple[object, ...]] = set()
    for written in sink.partition:
        field = _partition(sink, written)
        same = (field["source"].lower(), field["transform"], field["width"])
        if same in taken:
            words = f"{PartitionField(**field)} is given twice in PARTITION BY"
            raise sink.wrong("sql-twice", _place(written), words, fix="Leave one of them out.")
        taken.add(same)
        fields.append(field)
    return fields


def _partition(sink: CreateSink, field: PartitionDef) -> dict[str, Any]:
    transform = field.transform.text if field.transform is not None else "identity"
    if field.width is not None and not 1 <= field.width <= _WIDEST:
        words = f"the width of {transform} is 1 to {_WIDEST}, not {field.width}"
        raise sink.wrong("sql-partition", _place(field), words, fix=f"Write {transform}(16, {field.column.text}).")
    return {"source": field.column.text, "transform": transform, "width": field.width}


def _place(field: PartitionDef) -> int:
    return field.column.at if field.transform is None else field.transform.at


def _require_partition(sink: CreateSink, fields: Iterable[PartitionField], types: Columns | None) -> None:
    """Refuses what a table cannot be partitioned by, as far as the types of columns are known before rows come."""
    known = {name.lower(): kind for name, kind in (types or {}).items()}
    for written, field in zip(sink.partition, fields, strict=True):
        kind = known.get(field.source.lower())
        problem = transform_problem(field, kind.name) if kind is not None else None
        if problem is not None:
            fix = "Choose another transform, or declare the column with another type."
            raise sink.wrong("sql-partition", _place(written), problem, fix=fix)
        if field.transform is PartitionTransform.VOID:
            raise sink.wrong("sql-partition", _place(written), "void divides no rows", fix="Leave it out.")


def _require_added_columns_apart(given: Given, types: Columns | None) -> None:
    """Refuses columns that the sink adds under a name that another one has."""
    taken = {name.lower(): "a column of what is read" for name in types or {}}
    for option in ("DIFF COLUMN", "TIMESTAMP COLUMN"):
        name = given.text(option)
        if name is None:
            continue
        if what := taken.get(name.lower()):
            raise given.wrong(option, f"{option} adds a column, and {name!r} is {what} already", fix="Choose another name.")
        taken[name.lower()] = f"the {option}"


def _require_letters_apart(given: Given, made: SinkSpec) -> None:
    """Rows and dead letters have different columns."""
    if made.letters_name == (made.namespace, made.table):
        words = f"DEAD LETTER TABLE cannot be the table of the sink itself, {made.full_name}"
        raise given.wrong("DEAD LETTER TABLE", words, fix="Choose another one, or leave it out.")


def _pace(given: Given) -> dict[str, Any]:
    """When commits are made: by size, by time, by either, or each second."""
    if all(name in given for name in PERIOD):
        raise given.wrong("COMMIT INTERVAL", f"{' and '.join(PERIOD)} say the same", fix="Keep one of them.")
    name = next((name for name in PERIOD if name in given), "COMMIT INTERVAL")
    period, least = seconds(given, name), size(given, "MINIMUM SIZE")
    if period is not None and period < 1:
        raise given.wrong(name, f"{name} must be at least 1 second")
    if period is not None and (period > LONGEST_SECONDS or period != int(period)):
        raise given.wrong(name, f"{name} is a whole number of seconds, at most {LONGEST_SECONDS}")
    if least is not None and least < 1:
        raise given.wrong("MINIMUM SIZE", "MINIMUM SIZE must be at least 1 byte")
    if least is None:
        return {"batch_size": MOST_ROWS, "flush_interval_secs": int(period or TICK_SECONDS)}
    return {"batch_bytes": least, "flush_interval_secs": int(period or LONGEST_SECONDS)}


def _lateness(given: Given) -> dict[str, Any]:
    """What becomes of late rows, and how long deleted keys are remembered for that."""
    chosen, period = given.choice("LATE", "apply", "ignore"), seconds(given, "TOMBSTONE RETENTION")
    if chosen != "ignore":
        given.refuse("without LATE = 'ignore'", "TOMBSTONE RETENTION")
    elif "LATEST BY" not in given:
        raise given.wrong("LATE", "LATE = 'ignore' needs LATEST BY: the columns that tell which rows are late")
    if period is None:
        return {"late": chosen}
    if period % _HOUR or not _HOUR <= period <= MOST_HOURS * _HOUR:
        raise given.wrong("TOMBSTONE RETENTION", f"TOMBSTONE RETENTION is a whole number of hours, 1 to {MOST_HOURS}")
    return {"late": chosen, "tombstone_retention_hours": int(period // _HOUR)}


def _history(given: Given) -> dict[str, Any] | None:
    """Whether every version of a row is kept, and the names of the columns that say when it was valid."""
    if (kind := given.choice("HISTORY", "scd2")) is None:
        given.refuse("without HISTORY = 'scd2'", *HISTORY_COLUMNS)
        return None
    names = zip(("valid_from", "valid_to", "current", "operation"), map(given.text, HISTORY_COLUMNS), strict=True)
    return {"type": kind} | {option: name for option, name in names if name is not None}


def _require_times(given: Given, read: SinkInput) -> None:
    """The columns of LATEST BY say since when a version is valid, or a source that knows when rows were changed."""
    if isinstance(read.source, PostgresCdcSource) and "LATEST BY" in given:
        words = f"with HISTORY, LATEST BY cannot name columns of a row here, as {WITHOUT_TIME_OF_DELETES}"
        first = (given.texts("LATEST BY") or ("",))[0]
        raise given.wrong(
            "LATEST BY", words.format(first), fix="Leave LATEST BY out: the source says when its rows were changed."
        )
    if not read.tells_times and "LATEST BY" not in given:
        words = "HISTORY needs LATEST BY: its first column says since when a version of a row is valid"
        raise given.wrong("HISTORY", words)


def require_order(given: Given, source: KafkaSource, transforms: Sequence[RowTransform], keys: Iterable[str]) -> None:
    """Refuses an order by what a message without a value, which deletes a row, does not have. ``keys``: the columns of keys."""
    first = (given.texts("LATEST BY") or ("",))[0]
    origins = read_from(transforms, first) if first else None
    if origins and source.only_of_values(origins, keys):
        words = f"LATEST BY: {WITHOUT_ORDER.format(first)}"
        raise given.wrong("LATEST BY", words, fix=ORDER_BY_MESSAGES)


def _letters(given: Given) -> dict[str, Any]:
    """What becomes of rows that cannot be written."""
    chosen = given.choice("ON ERROR", "stop", "dead_letter")
    if chosen != "dead_letter":
        given.refuse("without ON ERROR = 'dead_letter'", "DEAD LETTER TABLE", "MAX DEAD LETTERS", "MAX DEAD LETTER RATE")
    return {
        "on_error": chosen,
        "dead_letter_table": given.text("DEAD LETTER TABLE"),
        "max_dead_letters": given.text("MAX DEAD LETTERS"),
        "max_dead_letter_rate": given.text("MAX DEAD LETTER RATE"),
    }


def _megabytes(given: Given) -> int | None:
    target = size(given, "TARGET FILE SIZE")
    if target is None:
        return None
    if target % (1 << 20):
        raise given.wrong("TARGET FILE SIZE", "TARGET FILE SIZE is a whole number of MiB")
    if not 1 <= target >> 20 <= MAX_FILE_MB:
        raise given.wrong("TARGET FILE SIZE", f"TARGET FILE SIZE is 1 MiB to {MAX_FILE_MB} MiB")
    return target >> 20


def _version(given: Given) -> int | None:
    text = given.choice("FORMAT VERSION", "2", "3")
    return int(text) if text is not None else None


def _require_columns(sink: CreateSink, read: SinkInput) -> None:
    """Columns that the sink names must be there, as far as that is known before rows come."""
    if read.types is None:
        return
    known = {name.lower(): kind for name, kind in read.types.items()}
    latest = [word for option in sink.options if option.name.text == "LATEST BY" for word in _words(option)]
    for word in (*sink.key, *(field.column for field in sink.partition), *latest):
        if word.text.lower() not in known:
            raise sink.wrong(
                "sql-unknown-column", word.at, f"there is no column {word.text!r}", fix=_columns(word.text, read.types)
            )
    for key in sink.key:
        kind = known[key.text.lower()]
        if kind is not None and kind.name in NOT_KEYS:
            words = f"column {key.text} has type {kind.name} which cannot be used as an Iceberg equality delete key"
            fix = "Name other columns, or make a view with one of its fields, or with a cast of it, as a column."
            raise sink.wrong("sql-key", key.at, words, fix=fix)


def _words(option: Option) -> tuple[Word, ...]:
    return option.value if isinstance(option.value, tuple) else ()


def _columns(given: str, known: Iterable[str]) -> str:
    names = list(known)
    return did_you_mean(given, names) or f"There are: {', '.join(names)}."
