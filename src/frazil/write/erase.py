"""Takes rows out of a table and out of its history, commit by commit, through the commit loop.

Each call of `step` looks at the table as it is now, and does the first of these that is due:

1. rows of the head that match are deleted by their positions;
2. files of the head in which they still are, hidden by deletes, are written anew without them;
3. equality deletes with their keys, or of which that cannot be known, are settled into positions;
4. manifests that name files with such rows as removed are written anew: they have the bounds of columns;
5. all snapshots but the head expire, with all that only they need on a list of files to delete.

No step relies on what an earlier one remembers, so that they can be interrupted anywhere and begun again. Beside another writer
a step may be overtaken: then the next call looks again. Rows that come meanwhile are treated like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frazil.commit.retry import pause_seconds
from frazil.errors import FrazilError, Halted
from frazil.iceberg import Change, LiveFile, Restage, RowsRemoved, fault_of
from frazil.iceberg.metadata_files import DATA, KEYS
from frazil.iceberg.remains import Reachable, Remains
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.forget import Extent
from frazil.model.maintenance import Retention
from frazil.write.claim import ClaimedSink
from frazil.write.maintenance import BYTES_AT_ONCE
from frazil.write.modes import settle

ERASED = "erase"
"""What `frazil.kind` of a snapshot says that an erasure made."""

# The snapshot of the commit itself stays, and those that tags and branches need.
HEAD_ALONE = Retention(max_snapshots=1, max_age_ms=0, history=False)


class Erasure:
    """The erasure of some rows from the table of a sink that is claimed."""

    def __init__(self, claimed: ClaimedSink, remains: Remains, say: Callable[[str], None]) -> None:
        self._claimed = claimed
        self._remains = remains
        self._say = say
        self.rows_deleted = 0
        self._overtaken = 0

    def step(self) -> bool:
        """Does the first thing that is due; whether there was one."""
        try:
            done = self._step()
        except FrazilError as error:
            failed = error
        except Exception as error:  # noqa: BLE001 - it is raised in words
            failed = explain_staging(fault_of(error))
        else:
            self._overtaken = 0
            return done
        if not isinstance(failed, Restage):
            raise failed
        self._say(f"another writer was faster, and it is looked again: {failed.message}")
        self._overtaken += 1
        self._claimed.sleep(pause_seconds(failed, self._claimed.retry, self._overtaken))
        return True

    def _step(self) -> bool:
        claimed, remains = self._claimed, self._remains
        claimed.retried(claimed.table.refresh)
        reached = remains.reachable()
        remains.look_into(reached)
        require_free(remains, reached)
        steps = (self._delete, self._rewrite, self._settle, self._clean_manifests, self._expire)
        return any(step(reached) for step in steps)

    # 1 and 2

    def _delete(self, reached: Reachable) -> bool:
        files = self._dirty(reached)
        dead = self._remains.live_matches(files)
        if not dead:
            return False
        claimed, table = self._claimed, self._claimed.table
        base, count = table.base, sum(map(len, dead.values()))
        if table.format_version == 1:
            dirty = [one for one in files if one.path in dead]
            staged = table.care.without(dirty, dead)
            if staged.rows != sum(int(one.file.recordCount()) for one in dirty) - count:
                raise Halted(
                    "audit-failed", "Files without the rows would lack others, too. Nothing was committed.", fix="Report this."
                )
            operation = RowsRemoved(staged=staged, removed=tuple(one.file for one in dirty))
        else:
            with table.working_copy() as copy:
                marked = copy.positions(dead, files)
            operation = RowsRemoved(marked.added, marked.replaced, tuple(dead))
        summary = {"frazil.kind": ERASED, "frazil.erased-rows": str(count)}
        claimed.run(claimed.intent(Change(operation, base, summary=summary)))
        self.rows_deleted += count
        self._remains.gone_at = self._remains.gone_ms = None
        self._say(f"{count:,} rows were deleted")
        return True

    def _rewrite(self, reached: Reachable) -> bool:
        files = self._dirty(reached)
        claimed, table = self._claimed, self._claimed.table
        # What others delete from these files meanwhile applies to those that take their place.
        base, sequence = table.base, table.head_sequence
        for job in in_jobs(files):
            summary = {"frazil.kind": ERASED, "frazil.rewritten-files": str(len(job))}
            claimed.run(claimed.intent(Change(table.care.merge(job, sequence), base, summary=summary)))
            self._say(f"{len(job):,} files were written anew without the rows")
        if files:
            self._remains.gone_at = self._remains.gone_ms = None
        return bool(files)

    def _dirty(self, reached: Reachable) -> list[LiveFile]:
        """The files of the head in which the rows are, deleted or not."""
        head = reached.head
        paths = {entry.path for entry in head.live(DATA) if self._matches(entry.path)} if head is not None else set()
        return self._remains.live(paths) if paths else []

    def _matches(self, path: str) -> bool:
        found = self._remains.what(path)
        return found is not None and found.matches > 0

    # 3

    def _settle(self, reached: Reachable) -> bool:
        head, remains = reached.head, self._remains
        if head is None:
            return False
        if remains.gone_at is None:
            remains.gone_at, remains.gone_ms = head.sequence, head.at_ms
        if all(remains.clean(entry) for entry in head.live(KEYS)):
            return False
        settlement = settle(self._claimed.table)
        if settlement is None:
            return True
        self._claimed.run(self._claimed.intent(settlement.change))
        self._say(f"{settlement.deletes:,} equality deletes were settled")
        return True

    # 4

    def _clean_manifests(self, reached: Reachable) -> bool:
        head, remains = reached.head, self._remains
        if head is None:
            return False
        unclean = [m for m in head.manifests if any(not e.live and not remains.clean(e) for e in m.entries)]
        if not unclean:
            return False
        claimed, table = self._claimed, self._claimed.table
        base, of_deletes = table.base, [one for one in unclean if int(one.handle.content().id()) == 1]
        operation = table.care.without_removed(remains, of_deletes)
        claimed.run(claimed.intent(Change(operation, base, summary={"frazil.kind": ERASED})))
        self._say(f"{len(unclean):,} manifests were written anew")
        return True

    # 5

    def _expire(self, reached: Reachable) -> bool:
        old = [one for one in reached.snapshots if one.id in reached.history and self._unclean(reached, one.id)]
        if not old:
            return False
        claimed = self._claimed
        self._remains.remember(reached.only_named_by_history())
        claimed.retention = HEAD_ALONE
        try:
            claimed.run(claimed.intent())
        finally:
            claimed.retention = None
        self._say(f"{len(reached.history):,} snapshots expired")
        return True

    def _unclean(self, reached: Reachable, snapshot: int) -> bool:
        (one,) = (s for s in reached.snapshots if s.id == snapshot)
        return not all(self._remains.clean(entry) for manifest in one.manifests for entry in manifest.entries)


def in_jobs(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    """The files in groups that are rewritten together."""
    jobs: list[list[LiveFile]] = []
    room = 0
    for one in files:
        size = int(one.file.fileSizeInBytes())
        if not jobs or size > room:
            jobs.append([])
            room = BYTES_AT_ONCE
        jobs[-1].append(one)
        room -= size
    return jobs


def require_free(remains: Remains, reached: Reachable) -> None:
    """Stops when a tag or another branch needs files with the rows, or with what may be of them."""
    by_id = {one.id: one for one in reached.snapshots}
    blocking = []
    for name, ids in reached.kept.items():
        entries = [e for one in ids if one in by_id for m in by_id[one].manifests for e in m.entries]
        if not all(remains.clean(entry) for entry in entries):
            blocking.append(name)
    if blocking:
        raise Halted(
            "references-hold-rows",
            f"Files that {', '.join(sorted(blocking))} of the table need have some of the rows, or keys and bounds of columns "
            "that may be theirs. Nothing is forgotten as long as somebody can go back to them.",
            fix="Drop them (ALTER TABLE ... DROP TAG, DROP BRANCH), or move them to a snapshot without the rows.",
        )


def extent(remains: Remains, reached: Reachable, orphans: Sequence[str]) -> Extent:
    """Where rows are that match, by what was found in files. Rows that readers see are counted by reading them once more."""
    head = reached.head
    dirty = {entry.path for entry, _ in reached.named(DATA) if (found := remains.what(entry.path)) and found.matches}
    live = remains.live({entry.path for entry in head.live(DATA)} & dirty) if head is not None else []
    holding = [s for s in reached.snapshots if any(entry.path in dirty for entry in s.live(DATA))]
    keys = [entry for entry, _ in reached.named(KEYS) if not remains.clean(entry)]
    apart = [found for path in orphans if (found := remains.what(path)) is not None and found.matches]
    return Extent(
        rows=sum(map(len, remains.live_matches(live).values())),
        copies=sum(one.matches for path in dirty if (one := remains.what(path))),
        files=len(dirty),
        snapshots=len(holding),
        orphans=len(apart),
        undecided_files=len(keys),
        history=len(reached.history),
    )
