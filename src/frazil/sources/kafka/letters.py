"""Copies of dead letters in a topic: the record as it came, with what is wrong with it in the headers."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from frazil.errors import FrazilError, Retryable, SourceAway
from frazil.model.pipeline import LetterTopic
from frazil.sources.failures import is_sparks, one_line, whole_text
from frazil.sources.kafka.failures import explain_kafka
from frazil.sources.kafka.frame import ordered_by_time, with_coordinates
from frazil.sources.kafka.settings import PREFIX, client_settings

HEADERS = ("pipeline", "table", "stage", "code", "error", "at", "batch")

# Settings that only mean something to those who read.
_READERS_OWN = ("isolation.level", "fetch.max.wait.ms")


def letter_topic(spec: LetterTopic) -> Callable[[DataFrame], None]:
    """Sends letters to the topic. Those of a batch that is repeated are sent again; `frazil.at` identifies the duplicates."""
    settings = {name: value for name, value in client_settings(spec.cluster).items() if name not in _READERS_OWN}
    options = {f"{PREFIX}{name}": value for name, value in settings.items()}

    def post(letters: DataFrame) -> None:
        headers = [
            f.struct(f.lit(f"frazil.{name}").alias("key"), f.col(name).cast("string").cast("binary").alias("value"))
            for name in HEADERS
        ]
        own = f.coalesce(f.col("headers"), f.array().cast("array<struct<key: string, value: binary>>"))
        messages = letters.select("key", f.col("raw").alias("value"), f.concat(f.array(*headers), own).alias("headers"))
        try:
            messages.write.format("kafka").mode("append").options(**options).option("topic", spec.topic).save()
        except FrazilError:
            raise
        except Exception as error:
            if not is_sparks(error):
                raise
            raise _not_sent(spec, error) from error

    return post


def records_of(letters: DataFrame, *, by_time: bool = False) -> DataFrame:
    """Letters as the records that they were, to be read again; ``by_time``: with one order for all."""
    place = f.from_json("at", "topic string, partition int, offset bigint")
    columns = {
        "key": f.col("key"),
        "value": f.col("raw"),
        "topic": place["topic"],
        "partition": place["partition"],
        "offset": place["offset"],
        "timestamp": f.col("sent_at"),
        "headers": f.col("headers"),
    }
    records = with_coordinates(letters.select(*(value.alias(name) for name, value in columns.items())))
    return ordered_by_time(records) if by_time else records


def by_topic(records: DataFrame) -> list[DataFrame]:
    """The records of each topic by themselves."""
    topics = sorted(row[0] for row in records.select("topic").distinct().collect())
    return [records.where(f.col("topic") == topic) for topic in topics]


def _not_sent(spec: LetterTopic, error: Exception) -> FrazilError:
    servers = spec.cluster.bootstrap_servers
    if "RecordTooLargeException" in whole_text(error):
        return Retryable(
            "dead-letter-too-large",
            f"The dead letter topic {spec.topic} at {servers} does not take a record of this size: {one_line(error)}",
            fix="Raise max.message.bytes of the topic and kafka.max.request.size of the source, or leave dead_letter_topic out.",
        )
    known = explain_kafka(error, servers)
    return known or SourceAway(
        "source-unreachable", f"Dead letters could not be sent to the topic {spec.topic} at {servers}: {one_line(error)}"
    )
