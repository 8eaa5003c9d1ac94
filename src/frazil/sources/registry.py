"""From a source's description to the source."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.errors import ConfigError, EnvironmentFault
from frazil.model.source import (
    FilesSource,
    GeneratorSource,
    KafkaCluster,
    KafkaSource,
    PagesSource,
    PostgresCdcSource,
    QuerySource,
    SourceSpec,
    TableSource,
)
from frazil.sources.base import Session, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from frazil.model.discovery import Discovery
    from frazil.model.pipeline import LetterTopic
    from frazil.model.types import StructType
    from frazil.sources.decode import Decoder


def letter_topic(spec: LetterTopic) -> Callable[[DataFrame], None]:
    """What sends a copy of dead letters to a topic."""
    from frazil.sources.kafka.letters import letter_topic as posting

    return posting(spec)


def rereader(
    spec: SourceSpec, spark: SparkSession, *, each: bool, exactly: bool
) -> Callable[[DataFrame, StructType | None], Sequence[DataFrame]]:
    """A function that turns dead letters into the rows that the source would now make from their records; ``each``: by topic.

    It is given the letters, and the table's columns as the source has them; ``exactly``: values are not converted to their types.
    """
    if isinstance(spec, PostgresCdcSource):
        raise ConfigError(
            "replay-impossible",
            "Dead letters of a database are changes of the past: rows may have changed again since.",
            fix="Update the rows in the database, which sends them as they are now.",
        )
    if isinstance(spec, TableSource) and spec.changes:
        raise ConfigError(
            "replay-impossible",
            f"Dead letters of changes of {spec.table} are changes of the past: rows may have changed again since.",
            fix="Update the rows in that table, so that they are sent as they are now.",
        )
    if isinstance(spec, KafkaSource):
        from frazil.sources.decode import decoder
        from frazil.sources.kafka.letters import by_topic, records_of

        def reread(letters: DataFrame, columns: StructType | None) -> Sequence[DataFrame]:
            records = records_of(letters, by_time=spec.order == "time")
            parts = by_topic(records) if each else [records]
            return [_expecting(decoder(spec, spark), columns, exactly).decode(one) for one in parts]

        return reread
    if isinstance(spec, PagesSource):
        from frazil.sources.decode import decoder
        from frazil.sources.pages.frame import messages_of

        return lambda letters, columns: (_expecting(decoder(spec, spark), columns, exactly).decode(messages_of(letters, spec)),)
    from frazil.sources.letters import rows_like

    return lambda letters, _columns: (rows_like(letters, open_source(spec, lambda: spark)),)


def _expecting(decoder: Decoder, columns: StructType | None, exactly: bool) -> Decoder:
    if columns is not None:
        decoder.expect(columns, exactly=exactly)
    return decoder


def open_source(  # noqa: PLR0911 - one for each case
    spec: SourceSpec, session: Session, *, images: bool = False, versions: bool = False
) -> Source:
    """The source for a specification. Nothing is read or connected to yet.

    ``session``: asked at once by sources that plan with Spark, and by the others when they read.
    ``images``: whether the previous rows of updates may be needed, as where the sink identifies rows by a key of its own.
    ``versions``: whether each state of a row is needed, with a time of its own.
    """
    match spec:
        case GeneratorSource():
            from frazil.sources.generator import Generator

            return Generator(spec, session)
        case FilesSource():
            from frazil.sources.files import Files

            return Files(spec, session)
        case TableSource():
            from frazil.sources.table import SparkTable, TableChanges

            if not spec.changes:
                return SparkTable(spec, session())
            return TableChanges(spec, session(), images=images, versions=versions)
        case QuerySource():
            from frazil.sources.query import Query

            return Query(spec, session())
        case KafkaSource():
            from frazil.sources.decode import decoder
            from frazil.sources.kafka import KafkaTopics

            spark = session()
            return KafkaTopics(spec, spark, lambda: decoder(spec, spark))
        case PostgresCdcSource():
            with _package_of_postgres():
                from frazil.sources.postgres.source import PostgresCdc
            return PostgresCdc(spec, session(), images=images, versions=versions)
        case PagesSource():
            from frazil.sources.pages.bizon import BizonPager
            from frazil.sources.pages.source import Pages

            return Pages(spec, session(), lambda: BizonPager(spec))


def check_pages(spec: PagesSource) -> None:
    """Lets a source that is asked for pages try its connection, for which no Spark is needed."""
    from frazil.sources.pages.bizon import BizonPager

    pager = BizonPager(spec)
    try:
        pager.check()
    finally:
        pager.close()


def check_tables(spec: PostgresCdcSource, master: str) -> None:
    """Database, rights, tables, publication and slot must be as a run on that Spark needs them. No Spark is started."""
    with _package_of_postgres():
        from frazil.sources.postgres import slot
        from frazil.sources.postgres.connection import Login
    slot.require_shared_spool(spec, master)
    with Login.of(spec).connect() as connection:
        slot.check(connection, spec)


def check_topics(spec: KafkaSource) -> bool:
    """Looks for the topics, and for what their formats need. False when only Kafka's Java client knows how to connect."""
    from frazil.sources.decode import check_formats
    from frazil.sources.kafka.probe import can_probe
    from frazil.sources.kafka.probe import check_topics as look

    if not can_probe(spec):
        return False
    look(spec)
    check_formats(spec)
    return True


