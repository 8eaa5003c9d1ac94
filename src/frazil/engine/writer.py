"""Owns one sink: its table, its place in the ledger, and the way of a batch into it.

Delivery: exactly once for every batch whose positions are the source's own, whatever fails in between. Unit of parallelism:
a sink has one writer at a time (the newest), whose files are written by all executors.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from frazil.engine import target
from frazil.engine.biglake import BigLakeTable
from frazil.engine.catalogs import catalog_settings, sqlite_file
from frazil.engine.commit import (
    AttemptFailed,
    Failed,
    FailureKind,
    Intent,
    Moved,
    TableView,
    commit,
    contiguous,
    ledger_holds,
    not_fenced,
    not_rolled_back,
    patiently,
    same_table,
)
from frazil.engine.deadletters import LetterBox, Letters, Post, Rejected, letters_sink, require_letters_apart
from frazil.engine.iceberg import TAKEN_BACK_TO, Append, Change, IcebergTable, Lake, Removal, Restage, done_again, fault_of
from frazil.engine.part import SINGLE_WRITES, Part
from frazil.engine.schema import told_keys
from frazil.engine.stager import Explain, Stager, Staging
from frazil.engine.staging_faults import explain_staging
from frazil.engine.table_columns import frame_schema
from frazil.engine.write import (
    Settlement,
    compact,
    deleted_where,
    settle,
    too_many_files,
    too_many_keys,
)
from frazil.errors import ConfigError, DataError, Fenced, FrazilError, Halted, Retryable
from frazil.model.changes import CommitMode
from frazil.model.commit import DIGEST, Batch, CommitResult, Position, RowCounts, SinkState, short_range
from frazil.model.dead_letters import OnError
from frazil.model.events import CommitFailed, Committed, FencedOut, Listener, Settled, Staged
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.model.types import StructType
from frazil.sources.base import is_away

T = TypeVar("T")

# Whoever has mistyped an address is not to wait for a minute, unless the patience is told.
TRIES_TO_OPEN = 4


@dataclass
class Prepared:
    """A batch whose files are written and not committed. Without a ``staging`` they are to be written again."""

    frame: DataFrame
    part: Part
    explain: Explain
    began: float
    staging: Staging | None = None

    @property
    def counts(self) -> RowCounts:
        """What became of its rows."""
        assert self.staging is not None, "it was not committed yet"
        return self.staging.written.counts

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The rows that are dead letters."""
        assert self.staging is not None, "it was not committed yet"
        return self.staging.rejected

    def let_go(self) -> None:
        """It will not be committed."""
        if self.staging is not None:
            self.staging.let_go()


