"""Topics of a Kafka cluster as a source."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from frazil.errors import FrazilError, Halted, Retryable
from frazil.model.commit import Position
from frazil.model.discovery import OfferedTopic
from frazil.model.source import KafkaSource
from frazil.model.types import StructType
from frazil.sources.base import Lag, Slice
from frazil.sources.decode import Decoder
from frazil.sources.failures import asking_spark, one_line
from frazil.sources.kafka import rewind
from frazil.sources.kafka.failures import explain_kafka, says_messages_lost
from frazil.sources.kafka.follow import Cluster, followed, nothing_matches, partitions_of, require_topics_there
from frazil.sources.kafka.frame import raw_frame
from frazil.sources.kafka.offsets import KafkaPlace, Range, advanced, backlog, ranges
from frazil.sources.kafka.settings import client_settings, unreachable
from frazil.sources.kafka.topics import has_patterns, matches, named_topics
from frazil.spark.kafka import KafkaClient

# How long nothing but the ends of the known partitions is asked for while nothing comes. What is new is then found later, and
# nothing is lost by that: it is read from its first message.
LOOK_AROUND_SECONDS = 5.0


class KafkaTopics:
    """Topics of a Kafka cluster, message by message as they are, or as one of ``decoders`` makes them.

    Delivery: a slice lies between two offsets of each partition, and messages do not change; deleted messages and recreated
    topics stop the pipeline. A compacted topic may have lost overwritten messages when a slice is read again. Parallelism: one
    task per partition.
    """

    poll_seconds = 0.5
    reads_ahead: Literal[True] = True

    def __init__(
        self,
        spec: KafkaSource,
        spark: SparkSession,
        decoders: Callable[[], Decoder] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._spark = spark
        self._make_decoder = decoders
        self._decoders: dict[str | None, Decoder] = {}
        self._expected: tuple[StructType, bool] | None = None
        self._clock = clock
        # Consumers that Spark keeps under one name must have the same settings, and another source's may be others.
        self._readers = f"{spec.consumer_group or 'frazil'}-{uuid.uuid4().hex[:12]}"
        self._settings: Mapping[str, str] | None = None
        self._client: KafkaClient | None = None
        self._beginning: KafkaPlace | None = None
        self._idle: tuple[Position, KafkaPlace] | None = None
        self._looked = 0.0
        self._committed: Position | None = None
        self._reported: Position | None = None
        self._reading: Slice | None = None

    @property
    def fingerprint(self) -> str:
        """The reader's name. Clusters and topics have ids, which are part of the position."""
        return f"kafka:{self._spec.consumer_group or ''}"

    def plan(self, start: Position | None, limit: int) -> Slice | None:
        """The next messages of all partitions, up to about ``limit``, where more wait more of them."""
        with self._asking():
            if start is not None and self._still_idle(start):
                return None
            place, cluster = self._now(start)
            self._tell_group()
        end, rows, full = advanced(place, cluster.latest, limit)
        if rows == 0 and not self._worth_writing(start, place):
            self._idle = None if start is None else (start, place)
            return None
        self._idle = None
        return Slice(start, end.to_position(), rows, full)

    def _worth_writing(self, start: Position | None, place: KafkaPlace) -> bool:
        """Whether a place without messages after it must be remembered.

        Where reading begins when it begins now is known at no later time, and a run that ends before the first message
        comes must not forget it.
        """
        return start is None and bool(place.offsets) and self._spec.start_offset in ("latest", "timestamp")

    def _still_idle(self, start: Position) -> bool:
        """Whether nothing came since the last look: one question, as often as a pipeline polls."""
        if self._idle is None or self._idle[0] != start or self._clock() - self._looked > LOOK_AROUND_SECONDS:
            return False
        known = {one: at for one, at in self._idle[1].offsets.items() if self._wants(one[0])}
        return self._asked.latest(known) == known

    def _now(self, start: Position | None) -> tuple[KafkaPlace, Cluster]:
        """The ledger's place, or the beginning, in the cluster as it is now."""
        cluster = self._look()
        if start is None:
            place = self._begin(cluster)
        else:
            place = KafkaPlace.from_position(start)
            require_topics_there(place, frozenset(filter(self._wants, place.ids)), cluster)
        if not cluster.topics:
            raise nothing_matches(self._spec.topics)
        return followed(place, cluster) if start is not None else self._from_beginning(place, cluster), cluster

    def _from_beginning(self, beginning: KafkaPlace, cluster: Cluster) -> KafkaPlace:
        """The first slice holds where each partition began."""
        place = followed(beginning, cluster)
        return KafkaPlace(place.cluster, place.ids, place.offsets, place.offsets)

    def _begin(self, cluster: Cluster) -> KafkaPlace:
        """Where reading begins. Found out once where the answer depends on when it is asked for."""
        if self._beginning is not None:
            return self._beginning
        match self._spec.start_offset:
            case "earliest":
                return cluster.place(dict(cluster.earliest))
            case "explicit":
                return cluster.place({**cluster.earliest, **rewind.explicit(cluster, self._spec.start_offsets)})
            case "timestamp":
                self._beginning = rewind.to_time(cluster, self._asked.at_time(cluster.partitions, self._start_ms()))
            case _:
                self._beginning = rewind.to_latest(cluster)
        return self._beginning

    def _start_ms(self) -> int:
        return time_ms(self._spec.start_timestamp or "")

    def _look(self) -> Cluster:
        """All that is to be known of the topics now."""
        client = self._asked
        names = named_topics(self._spec.topics)
        if has_patterns(self._spec.topics):
            names |= frozenset(filter(self._wants, client.topic_names()))
        topics = client.describe(names)
        partitions = partitions_of(topics)
        latest, earliest = client.latest(partitions), client.earliest(partitions)
        self._looked = self._clock()
        return Cluster(client.cluster_id(), topics, earliest, latest)

    def _wants(self, topic: str) -> bool:
        return matches(topic, self._spec.topics)

    def between(self, start: Position | None, end: Position) -> Slice:
        """The slice between two positions of the ledger; the first one begins where the end says that it began."""
        parts = ranges(None if start is None else KafkaPlace.from_position(start), KafkaPlace.from_position(end))
        return Slice(start, end, sum(part.end - part.start for part in parts))

    def count(self, start: Position | None, end: Position) -> int | None:
        """How many offsets lie between two positions; markers of transactions and messages that were compacted away have some."""
        return self.between(start, end).rows

    def finished(self, position: Position | None) -> bool:  # noqa: ARG002 - the protocol's signature
        """Never: a message may always come."""
        return False

    def total_rows(self, start: Position | None) -> int | None:
        """How many offsets lie before the ends."""
        return self.lag(start).rows

    def lag(self, position: Position | None) -> Lag:
        """How many messages are there after a position, as far as offsets count them."""
        with self._asking():
            place, cluster = self._now(position)
        return Lag(rows=sum(backlog(place.offsets, cluster.latest).values()))

    def read(self, part: Slice) -> DataFrame:
        """The messages of a slice."""
        parts = self._parts(part)
        return self._decoded(parts, None, by_time=self._by_time(parts))

    def read_each(self, part: Slice) -> Sequence[DataFrame]:
        """The messages of a slice, those of each topic by themselves: their columns may differ, and in type, too."""
        by_topic: dict[str, list[Range]] = {}
        every = self._parts(part)
        for one in every:
            by_topic.setdefault(one.topic, []).append(one)
        by_time = self._by_time(every)
        return tuple(self._decoded(parts, topic, by_time=by_time) for topic, parts in by_topic.items()) or (self.read(part),)

    def _parts(self, part: Slice) -> Sequence[Range]:
        self._reading = part
        return ranges(None if part.start is None else KafkaPlace.from_position(part.start), KafkaPlace.from_position(part.end))

    def _by_time(self, parts: Sequence[Range]) -> bool:
        """Whether times are asked for which message is the later; those of one partition have their offsets."""
        return self._spec.order == "time" and len(parts) > 1

    def _decoded(self, parts: Sequence[Range], topic: str | None, *, by_time: bool) -> DataFrame:
        with self._asking():
            raw = raw_frame(self._spark, self._known_settings, parts, self._readers, by_time=by_time)
            decoder = self._decoder(topic)
            return raw if decoder is None else decoder.decode(raw)

    def expect(self, columns: StructType, *, exactly: bool) -> None:
        """The table's columns come before those that are found in messages."""
        self._expected = (columns, exactly)

    def _decoder(self, topic: str | None) -> Decoder | None:
        """The decoder of a topic, or of all: it remembers what it has met."""
        if self._make_decoder is not None and topic not in self._decoders:
            self._decoders[topic] = self._make_decoder()
        found = self._decoders.get(topic)
        if found is not None and self._expected is not None:
            columns, exactly = self._expected
            found.expect(columns, exactly=exactly)
        return found

    def observed(self, part: Slice, rows: int) -> None:
        """Nothing to learn: offsets are counted as if each were a message."""

    def committed(self, position: Position) -> None:
        """Messages are kept as long as the topic says; the group's offsets are committed when the next slice is planned."""
        self._committed = position

    def explain(self, error: Exception) -> FrazilError | None:
        """What went wrong with the cluster while a slice was read; in numbers, when messages are gone."""
        if self._reading is None or not says_messages_lost(error):
            return explain_kafka(error, self._spec.bootstrap_servers)
        try:
            with self._asking():
                self._now(self._reading.start)
        except FrazilError as found:
            return found
        return unreachable(self._spec.bootstrap_servers, one_line(error))

    def check(self) -> None:
        """The cluster must answer, and have all topics that are named, and one for the patterns."""
        with self._asking():
            topics = self._look().topics
        if missing := sorted(named_topics(self._spec.topics) - topics.keys()):
            raise nothing_matches(tuple(missing))
        if not topics:
            raise nothing_matches(self._spec.topics)
        if (decoder := self._decoder(None)) is not None:
            decoder.check()

    def offers(self) -> tuple[OfferedTopic, ...]:
        """All topics that the user may see, with how many offsets they hold."""
        with self._asking():
            client = self._asked
            topics = client.describe(client.topic_names() | named_topics(self._spec.topics))
            partitions = partitions_of(topics)
            counts = backlog(client.earliest(partitions), client.latest(partitions))
        return tuple(
            OfferedTopic(name, topic.partitions, sum(counts[name, one] for one in range(topic.partitions)), self._wants(name))
            for name, topic in sorted(topics.items())
        )

    def rewound_to_latest(self, start: Position | None) -> Position:
        """The position after the current last messages."""
        with self._asking():
            return self._rewound(start, rewind.to_latest(self._look()))

    def rewound_to_time(self, start: Position | None, moment_ms: int) -> Position:
        """The position of the first messages that are not older than a time."""
        with self._asking():
            cluster = self._look()
            return self._rewound(start, rewind.to_time(cluster, self._asked.at_time(cluster.partitions, moment_ms)))

    def rewound_to_offsets(self, start: Position | None, wanted: Mapping[str, Mapping[int, int]]) -> Position:
        """The position with the offsets that are wanted, and for the rest the nearest to the ledger's."""
        with self._asking():
            cluster = self._look()
        place = None if start is None else KafkaPlace.from_position(start)
        return self._rewound(start, rewind.to_offsets(place, cluster, wanted))

    def _rewound(self, start: Position | None, place: KafkaPlace) -> Position:
        """The new position. Topics that are not asked for now are where they were."""
        try:
            before = None if start is None else KafkaPlace.from_position(start)
        except Halted:
            before = None  # another source wrote it, which has none of these topics
        return rewind.with_others(place, before, self._wants).to_position()

    def close(self) -> None:
        """Closes the connections; the next question opens new ones."""
        client, self._client, self._settings = self._client, None, None
        if client is not None:
            client.close()

    def _tell_group(self) -> None:
        """Commits the group's offsets to the cluster, too, where tools read a group's lag.

        A mere plan commits nothing, and no offsets.
        """
        group, position = self._spec.consumer_group, self._committed
        if group is None or position is None or position == self._reported:
            return
        offsets = KafkaPlace.from_position(position).offsets
        self._asked.tell_group(group, {one: at for one, at in offsets.items() if self._wants(one[0])})
        self._reported = position

    @property
    def _known_settings(self) -> Mapping[str, str]:
        if self._settings is None:
            self._settings = client_settings(self._spec)
        return self._settings

    @property
    def _asked(self) -> KafkaClient:
        if self._client is None:
            self._client = KafkaClient(self._spark, self._known_settings)
        return self._client

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Translates the cluster's errors into frazil's. After a temporary one, connections are reopened: the servers may have
        other addresses when they are back.
        """
        servers = self._spec.bootstrap_servers
        try:
            with asking_spark(f"Kafka at {servers}", lambda error: explain_kafka(error, servers)):
                yield
        except Retryable:
            self.close()
            raise


def time_ms(text: str) -> int:
    """A time in milliseconds; one without a zone is in UTC."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)
