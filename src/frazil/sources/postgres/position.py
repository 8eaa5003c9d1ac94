"""Where a source stands: pure values, as they are kept in the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.model.commit import UNFILLED, Position, position
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
        """Whether a transaction was visible. The log has only the lower half of its number."""
        distance = (xid - self.xmax) & 0xFFFFFFFF
        whole = self.xmax + (distance - (1 << 32) if distance >= 1 << 31 else distance)
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)


@dataclass(frozen=True)
class Member:
    """A table's entry in a publication. PostgreSQL gives another number to a table that is removed and added again, and to one
    whose published columns or rows change: ``choice`` distinguishes these cases.
    """

    number: int
    choice: str

    def is_back(self, before: Member | None) -> bool:
        """Whether the table was taken out and put back since."""
        return before is not None and before.choice == self.choice and before.number != self.number


@dataclass(frozen=True)
class PostgresPlace:
    """A position in a database's history.

    ``streams`` are the tables whose snapshot is before this position, ``seen`` what the snapshots saw of the log that is still
    to come, ``refreshed`` how often each table that is read whole was read, ``shapes`` the columns that tables had there.
    ``timeline`` is the branch of the server's history that ``lsn`` is on, ``members`` the tables' entries in the publication;
    positions of earlier versions have neither. ``again`` are tables that are read as a whole once more before the log is read
    on, ``unfilled`` columns of tables that are not: rows have values there that neither the log nor the target has. ``times``
    are those of the tables' last changes (microseconds since 1970), for whom each state of a row has a time of its own.
    """

    system: str
    lsn: int | None = None
    streams: frozenset[str] = frozenset()
    seen: Mapping[str, Seen] = field(default_factory=dict)
    refreshed: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)
    timeline: int | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    unfilled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)

    def only(self, followed: Collection[str]) -> PostgresPlace:
        """Without the tables that are not followed: their changes after this place are passed over, so that one which is
        followed again needs a snapshot as a new one does.
        """
        return replace(
            self,
            streams=self.streams.intersection(followed),
            seen={name: seen for name, seen in self.seen.items() if name in followed},
            shapes={name: shape for name, shape in self.shapes.items() if name in followed},
            members={name: member for name, member in self.members.items() if name in followed},
            again=self.again.intersection(followed),
            unfilled={name: columns for name, columns in self.unfilled.items() if name in followed},
            times={name: at for name, at in self.times.items() if name in followed},
        )

    def published(self, members: Mapping[str, Member]) -> PostgresPlace:
        """When the publication has its tables in this way. Those that it did not have for a while are as if not followed."""
        kept = self.only(
            {name for name in self.streams if name not in members or not members[name].is_back(self.members.get(name))}
        )
        now = {name: member for name, member in members.items() if name in kept.streams}
        return replace(kept, members={**kept.members, **now})

    def after(self, lsn: int) -> PostgresPlace:
        """Further on in the log."""
        return replace(self, lsn=lsn, seen={name: seen for name, seen in self.seen.items() if seen.until > lsn})

    def on(self, timeline: int) -> PostgresPlace:
        """When it is known on which branch of the server's history this is."""
        return replace(self, timeline=timeline)

    def with_snapshot(self, stream: str, seen: Seen | None) -> PostgresPlace:
        """When a table's rows are there; with what was seen, unless nothing can follow."""
        known = {name: one for name, one in self.seen.items() if name != stream}
        if seen is not None:
            known[stream] = seen
        return replace(self.without_gaps(stream), streams=self.streams | {stream}, seen=known)

    def with_again(self, stream: str) -> PostgresPlace:
        """When a followed table must be read whole once more."""
        return replace(self, again=self.again | {stream})

    def with_unfilled(self, stream: str, columns: Collection[str]) -> PostgresPlace:
        """When a table has values that will be missing in the target."""
        known = self.unfilled.get(stream, ())
        return replace(self, unfilled={**self.unfilled, stream: tuple(dict.fromkeys([*known, *columns]))})

    def without_gaps(self, stream: str) -> PostgresPlace:
        """When a table was read whole."""
        unfilled = {name: columns for name, columns in self.unfilled.items() if name != stream}
        return replace(self, again=self.again - {stream}, unfilled=unfilled)

    def with_refresh(self, stream: str) -> PostgresPlace:
        """When a table was read whole once more."""
        return replace(self, refreshed={**self.refreshed, stream: self.refreshed.get(stream, 0) + 1})

    def with_times(self, times: Mapping[str, int]) -> PostgresPlace:
        """When it is known at which time some tables were changed last."""
        return replace(self, times={**self.times, **times})

    def with_shapes(self, shapes: Mapping[str, str]) -> PostgresPlace:
        """When it is known which columns some tables have."""
        return replace(self, shapes={**self.shapes, **shapes})

    def to_position(self) -> Position:
        """The value as stored in the ledger."""
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
        if self.timeline is not None:
            value["timeline"] = self.timeline
        if self.members:
            value["members"] = {name: [member.number, member.choice] for name, member in sorted(self.members.items())}
        if self.again:
            value["again"] = sorted(self.again)
        if self.unfilled:
            value[UNFILLED] = {name: list(columns) for name, columns in sorted(self.unfilled.items())}
        if self.times:
            value["times"] = dict(sorted(self.times.items()))
        return position(value)

    @classmethod
    def from_position(cls, text: Position) -> PostgresPlace:
        """Reads the ledger."""
        raw = fields_of(text, _WHAT)
        try:
            seen = {name: Seen.from_text(xids, lsn_number(until)) for name, (xids, until) in raw.get("seen", {}).items()}
            lsn = lsn_number(raw["lsn"]) if "lsn" in raw else None
            refreshed, shapes, times = (dict(raw.get(name, {})) for name in ("refreshed", "shapes", "times"))
            timeline = int(raw["timeline"]) if "timeline" in raw else None
            members = {name: Member(int(number), str(choice)) for name, (number, choice) in raw.get("members", {}).items()}
            streams = frozenset(raw.get("streams", ()))
            again = frozenset(raw.get("again", ()))
            unfilled = {name: tuple(columns) for name, columns in raw.get(UNFILLED, {}).items()}
            return cls(str(raw["system"]), lsn, streams, seen, refreshed, shapes, timeline, members, again, unfilled, times)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise unknown_position(text, _WHAT) from error
