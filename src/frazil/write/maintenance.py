"""What keeps a table healthy between batches, so that reads stay cheap and commits stay quick for as long as it is written to.

Everything goes through the sink's own commit loop, under its epoch: a second writer fences it, and a commit of somebody else that
comes first wins. What could not be done is done after another batch. Delivery: rows stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import RLock
from typing import TypeVar

from frazil.errors import FrazilError, Halted, Retryable, SparkDied, TableGone
from frazil.iceberg import (
    Append,
    Base,
    Change,
    Doomed,
    IcebergTable,
    Lists,
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
    ALL_SNAPSHOTS,
    STATISTICS_ROWS,
    MaintenanceTask,
    Merge,
    TableFigures,
    affordable,
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
# Merges that others come before are planned again so often where nobody comes later to do it.
TRIES = 5
# When so many merges in a row are lost, the table may have changed so that the others of the same plan do not fit either.
LOST_IN_A_ROW = 2
# Files of many partitions are merged in one job, up to so many bytes.
BYTES_AT_ONCE = 256 * 1024 * 1024

# Looking at the sizes of metadata takes a few requests.
SECONDS_BETWEEN_LOOKS = 60.0
# The clock is compared with the store's again after so long, or at once when it was set by more than this.
SECONDS_BETWEEN_CLOCKS, CLOCK_JUMP_SECONDS = 3600.0, 60.0

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
        self._lists: Lists | None = None
        self._deleting: Future[None] | None = None
        self._listing = RLock()
        # Until when the clock is taken for right, and how far it was from the time since the machine was started.
        self._clock: tuple[float, float] | None = None
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
        # Merges are validated against the snapshot in which their files were found: it stays until all are done.
        claimed.retention = ALL_SNAPSHOTS
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
        else:
            self._list(self._never_named(self._unreferenced()), grace=False)

    # Equality deletes

    def _settle(self) -> None:
        """Settles the equality deletes of upserts, though the sink allows more: readers pay for every file of them."""
        claimed = self._claimed
        bounded = claimed.sink.max_equality_deletes is not None
        if claimed.sink.commit_mode in DELETING and bounded and claimed.table.total("equality-deletes"):
            _settle_all(claimed)

    # Small files

    def _merge(self, *, finish: bool = False) -> None:
        """Merges what is due, up to the limit of a pause between batches; with ``finish`` all that is small.

        What was lost to somebody else is left for the next pause. With ``finish`` there is none: it is planned and tried again.
        """
        lost = 0
        for _ in range(TRIES if finish else 1):
            if not (lost := self._merge_planned(finish=finish)):
                break
        if lost and finish:
            text = f"{lost} merges of small files were overtaken by other changes of the same files, {TRIES} times in a row."
            self._claimed.listen(CommitFailed(self._claimed.name, "upkeep", text, TRIES, will_retry=True))
        self._look()

    def _merge_planned(self, *, finish: bool) -> int:
        """Does the merges that are due now, each job in a commit of its own; returns how many were not done."""
        table = self._claimed.table
        # What others delete after the files were found is seen by the commit, also when other files were merged in between.
        base, sequence = table.base, table.head_sequence
        found = _attempted(self._claimed, self._care.small_files)
        if found is None:
            return 0
        files, target = [one.files for one in found], self._care.target_bytes
        merges = plan_merges(files, sequence, self._spec, target, finish=finish)
        self._small, self._surplus = sum(map(len, files)), too_many(files, target)
        most = self._spec.max_rewrite_bytes
        jobs: Iterable[Sequence[Merge]] = jobs_of(merges, BYTES_AT_ONCE if finish else min(BYTES_AT_ONCE, most))
        lost = in_a_row = 0
        for job in jobs if finish else affordable(jobs, most):
            if self._merged(found, job, base, sequence):
                in_a_row = 0
                continue
            lost, in_a_row = lost + len(job), in_a_row + 1
            if in_a_row == LOST_IN_A_ROW:
                break
        return lost

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
            self._list(before)
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
        if self._lists is not None:
            known = replace(known, files_to_delete=len({one.path for files in self._lists.values() for one in files}))
        if known != TableFigures():
            claimed.listen(TableMeasured(claimed.name, claimed.sink.full_name, known))

    # Files of expired snapshots

    def _list_dead(self) -> None:
        """Lists the files that only expired snapshots need. If it fails, they are left for a cleanup of orphan files."""
        claimed, began = self._claimed, time.monotonic()
        gone, claimed.expired = claimed.expired, []
        self._list(_attempted(claimed, lambda: [path for one in gone for path in self._care.dead_files(one)]) or ())
        self._report("expire_snapshots", sum(len(one.snapshots) for one in gone), began)

    def _list(self, paths: Collection[str], *, grace: bool = True) -> None:
        """Puts files on a list of those to delete, after the grace of readers unless nobody can be reading them."""

        def add() -> None:
            now, lists = now_ms(), self._care.files_to_delete
            due = now + int(self._spec.reader_grace_minutes * 60_000) * grace
            with self._listing:
                known = (_attempted(self._claimed, lists.lists) or {}) if self._lists is None else self._lists
                self._lists = lists.add([Doomed(path, due) for path in paths], now, known)

        if paths:
            _attempted(self._claimed, add)

    def _delete_due(self) -> None:
        """Deletes the files of all lists that no query can be reading any longer, while the next batches are written."""
        if self._deleting is not None:
            if not self._deleting.done():
                return
            self._deleting.result()
        self._deleting = _DELETERS.submit(self._delete, self._care, self._unreferenced())

    def _unreferenced(self) -> Sequence[Callable[[], list[str]]]:
        """What finds the files that commits have written for nothing since this was asked last."""
        found, self._claimed.unreferenced = self._claimed.unreferenced, []
        return found

    def _never_named(self, unreferenced: Sequence[Callable[[], list[str]]]) -> list[str]:
        """The files that commits have written for nothing. Nothing has ever named them."""
        return [path for find in unreferenced for path in _attempted(self._claimed, find) or ()]

    def _delete(self, care: TableCare, unreferenced: Sequence[Callable[[], list[str]]]) -> None:
        """Deletes files that are due, and those that nothing has ever named. What the store refuses to delete is tried again."""
        began, lists, found = time.monotonic(), care.files_to_delete, self._never_named(unreferenced)

        def due() -> set[str]:
            with self._listing:
                self._lists = lists.lists(self._lists)
            return {one.path for files in self._lists.values() for one in files if one.due_ms <= now_ms()}

        def delete() -> bool:
            self._require_clock(care)
            lists.delete([*going, *found])
            return True

        def take_off() -> None:
            with self._listing:
                self._lists = lists.without(self._lists or {}, going, now_ms())

        going = _attempted(self._claimed, due) or set()
        if not going and not found:
            return
        if _attempted(self._claimed, delete):
            _attempted(self._claimed, take_off)
            self._report("delete_files", len(going) + len(found), began)
        else:
            self._list(found, grace=False)

    def _require_clock(self, care: TableCare) -> None:
        """Raises when this machine's clock is wrong. It is compared with the store's every hour, and when it was set."""
        monotonic, now = time.monotonic(), now_ms()
        set_to = now / 1000 - monotonic
        if self._clock is None or monotonic > self._clock[0] or abs(set_to - self._clock[1]) > CLOCK_JUMP_SECONDS:
            care.require_clock(now)
            self._clock = monotonic + SECONDS_BETWEEN_CLOCKS, set_to

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
    return isinstance(error, TableGone)


def _committed(claimed: ClaimedSink, change: Change) -> bool:
    """Whether a change of files is in the table; not if somebody else wrote meanwhile, and it does not fit any longer."""
    try:
        claimed.run(claimed.intent(change))
    except Restage:
        claimed.retried(claimed.table.refresh)
        return False
    return True
