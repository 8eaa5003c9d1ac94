"""How a table is kept healthy while it is written to: the options, and what follows from them, as pure functions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from urllib.parse import urlsplit

from pydantic import Field

from frazil.model.base import Model

CREATED_BY = "frazil.created-by"
"""The property of tables that frazil made: the version that made them."""

STATISTICS_ROWS = "frazil.statistics-rows"
"""The property of tables with statistics of values: how many rows there were when they were written."""
# Values are counted again when there are so many times as many rows, or so much fewer: reading them all costs as much as writing.
STATISTICS_GROWTH = 1.5

# Files are of one tier when none is more than so many times as large as another, and so many of one tier are merged. A row is
# rewritten once for each tier: the logarithm of how much smaller its first file is than the last.
TIER = 4
# With a z-order, so many files are made together, or more: one alone cannot be laid out so that filters skip parts of it.
ORDERED = 4
# A merge makes so many files at most: it is lost as a whole when another change of its files comes first. With a z-order, what is
# left of a partition that has more makes enough of them as well, and a filter reads the fewer, the more are laid out together.
MADE_AT_ONCE, ORDERED_AT_ONCE = 2 * ORDERED, 8 * ORDERED
# A merge by tiers makes files so many times as large as the largest of those that it reads, or files of their final size.
GROWTH = 4 / 3
# Each column halves the parts of the others: with more than these, a filter on one of them skips next to nothing.
MOST_ORDERED = 4
# The newest snapshots stay whatever their age: after a long pause, or with a clock that is wrong, there still is a history.
ALWAYS_KEPT = 10
# A file with this part of the size that it should have is large enough, as Iceberg has it.
LARGE_ENOUGH = 0.75
# After so many times the files of a merge without a new one, a partition is taken for complete.
COLD = 4


class MaintenanceTask(StrEnum):
    """One of the things that keep a table healthy."""

    SETTLE = "settle"
    COMPACT = "compact"
    MANIFESTS = "manifests"
    STATISTICS = "statistics"
    EXPIRE = "expire"
    DELETE = "delete"
    ORPHANS = "orphans"


# Somebody has to ask for what reads the whole table, or lists its folder.
USUAL_TASKS = tuple(task for task in MaintenanceTask if task not in (MaintenanceTask.STATISTICS, MaintenanceTask.ORPHANS))


class MaintenanceSpec(Model):
    """How a sink looks after its table between batches."""

    enabled: bool | None = Field(
        None, description="Whether the sink looks after the table; when left out, it does for tables that frazil made."
    )
    max_snapshots: int = Field(
        80, ge=1, description="Most snapshots of the table's history; older ones expire, but for those of branches and tags."
    )
    max_snapshot_age_hours: float = Field(
        120, gt=0, description=f"Age at which a snapshot expires; the newest {ALWAYS_KEPT} stay whatever their age."
    )
    reader_grace_minutes: float = Field(
        60, ge=0, description="How long files stay that no snapshot needs any longer, for queries that still read them."
    )
    small_files: int = Field(16, ge=2, description="How many new small files are merged at once; fewer wait for more.")
    max_rewrite_mb: int = Field(1024, ge=1, description="Most data that is rewritten between two batches, and by one merge.")
    z_order: tuple[str, ...] = Field(
        (),
        max_length=MOST_ORDERED,
        description="Columns by which rows are laid out together when files get their final size, so that a filter on any of "
        "them reads few files.",
    )
    statistics: bool = Field(
        False,
        description="Whether the different values of each column are counted, for engines that plan joins by them. The whole "
        f"table is read for that, each time it has {STATISTICS_GROWTH:g} times as many rows.",
    )
    max_time_share: float = Field(
        0.25, gt=0, le=1, description="Largest part of the time that goes into maintenance; what is left over waits."
    )

    @property
    def max_rewrite_bytes(self) -> int:
        """``max_rewrite_mb`` in bytes."""
        return self.max_rewrite_mb * 1024 * 1024

    @property
    def retention(self) -> Retention:
        """Which snapshots stay."""
        return Retention(self.max_snapshots, int(self.max_snapshot_age_hours * 3_600_000))

    def looks_after(self, properties: Mapping[str, str], location: str = "") -> bool:
        """Whether the sink maintains a table with these properties, in this folder.

        One whose files other tables may use is left alone; so is one that a service maintains, unless the file says otherwise.
        """
        if properties.get("gc.enabled", "true").lower() == "false":
            return False
        return (CREATED_BY in properties and not has_caretaker(location)) if self.enabled is None else self.enabled


def has_caretaker(location: str) -> bool:
    """Whether the store of a folder maintains the tables in it: Amazon S3 Tables do, each table in a bucket of its own."""
    return urlsplit(location).netloc.endswith("--table-s3")


@dataclass(frozen=True)
class Outlook:
    """What maintenance of a table would do now, and what readers gain.

    How many files it would merge into how many, and how many bytes it would rewrite for that; how many manifests it would
    rewrite by partition; whether it would count values; how many snapshots would expire; how many files of expired ones are due
    to be deleted; how many equality deletes are to be settled; and the orphans. ``read_amplification`` is how many files a full
    scan opens for each that it would need, now and after the merge. ``manifests_opened`` is how many of the manifests a scan of
    one partition opens, now and then.
    """

    merge_files: int = 0
    merge_bytes: int = 0
    merge_files_after: int = 0
    rewrite_manifests: int = 0
    write_statistics: bool = False
    expire_snapshots: int = 0
    delete_files: int = 0
    settle_deletes: int = 0
    orphans: tuple[str, ...] = ()
    read_amplification: float = 1.0
    read_amplification_after: float = 1.0
    manifests_opened: float = 1.0
    manifests_opened_after: float = 1.0

    @property
    def nothing(self) -> bool:
        """Whether nothing is to be done."""
        rewritten = self.merge_files or self.rewrite_manifests or self.settle_deletes or self.write_statistics
        return not (rewritten or self.expire_snapshots or self.delete_files or self.orphans)


def statistics_due(rows: int, then: str | None) -> bool:
    """Whether values are to be counted again; ``then`` is how many rows there were the last time."""
    if rows == 0:
        return False
    return then is None or not then.isdigit() or not int(then) / STATISTICS_GROWTH <= rows <= int(then) * STATISTICS_GROWTH


@dataclass(frozen=True)
class TableFigures:
    """What a process knows of the state of a table; None is what it does not know now.

    ``small_files`` are those that could be merged with others. ``manifest_bytes`` is the size of the current snapshot's manifests
    and their list, ``metadata_file_bytes`` that of the current metadata file. ``files_to_delete`` wait until no query reads them.
    """

    data_files: int | None = None
    data_bytes: int | None = None
    delete_files: int | None = None
    equality_deletes: int | None = None
    position_deletes: int | None = None
    manifests: int | None = None
    snapshots: int | None = None
    small_files: int | None = None
    manifest_bytes: int | None = None
    metadata_file_bytes: int | None = None
    read_amplification: float | None = None
    files_to_delete: int | None = None

    @classmethod
    def of_summary(cls, summary: Mapping[str, str], snapshots: int | None = None) -> TableFigures:
        """What the summary of the current snapshot says. Some writers leave totals out."""

        def number(key: str) -> int | None:
            text = summary.get(key, "")
            return int(text) if text.isdigit() else None

        made, kept = number("manifests-created"), number("manifests-kept")
        return cls(
            data_files=number("total-data-files"),
            data_bytes=number("total-files-size"),
            delete_files=number("total-delete-files"),
            equality_deletes=number("total-equality-deletes"),
            position_deletes=number("total-position-deletes"),
            manifests=None if made is None or kept is None else made + kept,
            snapshots=snapshots,
        )


@dataclass(frozen=True)
class Retention:
    """How many snapshots a table keeps, and how old they may be. Without ``history`` only what tags and branches need stays."""

    max_snapshots: int
    max_age_ms: int
    history: bool = True

    @property
    def before_another(self) -> Retention:
        """Which snapshots stay when the commit at hand adds one."""
        return replace(self, max_snapshots=max(1, self.max_snapshots - 1))

    @property
    def step(self) -> int:
        """How many snapshots expire together, so that not every commit has to look for files that nobody needs."""
        return max(1, self.max_snapshots // 10)


ALL_SNAPSHOTS = Retention(10**9, 10**15)
"""Nothing expires."""


@dataclass(frozen=True)
class PastSnapshot:
    """A snapshot of a table's history."""

    id: int
    parent: int | None
    at_ms: int


