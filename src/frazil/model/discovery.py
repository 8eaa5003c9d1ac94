"""What a source has to offer: looked up, never changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OfferedColumn:
    """A column as frazil would read it, with Iceberg's type."""

    name: str
    type: str


@dataclass(frozen=True)
class OfferedTopic:
    """A topic of a Kafka cluster. ``messages`` are counted by offsets. ``taken``: the source reads it."""

    name: str
    partitions: int
    messages: int
    taken: bool


@dataclass(frozen=True)
class OfferedTable:
    """A table of a database. ``taken``: the source reads it."""

    name: str
    columns: tuple[OfferedColumn, ...]
    primary_key: tuple[str, ...]
    taken: bool


@dataclass(frozen=True)
class Discovery:
    """What a source has to offer: topics of its cluster, tables of its database, or the columns of its rows."""

    source: str
    connector: str
    topics: tuple[OfferedTopic, ...] = ()
    tables: tuple[OfferedTable, ...] = ()
    columns: tuple[OfferedColumn, ...] = ()
    notes: tuple[str, ...] = ()