class SinkWriter:
    """The one writer of a sink in this process."""

    def __init__(
        self,
        session: SparkSession,
        sink: SinkSpec,
        sink_id: str,
        *,
        name: str,
        transforms: tuple[TransformSpec, ...] = (),
        retry: RetrySettings,
        listen: Listener,
        sleep: Callable[[float], object] = time.sleep,
        letters: Letters | None = None,
        post: Post | None = None,
    ) -> None:
        self.name = name
        self.sink = sink
        self.sink_id = sink_id
        self.session = session
        self.instance = uuid.uuid4().hex[:12]
        self.state: SinkState | None = None
        self._epoch: int | None = None
        self._retry = retry
        self._listen = listen
        self._sleep = sleep
        if file := sqlite_file(catalog_settings(sink)):
            file.parent.mkdir(parents=True, exist_ok=True)  # SQLite makes the file, not its folder
        self._opening = retry if retry.model_fields_set else retry.model_copy(update={"max_retries": TRIES_TO_OPEN})
        self._lake = self._patiently(lambda: Lake(session, sink.catalog.name, sink.catalog.address), self._opening)
        self._table: IcebergTable | None = None
        self._stager = Stager(sink, sink_id, transforms)
        self.letters = letters
        if letters is None and sink.error_handling is OnError.DEAD_LETTER:
            require_letters_apart(sink)
            self.letters = LetterBox(self.beside(letters_sink(sink)), sink, name, post)
        self.unfinished: Position | None = None
        self._shown: BigLakeTable | None = None
        if sink.biglake is not None:
            self._shown = BigLakeTable(sink.biglake, sink.table or "", pipeline=name, retry=retry, listen=listen, sleep=sleep)

    def beside(self, sink: SinkSpec) -> SinkWriter:
        """A writer of another table for the same sink. Only what fails is told of it: its rows are not those of the sink."""
        return SinkWriter(
            self.session,
            sink,
            self.sink_id,
            name=self.name,
            retry=self._retry,
            listen=lambda event: self._listen(event) if isinstance(event, CommitFailed | FencedOut) else None,
            sleep=self._sleep,
        )

    @property
    def _awaits_keys(self) -> bool:
        """Whether only the first rows of the source tell what identifies them."""
        return self.sink.commit_mode is CommitMode.UPSERT and not self.sink.key_fields

    @property
    def ready(self) -> bool:
        """Whether the table is there and this writer owns the sink."""
        return self._table is not None

    def open(self, *, claim: bool = True, make: bool = True) -> SinkState | None:
        """Claims the sink when its table is there; makes the table first when its columns are declared.

        Without ``claim`` the ledger is only read, and the first batch claims the sink in the same commit. Without ``make``, too,
        nothing is written at all: for those who only ask where the sink is.
        """
        table = self._existing()
        declared = self.sink.declared_schema
        if table is None and make and declared is not None and not self._awaits_keys:
            table = self._created(declared)
        if table is not None:
            self._take(table, claim, make)
        return self.state

    def prepare(self) -> StructType:
        """Finds the table, or makes it of the declared columns, and claims nothing; the columns that it has."""
        table = self._existing()
        declared = self.sink.declared_schema
        if table is None:
            if declared is None:
                raise ConfigError(
                    "table-missing",
                    f"Table {self.sink.full_name} does not exist, and no columns are declared to make it of.",
                    fix="Create the table, or declare its columns.",
                )
            table = self._created(declared)
        return table.schema

    def _existing(self) -> IcebergTable | None:
        return self._patiently(lambda: target.existing(self._lake, self.sink), self._opening)

    def _created(self, schema: StructType, told: Sequence[str] = ()) -> IcebergTable:
        """Made once, however often it is tried: one that was made when the answer was lost is taken."""
        return self._patiently(lambda: target.created(self._lake, self.sink, schema, told), self._opening)

    def committed_before(self, end: Position) -> bool:
        """Whether a batch of this sink that ended there is in the table's history, or expired and is remembered by its name."""
        if self._table is None:
            return False
        remembered = self.state is not None and self.state.remembers(end)
        return remembered or short_range(end) in self._table.committed_ends(self.sink_id)

    def ensure(self, frame: DataFrame, *, claim: bool = True, unfilled: frozenset[str] = frozenset()) -> SinkState | None:
        """The same for a table that takes its columns from the data, but for those that are not meant for it."""
        if self._table is None:
            shaped_frame = self._stager.shaped(frame)
            needed = {*self.sink.key_fields, *(one.source.partition(".")[0] for one in self.sink.partition)}
            schema = self.sink.declared_schema or frame_schema(shaped_frame, unfilled - needed)
            self._take(self._created(schema, told_keys(shaped_frame, self.sink)), claim)
        return self.state

    def look(self) -> SinkState | None:
        """Reads the ledger as it is now, without a claim."""
        view = self._view()
        not_rolled_back(view, self._intent())
        self.state = view.state
        return self.state

    def awaits(self, part: Part) -> bool:
        """Whether the ledger as it is now lacks a part; stops when that could not be committed to it.

        Asked before other tables get what they get of a part.
        """
        batch = Batch(part.source, part.start, part.end)
        view, intent = self._view(), replace(self._intent(), batch=batch)
        with self._fence_told():
            same_table(view, intent)
            not_fenced(view, intent)
            not_rolled_back(view, intent)
            self.state = view.state
            if view.state is not None and ledger_holds(view.state, batch):
                return False
            contiguous(view, intent)
        return True

    def _view(self) -> TableView:
        table = self._require_table()

        def seen() -> TableView:
            try:
                return table.port(self.sink_id).refresh()
            except AttemptFailed as failed:
                raise failed.outcome.error from failed

        return self._patiently(seen)

    def states(self, beginning: str) -> dict[str, SinkState]:
        """The ledger's entries of all sinks of the table whose ids begin like this, as they are now, without a claim."""
        table = self._require_table()
        self._patiently(table.refresh)
        return table.states(beginning)

    def write(
        self, frame: DataFrame, part: Part, explain: Explain = lambda _: None, unfilled: frozenset[str] = frozenset()
    ) -> Committed:
        """Stages and commits one batch; the ledger's end must be the part's start. ``unfilled`` columns are not added."""
        return self.finish(self.stage(frame, part, explain, unfilled))

    def stage(
        self, frame: DataFrame, part: Part, explain: Explain = lambda _: None, unfilled: frozenset[str] = frozenset()
    ) -> Prepared:
        """The first half of a write: the files, which nothing knows of yet."""
        self._stager.begin(unfilled)
        batch = Prepared(frame, part, explain, time.monotonic())
        batch.staging = self._until_it_fits(lambda: self._staged(batch))
        return batch

    def finish(self, batch: Prepared) -> Committed:
        """The second half: letters and commit."""

        def attempt() -> Committed:
            staging, batch.staging = batch.staging or self._staged(batch), None
            return self._commit_staged(batch, staging)

        return self._until_it_fits(attempt)

    def _until_it_fits(self, attempt: Callable[[], T]) -> T:
        """Stages and commits again when what was staged no longer fits a table that somebody else has changed meanwhile."""
        for tries in count(1):
            try:
                return attempt()
            except Restage as moved:
                if tries > self._retry.max_retries:
                    raise Retryable("contention", f"{moved.message} This happened {tries} times in a row.") from moved
                self._patiently(self._require_table().refresh)
        raise AssertionError("unreachable")

    def write_each(self, frames: Sequence[DataFrame], part: Part, explain: Explain = lambda _: None) -> Committed:
        """The same for a source that has its rows by table: here there can be one."""
        (frame,) = frames
        return self.write(frame, part, explain)

    def abandon(self) -> Position | None:
        """Gives up a batch that was cut off and cannot be read again: what it left in other tables is to be replaced."""
        if self.letters is not None:
            self.letters.abandon()
        self.unfinished = None
        return self.state.end if self.state is not None else None

    def _staged(self, batch: Prepared) -> Staging:
        table = self._require_table()
        self._patiently(table.look)
        staging = self._files_of(table, batch.frame, batch.part, batch.explain)
        counts, staged = staging.written.counts, staging.written.change.operation.staged
        self._listen(Staged(self.name, staged.rows, len(staged.files), staged.bytes, time.monotonic() - batch.began))
        if not counts.balanced:
            raise DataError(
                "rows-unaccounted",
                f"Of {counts.read + counts.extra} changes {counts.written} were written, {counts.deleted} deleted a row, "
                f"{counts.superseded} were superseded, {counts.dead_lettered} dead-lettered and {counts.filtered} filtered: "
                f"the numbers do not add up.",
                fix="Nothing was committed. The source did not read the same rows twice; report this.",
            )
        return staging

    def _commit_staged(self, prepared: Prepared, staging: Staging) -> Committed:
        part, change, counts = prepared.part, staging.written.change, staging.written.counts
        staged = change.operation.staged
        if self.letters is not None:
            try:
                if part.lead is not None or not staging.rejected or self.awaits(part):
                    lead = part.lead or (self.state.batch if self.state is not None else 0) + 1
                    self.letters.put(staging.rejected, counts.read, part, lead)
            finally:
                staging.let_go()
            self.unfinished = part.end if staging.rejected else None  # from here on the very same part must be repeated
        if self._has_single_write(part):
            assert self.state is not None, "it has written that"
            result = CommitResult(self.state, skipped=True, attempts=0)
        else:
            result = self._commit(Batch(part.source, part.start, part.end, counts, part.lead, part.named), change)
        self.unfinished = None
        committed = Committed(
            pipeline=self.name,
            table=self.sink.full_name,
            batch=result.state.batch,
            snapshot=result.state.snapshot,
            counts=counts,
            files=len(staged.files),
            bytes=staged.bytes,
            seconds=time.monotonic() - prepared.began,
            attempts=result.attempts,
            at_ms=result.state.at_ms,
            skipped=result.skipped,
        )
        self._listen(committed)
        self._keep_debt_bounded()
        self._show()
        return committed

    def _has_single_write(self, part: Part) -> bool:
        """Whether a table that follows got a single write that was cut off elsewhere: its end is given once, or is a name."""
        return part.lead is not None and part.source == SINGLE_WRITES and self.committed_before(part.end)

    def require_as_before(self, part: Part, counts: RowCounts) -> None:
        """Stops when a table that follows has this batch already, with another number of rows than it would get now.

        A merge may have written then what it leaves alone now.
        """
        state = self.state
        if state is None or not part.held_by(state):
            return
        most = counts.written + (counts.filtered if self.sink.commit_mode is CommitMode.UPSERT else 0)
        if not counts.written <= state.rows <= most:
            raise Halted(
                "batch-differs",
                f"Table {self.sink.full_name} got {state.rows} rows of the batch up to {part.end} before that was cut off; now "
                f"it would get {counts.written}. Rows would be lost or doubled.",
                fix="Something was changed since: the pipeline, or the table. Undo it, and change it after the next batch.",
            )

    def _files_of(self, table: IcebergTable, frame: DataFrame, part: Part, explain: Explain) -> Staging:
        """The files of a batch, written anew when the store did not take them: nothing knows of those that were cut off.

        A table that changed meanwhile, and a source that does not answer, are looked at anew by whoever asked for the batch.
        """

        return self._patiently(
            lambda: self._stager.stage(table, frame, part, explain),
            but=lambda error: isinstance(error, Restage) or is_away(error),
        )

    def _show(self) -> None:
        """Lets other systems know of the table as it is now."""
        if self._shown is None:
            return
        table = self._require_table()
        self._patiently(table.look)
        if (metadata := table.metadata_location) is not None:
            self._shown.show(metadata)

    def _keep_debt_bounded(self) -> None:
        """Settles the deletes that readers pay for, as soon as there are more than the sink allows."""
        sink, table = self.sink, self._require_table()
        if sink.commit_mode not in (CommitMode.UPSERT, CommitMode.DELETE_INSERT):
            return
        if too_many_keys(table, sink):
            settled = self._upkeep(settle)
            # Deletes that compare other columns come next: those that were there, and not whatever others keep adding.
            for _ in range(settled.kinds_left if settled is not None else 0):
                if self._upkeep(settle) is None:
                    break
        if too_many_files(table, sink):
            self._upkeep(compact)

    def _upkeep(self, prepare: Callable[[IcebergTable], Settlement | None]) -> Settlement | None:
        """What was settled; None when nothing was, or not now."""
        table, began = self._require_table(), time.monotonic()
        try:
            settled = prepare(table)
        except FrazilError:
            raise
        except Exception as error:
            failed = explain_staging(fault_of(error))
            if not isinstance(failed, Retryable):
                raise failed from error
            # The batch itself is in the table; what is left to do is tried again after the next one.
            self._listen(CommitFailed(self.name, "upkeep", failed.message, 1, will_retry=True))
            return None
        if settled is None:
            return None
        try:
            self._run(self._intent(settled.change))
        except Restage:
            # Somebody else wrote meanwhile: the debt is still there, and is settled after the next batch.
            self._patiently(table.refresh)
            return None
        kind = settled.change.summary["frazil.kind"]
        self._listen(Settled(self.name, self.sink.full_name, kind, settled.deletes, settled.rows, time.monotonic() - began))
        return settled

    def _take(self, table: IcebergTable, claim: bool, make: bool = True) -> None:
        self._table = table
        lacking = target.lacking_properties(table, self.sink) if make else {}
        if not claim and not lacking:
            self.look()
            self._open_letters(claim, make)
            return
        change = Change(Append(), table.base, properties=lacking) if lacking else None
        followers = None if self.letters is None else self.letters.followers
        intent = Intent(self.sink_id, self.instance, at_ms=now_ms(), table_uuid=table.uuid, change=change, followers=followers)
        self._run(intent)
        self._patiently(table.refresh)
        self._open_letters(claim, make)
        self._show()

    def _open_letters(self, claim: bool, make: bool) -> None:
        if self.letters is not None:
            self.unfinished = self.letters.open(self.state, claim=claim, make=make)

    def register(self, followers: tuple[str, ...]) -> None:
        """Writes down the other tables of the sink, before they get anything."""
        self._run(replace(self._intent(), followers=followers))

    def position_at(self, snapshot: int) -> Position | None:
        """Where the sink was when its table had a snapshot; None is the beginning, and so is snapshot 0."""
        if snapshot == 0:
            return None
        end = self._require_table().end_at(self.sink_id, snapshot)
        if end is None or end.startswith(DIGEST):
            raise ConfigError(
                "snapshot-unknown",
                f"Snapshot {snapshot} of {self.sink.full_name} does not tell where the sink {self.sink_id!r} was.",
                fix="Choose one whose summary has `frazil.end` in full: frazil inspect shows them.",
            )
        return end

    def move(self, source: str, end: Position | None) -> None:
        """Lets the sink go on from another place of its source."""
        self._run(replace(self._intent(), moved=Moved(source, end)))

    def restart(self, source: str) -> None:
        """Empties the table and lets the sink begin anew, both in one commit."""
        table = self._require_table()

        def attempt() -> None:
            change = Change(deleted_where(table, "true"), table.base)
            self._run(replace(self._intent(change), moved=Moved(source, None)))

        self._until_it_fits(attempt)
        self._show()

    @property
    def head(self) -> int | None:
        """The snapshot that the table is at."""
        return self._require_table().base.head

    def remove(self, condition: str, among: str, cleared: Moved | None = None) -> None:
        """Takes those of some rows out for which a condition holds, whoever has put them there.

        ``cleared``: what the ledger says from the same commit on, also when there were none.
        """
        table = self._require_table()
        self._patiently(table.refresh)

        def attempt() -> None:
            operation = deleted_where(table, condition, among)
            if operation.any or cleared is not None:
                change = Change(operation if operation.any else Append(), table.base, summary={"frazil.kind": "remove"})
                self._run(replace(self._intent(change), moved=cleared))

        self._until_it_fits(attempt)

    def undo(self, condition: str) -> None:
        """Takes the last batch of a follower back out: the rows that the condition names, and its place in the ledger."""
        table, before = self._require_table(), self.state
        assert before is not None, "it has a batch"
        moved = Moved(before.source or "", before.start, before.lead - 1)

        def attempt() -> None:
            now = self.look()
            if now is not None and now.lead == moved.lead:
                return  # it was done, and only the answer was lost
            change = Change(deleted_where(table, condition), table.base)
            self._run(replace(self._intent(change), moved=moved))

        self._until_it_fits(attempt)

    def take_back(self, kept: Callable[[Position | None], bool], then: Position | None = None) -> int:
        """Takes the last batches of the sink out of the table, back to a position that is ``kept``; how many they were.

        Exactly the files that they added are removed, and the ledger is set back, in one commit. For sources that are set back
        by somebody else, and that give no part twice in the same form. ``then``: another text for the position that is kept,
        which the ledger gets in its place.
        """
        table = self._require_table()
        taken = 0

        def attempt() -> int:
            nonlocal taken
            state = self.look()
            if state is None or kept(state.end):
                return taken  # nothing to do, or it was done, and only the answer was lost
            added = table.added_since(self.sink_id, state.end, kept)
            if added is None:
                raise self._not_taken_back("their snapshots have expired, or they did more than add rows")
            # Refused a second time, the files are really gone.
            refusal = done_again if not taken else self._not_taken_back
            taken = added.batches
            summary = {"frazil.batches-taken-back": str(added.batches), TAKEN_BACK_TO: short_range(added.start)}
            change = Change(Removal(added.files, refusal), table.base, summary=summary)
            self._run(replace(self._intent(change), moved=Moved(state.source, added.start if then is None else then)))
            return taken

        return self._until_it_fits(attempt)

    def _not_taken_back(self, why: str) -> Halted:
        return Halted(
            "batches-not-removable",
            f"The last batches of {self.sink_id!r} cannot be taken back out of {self.sink.full_name}: {why}.",
            fix="Their files were rewritten or expired since. Decide what the table should hold: roll it back to a snapshot "
            "before them, or give the sink another id to begin anew.",
        )

    def mark(self, part: Part, counts: RowCounts) -> CommitResult:
        """Commits a batch that has no rows for this table: only that it is done."""
        return self._commit(Batch(part.source, part.start, part.end, counts, named=part.named), None)

    def _commit(self, batch: Batch, change: Change | None) -> CommitResult:
        return self._run(replace(self._intent(change), batch=batch))

    def _intent(self, change: Change | None = None) -> Intent:
        uuid = self._require_table().uuid
        return Intent(self.sink_id, self.instance, at_ms=now_ms(), epoch=self._epoch, table_uuid=uuid, change=change)

    def _run(self, intent: Intent) -> CommitResult:
        with self._fence_told():
            result = commit(
                self._require_table().port(self.sink_id), intent, self._retry, on_failure=self._failed_attempt, sleep=self._sleep
            )
        self.state, self._epoch = result.state, result.state.epoch
        return result

    @contextmanager
    def _fence_told(self) -> Iterator[None]:
        try:
            yield
        except Fenced as fenced:
            self._listen(FencedOut(self.name, fenced.message))
            raise

    def _failed_attempt(self, failed: Failed, attempt: int) -> None:
        again = not failed.final or isinstance(failed.error, Restage)
        self._listen(CommitFailed(self.name, failed.kind.value, failed.error.message, attempt, will_retry=again))

    def _patiently(
        self,
        call: Callable[[], T],
        retry: RetrySettings | None = None,
        *,
        but: Callable[[Retryable], bool] = lambda _: False,
    ) -> T:
        """What the catalog or the store answers before, between and after commits, with the patience of a commit."""

        def tell(error: Retryable, failures: int, final: bool) -> None:
            self._failed_attempt(Failed(FailureKind.UNREACHABLE, error, final), failures)

        return patiently(call, retry or self._retry, tell, self._sleep, but=but)

    def _require_table(self) -> IcebergTable:
        if self._table is None:
            raise RuntimeError("the sink is not open")
        return self._table


def now_ms() -> int:
    """The time now, in milliseconds."""
    return time.time_ns() // 1_000_000
