"""`VALIDATE CONNECTION`: connects, and says what was found."""

from __future__ import annotations

from frazil.doors.sql.columns import read_from
from frazil.doors.sql.connections import cluster, database, lake, registry
from frazil.doors.sql.cures import connection_advice
from frazil.doors.sql.given import World
from frazil.doors.sql.sinks import pipeline
from frazil.doors.sql.statements import CreateConnection, CreateSink, Kind, Target, Validate
from frazil.errors import ConfigError, EnvironmentFault, FrazilError, Retryable
from frazil.model.changes import CommitMode
from frazil.model.pipeline import advise
from frazil.model.settings import Settings
from frazil.model.source import KafkaSource, PostgresCdcSource


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
    """Refuses a KEY that is not the key of a table of PostgreSQL, unless the table logs what rows were before.

    Asks the database. What to say when it does not answer, and nothing otherwise: the sink is then refused when it starts.
    """
    made = pipeline(world, sink)
    source = made.source
    if not isinstance(source, PostgresCdcSource) or made.sink.commit_mode is not CommitMode.UPSERT or not sink.key:
        return ""
    from frazil.sources.registry import rows_known_by

    try:
        known = rows_known_by(source)
    except (Retryable, EnvironmentFault, ConfigError) as error:
        return f"whether rows can be followed by KEY shows when the sink starts: {error.message}"
    if known is None or known[1]:
        return ""
    names = {name.lower() for name in known[0]}
    for key in sink.key:
        origins = read_from(made.transforms, key.text)
        if origins is None or not origins <= names:
            (stream,) = source.streams
            own = ", ".join(sorted(known[0])) or "no columns"
            words = (
                f"rows of {stream.full_name} are known by {own}, and its changes do not tell what {key.text} was before: the old "
                "row of an update would stay in the table, and the row of a delete would not be found"
            )
            fix = f"Run ALTER TABLE {stream.full_name} REPLICA IDENTITY FULL in the database, or leave KEY out."
            raise sink.wrong("sql-key", key.at, words, fix=fix)
    return ""


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
    from frazil.engine.runner import start_spark
    from frazil.sources import open_source
    from frazil.sources.registry import check_cluster

    brokers = cluster(world, connection)
    connected = f"connected to the Kafka cluster at {brokers.bootstrap_servers}"
    if check_cluster(brokers):
        return connected
    spec = KafkaSource.model_validate({name: getattr(brokers, name) for name in type(brokers).model_fields} | {"topics": ("*",)})
    source = open_source(spec, start_spark((), settings, [spec]))
    try:
        source.check()
    except ConfigError as error:
        if error.code != "source-missing":
            raise
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
