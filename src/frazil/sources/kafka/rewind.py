"""The places that `frazil rewind` can move a pipeline to: pure functions of the ledger's place and the cluster of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from frazil.errors import ConfigError, Halted
from frazil.sources.kafka.follow import REWIND, Cluster
from frazil.sources.kafka.offsets import KafkaPlace, Offsets, Partition


def to_latest(cluster: Cluster) -> KafkaPlace:
    """After the last message of every partition: what was not read until now is left out."""
    return cluster.place(dict(cluster.latest))


def to_time(cluster: Cluster, at_time: Mapping[Partition, int | None]) -> KafkaPlace:
    """The first message of every partition that is not older than a time; after the last one where all are older."""
    found = {one: at_time.get(one) for one in cluster.partitions}
    return cluster.place({one: cluster.latest[one] if at is None else at for one, at in found.items()})


def to_nearest(place: KafkaPlace | None, cluster: Cluster) -> KafkaPlace:
    """The offsets nearest to the ledger's that the cluster allows, which skip and repeat as little as possible.

    A partition keeps its offset if that still exists, and otherwise moves to its first or last message, whichever is nearer.
    New partitions, and recreated topics, begin at their first message. Removed ones are dropped from the position.
    """
    if place is not None and place.cluster != cluster.id:
        raise Halted(
            "kafka-cluster-changed",
            f"Offsets of the cluster {place.cluster} mean nothing in the cluster {cluster.id}.",
            fix=f"Choose a time: {REWIND} --to-time TIME, or go on from now: {REWIND} --to-latest.",
        )
    known: Offsets = {} if place is None else place.offsets
    same = {name for name, topic in cluster.topics.items() if place is not None and place.ids.get(name) == topic.id}
    offsets = dict(cluster.earliest)
    for one in cluster.partitions:
        if one in known and one[0] in same:
            offsets[one] = min(max(known[one], cluster.earliest[one]), cluster.latest[one])
    return cluster.place(offsets)


def to_offsets(place: KafkaPlace | None, cluster: Cluster, wanted: Mapping[str, Mapping[int, int]]) -> KafkaPlace:
    """The partitions that are named at their offsets, the others as near as can be to where they are."""
    offsets = {**to_nearest(place, cluster).offsets, **explicit(cluster, wanted)}
    return cluster.place(offsets)


def with_others(place: KafkaPlace, before: KafkaPlace | None, wants: Callable[[str], bool]) -> KafkaPlace:
    """The place, with the ledger's offsets of topics that are not read now: if they are read again, they go on from there."""
    if before is None or before.cluster != place.cluster:
        return place
    ids = {name: id_ for name, id_ in before.ids.items() if not wants(name)}
    offsets = {one: at for one, at in before.offsets.items() if one[0] in ids}
    return replace(place, ids={**ids, **place.ids}, offsets={**offsets, **place.offsets})


def explicit(cluster: Cluster, wanted: Mapping[str, Mapping[int, int]]) -> dict[Partition, int]:
    """The offsets that a user names, each of which must be there to be read from."""
    chosen = {(topic, number): at for topic, numbers in wanted.items() for number, at in numbers.items()}
    for (topic, number), at in chosen.items():
        if (topic, number) not in cluster.latest:
            has = f"{cluster.topics[topic].partitions} partitions" if topic in cluster.topics else "no such topic"
            raise ConfigError(
                "start-offset-unknown",
                f"An offset is given for the partition {number} of {topic}, and there is {has}.",
                fix="Partitions count from 0. Name only topics that the source reads.",
            )
        first, last = cluster.earliest[topic, number], cluster.latest[topic, number]
        if not first <= at <= last:
            raise ConfigError(
                "start-offset-out-of-range",
                f"The partition {number} of {topic} has the offsets {first} to {last}, and {at} is given.",
                fix="Give one of these; the last means only what comes from now on.",
            )
    return chosen