def check_cluster(spec: KafkaCluster) -> bool:
    """Whether a Kafka cluster answers. False when only Kafka's Java client knows how to connect."""
    from frazil.sources.kafka.probe import can_probe
    from frazil.sources.kafka.probe import check_cluster as look

    if not can_probe(spec):
        return False
    look(spec)
    return True


def check_database(spec: PostgresCdcSource) -> str:
    """Connects to the database alone: neither tables nor a publication are looked for."""
    with _package_of_postgres():
        from frazil.sources.postgres.connection import Login, asking
    login = Login.of(spec)
    with login.connect() as connection, asking("The settings of the database"):
        row = connection.execute("SHOW wal_level").fetchone()
    level = row[0] if row else ""
    if level != "logical":
        raise ConfigError(
            "database-limits",
            f"PostgreSQL at {login} has wal_level = {level}, with which changes cannot be followed.",
            fix="Set wal_level = logical, and restart the server.",
        )
    return f"connected to PostgreSQL at {login}"


def rows_known_by(spec: PostgresCdcSource) -> tuple[frozenset[str], bool] | None:
    """The columns by which changes of the source's one table identify a row, and whether they contain the whole previous row.

    None if there is no such table. Connects only to the database.
    """
    with _package_of_postgres():
        from frazil.sources.postgres import catalog
        from frazil.sources.postgres.connection import Login, asking
        from frazil.sources.postgres.protocol import FULL
    (stream,) = spec.streams
    with Login.of(spec).connect() as connection, asking("The columns of the table"):
        table = catalog.table(connection, stream.namespace, stream.name)
    if table is None:
        return None
    named = table.index_columns if table.identity == "i" else ()
    return frozenset((*table.primary_key, *named)), table.identity == FULL


def message_key_columns(spec: KafkaSource) -> frozenset[str] | None:
    """The columns of the messages' keys, by their format or a schema registry; None where only the messages show them."""
    from frazil.sources.decode import key_columns

    return key_columns(spec, spec.topics[0])


def database_tables(name: str, spec: PostgresCdcSource) -> Discovery:
    """What the database of a source has to offer, for which no Spark is needed."""
    with _package_of_postgres():
        from frazil.sources.postgres.offers import discovered
    return discovered(name, spec)


@contextmanager
def _package_of_postgres() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFault.package("The connector postgres-cdc", error.name, "postgres") from error
