"""From a source's description to the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import EnvironmentFault
from frazil.model.source import (
    FilesSource,
    GeneratorSource,
    KafkaSource,
    PostgresCdcSource,
    QuerySource,
    SourceSpec,
    TableSource,
)
from frazil.sources.base import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from frazil.model.pipeline import LetterTopic


def letter_topic(spec: LetterTopic) -> Callable[[DataFrame], None]:
    """What sends a copy of dead letters to a topic."""
    from frazil.sources.kafka.letters import letter_topic as posting

    return posting(spec)


def open_source(spec: SourceSpec, spark: SparkSession) -> Source:
    """The source that the description means. Nothing is read or connected to yet."""
    match spec:
        case GeneratorSource():
            from frazil.sources.generator import Generator

            return Generator(spec, spark)
        case FilesSource():
            from frazil.sources.files import Files

            return Files(spec, spark)
        case TableSource():
            from frazil.sources.table import SparkTable

            return SparkTable(spec, spark)
        case QuerySource():
            from frazil.sources.query import Query

            return Query(spec, spark)
        case KafkaSource():
            from frazil.sources.decode import decoder
            from frazil.sources.kafka import KafkaTopics

            return KafkaTopics(spec, spark, decoder(spec, spark))
        case PostgresCdcSource():
            try:
                from frazil.sources.postgres.source import PostgresCdc
            except ModuleNotFoundError as error:
                raise EnvironmentFault(
                    "package-missing",
                    f"The connector postgres-cdc needs the package {error.name}.",
                    fix="Install it: pip install 'frazil[postgres]'.",
                ) from error
            return PostgresCdc(spec, spark)
