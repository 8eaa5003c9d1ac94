"""Where a source stands: pure values, as they are kept in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.model.commit import Position, position
from frazil.sources.positions import fields_of, unknown_position
from frazil.sources.postgres.protocol import lsn_number, lsn_text

_WHAT = "a PostgreSQL database"


@dataclass(frozen=True)
class Seen:
    """Which transactions a table's snapshot saw, in PostgreSQL's words: those below ``xmin``, and those below ``xmax`` that
    were not running. All of them stand before ``until`` in the log.
    """

    xmin: int
    xmax: int
    running: frozenset[int]
    until: int

    @classmethod
    def from_text(cls, text: str, until: int) -> Seen:
        """Reads `pg_current_snapshot()`."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(xid) for xid in running.split(",") if xid), until)

    def to_text(self) -> str:
        """As PostgreSQL writes it."""
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def saw(self, xid: int) -> bool:
        """Whether a transaction was visible. The log tells the lower half of its number only."""
        distance = (xid - self.xmax) & 0xFFFFFFFF
        whole = self.xmax + (distance - (1 << 32) if distance >= 1 << 31 else distance)
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)


@dataclass(frozen=True)
class Place:
    """A place in a database's history.

    ``streams`` are the tables whose snapshot is behind this place, ``seen`` what the snapshots saw of the log that is still
    to come, ``refreshed`` how often each table that is read whole was read, ``shapes`` the columns that tables had there.
    """

    system: str
    lsn: int | None = None
    streams: frozenset[str] = frozenset()
    seen: Mapping[str, Seen] = field(default_factory=dict)
    refreshed: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)

    def after(self, lsn: int) -> Place:
        """Further on in the log."""
        return replace(self, lsn=lsn, seen={name: seen for name, seen in self.seen.items() if seen.until > lsn})

    def with_snapshot(self, stream: str, seen: Seen | None) -> Place:
        """When a table's rows are there; with what was seen, unless nothing can follow."""
        known = {name: one for name, one in self.seen.items() if name != stream}
        if seen is not None:
            known[stream] = seen
        return replace(self, streams=self.streams | {stream}, seen=known)

    def with_refresh(self, stream: str) -> Place:
        """When a table was read whole once more."""
        return replace(self, refreshed={**self.refreshed, stream: self.refreshed.get(stream, 0) + 1})

    def with_shapes(self, shapes: Mapping[str, str]) -> Place:
        """When it is known which columns some tables have."""
        return replace(self, shapes={**self.shapes, **shapes})

    def to_position(self) -> Position:
        """As it stands in the ledger."""
        value: dict[str, Any] = {"system": self.system}
        if self.lsn is not None:
            value["lsn"] = lsn_text(self.lsn)
        if self.streams:
            value["streams"] = sorted(self.streams)
        if self.seen:
            value["seen"] = {name: [seen.to_text(), lsn_text(seen.until)] for name, seen in sorted(self.seen.items())}
        if self.refreshed:
            value["refreshed"] = dict(sorted(self.refreshed.items()))
        if self.shapes:
            value["shapes"] = dict(sorted(self.shapes.items()))
        return position(value)

    @classmethod
    def from_position(cls, text: Position) -> Place:
        """Reads the ledger."""
        raw = fields_of(text, _WHAT)
        try:
            seen = {name: Seen.from_text(xids, lsn_number(until)) for name, (xids, until) in raw.get("seen", {}).items()}
            lsn = lsn_number(raw["lsn"]) if "lsn" in raw else None
            told = [dict(raw.get(name, {})) for name in ("refreshed", "shapes")]
            return cls(str(raw["system"]), lsn, frozenset(raw.get("streams", ())), seen, *told)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise unknown_position(text, _WHAT) from error