@dataclass(frozen=True)
class References:
    """What names snapshots of a table: the head of main, other branches, tags, and the ledgers of sinks.

    ``own``: the head of the branch that the sink writes to, if that is another than main. ``others`` are the snapshots of tags
    and other branches alone: a ledger outlives its snapshot, which is kept for people only.
    """

    head: int | None
    branches: frozenset[int] = frozenset()
    pinned: frozenset[int] = frozenset()
    own: int | None = None
    others: frozenset[int] = frozenset()


def expired(snapshots: Collection[PastSnapshot], named: References, retention: Retention, now_ms: int) -> tuple[int, ...]:
    """The snapshots that may go; none as long as there are fewer than a step of them.

    These stay: the newest of the main branch, so few that there are not too many before the next step and, but for some, no
    older than they may be; everything of other branches, which are somebody else's; of the sink's own branch what main does not
    have yet, since publishing needs it; and what a tag or a ledger names. A snapshot that no branch has any longer goes by its
    age. Without history all of the main branch goes, since the commit at hand adds a snapshot to it, and what no branch has.
    """
    known = {one.id: one for one in snapshots}
    chain = _ancestors(known, named.head)
    kept = {one for branch in named.branches for one in _ancestors(known, branch)}
    if not retention.history:
        return tuple(one.id for one in snapshots if one.id not in kept | named.others)
    kept |= named.pinned | set(chain[: min(ALWAYS_KEPT, retention.max_snapshots)])
    oldest_ms = now_ms - retention.max_age_ms
    newest = chain[: retention.max_snapshots - retention.step + 1]
    kept |= {one for one in newest if known[one].at_ms >= oldest_ms}
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


