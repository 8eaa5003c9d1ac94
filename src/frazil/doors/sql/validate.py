"""What statements ask of other services: `VALIDATE CONNECTION`, and whether the rows of a new sink can be followed by its KEY."""

from __future__ import annotations

from contextlib import suppress

from frazil.doors.sql.columns import read_from
from frazil.doors.sql.connections import cluster, database, lake, registry
from frazil.doors.sql.cures import connection_advice
from frazil.doors.sql.given import Given, World
from frazil.doors.sql.grammar import Kind, Target
from frazil.doors.sql.sinks import pipeline, require_order
from frazil.doors.sql.statements import CreateConnection, CreateSink, Validate, Word
from frazil.errors import ConfigError, EnvironmentFault, FrazilError, Retryable, SourceMissing
from frazil.model.changes import CommitMode
from frazil.model.pipeline import PipelineSpec, advise
from frazil.model.settings import Settings
from frazil.model.source import KafkaSource, PostgresCdcSource
from frazil.model.transform import RenameField


def connection_of(statement: Validate, world: World) -> CreateConnection:
    """The connection that is to be validated. One to a store has nothing of its own to connect to."""
    found = world.find(statement, statement.name, Kind.CONNECTION)
    assert isinstance(found, CreateConnection), "its kind says so"
    if found.to in (Target.AWS, Target.GCS, Target.AZURE):
        words = f"a connection to {found.to} has nothing of its own to connect to"
        fix = "VALIDATE the connection to the Iceberg catalog that uses it."
        raise statement.wrong("sql-validate", statement.name.at, words, fix=fix)
    return found


def validate(world: World, connection: CreateConnection, settings: Settings) -> str:
    """What the other end answered; raises what is wrong with it."""
    try:
        return _answered(world, connection, settings)
    except FrazilError as error:
        advise(error, connection_advice(world, connection))
        raise


def require_followed(world: World, sink: CreateSink) -> str:
    """Refuses a KEY by which the source's updates and deletes could not find the row that they change.

    Asks the database or the schema registry. Returns a note for the user where only the run can tell: the sink then stops before
    it writes anything.
    """
    made = pipeline(world, sink)
    if made.sink.commit_mode is not CommitMode.UPSERT or not sink.key:
        return ""
    try:
        match made.source:
            case PostgresCdcSource():
                return _followed_in_database(made, made.source, sink)
            case KafkaSource() if made.source.tells_operations and not made.source.enveloped:
                return _followed_in_topic(world, made, made.source, sink)
            case _:
                return ""
    except (Retryable, EnvironmentFault) as error:
        return _later(error)


def _later(error: FrazilError) -> str:
    return f"whether rows can be followed by KEY shows when the sink starts: {error.message}"


def _followed_in_database(made: PipelineSpec, source: PostgresCdcSource, sink: CreateSink) -> str:
    from frazil.sources.registry import rows_known_by

    try:
        known = rows_known_by(source)
    except ConfigError as error:
        return _later(error)
    if known is None or known[1] or (key := _not_made_from(known[0], made, sink, if_unknown=True)) is None:
        return ""
    (stream,) = source.streams
    own = ", ".join(sorted(known[0])) or "no columns"
    words = (
        f"rows of {stream.full_name} are known by {own}, and its changes do not contain what {key.text} was before: the old "
        "row of an update would stay in the table, and the row of a delete would not be found"
    )
    fix = f"Run ALTER TABLE {stream.full_name} REPLICA IDENTITY FULL in the database, or leave KEY out."
    raise sink.wrong("sql-key", key.at, words, fix=fix)


def _followed_in_topic(world: World, made: PipelineSpec, source: KafkaSource, sink: CreateSink) -> str:
    from frazil.sources.registry import message_key_columns

    names = message_key_columns(source)
    if names is None:
        return (
            "whether rows can be followed by KEY shows with the first messages: which columns their key has is not known before. "
            "If KEY is not made from these alone, the sink stops with key-differs, and writes nothing"
        )
    require_order(Given(world, sink, sink.options), source, made.transforms, names)
    if (key := _not_made_from(names, made, sink, if_unknown=False)) is None:
        return ""
    words = (
        f"{key.text} is not made from the key of the messages alone, which with ENVELOPE UPSERT is all that is known "
        "of a row that changes or is gone: its old row would stay in the table"
    )
    fields = ", ".join(_as_selected(names, made))
    fix = f"Name the key of the messages: KEY ({fields}). ENVELOPE DEBEZIUM tells what a row was before, and takes any KEY."
    raise sink.wrong("sql-key", key.at, words, fix=fix)


def _not_made_from(columns: frozenset[str], made: PipelineSpec, sink: CreateSink, *, if_unknown: bool) -> Word | None:
    """The first column of KEY that is not made from these columns of the source alone. ``if_unknown``: or may not be."""
    names = {name.lower() for name in columns}
    for key in sink.key:
        origins = read_from(made.transforms, key.text)
        if if_unknown if origins is None else not origins <= names:
            return key
    return None


def _as_selected(columns: frozenset[str], made: PipelineSpec) -> list[str]:
    """The columns by the names that SQL has for them."""
    renamed = {one.from_: one.to for one in made.transforms if isinstance(one, RenameField)}
    return sorted(renamed.get(name, name) for name in columns)


def _answered(world: World, connection: CreateConnection, settings: Settings) -> str:
    match connection.to:
        case Target.ICEBERG:
            return _catalog(world, connection)
        case Target.KAFKA:
            return _kafka(world, connection, settings)
        case Target.POSTGRES:
            return _postgres(world, connection)
        case _:
            return _registry(world, connection)


def _catalog(world: World, connection: CreateConnection) -> str:
    from frazil.observe.check import check_catalog

    return check_catalog(lake(world, connection).sink)


def _kafka(world: World, connection: CreateConnection, settings: Settings) -> str:
    """Any topic will do, and none, too: what counts is that the cluster answers."""
    from frazil.runtime.runner import start_spark
    from frazil.sources import open_source
    from frazil.sources.registry import check_cluster

    brokers = cluster(world, connection)
    connected = f"connected to the Kafka cluster at {brokers.bootstrap_servers}"
    if check_cluster(brokers):
        return connected
    spec = KafkaSource.model_validate({name: getattr(brokers, name) for name in type(brokers).model_fields} | {"topics": ("*",)})
    source = open_source(spec, lambda: start_spark((), settings, [spec]))
    try:
        with suppress(SourceMissing):
            source.check()
    finally:
        source.close()
    return connected


def _postgres(world: World, connection: CreateConnection) -> str:
    from frazil.sources.registry import check_database

    return check_database(PostgresCdcSource(**database(world, connection)))


def _registry(world: World, connection: CreateConnection) -> str:
    from frazil.sources.decode.registry import Registry

    spec = registry(world, connection)
    Registry(spec).check()
    return f"connected to the schema registry at {spec.url}"
