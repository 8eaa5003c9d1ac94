"""What keeps a table healthy between batches, so that reads stay cheap and commits stay quick for as long as it is written to.

Everything goes through the sink's own commit loop, under its epoch: a second writer fences it, and a commit of somebody else that
comes first wins. What could not be done is done after another batch. Delivery: rows stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import RLock
from typing import TypeVar

from frazil.errors import FrazilError, Halted, Retryable, SparkDied
from frazil.iceberg import (
    Append,
    Base,
    Change,
    Doomed,
    IcebergTable,
    Restage,
    SmallFiles,
    TableCare,
    ZOrder,
    fault_of,
    require_z_order,
)
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.changes import CommitMode
from frazil.model.events import CommitFailed, Maintained, Settled, TableMeasured
from frazil.model.maintenance import (
    STATISTICS_ROWS,
    MaintenanceTask,
    Merge,
    TableFigures,
    jobs_of,
    plan_merges,
    read_amplification,
    statistics_due,
    too_many,
)
from frazil.write.claim import ClaimedSink, now_ms
from frazil.write.modes import Settlement, compact, settle, too_many_files, too_many_keys

T = TypeVar("T")

MERGED = "merge"
"""What `frazil.kind` of a snapshot says that merged small files."""
CLUSTERED = "manifests"
"""What `frazil.kind` of a snapshot says that rewrote manifests by partition."""
COUNTED = "statistics"
"""What `frazil.kind` of a snapshot says that came with statistics of values."""
DELETING = (CommitMode.UPSERT, CommitMode.DELETE_INSERT)
# Manifests are not read to find out whether rewriting pays before there are so many more.
NEW_MANIFESTS = 3
# Files of many partitions are merged in one job, up to so many bytes.
BYTES_AT_ONCE = 256 * 1024 * 1024

# Looking at the sizes of metadata takes a few requests.
SECONDS_BETWEEN_LOOKS = 60.0

# Deleting takes a while where a store is far away, and no batch has to wait for it.
_DELETERS = ThreadPoolExecutor(2, thread_name_prefix="frazil-delete-files")


class Upkeep:
    """Looks after the table of one sink."""

    def __init__(self, claimed: ClaimedSink) -> None:
        self._claimed = claimed
        self._spec = claimed.sink.maintenance
        self._active = False
        self._new_files = 0
        self._began = time.monotonic()
        self._spent = 0.0
        self._on_list: Sequence[Doomed] | None = None
        self._deleting: Future[None] | None = None
        self._listing = RLock()
        self._clock_is_right = False
        # What a look at the table's files has found, until it is reported.
        self._small: int | None = None
        self._surplus: int | None = None
        self._sizes: tuple[int, int] | None = None
        self._next_look = 0.0
        self._manifests_seen: frozenset[str] = frozenset()

    def after_commit(self, files: int) -> None:
        """Does what is due after a batch that added so many files."""
        keep_debt_bounded(self._claimed)
        if self._active:
            began = time.monotonic()
            self._new_files += files
            if self._new_files >= self._spec.small_files and self._in_time:
                self._new_files = 0
                self._settle()
                self._merge()
                self._cluster()
                if self._spec.statistics:
                    self._count_values()
                _attempted(self._claimed, self._delete_due)
            if self._claimed.expired:
                self._list_dead()
            if self._claimed.unreferenced:
                _attempted(self._claimed, self._delete_due)
            self._spent += time.monotonic() - began
        self._measure()

    def begin(self) -> None:
        """Finds out whether this is a table to look after, and what earlier runs have left to do."""
        table = self._claimed.table
        self._active = self._spec.looks_after(table.properties, table.location)
        if self._active:
            require_z_order(table.schema, self._spec.z_order)
            self._claimed.retention = self._spec.retention
            self._new_files = table.history.snapshots_since(MERGED, self._spec.small_files)

    @property
    def _care(self) -> TableCare:
        return self._claimed.table.care

    @property
    def _in_time(self) -> bool:
        """Whether maintenance has not taken more than its share of the time so far."""
        return self._spent <= self._spec.max_time_share * (time.monotonic() - self._began)

    def do(self, tasks: Collection[MaintenanceTask]) -> None:
        """Does all that the tasks can do now, however long that takes. Small files of every partition are merged."""
        claimed = self._claimed
        if MaintenanceTask.SETTLE in tasks:
            while _done(claimed, settle) is not None:
                pass
        if MaintenanceTask.COMPACT in tasks:
            self._merge(finish=True)
        if MaintenanceTask.MANIFESTS in tasks:
            self._cluster(finish=True)
        if MaintenanceTask.STATISTICS in tasks:
            self._count_values()
        if MaintenanceTask.EXPIRE in tasks and self._care.expirable(self._spec.retention, now_ms()):
            claimed.retention = self._spec.retention
            claimed.run(claimed.intent())
            self._list_dead()
        if MaintenanceTask.DELETE in tasks:
            _attempted(claimed, self._delete_due)
            if self._deleting is not None:
                self._deleting.result()

    # Equality deletes

    def _settle(self) -> None:
        """Settles the equality deletes of upserts, though the sink allows more: readers pay for every file of them."""
        claimed = self._claimed
        bounded = claimed.sink.max_equality_deletes is not None
        if claimed.sink.commit_mode in DELETING and bounded and claimed.table.total("equality-deletes"):
            _settle_all(claimed)

    # Small files

    def _merge(self, *, finish: bool = False) -> None:
        """Merges what is due, up to the limit of a pause between batches; with ``finish`` all that is small."""
        table = self._claimed.table
        # What others delete after the files were found is seen by the commit, also when other files were merged in between.
        base, sequence = table.base, table.head_sequence
        found = _attempted(self._claimed, self._care.small_files)
        if found is None:
            return
        files, target = [one.files for one in found], self._care.target_bytes
        merges = plan_merges(files, sequence, self._spec, target, finish=finish)
        self._small, self._surplus = sum(map(len, files)), too_many(files, target)
        left = self._spec.max_rewrite_mb * 1024 * 1024
        for job in jobs_of(merges, BYTES_AT_ONCE):
            size = sum(merge.bytes for merge in job)
            if (size > left and not finish) or not self._merged(found, job, base, sequence):
                break
            left -= size
        self._look()

    def _merged(self, partitions: Sequence[SmallFiles], job: Sequence[Merge], base: Base, sequence: int) -> bool:
        claimed, began = self._claimed, time.monotonic()
        order = ZOrder(self._spec.z_order, job[0].files_after) if job[0].z_ordered else None

        def change() -> Change:
            files = [file for merge in job for file in partitions[merge.partition].live(merge.files)]
            summary = {"frazil.kind": MERGED, "frazil.merged-files": str(len(files))}
            return Change(self._care.merge(files, sequence, order), base, summary=summary)

        prepared = _attempted(claimed, change)
        if prepared is None or not _committed(claimed, prepared):
            return False
        count, fewer = sum(len(merge.files) for merge in job), sum(len(merge.files) - merge.files_after for merge in job)
        self._small, self._surplus = max(0, (self._small or 0) - count), max(0, (self._surplus or 0) - fewer)
        self._report("merge_files", count, began, sum(merge.bytes for merge in job))
        return True

    # Manifests

    def _cluster(self, *, finish: bool = False) -> None:
        """Rewrites manifests by partition where scans gain by it. They are read again when some of them are new."""
        claimed, table, began = self._claimed, self._claimed.table, time.monotonic()
        found = _attempted(claimed, self._care.manifests_worth_reading) or {}
        if len(found.keys() - self._manifests_seen) < (1 if finish else NEW_MANIFESTS):
            return
        self._manifests_seen = frozenset(found)
        plans = _attempted(claimed, lambda: self._care.clusterings(list(found.values())))
        if plans and _committed(claimed, Change(self._care.clustered(plans), table.base, summary={"frazil.kind": CLUSTERED})):
            count, size = sum(len(plan.paths) for plan in plans), sum(plan.bytes for plan in plans)
            self._report("rewrite_manifests", count, began, size)

    # Statistics

    def _count_values(self) -> None:
        """Writes statistics of values when the table has grown enough since the last time; older ones are deleted later."""
        claimed, table, began = self._claimed, self._claimed.table, time.monotonic()
        rows, before = table.total("records"), self._care.statistics_paths
        if not statistics_due(rows, table.property_text(STATISTICS_ROWS)):
            return
        base, counted = table.base, _attempted(claimed, self._care.count_values)
        if counted is None:
            return
        properties, summary = {STATISTICS_ROWS: str(rows)}, {"frazil.kind": COUNTED}
        if _committed(claimed, Change(Append(), base, properties=properties, summary=summary, statistics=counted)):
            due = now_ms() + int(self._spec.reader_grace_minutes * 60_000)
            if before:
                _attempted(claimed, lambda: self._relist([Doomed(path, due) for path in before]))
            self._report("write_statistics", int(counted.blobMetadata().size()), began)

    # What is known of the table

    def _look(self) -> None:
        """Finds out how large the table's metadata is, not more often than every minute."""
        if time.monotonic() >= self._next_look:
            self._sizes = _attempted(self._claimed, self._care.metadata_sizes)
            self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS

    def _measure(self) -> None:
        """Reports the state of the table."""
        known, claimed = self._claimed.figures or TableFigures(), self._claimed
        if self._small is not None and self._surplus is not None:
            amplification = None
            if known.data_files is not None:
                amplification = read_amplification(known.data_files, known.delete_files or 0, self._surplus)
            known = replace(known, small_files=self._small, read_amplification=amplification)
            self._small = self._surplus = None
        if self._sizes is not None:
            known = replace(known, manifest_bytes=self._sizes[0], metadata_file_bytes=self._sizes[1])
            self._sizes = None
        if self._on_list is not None:
            known = replace(known, files_to_delete=len(self._on_list))
        if known != TableFigures():
            claimed.listen(TableMeasured(claimed.name, claimed.sink.full_name, known))

    # Files of expired snapshots

    def _list_dead(self) -> None:
        """Lists the files that only expired snapshots need. If it fails, they are left for a cleanup of orphan files."""
        claimed, began = self._claimed, time.monotonic()
        gone, claimed.expired = claimed.expired, []
        due = now_ms() + int(self._spec.reader_grace_minutes * 60_000)

        def listed() -> None:
            self._relist([Doomed(path, due) for one in gone for path in self._care.dead_files(one)])

        _attempted(claimed, listed)
        self._report("expire_snapshots", sum(len(one.snapshots) for one in gone), began)

    def _delete_due(self) -> None:
        """Deletes the files of the list that no query can be reading any longer, while the next batches are written."""
        if self._deleting is not None:
            if not self._deleting.done():
                return
            self._deleting.result()
        now = now_ms()
        due = [one.path for one in self._doomed() if one.due_ms <= now]
        unreferenced, self._claimed.unreferenced = self._claimed.unreferenced, []
        if due or unreferenced:
            self._deleting = _DELETERS.submit(self._delete, self._care, due, unreferenced)

    def _delete(self, care: TableCare, due: Sequence[str], unreferenced: Sequence[Callable[[], list[str]]]) -> None:
        """Deletes files that are due, and those that nothing has ever named. What the store refuses to delete is tried again."""
        began = time.monotonic()
        found: list[str] = []

        def delete() -> bool:
            if not self._clock_is_right:
                care.require_clock(now_ms())
                self._clock_is_right = True
            for find in unreferenced:
                found.extend(find())
            care.files_to_delete.delete([*due, *found])
            return True

        if _attempted(self._claimed, delete):
            _attempted(self._claimed, lambda: self._relist(gone=due))
            self._report("delete_files", len(due) + len(found), began)
        else:
            _attempted(self._claimed, lambda: self._relist([Doomed(path, now_ms()) for path in found]))

    def _doomed(self) -> Sequence[Doomed]:
        """What is on the list of files to delete."""
        with self._listing:
            if self._on_list is None:
                self._on_list = self._care.files_to_delete.read()
            return self._on_list

    def _relist(self, more: Collection[Doomed] = (), gone: Collection[str] = ()) -> None:
        """Changes the list of files to delete; the next batch and the files of the last one may be at it at once."""
        if not more and not gone:
            return
        with self._listing:
            left = set(gone)
            listed = (*(one for one in self._doomed() if one.path not in left), *more)
            self._care.files_to_delete.write(listed)
            self._on_list = listed

    def _report(self, kind: str, count: int, began: float, size: int = 0) -> None:
        claimed = self._claimed
        claimed.listen(Maintained(claimed.name, claimed.sink.full_name, kind, count, size, time.monotonic() - began))