def is_finished(files: Sequence[SmallFile], newest: int, spec: MaintenanceSpec) -> bool:
    """Whether a partition is taken for complete, since no file came for long."""
    return newest - max((file.added for file in files), default=0) > COLD * spec.small_files


def merged_at_once(spec: MaintenanceSpec, target_bytes: int, *, finish: bool = False) -> int:
    """The most bytes of one merge: a few files of the size that they should have, and no more than a pause allows.

    ``finish``: there is no pause to keep short.
    """
    most = (ORDERED_AT_ONCE if spec.z_order else MADE_AT_ONCE) * target_bytes
    if finish or most <= spec.max_rewrite_bytes:
        return most
    # A merge of one file and a half leaves the half to be merged again.
    return max(spec.max_rewrite_bytes // target_bytes * target_bytes, min(spec.max_rewrite_bytes, target_bytes))


def _may_be_ordered(size: int, target_bytes: int, most: int) -> bool:
    """Whether a merge of so many bytes leaves rows that will be laid out later, or is large enough to do it."""
    return size < LARGE_ENOUGH * target_bytes or size >= min(ORDERED * target_bytes, most)


@dataclass(frozen=True)
class Merge:
    """Files of one partition that become fewer: the partition's place in the sequence of partitions, and the files' in it."""

    partition: int
    files: tuple[int, ...]
    bytes: int
    files_after: int
    saved: int
    """How many files fewer a scan opens; a file whose rows are mostly deleted counts as one."""
    z_ordered: bool = False
    """Whether the rows are laid out anew, among all files of the merge."""
    waited: bool = False
    """Whether none of the files is new: the merge has found no room before."""

    @property
    def gain(self) -> float:
        """What readers save for each byte that is rewritten."""
        return self.saved / max(1, self.bytes)


def plan_merges(
    partitions: Sequence[Sequence[SmallFile]], newest: int, spec: MaintenanceSpec, target_bytes: int, *, finish: bool = False
) -> tuple[Merge, ...]:
    """The merges that pay now, several of a partition with much to merge; none is larger than `merged_at_once`.

    Those that have waited come first, then those that save readers most for what they cost: otherwise large merges would never
    find room beside many small ones. ``target_bytes`` is the size that the table's files should have. ``finish``: everything
    small is merged, as if no partition got more files.
    """
    merges = [
        merge
        for place, files in enumerate(partitions)
        for merge in _merges_of(place, files, newest, spec, target_bytes, finish=finish)
    ]
    return tuple(sorted(merges, key=lambda merge: (not merge.waited, -merge.gain)))


def _merges_of(
    partition: int, files: Sequence[SmallFile], newest: int, spec: MaintenanceSpec, target_bytes: int, *, finish: bool
) -> Iterator[Merge]:
    """The merges of a partition, those of its largest files first.

    Files are merged up to the largest tier that has enough of them, so that each row is rewritten once for each tier. A partition
    that gets no more files is finished: whatever is small in it is merged. When that is more than one merge may have, the largest
    files fill one, and the others are looked at anew.
    """
    most, complete = merged_at_once(spec, target_bytes, finish=finish), finish or is_finished(files, newest, spec)
    places = sorted(range(len(files)), key=lambda place: (files[place].deleted, files[place].bytes))
    sizes = [files[place].bytes for place in places]
    sums = [0, *accumulate(sizes)]
    undeleted = sum(not file.deleted for file in files)
    tiers = [end for end in range(TIER, undeleted + 1) if sizes[end - 1] <= TIER * sizes[end - TIER]]
    if spec.z_order:
        tiers = [end for end in tiers if _may_be_ordered(sums[end], target_bytes, most)]

    upto = len(places)
    while upto:
        by_tier = upto <= undeleted and not complete
        if by_tier:
            while tiers and tiers[-1] > upto:
                tiers.pop()
            if not tiers:
                return
            upto = tiers[-1]
        first = _first_of(sums, upto, most, evenly=complete)
        if upto > undeleted and finish:
            first = min(first, upto - 1)  # mostly deleted, and rewritten however large it is
        elif upto > undeleted and not complete:
            first = max(first, undeleted)
        chosen, size = places[first:upto], sums[upto] - sums[first]
        after = files_needed(size, target_bytes)
        saved = max(0, len(chosen) - after) + sum(files[place].deleted for place in chosen)
        grown = size / after >= min(GROWTH * sizes[upto - 1], LARGE_ENOUGH * target_bytes)
        if not saved or (by_tier and not grown):
            upto -= 1
            continue
        waited = newest - max(files[place].added for place in chosen) > COLD * spec.small_files
        made = min(after, len(chosen))
        yield Merge(partition, tuple(chosen), size, made, saved, bool(spec.z_order) and after > 1, waited)
        upto = first


def _first_of(sums: Sequence[int], upto: int, most: int, *, evenly: bool) -> int:
    """Where the files begin that are merged with those before ``upto``; ``sums`` are the bytes of all before each place.

    ``evenly``: as much in each of the merges that it takes, so that the last one does not get a small rest.
    """
    first = bisect_left(sums, sums[upto] - most)
    if not evenly:
        return first
    share = -(-sums[upto] // files_needed(sums[upto], most))
    return max(first, bisect_right(sums, sums[upto] - share) - 1)


def jobs_of(merges: Sequence[Merge], most_bytes: int) -> list[list[Merge]]:
    """Merges that are done together, in their order: those of many partitions in one job, up to so many bytes.

    One that lays rows out anew is a job of its own.
    """
    jobs: list[list[Merge]] = []
    room = 0
    for merge in merges:
        if merge.bytes > room or merge.z_ordered:
            jobs.append([])
            room = most_bytes
        jobs[-1].append(merge)
        room = -1 if merge.z_ordered else room - merge.bytes
    return jobs


def affordable(jobs: Iterable[Sequence[Merge]], most_bytes: int) -> Iterator[Sequence[Merge]]:
    """Those that are done in one pause, in their order. What does not fit any longer leaves its room to those after it."""
    left = most_bytes
    for job in jobs:
        size = sum(merge.bytes for merge in job)
        if size <= left:
            left -= size
            yield job


def files_needed(size: int, target_bytes: int) -> int:
    """How many files of the size that they should have hold so many bytes."""
    return max(1, -(-size // max(1, target_bytes)))


def too_many(partitions: Sequence[Sequence[SmallFile]], target_bytes: int) -> int:
    """How many files less there would be if the small ones of each partition were merged."""
    return sum(max(0, len(files) - files_needed(sum(one.bytes for one in files), target_bytes)) for files in partitions)


def read_amplification(data_files: int, delete_files: int, surplus: int) -> float:
    """How many files a full scan opens for each that it would open without ``surplus`` data files, and without deletes."""
    return round((data_files + delete_files) / max(1, data_files - surplus), 2) if data_files else 1.0
