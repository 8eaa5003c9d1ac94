"""Compares the ledger's offsets with the current cluster: new partitions and topics are added, and a contradiction stops the
pipeline.

Every error says in numbers what happened. Waiting helps in none of these cases: messages are gone, or are not the ones that the
ledger counts. `frazil rewind` continues once a person has decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frazil.errors import ConfigError, Halted, SourceMissing
from frazil.sources.kafka.offsets import KafkaPlace, Offsets, Partition
from frazil.spark.kafka import TopicInfo

NAMED = 3

REWIND = "frazil rewind PIPELINE"
NEAREST = f"{REWIND} --to-offset nearest."


@dataclass(frozen=True)
class Cluster:
    """What a cluster has of the topics that are asked for: their ids and partitions, and from where to where these reach."""

    id: str
    topics: Mapping[str, TopicInfo]
    earliest: Offsets
    latest: Offsets

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """All partitions of the topics."""
        return partitions_of(self.topics)

    def place(self, offsets: Offsets, began: Offsets | None = None) -> KafkaPlace:
        """A place in this cluster."""
        return KafkaPlace(self.id, {name: topic.id for name, topic in self.topics.items()}, offsets, began or {})


def partitions_of(topics: Mapping[str, TopicInfo]) -> tuple[Partition, ...]:
    """All partitions of some topics."""
    return tuple((name, number) for name, topic in sorted(topics.items()) for number in range(topic.partitions))


def followed(place: KafkaPlace, cluster: Cluster) -> KafkaPlace:
    """The ledger's offsets, updated to the current cluster. New partitions and topics begin at their first message.

    Topics that are no longer configured keep their offsets, so that one that is added again continues where it was left.
    """
    _require_same_cluster(place, cluster)
    _require_same_topics(place, cluster)
    _require_partitions(place, cluster)
    _require_reachable(place, cluster)
    began = {one: cluster.earliest[one] for one in cluster.partitions if one not in place.offsets}
    ids = {**place.ids, **{name: topic.id for name, topic in cluster.topics.items()}}
    return KafkaPlace(cluster.id, ids, {**place.offsets, **began}, began)


def require_topics_there(place: KafkaPlace, wanted: frozenset[str], cluster: Cluster) -> None:
    """Stops when a topic that was read, and is still asked for, is not there."""
    if gone := sorted(name for name in place.ids if name in wanted and name not in cluster.topics):
        raise Halted(
            "kafka-topic-gone",
            f"{_topics(gone)} not there any more. {_read_up_to(place, gone)} Whether more came before the end is not known.",
            fix=f"If that is meant, go on with the others where they are: {NEAREST}",
        )


def _require_same_cluster(place: KafkaPlace, cluster: Cluster) -> None:
    if place.cluster != cluster.id:
        raise Halted(
            "kafka-cluster-changed",
            f"The offsets of the table's ledger count the messages of the cluster {place.cluster}, "
            f"and the servers given are those of the cluster {cluster.id}.",
            fix=f"Correct bootstrap_servers. If the cluster has moved, choose a place in the new one: {REWIND} --to-time TIME.",
        )


def _require_same_topics(place: KafkaPlace, cluster: Cluster) -> None:
    if other := sorted(name for name, topic in cluster.topics.items() if place.ids.get(name, topic.id) != topic.id):
        changes = "; ".join(f"{name} was {place.ids[name]} and is {cluster.topics[name].id}" for name in other[:NAMED])
        raise Halted(
            "kafka-topic-recreated",
            f"{_topics(other)} deleted and made again: {changes}. {_read_up_to(place, other)} "
            "The messages of the new one are others.",
            fix=f"Read the new one from its beginning: {NEAREST} Or from now on: {REWIND} --to-latest.",
        )


def _require_partitions(place: KafkaPlace, cluster: Cluster) -> None:
    there = set(cluster.partitions)
    if lacking := sorted(one for one in place.offsets if one[0] in cluster.topics and one not in there):
        topic = lacking[0][0]
        before = sum(1 for name, _ in place.offsets if name == topic)
        raise Halted(
            "kafka-partitions-fewer",
            f"The topic {topic} had {before} partitions and has {cluster.topics[topic].partitions}. {_numbered(place, lacking)}",
            fix=f"Go on with the others where they are: {NEAREST} Or choose a time: {REWIND} --to-time TIME.",
        )


def _require_reachable(place: KafkaPlace, cluster: Cluster) -> None:
    known = {one: at for one, at in place.offsets.items() if one in cluster.earliest}
    if expired := sorted(one for one, at in known.items() if at < cluster.earliest[one]):
        lost = sum(cluster.earliest[one] - known[one] for one in expired)
        examples = _listed(f"{_name(one)} begins at {cluster.earliest[one]}, and was read up to {known[one]}" for one in expired)
        raise Halted(
            "kafka-messages-expired",
            f"Up to {lost} messages were deleted by the cluster before they were read: {examples}.",
            fix=f"Go on with what is left: {NEAREST} Let the topic keep messages for longer than a pipeline may stand still.",
        )
    if ahead := sorted(one for one, at in known.items() if at > cluster.latest[one]):
        examples = _listed(f"{_name(one)} ends at {cluster.latest[one]}, and was read up to {known[one]}" for one in ahead)
        raise Halted(
            "kafka-messages-taken-back",
            f"The cluster has lost messages that are in the table: {examples}.",
            fix=f"The next messages get offsets that were read already. Go on after the last one: {NEAREST}",
        )


def nothing_matches(topics: tuple[str, ...]) -> ConfigError:
    """The error for topics of which there is none."""
    return SourceMissing(
        "source-missing",
        f"The cluster has no topic that is called, or matches, {', '.join(topics)}, or does not show it to this user.",
        fix="Check the spelling and the permissions; Kafka's names are case-sensitive.",
    )


def _topics(names: list[str]) -> str:
    return f"The topic {names[0]} is" if len(names) == 1 else f"The topics {_listed(names)} are"


def _read_up_to(place: KafkaPlace, names: list[str]) -> str:
    partitions = sorted(one for one in place.offsets if one[0] in names)
    return _numbered(place, partitions)


def _numbered(place: KafkaPlace, partitions: list[Partition]) -> str:
    return f"Read were {_listed(f'{_name(one)} up to {place.offsets[one]}' for one in partitions)}." if partitions else ""


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _listed(words: Iterable[str]) -> str:
    shown = list(words)
    more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    return ", ".join(shown[:NAMED]) + more
