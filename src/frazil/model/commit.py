"""What is committed and what the table remembers of it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any

STATE_PREFIX = "frazil.sink."
STATE_VERSION = 1

# A summary is copied into every metadata file, so that a long range is represented there by its digest.
SUMMARY_RANGE_LIMIT = 512

# Writes that users have named are remembered beyond the expiry of their snapshots, each by eight bytes.
NAMES_KEPT = 1_000

DIGEST = "sha256:"
EXPECT_PREFIX = "frazil.expect."
"""How the entries of a snapshot's summary begin that say how many rows did not meet an expectation."""
# Counts that are in a summary only if they are not zero.
_RARE_COUNTS = ("deleted", "superseded", "extra")

Position = str
"""Where a source is: canonical JSON, compared for equality only."""


UNFILLED = "unfilled"
"""The part of a position that names columns, by table of the source, in which rows of the target lack values of the source."""


def unfilled_columns(end: Position | None) -> dict[str, list[str]]:
    """What a position says of values that the target lacks and the source will not send."""
    value = json.loads(end) if end else None
    found = value.get(UNFILLED, {}) if isinstance(value, dict) else {}
    return {str(table): list(columns) for table, columns in found.items()}


def position(value: Any) -> Position:
    """The canonical text of a position."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True)
class SinkState:
    """The ledger's last entry of one sink: who wrote, up to where, in which snapshot.

    A sink that writes to several tables has a home: the table whose ledger says how far it is. ``followers`` are its other
    tables. In a follower's ledger ``home_batch`` is the number of its last batch in the home table, and ``rows`` how many it got.
    ``names``: the digests of the last batches that users have named.
    """

    epoch: int
    instance: str
    batch: int = 0
    source: str = ""
    start: Position | None = None
    end: Position | None = None
    snapshot: int = 0
    sequence: int = 0
    at_ms: int = 0
    followers: tuple[str, ...] = ()
    home_batch: int = 0
    rows: int = 0
    names: tuple[str, ...] = ()

    def is_of(self, source: str, start: Position | None, end: Position | None) -> bool:
        """Whether the last batch was this part of a source."""
        return (self.source, self.start, self.end) == (source, start, end)

    def to_json(self) -> str:
        """The value as stored in the table's property."""
        fields = {
            "v": STATE_VERSION,
            "epoch": self.epoch,
            "instance": self.instance,
            "batch": self.batch,
            "source": self.source,
            "start": None if self.start is None else json.loads(self.start),
            "end": None if self.end is None else json.loads(self.end),
            "snapshot": self.snapshot,
            "sequence": self.sequence,
            "at_ms": self.at_ms,
        }
        if self.followers:
            fields["followers"] = list(self.followers)
        if self.home_batch:
            fields |= {"lead": self.home_batch, "rows": self.rows}
        if self.names:
            fields["names"] = list(self.names)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> SinkState:
        """Reads the table's property. Whatever it holds that is no entry is a ValueError."""
        try:
            raw = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        fields: dict[str, Any] | None = raw if isinstance(raw, dict) else None
        if fields is None:
            raise ValueError(f"it is a {_JSON_NAMES[type(raw)]}, not an object")
        if fields.get("v") != STATE_VERSION:
            raise ValueError(f"the ledger has version {fields.get('v')}, and this frazil reads version {STATE_VERSION}")
        return cls(
            epoch=_number(fields, "epoch"),
            instance=_text(fields, "instance"),
            batch=_number(fields, "batch"),
            source=_text(fields, "source"),
            start=_position(fields, "start"),
            end=_position(fields, "end"),
            snapshot=_number(fields, "snapshot"),
            sequence=_number(fields, "sequence"),
            at_ms=_number(fields, "at_ms"),
            followers=_texts(fields, "followers"),
            home_batch=_number({"lead": 0} | fields, "lead"),
            rows=_number({"rows": 0} | fields, "rows"),
            names=_texts(fields, "names"),
        )

    def remembers(self, end: Position) -> bool:
        """Whether a batch that a user has named, and that ended there, is among the last ones."""
        return _name_digest(end) in self.names

    def remembering(self, end: Position) -> SinkState:
        """A copy that also remembers the name of a batch."""
        return replace(self, names=(*self.names, _name_digest(end))[-NAMES_KEPT:])

    def in_snapshot(self, snapshot: int, sequence: int) -> SinkState:
        """A copy that names the snapshot which carries it."""
        return replace(self, snapshot=snapshot, sequence=sequence)


