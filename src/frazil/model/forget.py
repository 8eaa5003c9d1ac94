"""What an erasure of rows was asked for, what it found and did, and what proves it: values, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PROOF_VERSION = 1


@dataclass(frozen=True)
class KeyFile:
    """A file of keys, as the proof may name it: without the keys."""

    columns: tuple[str, ...]
    count: int
    sha256: str


@dataclass(frozen=True)
class Extent:
    """Where rows are that match: in how many rows that readers see, and in how many copies in files, deleted ones too.

    ``undecided_files``: files of equality deletes whose keys cannot be compared with the condition. ``history``: how many
    snapshots would expire, matching or not.
    """

    rows: int
    copies: int
    files: int
    snapshots: int
    orphans: int
    undecided_files: int = 0
    history: int = 0

    @property
    def nothing(self) -> bool:
        """Whether no row matches in any file."""
        return not (self.copies or self.orphans)


@dataclass(frozen=True)
class Scanned:
    """A file whose rows were looked at, and in which none matches. ``kind``: `data`, `equality deletes` or `orphan`."""

    path: str
    kind: str
    rows: int
    matches: int = 0


@dataclass(frozen=True)
class Left:
    """A file of which it is not proven that it holds none of the rows, and why. ``again_ms``: when to run the command again."""

    path: str
    why: str
    again_ms: int | None = None


@dataclass(frozen=True)
class Proof:
    """What was done and seen."""

    table: str
    uuid: str
    location: str
    snapshot: int
    at_ms: int
    asked: Mapping[str, Any]
    found: Extent
    rows_deleted: int
    scanned: tuple[Scanned, ...] = ()
    metadata: tuple[str, ...] = ()
    """Files of metadata that name only such files."""
    without_rows: tuple[str, ...] = ()
    """Files that hold positions or sketches, and no values of rows."""
    later: tuple[str, ...] = ()
    """Files that came when the rows were gone, and do not show whether they match: deleted keys, and unfinished files."""
    deleted: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether no file is left that may hold one of the rows."""
        return not self.left

    def to_json(self, version: str) -> dict[str, Any]:
        """As the file has it. Times are ISO 8601."""
        fields = asdict(self)
        fields["at"] = iso(fields.pop("at_ms"))
        fields["left"] = [
            {"path": one.path, "why": one.why, "run_again_at": None if one.again_ms is None else iso(one.again_ms)}
            for one in self.left
        ]
        return {"version": PROOF_VERSION, "frazil": version, "proven": self.proven, **fields}


def iso(at_ms: int) -> str:
    """A time in UTC, to the second."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