def keep_debt_bounded(claimed: ClaimedSink) -> None:
    """Settles the deletes that readers pay for, as soon as there are more than the sink allows."""
    sink, table = claimed.sink, claimed.table
    if sink.commit_mode not in DELETING:
        return
    if too_many_keys(table, sink):
        _settle_all(claimed)
    if too_many_files(table, sink):
        _done(claimed, compact)


def _settle_all(claimed: ClaimedSink) -> None:
    """Settles deletes of every kind: those that were there, and not whatever others keep adding."""
    settled = _done(claimed, settle)
    for _ in range(settled.kinds_left if settled is not None else 0):
        if _done(claimed, settle) is None:
            break


def _done(claimed: ClaimedSink, prepare: Callable[[IcebergTable], Settlement | None]) -> Settlement | None:
    """What was settled; None when nothing was, or not now."""
    began = time.monotonic()
    settled = _tried(claimed, lambda: prepare(claimed.table))
    if settled is None or not _committed(claimed, settled.change):
        return None
    kind = settled.change.summary["frazil.kind"]
    claimed.listen(Settled(claimed.name, claimed.sink.full_name, kind, settled.deletes, settled.rows, time.monotonic() - began))
    return settled


def _tried(claimed: ClaimedSink, work: Callable[[], T]) -> T | None:
    """What the work makes; None when the store did not answer: the batch is in the table, and the next one tries again."""
    try:
        return work()
    except FrazilError as error:
        if not _files_have_gone(error):
            raise
        claimed.listen(CommitFailed(claimed.name, "upkeep", error.message, 1, will_retry=True))
        return None
    except Exception as error:
        failed = explain_staging(fault_of(error))
        if not isinstance(failed, Retryable) and not _files_have_gone(failed):
            raise failed from error
        claimed.listen(CommitFailed(claimed.name, "upkeep", failed.message, 1, will_retry=True))
        return None


def _attempted(claimed: ClaimedSink, work: Callable[[], T]) -> T | None:
    """What the work makes; None when that failed, which is reported. The batch is in the table, and need not stop for this."""
    try:
        return work()
    except Exception as error:
        if isinstance(error, Halted | SparkDied) and not _files_have_gone(error):
            raise
        message = error.message if isinstance(error, FrazilError) else fault_of(error).line
        claimed.listen(CommitFailed(claimed.name, "upkeep", message, 1, will_retry=True))
        return None


def _files_have_gone(error: FrazilError) -> bool:
    """Whether files of the table as it was seen last are not there any more.

    Somebody else has rewritten them, or expired their snapshots. If it is the whole table that is gone, the next commit stops.
    """
    return isinstance(error, Halted) and error.code == "table-missing"


def _committed(claimed: ClaimedSink, change: Change) -> bool:
    """Whether a change of files is in the table; not if somebody else wrote meanwhile, and it does not fit any longer."""
    try:
        claimed.run(claimed.intent(change))
    except Restage:
        claimed.retried(claimed.table.refresh)
        return False
    return True
