"""How a table is kept healthy while it is written to: the options, and what follows from them, as pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import Field

from frazil.model.base import Model

CREATED_BY = "frazil.created-by"
"""The property of tables that frazil made: the version that made them."""

# Files are of one tier when none is more than so many times as large as another, and so many of one tier are merged. A row is
# rewritten once for each tier: the logarithm of how much smaller its first file is than the last.
TIER = 4
# The newest snapshots stay whatever their age: after a long pause, or with a clock that is wrong, there still is a history.
ALWAYS_KEPT = 10
# After so many times the files of a merge without a new one, a partition is taken for complete.
COLD = 4


class MaintenanceTask(StrEnum):
    """One of the things that keep a table healthy."""

    SETTLE = "settle"
    COMPACT = "compact"
    EXPIRE = "expire"
    DELETE = "delete"
    ORPHANS = "orphans"


# Orphan files are looked for by listing the table's folder, which somebody has to ask for.
USUAL_TASKS = tuple(task for task in MaintenanceTask if task is not MaintenanceTask.ORPHANS)


class MaintenanceSpec(Model):
    """How a sink looks after its table between batches."""

    enabled: bool | None = Field(
        None, description="Whether the sink looks after the table; when left out, it does for tables that frazil made."
    )
    max_snapshots: int = Field(
        100, ge=1, description="Most snapshots of the table's history; older ones expire, but for those of branches and tags."
    )
    max_snapshot_age_hours: float = Field(
        120, gt=0, description=f"Age at which a snapshot expires; the newest {ALWAYS_KEPT} stay whatever their age."
    )
    reader_grace_minutes: float = Field(
        60, ge=0, description="How long files stay that no snapshot needs any longer, for queries that still read them."
    )
    small_files: int = Field(16, ge=2, description="How many new small files are merged at once; fewer wait for more.")
    max_rewrite_mb: int = Field(1024, ge=1, description="Most data that is rewritten between two batches.")
    max_time_share: float = Field(
        0.25, gt=0, le=1, description="Largest part of the time that goes into maintenance; what is left over waits."
    )

    @property
    def retention(self) -> Retention:
        """Which snapshots stay."""
        return Retention(self.max_snapshots, int(self.max_snapshot_age_hours * 3_600_000))

    def looks_after(self, properties: Mapping[str, str]) -> bool:
        """Whether the sink maintains a table with these properties. One whose files other tables may use is left alone."""
        if properties.get("gc.enabled", "true").lower() == "false":
            return False
        return CREATED_BY in properties if self.enabled is None else self.enabled


@dataclass(frozen=True)
class Outlook:
    """What maintenance of a table would do now: how many files it would merge, and how large they are; how many snapshots would
    expire; how many files of expired ones are due to be deleted; how many equality deletes are to be settled; and the orphans.
    """

    merge_files: int = 0
    merge_bytes: int = 0
    expire_snapshots: int = 0
    delete_files: int = 0
    settle_deletes: int = 0
    orphans: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether nothing is to be done."""
        return self == Outlook()


@dataclass(frozen=True)
class Retention:
    """How many snapshots a table keeps, and how old they may be."""

    max_snapshots: int
    max_age_ms: int

    @property
    def before_another(self) -> Retention:
        """Which snapshots stay when the commit at hand adds one."""
        return replace(self, max_snapshots=max(1, self.max_snapshots - 1))

    @property
    def step(self) -> int:
        """How many snapshots expire together, so that not every commit has to look for files that nobody needs."""
        return max(1, self.max_snapshots // 10)


@dataclass(frozen=True)
class PastSnapshot:
    """A snapshot of a table's history."""

    id: int
    parent: int | None
    at_ms: int


@dataclass(frozen=True)
class References:
    """What names snapshots of a table: the head of main, other branches, tags, and the ledgers of sinks.

    ``own``: the head of the branch that the sink writes to, if that is another than main.
    """

    head: int | None
    branches: frozenset[int] = frozenset()
    pinned: frozenset[int] = frozenset()
    own: int | None = None


def expired(snapshots: Collection[PastSnapshot], named: References, retention: Retention, now_ms: int) -> tuple[int, ...]:
    """The snapshots that may go; none as long as there are fewer than a step of them.

    These stay: the newest of the main branch, as many as may be and, but for a few, no older than they may be; everything of
    other branches, which are somebody else's; of the sink's own branch what main does not have yet, since publishing needs it;
    and what a tag or a ledger names. A snapshot that no branch has any longer goes by its age.
    """
    known = {one.id: one for one in snapshots}
    chain = _ancestors(known, named.head)
    kept = {one for branch in named.branches for one in _ancestors(known, branch)} | named.pinned
    kept |= set(chain[: min(ALWAYS_KEPT, retention.max_snapshots)])
    oldest_ms = now_ms - retention.max_age_ms
    kept |= {one for one in chain[: retention.max_snapshots] if known[one].at_ms >= oldest_ms}
    of_main = set(chain)
    kept |= {one for one in _ancestors(known, named.own) if one not in of_main}
    old = [one.id for one in snapshots if one.id not in kept and (one.id in of_main or one.at_ms < oldest_ms)]
    return tuple(old) if len(old) >= retention.step else ()


def _ancestors(known: Mapping[int, PastSnapshot], head: int | None) -> list[int]:
    """A snapshot and those before it, as far back as they are known."""
    found = []
    while head is not None and head in known:
        found.append(head)
        head = known[head].parent
    return found


@dataclass(frozen=True)
class SmallFile:
    """A data file that is smaller than the table's files should be, and the sequence number at which it was added."""

    bytes: int
    added: int
    deleted: bool = False
    """Whether so many of its rows are deleted that it is rewritten, whatever its size."""


def to_merge(files: Sequence[SmallFile], newest: int, spec: MaintenanceSpec, *, finish: bool = False) -> tuple[int, ...]:
    """Which files of a partition are merged now, by their places in the sequence; none when waiting for more costs less.

    All files up to the largest tier that has enough of them, so that each row is rewritten once for each tier. A partition
    that gets no more files is finished: whatever is small in it is merged. ``finish``: as if no partition got more.
    """
    places = sorted(range(len(files)), key=lambda place: files[place].bytes)
    sizes = [files[place].bytes for place in places]
    last = max((file.added for file in files), default=0)
    if finish or newest - last > COLD * spec.small_files:
        upto = len(places) if len(places) > 1 else 0
    else:
        upto = max((end for end in range(TIER, len(places) + 1) if sizes[end - 1] <= TIER * sizes[end - TIER]), default=0)
    deleted = {place for place, file in enumerate(files) if file.deleted}
    chosen = {*places[:upto], *deleted}
    return tuple(place for place in places if place in chosen) if len(chosen) > 1 or deleted else ()