@dataclass(frozen=True)
class RowCounts:
    """What became of a batch's rows. Every row that came in must be accounted for, or the batch is not committed.

    ``deleted`` rows took a key away, ``superseded`` ones were followed by another row of their key in the same batch, or were
    late and are left out. A row that has two effects (an update that moves a key), or of which a transform makes several, is one
    that was read and the others are ``extra``. ``unmet``: how many rows did not meet an expectation, by its name; they are among
    the others.
    """

    read: int
    written: int
    dead_lettered: int = 0
    filtered: int = 0
    deleted: int = 0
    superseded: int = 0
    extra: int = 0
    unmet: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: RowCounts) -> RowCounts:
        numbers = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields_of(self) if f.name != "unmet"}
        unmet = Counter(dict(self.unmet)) + Counter(dict(other.unmet))
        return RowCounts(**numbers, unmet=tuple(unmet.items()))

    @property
    def balanced(self) -> bool:
        """Whether every row is accounted for."""
        gone = self.dead_lettered + self.filtered + self.deleted + self.superseded
        return self.read + self.extra == self.written + gone


@dataclass(frozen=True)
class Batch:
    """One batch of a sink: which part of which source, and what became of its rows.

    ``home_batch``, for followers only, is its number in the ledger of the home table: not every batch has rows for a follower.
    ``named``: its end is a name that a user has given to it, and may come again at any time.
    """

    source: str
    start: Position | None
    end: Position
    counts: RowCounts = field(default_factory=lambda: RowCounts(0, 0))
    home_batch: int | None = None
    named: bool = False


@dataclass(frozen=True)
class CommitResult:
    """How a commit ended. ``skipped``: the table already held the batch."""

    state: SinkState
    skipped: bool = False
    attempts: int = 1


_JSON_NAMES = {list: "list", str: "text", int: "number", float: "number", bool: "truth value", type(None): "null"}


def _number(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if type(value) is not int:
        raise ValueError(f"its {name} is no whole number")
    return value


def _text(raw: dict[str, Any], name: str) -> str:
    (value,) = _texts({name: [raw.get(name)]}, name)
    return value


def _texts(raw: dict[str, Any], name: str) -> tuple[str, ...]:
    value = raw.get(name, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"its {name} is not made of texts")
    return tuple(value)


def _position(raw: dict[str, Any], name: str) -> Position | None:
    if name not in raw:
        raise ValueError(f"it has no {name}")
    return None if raw[name] is None else position(raw[name])


def state_property(sink_id: str) -> str:
    """The table property that holds the state of this sink."""
    return f"{STATE_PREFIX}{sink_id}"


def summary_of(sink_id: str, state: SinkState, counts: RowCounts | None, version: str) -> dict[str, str]:
    """The entries of the snapshot summary: the state's fields, small, and the row counts."""
    entries = {
        "frazil.sink": sink_id,
        "frazil.version": version,
        "frazil.epoch": str(state.epoch),
        "frazil.instance": state.instance,
        "frazil.batch": str(state.batch),
        "frazil.committed-at-ms": str(state.at_ms),
    }
    if counts is None:
        return entries | {"frazil.kind": "claim"}
    return entries | {
        "frazil.kind": "data",
        "frazil.source": state.source,
        "frazil.start": short_range(state.start),
        "frazil.end": short_range(state.end),
        "frazil.rows-in": str(counts.read),
        "frazil.rows-out": str(counts.written),
        "frazil.rows-dead-lettered": str(counts.dead_lettered),
        "frazil.rows-filtered": str(counts.filtered),
        **{f"frazil.rows-{name}": str(getattr(counts, name)) for name in _RARE_COUNTS if getattr(counts, name)},
        **{f"{EXPECT_PREFIX}{name}": str(count) for name, count in counts.unmet},
    }


def _name_digest(end: Position) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(end.encode()).digest()[:8]).decode().rstrip("=")


def short_range(text: Position | None) -> str:
    """A position as the summary has it."""
    if text is None:
        return ""
    if len(text) <= SUMMARY_RANGE_LIMIT:
        return text
    return f"{DIGEST}{hashlib.sha256(text.encode()).hexdigest()}"
