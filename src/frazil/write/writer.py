"""Owns one sink: its table, its place in the ledger, and the way of a batch into it.

Delivery: exactly once for every batch whose positions are the source's own, whatever fails in between. Unit of parallelism:
a sink has one writer at a time (the newest), whose files are written by all executors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.util import inheritable_thread_target

from frazil.columns.schema import keys_from_source, schema_of
from frazil.columns.table_columns import new_table_schema
from frazil.commit.protocol import Intent
from frazil.errors import ConfigError, CredentialsRefused, DataError, Halted, SourceAway
from frazil.iceberg import IcebergTable, KeyIndex, Restage
from frazil.model.changes import CommitMode
from frazil.model.commit import Batch, CommitResult, Position, RowCounts, SinkState, short_range
from frazil.model.dead_letters import OnError
from frazil.model.events import CommitFailed, Committed, Event, FencedOut, Staged
from frazil.model.origins import source_columns
from frazil.model.sink import SinkSpec
from frazil.model.types import StructType
from frazil.spark.requests import requested
from frazil.write import target
from frazil.write.claim import ClaimedSink
from frazil.write.deadletters import LetterBox, Letters, Rejected, letters_sink, require_letters_apart
from frazil.write.maintenance import Upkeep
from frazil.write.part import SINGLE_WRITES, Part
from frazil.write.setup import WriterSetup
from frazil.write.stager import Explain, Stager, Staging
from frazil.write.tombstones import Tombstones, tombstones_sink


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

    @property
    def leaves_room(self) -> bool:
        """Whether the next batch can be staged while this one is committed."""
        return self.staging is not None and self.staging.written.change.leaves_room

    def let_go(self) -> None:
        """It will not be committed."""
        if self.staging is not None:
            self.staging.let_go()


@dataclass(frozen=True)
class Committing:
    """A batch that is being committed."""

    batch: Prepared
    done: Future[Committed]


# Each pipeline has at most one commit under way.
_COMMITTERS = ThreadPoolExecutor(64, thread_name_prefix="commit")


class SinkWriter:
    """The one writer of a sink in this process."""

    def __init__(self, setup: WriterSetup, sink: SinkSpec, *, letters: Letters | None = None) -> None:
        session, sink_id, name = setup.session, setup.sink_id, setup.name
        self.claimed = ClaimedSink(session, sink, sink_id, name=name, retry=setup.retry, listen=setup.listen, sleep=setup.sleep)
        self.name, self.sink, self.sink_id, self.session = name, sink, sink_id, session
        self.unfinished: Position | None = None
        self._before_commit: IcebergTable | None = None
        self._setup = setup
        self._transforms = setup.transforms
        index = KeyIndex(setup.index_folder(sink), sink_id) if sink.commit_mode is CommitMode.UPSERT else None
        self.tombstones = Tombstones(self.beside(tombstones_sink(sink)), sink) if sink.ignores_late else None
        self._stager = Stager(sink, sink_id, setup.transforms, index, self.tombstones)
        self._upkeep = Upkeep(self.claimed)
        self.letters = letters
        if letters is None and sink.error_handling is OnError.DEAD_LETTER:
            require_letters_apart(sink)
            self.letters = LetterBox(self.beside(letters_sink(sink)), sink, name, setup.post)

    @property
    def state(self) -> SinkState | None:
        """The sink's place in the ledger, as it was seen last."""
        return self.claimed.state

    def beside(self, sink: SinkSpec) -> SinkWriter:
        """A writer of another table for the same sink. It reports only failures: its rows are not those of the sink."""
        listen = self._setup.listen

        def failures(event: Event) -> None:
            if isinstance(event, CommitFailed | FencedOut):
                listen(event)

        return SinkWriter(replace(self._setup.of_one_table, listen=failures), sink)

    @property
    def source_columns(self) -> StructType | None:
        """The columns of the table under the names that they have in the source; None as long as there is none."""
        schema = (self._before_commit or self.claimed.table).schema if self.ready else self.sink.declared_schema
        return None if schema is None else source_columns(schema, self.sink.change_format, self._transforms)

    @property
    def _awaits_keys(self) -> bool:
        """Whether only the first rows of the source show which columns identify them."""
        return self.sink.commit_mode is CommitMode.UPSERT and not self.sink.key_fields

    @property
    def ready(self) -> bool:
        """Whether the table is there and this writer owns the sink."""
        return self.claimed.ready

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
                    f"Table {self.sink.full_name} does not exist, and its columns are not declared.",
                    fix="Create the table, or declare its columns.",
                )
            table = self._created(declared)
        return table.schema

    def _existing(self) -> IcebergTable | None:
        return self.claimed.retried(lambda: target.existing(self.claimed.lake, self.sink), self.claimed.opening)

    def _created(self, schema: StructType, source_keys: Sequence[str] = ()) -> IcebergTable:
        """Made once, however often it is tried: one that was made when the answer was lost is taken."""
        return self.claimed.retried(
            lambda: target.created(self.claimed.lake, self.sink, schema, source_keys), self.claimed.opening
        )

    def committed_before(self, end: Position) -> bool:
        """Whether a batch of this sink that ended there is in the table's history, or expired and is remembered by its name."""
        if not self.claimed.ready:
            return False
        remembered = self.state is not None and self.state.remembers(end)
        return remembered or short_range(end) in self.claimed.table.history.committed_ends(self.sink_id)

    def ensure(self, frame: DataFrame, *, claim: bool = True, unfilled: frozenset[str] = frozenset()) -> SinkState | None:
        """Opens the sink, and creates its table from the columns of the data when there is none, without ``unfilled`` ones."""
        if not self.claimed.ready:
            shaped_frame = self._stager.shaped(frame, proven=False)
            needed = {*self.sink.key_fields, *(one.source.partition(".")[0] for one in self.sink.partition)}
            schema = self.sink.declared_schema or new_table_schema(schema_of(shaped_frame), self.sink, unfilled - needed)
            self._take(self._created(schema, keys_from_source(shaped_frame, self.sink)), claim)
        return self.state

    def awaits(self, part: Part) -> bool:
        """Whether the ledger as it is now lacks a part; stops when that could not be committed to it.

        Asked before other tables get what they get of a part.
        """
        return self.claimed.awaits(Batch(part.source, part.start, part.end))

    def write(
        self, frame: DataFrame, part: Part, explain: Explain = lambda _: None, unfilled: frozenset[str] = frozenset()
    ) -> Committed:
        """Stages and commits one batch; the ledger's end must be the part's start. ``unfilled`` columns are not added."""
        return self.commit_batch(self.stage_batch(frame, part, explain, unfilled))

    def stage_batch(
        self, frame: DataFrame, part: Part, explain: Explain = lambda _: None, unfilled: frozenset[str] = frozenset()
    ) -> Prepared:
        """The first half of a write: the files, which nothing knows of yet."""
        self._stager.begin(unfilled)
        if self.sink.commit_mode is CommitMode.OVERWRITE or self.sink.compares_rows:
            # What others have done up to now is there to be replaced, or compared; only what they do from here on is a conflict.
            self.claimed.retried(self.claimed.table.refresh)
        batch = Prepared(frame, part, explain, time.monotonic())
        batch.staging = self.claimed.until_it_fits(lambda: self._staged(batch))
        return batch

    def restage(self, batch: Prepared) -> None:
        """Writes the files of a batch anew, for the table as it is now."""
        batch.let_go()
        self.claimed.retried(self.claimed.table.refresh)
        batch.staging = self.claimed.until_it_fits(lambda: self._staged(batch))

    def commit_batch(self, batch: Prepared) -> Committed:
        """The second half: letters and commit."""

        def attempt() -> Committed:
            staging, batch.staging = batch.staging or self._staged(batch), None
            return self._commit_staged(batch, staging)

        return self.claimed.until_it_fits(attempt)

    def begin_commit(self, batch: Prepared) -> Committing:
        """The second half in a thread of its own. Up to `end_commit` this writer may be asked for nothing but `stage_ahead`."""
        staging, batch.staging = batch.staging, None
        assert staging is not None, "it was staged"
        self._before_commit = self.claimed.table.as_it_is()
        commit = inheritable_thread_target(self.session)(self._commit_staged)
        return Committing(batch, _COMMITTERS.submit(commit, batch, staging))

    def stage_ahead(self, frame: DataFrame, part: Part, explain: Explain = lambda _: None) -> Prepared:
        """The first half for the next batch, while one is committed: its files are those of the table before that commit."""
        assert self._before_commit is not None, "a commit was begun"
        self._stager.begin()
        batch = Prepared(frame, part, explain, time.monotonic())
        batch.staging = self._staged(batch, self._before_commit)
        return batch

    def end_commit(self, committing: Committing) -> Committed:
        """Waits for a commit that was begun. A batch that no longer fits the table is staged and committed again."""
        self._before_commit = None
        try:
            return committing.done.result()
        except (Restage, CredentialsRefused):
            self.claimed.retried(self.claimed.table.refresh)
            return self.commit_batch(committing.batch)

    def write_each(self, frames: Sequence[DataFrame], part: Part, explain: Explain = lambda _: None) -> Committed:
        """Writes a batch of a multi-table source; this sink has one table, and so the batch has one data frame."""
        (frame,) = frames
        return self.write(frame, part, explain)

    def abandon(self) -> Position | None:
        """Gives up a batch that was cut off and cannot be read again: what it left in other tables is to be replaced."""
        if self.letters is not None:
            self.letters.abandon()
        self.unfinished = None
        return self.state.end if self.state is not None else None

    def _staged(self, batch: Prepared, table: IcebergTable | None = None) -> Staging:
        if table is None:
            table = self.claimed.table
            self.claimed.retried(table.look)
        if self.tombstones is not None:
            self.tombstones.begin(batch.part, self.state)
        staging = self._files_of(table, batch.frame, batch.part, batch.explain)
        counts, staged = staging.written.counts, staging.written.change.operation.staged
        try:
            seconds = time.monotonic() - batch.began
            self.claimed.listen(Staged(self.name, staged.rows, len(staged.files), staged.bytes, seconds, self.sink.full_name))
            _require_balanced(counts)
        except BaseException:
            staging.let_go()
            raise
        return staging

    def _commit_staged(self, prepared: Prepared, staging: Staging) -> Committed:
        part, counts = prepared.part, staging.written.counts
        if self.letters is not None:
            try:
                if part.home_batch is not None or not staging.rejected or self.awaits(part):
                    home_batch = part.home_batch or (self.state.batch if self.state is not None else 0) + 1
                    self.letters.put(staging.rejected, counts.read, part, home_batch)
            finally:
                staging.let_go()
            self.unfinished = part.end if staging.rejected else None  # from here on the very same part must be repeated
        self._remember_deletes(part, staging)
        result = self._skipped(part) or self.claimed.commit(_batch_of(part, counts), staging.written.change)
        return self._reported(prepared, staging, result)

    def remember_deletes(self, batch: Prepared) -> None:
        """Writes down which keys a batch deletes, for one who commits it together with what other tables get."""
        assert batch.staging is not None, "it was staged"
        self._remember_deletes(batch.part, batch.staging)

    def _remember_deletes(self, part: Part, staging: Staging) -> None:
        """What the batch deletes is written down before it is committed; not that of one that the table has."""
        staged = staging.written.tombstones
        if self.tombstones is None or staged is None or self._skipped(part) is not None:
            return
        if part.home_batch is not None or self.awaits(part):
            self.tombstones.put(staged)

    def intent_of(self, batch: Prepared) -> Intent | None:
        """What is to be committed of a batch, for one who commits it together with what other tables get. None: it is there."""
        assert batch.staging is not None, "it was staged"
        written = batch.staging.written
        if self._skipped(batch.part) is not None:
            return None
        return replace(self.claimed.intent(written.change), batch=_batch_of(batch.part, written.counts))

    def committed_together(self, batch: Prepared, result: CommitResult | None) -> Committed:
        """What follows such a commit; without a result, the table had the batch."""
        result = result or self._skipped(batch.part)
        assert batch.staging is not None, "it was staged"
        assert result is not None, "it was committed"
        return self._reported(batch, batch.staging, result)

    def _reported(self, prepared: Prepared, staging: Staging, result: CommitResult) -> Committed:
        """Reports a commit, and does what is due after it."""
        counts, staged = staging.written.counts, staging.written.change.operation.staged
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
        self.claimed.listen(committed)
        self._upkeep.after_commit(len(staged.files))
        self.claimed.show()
        if (requests := requested(self.session, self.name)) is not None:
            self.claimed.listen(requests)
        return committed

    def _skipped(self, part: Part) -> CommitResult | None:
        """For a table that follows, and got a single write that was cut off elsewhere: its end is given once, or is a name."""
        if part.home_batch is None or part.source != SINGLE_WRITES or not self.committed_before(part.end):
            return None
        assert self.state is not None, "it has written that"
        return CommitResult(self.state, skipped=True, attempts=0)

    def require_as_before(self, part: Part, counts: RowCounts) -> None:
        """Stops when a table that follows has this batch already, with another number of rows than it would get now.

        A merge may have written then what it leaves alone now, and rows may be late now that were not then, or the reverse.
        """
        state = self.state
        if state is None or not part.held_by(state):
            return
        least = 0 if self.sink.ignores_late else counts.written
        most = counts.written + (counts.filtered if self.sink.commit_mode is CommitMode.UPSERT else 0)
        most += counts.superseded if self.sink.ignores_late else 0
        if not least <= state.rows <= most:
            raise Halted(
                "batch-differs",
                f"Table {self.sink.full_name} got {state.rows} rows of the batch up to {part.end} before that was cut off; now "
                f"it would get {counts.written}. Rows would be lost or doubled.",
                fix="Something was changed since: the pipeline, or the table. Undo it, and change it after the next batch.",
            )

    def _files_of(self, table: IcebergTable, frame: DataFrame, part: Part, explain: Explain) -> Staging:
        """The files of a batch, written again if the store did not take them: nothing refers to the incomplete ones.

        A table that changed meanwhile, and a source that does not answer, are handled by the caller that asked for the batch.
        """

        return self.claimed.retried(
            lambda: self._stager.staging_of(table, frame, part, explain),
            but=lambda error: isinstance(error, Restage | SourceAway),
        )

    def _take(self, table: IcebergTable, claim: bool, make: bool = True) -> None:
        followers = None if self.letters is None else self.letters.followers
        self.claimed.take(table, claim=claim, make=make, followers=followers)
        self._upkeep.begin()
        if self.tombstones is not None:
            self.tombstones.open(claim=claim)
        if self.letters is not None:
            self.unfinished = self.letters.open(self.state, claim=claim, make=make)

    def mark(self, part: Part, counts: RowCounts) -> CommitResult:
        """Commits a batch that has no rows for this table: only that it is done."""
        return self.claimed.commit(_batch_of(part, counts), None)

    def intent_to_mark(self, part: Part, counts: RowCounts) -> Intent:
        """What is to be committed to say that a batch is done, for one who commits it together with what other tables get."""
        return replace(self.claimed.intent(), batch=_batch_of(part, counts))


def _batch_of(part: Part, counts: RowCounts) -> Batch:
    return Batch(part.source, part.start, part.end, counts, part.home_batch, part.named)


def _require_balanced(counts: RowCounts) -> None:
    if not counts.balanced:
        raise DataError(
            "rows-unaccounted",
            f"Of {counts.read + counts.extra} changes {counts.written} were written, {counts.deleted} deleted a row, "
            f"{counts.superseded} were superseded, {counts.dead_lettered} dead-lettered and {counts.filtered} filtered: "
            f"the numbers do not add up.",
            fix="Nothing was committed. The source did not read the same rows twice; report this.",
        )
