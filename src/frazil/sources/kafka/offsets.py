"""A pipeline's position in its topics: a value, its text in the ledger, and the step from one position to the next.

The text is ``{"cluster": id, "topics": {name: {"id": id, "offsets": {partition: next offset}}}}``. A partition that was not
in the position before also has an entry in ``began``, the offset from which it was read: so that the slice between two
positions can be read again from the two alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.model.commit import Position, position
from frazil.sources.positions import fields_of, unknown_position

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]

SOURCE = "a Kafka cluster"


@dataclass(frozen=True)
class KafkaPlace:
    """The next offset of every partition, of the topics with these ids, in the cluster with this id."""

    cluster: str
    ids: Mapping[str, str]
    offsets: Offsets
    began: Offsets = field(default_factory=dict)

    def to_position(self) -> Position:
        """As the ledger holds it."""
        topics: dict[str, Any] = {name: {"id": id_, "offsets": {}} for name, id_ in self.ids.items()}
        for kind, offsets in (("offsets", self.offsets), ("began", self.began)):
            for (topic, partition), offset in offsets.items():
                topics[topic].setdefault(kind, {})[str(partition)] = offset
        return position({"cluster": self.cluster, "topics": topics})

    @classmethod
    def from_position(cls, text: Position) -> KafkaPlace:
        """Reads the ledger. Halted when another source wrote it."""
        fields = fields_of(text, SOURCE)
        try:
            topics = {str(name): dict(topic) for name, topic in fields["topics"].items()}
            ids = {name: str(topic["id"]) for name, topic in topics.items()}
            return cls(str(fields["cluster"]), ids, _flat(topics, "offsets"), _flat(topics, "began"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unknown_position(text, SOURCE) from error


def _flat(topics: Mapping[str, Any], kind: str) -> dict[Partition, int]:
    return {(name, int(number)): int(at) for name, topic in topics.items() for number, at in topic.get(kind, {}).items()}


@dataclass(frozen=True)
class Range:
    """The messages of one partition from an offset up to, and without, another."""

    topic: str
    partition: int
    start: int
    end: int


def ranges(start: KafkaPlace | None, end: KafkaPlace) -> tuple[Range, ...]:
    """What is to be read between two places, without the partitions where nothing is."""
    before = {**(start.offsets if start is not None else {}), **end.began}
    between = (Range(*partition, before.get(partition, at), at) for partition, at in sorted(end.offsets.items()))
    return tuple(one for one in between if one.start < one.end)


def backlog(offsets: Offsets, latest: Offsets) -> dict[Partition, int]:
    """How many offsets each partition is behind; never less than none."""
    return {partition: max(0, latest.get(partition, at) - at) for partition, at in offsets.items()}


def shared_out(waiting: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """How many offsets each partition may advance, ``limit`` in all: in proportion to its pending messages.

    Each gets the whole part of its share, and the largest remainders get one more, so that every call advances.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {partition: count * limit // total for partition, count in waiting.items()}
    left = limit - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda partition: (-(waiting[partition] * limit % total), partition))
    for partition in by_remainder[:left]:
        shares[partition] += 1
    return shares


def advanced(place: KafkaPlace, latest: Offsets, limit: int) -> tuple[KafkaPlace, int, bool]:
    """The place about ``limit`` messages on, how many offsets that is, and whether more is there.

    Offsets count messages only roughly: markers of transactions have offsets too, and compaction leaves gaps.
    """
    waiting = backlog(place.offsets, latest)
    taken = shared_out(waiting, max(1, limit))
    offsets = {partition: at + taken[partition] for partition, at in place.offsets.items()}
    count = sum(taken.values())
    return KafkaPlace(place.cluster, place.ids, offsets, place.began), count, count < sum(waiting.values())
