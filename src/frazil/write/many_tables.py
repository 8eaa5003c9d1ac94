"""One stream into many tables: each batch is read once, and each table that it has rows for gets them in one commit.

The sink's home is a table of its own, which holds no rows: its ledger says how far the sink is, and which tables it writes to. A
batch is staged for all of them; then its letters go into the table of dead letters and its rows into theirs, a few at a time, and
it is done when the home says so. What was cut off is found on the next start by the ledgers of the tables, and is repeated as it
was: those that have it already skip it. With ``atomic`` all of this is one commit of the catalog, and nothing is cut off.

Delivery: every row of a batch once, in its table or among the dead letters. Readers may see a batch in some tables earlier than
in others, unless it is ``atomic``. Unit of parallelism: a few tables are written at a time, each by all executors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

from pyspark.sql import DataFrame, functions
from pyspark.util import inheritable_thread_target

from frazil.columns.schema import data_columns, error_of
from frazil.commit.retry import contended
from frazil.commit.together import Member
from frazil.errors import ConfigError, DataError, FrazilError, Halted
from frazil.iceberg import Restage
from frazil.model.changes import ChangeFormat
from frazil.model.commit import CommitResult, Position, RowCounts, SinkState
from frazil.model.connections import no_transactions
from frazil.model.dead_letters import LETTERS, OnError
from frazil.model.events import Committed
from frazil.model.hidden import ERROR
from frazil.model.origins import source_columns
from frazil.model.route import RouteSpec
from frazil.model.sink import SinkSpec
from frazil.model.types import Column, StructType, Type
from frazil.write.claim import ClaimedSink
from frazil.write.deadletters import Collected, LetterBox, Rejected, StagedLetters, letters_sink, unfinished, with_record
from frazil.write.modes import is_extra
from frazil.write.part import Part
from frazil.write.router import Piece, Router
from frazil.write.setup import WriterSetup
from frazil.write.shape import Tally
from frazil.write.stager import Explain
from frazil.write.writer import Prepared, SinkWriter

T = TypeVar("T")


@dataclass
class RoutedBatch:
    """The batch that is being written, and its letters so far. ``posted``: they are in their table."""

    part: Part
    home_batch: int
    misfits: tuple[Rejected, ...]
    unrouted: RowCounts
    by_table: dict[str, tuple[Rejected, ...]] = field(default_factory=dict)
    posted: bool = False
    read: int = 0

    def turn_away(self, rows: DataFrame, error: FrazilError, lock: threading.Lock) -> None:
        """The rows of a table that cannot be made are letters."""
        wrong = error_of("route", error.code, functions.lit(error.message))
        counts = rows.agg(functions.count(functions.lit(1)).alias("rows"), functions.count_if(is_extra(rows)).alias("extra"))
        found = counts.first()
        assert found is not None, "an aggregate has a row"
        count, extra = int(found["rows"]), int(found["extra"])
        with lock:
            self.misfits += (Rejected(rows.withColumn(ERROR, wrong), "", count),)
            self.unrouted += RowCounts(count - extra, 0, dead_lettered=count, extra=extra)

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """All letters that are known."""
        return (*(one for table in self.by_table.values() for one in table), *self.misfits)


class RoutedWriter:
    """The one writer of a sink with many tables in this process; to the pump it is like that of one."""

    def __init__(self, setup: WriterSetup, sink: SinkSpec) -> None:
        if sink.route is None:
            raise ValueError("a sink without a route has one table")
        self.name, self.sink, self.sink_id = setup.name, sink, setup.sink_id
        self._route: RouteSpec = sink.route
        self._session = setup.session
        self._transforms = setup.transforms
        self._listen = setup.listen
        self._home = SinkWriter(setup.of_one_table, sink.home)
        if sink.route.atomic and not self._home.claimed.lake.commits_together:
            raise no_transactions(sink.catalog.address)
        self.letters: LetterBox | None = None
        self._letter_writer: SinkWriter | None = None
        if sink.on_error is OnError.DEAD_LETTER:
            self._letter_writer = self._home.beside(letters_sink(sink))
            self.letters = LetterBox(self._letter_writer, sink, setup.name, setup.post)
        self._router = Router(sink, sink.route, setup.transforms)
        self._make: Callable[[str], SinkWriter] = lambda table: SinkWriter(
            setup.of_one_table,
            sink.routed(table.rpartition(".")[2]),
            letters=Collected(lambda rejected: self._collect(table, rejected)),
        )
        self._tables: dict[str, SinkWriter] = {}
        self._batch: RoutedBatch | None = None
        self._lock = threading.Lock()
        self.unfinished: Position | None = None

    @property
    def ready(self) -> bool:
        """The home is made when the sink is opened."""
        return self._home.ready

    @property
    def source_columns(self) -> StructType | None:
        """The columns of all tables that are open, as the source has them, but for those whose types differ."""
        tables = [writer.source_columns for writer in self._tables.values() if writer.ready]
        kinds: dict[str, set[Type]] = {}
        for column in (column for table in tables if table is not None for column in table.fields):
            kinds.setdefault(column.name, set()).add(column.type)
        same = {name: next(iter(types)) for name, types in kinds.items() if len(types) == 1}
        columns = StructType(tuple(Column(name, kind) for name, kind in same.items()))
        return source_columns(columns, ChangeFormat.ROWS, self._transforms)

    @property
    def claimed(self) -> ClaimedSink:
        """The home and its ledger."""
        return self._home.claimed

    @property
    def state(self) -> SinkState | None:
        """The home's ledger."""
        return self._home.state

    def open(self, *, claim: bool = True, make: bool = True) -> SinkState | None:
        """Claims the home and every table that the sink has written to, and finds a batch that was cut off between them.

        Without ``claim`` their ledgers are only read; without ``make`` nothing is written at all.
        """
        state = self._home.open(claim=claim, make=make)
        followers = [name for name in (state.followers if state is not None else ()) if name not in self._letter_tables]

        def reopen(name: str) -> None:
            if not self._held_letters(name):
                self._open_table(name, claim=claim, make=make)

        self._each(followers, reopen)
        ends = {unfinished(state, self._tables[name].state) for name in followers if name in self._tables}
        if self.letters is not None:
            ends.add(self.letters.open(state, claim=claim, make=make))
        ends.discard(None)
        if len(ends) > 1:
            raise Halted(
                "batch-differs",
                f"The tables of {self.sink_id!r} were cut off in different batches, ending at {' and '.join(map(str, ends))}.",
                fix="Two writers used one id without knowing of each other. Give the sink another id to begin anew.",
            )
        self.unfinished = ends.pop() if ends else None
        return state

    def committed_before(self, end: Position) -> bool:
        """Whether a batch that ended there is in the home's history."""
        return self._home.committed_before(end)

    def ensure(self, frame: DataFrame, *, claim: bool = True) -> SinkState | None:  # noqa: ARG002 - the shape of a writer
        """The tables are made when rows come for them."""
        return self.state

    def abandon(self) -> Position | None:
        """Gives up a batch that was cut off and cannot be read again. It has one table, which gets its rows after their letters:

        one that has the batch has it whole, and only the home does not know. Without that, nothing is left of the batch.
        """
        home_batch = (self.state.batch if self.state is not None else 0) + 1
        states = [writer.state for writer in self._tables.values() if writer.state is not None]
        whole = next((state for state in states if self.unfinished is not None and state.home_batch == home_batch), None)
        if whole is not None and whole.end is not None:
            lost = self.letters.rows_of(home_batch) if self.letters is not None else 0
            counts = RowCounts(read=whole.rows + lost, written=whole.rows, dead_lettered=lost)
            self._home.mark(Part(whole.source or "", whole.start, whole.end), counts)
        elif self.letters is not None:
            self.letters.abandon()
        self.unfinished = None
        return self.state.end if self.state is not None else None

    def write(self, frame: DataFrame, part: Part, explain: Explain = lambda _: None) -> Committed:
        """Writes a batch into all tables that it has rows for; it is done when the home says so."""
        return self.write_each((frame,), part, explain)

    def write_each(self, frames: Sequence[DataFrame], part: Part, explain: Explain = lambda _: None) -> Committed:
        """Writes a batch that comes as several data frames. A table may get rows of several of them."""
        began = time.monotonic()
        if not self._home.awaits(part):
            assert self.state is not None, "it has the batch"
            return Committed.before(self.name, self._home.sink.full_name, self.state)
        home_batch = (self.state.batch if self.state is not None else 0) + 1
        tallies = [Tally() for _ in frames]
        with ExitStack() as at_hand:
            pieces = []
            for frame, tally in zip(frames, tallies, strict=True):
                whole = with_record(frame) if self.letters is not None else frame
                rows = at_hand.enter_context(_at_hand(self._router.routed(whole, tally, proven=bool(self._tables))))
                pieces.append(self._router.sorted(rows, explain))
            names = list(dict.fromkeys([*(name for piece in pieces for name in piece.found.tables), *self._always]))
            misfits = tuple(one for piece in pieces for one in self._router.misfits(piece))
            unrouted = sum((piece.found.unrouted for piece in pieces), RowCounts(0, 0))
            self._batch = RoutedBatch(part, home_batch, misfits, unrouted)
            names = self._usable(names, pieces, self._batch)
            self._introduce(names)
            with self._staged(pieces, names, self._batch, explain) as (staged, failed):
                reshaped = [tally.of(piece.found.records) for piece, tally in zip(pieces, tallies, strict=True)]
                elsewhere = sum(reshaped, self._batch.unrouted)
                if self._route.atomic:
                    done, result = self._commit_together(staged, self._batch, elsewhere)
                else:
                    done = self._commit_each(names, staged, failed, self._batch)
                    result = self._home.mark(part, sum((one.counts for one in done), elsewhere))
        return self._finish(result, elsewhere, done, began)

    @property
    def _always(self) -> tuple[str, ...]:
        """The tables that get every batch, also with no rows at all."""
        values = self._route.tables if self._route.every_table else ()
        return tuple(f"{self.sink.namespace}.{self._route.table_of(value)}" for value in values)

    def _finish(self, result: CommitResult, unrouted: RowCounts, done: Sequence[Committed], began: float) -> Committed:
        self.unfinished = None

        def committed(counts: RowCounts) -> Committed:
            return Committed(
                pipeline=self.name,
                table=self._home.sink.full_name,
                batch=result.state.batch,
                snapshot=result.state.snapshot,
                counts=counts,
                files=sum(one.files for one in done),
                bytes=sum(one.bytes for one in done),
                seconds=time.monotonic() - began,
                attempts=result.attempts,
                at_ms=result.state.at_ms,
                skipped=result.skipped,
            )

        # Each table has reported its own rows; what is left are the rows without a table.
        self._listen(committed(unrouted))
        return committed(sum((one.counts for one in done), unrouted))

    @property
    def _listed(self) -> frozenset[str]:
        """The tables that the route itself names: what is wrong with one of them is no fault of a record."""
        return frozenset(f"{self.sink.namespace}.{self._route.table_of(value)}" for value in self._route.tables)

    def _usable(self, names: Sequence[str], pieces: Sequence[Piece], batch: RoutedBatch) -> list[str]:
        """The tables but for those that a record has named first, and that this sink cannot write to: their rows are letters."""
        known = {*(self.state.followers if self.state is not None else ()), *self._listed, *self._tables}
        usable = []
        for name in names:
            try:
                if name not in known and self.letters is not None:
                    self._make(name).open(claim=False, make=False)
            except (ConfigError, DataError, Halted) as error:
                batch.turn_away(_rows_of(pieces, name), error, self._lock)
            else:
                usable.append(name)
        return usable

    def _introduce(self, names: Sequence[str]) -> None:
        """Writes tables down at home before they get anything, so that the next start looks into them."""
        state = self.state
        known = set(state.followers) if state is not None else set()
        new = [name for name in (*self._letter_tables, *names) if name not in known]
        if new:
            self.claimed.register((*(state.followers if state is not None else ()), *new))
        self._each([name for name in names if name not in self._tables], self._open_table)

    @property
    def _letter_tables(self) -> tuple[str, ...]:
        return self.letters.followers if self.letters is not None else ()

    def _held_letters(self, name: str) -> bool:
        """Whether a table that follows is that of dead letters which the sink kept there before its options were changed."""
        levels, _, table = name.rpartition(".")
        found = self.claimed.retried(lambda: self.claimed.lake.load(tuple(levels.split(".")), table), self.claimed.opening)
        return found is not None and [column.name for column in found.schema.fields] == [column.name for column in LETTERS.fields]

    def _open_table(self, name: str, *, claim: bool = True, make: bool = True) -> None:
        writer = self._make(name)
        writer.open(claim=claim, make=make)
        with self._lock:
            self._tables[name] = writer

    @contextmanager
    def _staged(
        self, pieces: Sequence[Piece], names: Sequence[str], batch: RoutedBatch, explain: Explain
    ) -> Iterator[tuple[dict[str, Prepared], dict[str, BaseException]]]:
        """Stages the rows of all tables, and tells what went wrong with some. All letters are known before any commit."""
        staged: dict[str, Prepared] = {}

        def prepare(name: str) -> None:
            whole = _rows_of(pieces, name)
            writer = self._tables[name]
            others = [piece.unfilled(name) for piece in pieces if name in piece.found.tables]
            unfilled = frozenset.intersection(*others) if others else frozenset(data_columns(whole))
            if not writer.ready:
                try:
                    writer.ensure(whole, unfilled=unfilled)
                except (ConfigError, DataError) as error:
                    if self.letters is None or name in self._listed:
                        raise
                    # A record that names a new table does not stop those of the others when it cannot be made.
                    batch.turn_away(whole, error, self._lock)
                    return
            count = sum(sum(piece.found.tables.get(name, {}).values()) for piece in pieces)
            part = replace(batch.part, rows=count).following(writer.state, batch.home_batch)
            prepared = writer.stage_batch(whole, part, explain, unfilled)
            with self._lock:
                staged[name] = prepared

        try:
            failed = self._tried(names, prepare)
            if failed and (self._limited or self._route.atomic):
                raise _first_of(names, failed)  # whether there are too many letters is not known
            yield staged, failed
        finally:
            for prepared in staged.values():
                prepared.let_go()

    def _commit_each(
        self, names: Sequence[str], staged: Mapping[str, Prepared], failed: dict[str, BaseException], batch: RoutedBatch
    ) -> list[Committed]:
        """Writes letters, then the rows of each table in a commit of its own."""
        done: list[Committed] = []

        def write(name: str) -> None:
            written = self._tables[name].commit_batch(staged[name])
            with self._lock:
                done.append(written)

        self._require_as_before(staged, batch, but=failed)
        self.unfinished = batch.part.end  # from here on the very same part must be repeated
        if not failed and self.letters is not None:
            read = self._gather_letters(staged, batch)
            self.letters.put(batch.rejected, read, batch.part, batch.home_batch)
            batch.posted, batch.read = True, read
        failed |= self._tried(list(staged), write)
        if failed:
            raise _first_of(names, failed)
        return done

    def _commit_together(
        self, staged: Mapping[str, Prepared], batch: RoutedBatch, elsewhere: RowCounts
    ) -> tuple[list[Committed], CommitResult]:
        """Commits the rows of all tables, the letters, and at home that the batch is done, in one step."""

        def attempt() -> tuple[list[Committed], CommitResult]:
            self._require_as_before(staged, batch, but=())
            total = sum((prepared.counts for prepared in staged.values()), elsewhere)
            files = [(self._tables[name], prepared) for name, prepared in staged.items()]
            letters = StagedLetters()
            if self.letters is not None and self._letter_writer is not None:
                read = self._gather_letters(staged, batch)
                letters = self.letters.stage(batch.rejected, read, batch.part, batch.home_batch)
                files += [(self._letter_writer, letters.files)] if letters.files is not None else []
            for name, prepared in staged.items():
                self._tables[name].remember_deletes(prepared)
            intents = {writer: intent for writer, prepared in files if (intent := writer.intent_of(prepared)) is not None}
            others = [(writer.claimed, intent) for writer, intent in intents.items()]
            result, *results = self._home.claimed.run_together(
                self._home.intent_to_mark(batch.part, total), others, self._at_once
            )
            if self.letters is not None:
                self.letters.kept(letters)
            return self._follow_up(files, dict(zip(intents, results, strict=True))), result

        def stage_again() -> None:
            self._each(list(staged), lambda name: self._tables[name].restage(staged[name]))

        return contended(attempt, self._home.claimed.retry, Restage, stage_again)

    @property
    def _limited(self) -> bool:
        return self.sink.max_dead_letters is not None or self.sink.max_dead_letter_rate is not None

    def _require_as_before(self, staged: Mapping[str, Prepared], batch: RoutedBatch, but: Collection[str]) -> None:
        """What tables got of the batch before it was cut off must be what they would get now, but for those that failed."""
        for name, writer in self._tables.items():
            if (prepared := staged.get(name)) is not None:
                writer.require_as_before(prepared.part, prepared.counts)
            elif name not in but:
                writer.require_as_before(batch.part.following(writer.state, batch.home_batch), RowCounts(0, 0))

    def _follow_up(
        self, files: Sequence[tuple[SinkWriter, Prepared]], results: Mapping[SinkWriter, CommitResult]
    ) -> list[Committed]:
        """Reports what was committed to each table, and does what is due there; the rows of the letters are not the sink's."""
        by_name = {writer.sink.full_name: (writer, prepared) for writer, prepared in files}
        done: dict[str, Committed] = {}

        def follow_up(name: str) -> None:
            writer, prepared = by_name[name]
            done[name] = writer.committed_together(prepared, results.get(writer))

        self._each(list(by_name), follow_up)
        return [one for name, one in done.items() if by_name[name][0] is not self._letter_writer]

    def _at_once(self, work: Callable[[Member], T], members: Sequence[Member]) -> list[T]:
        """Does the work for several tables at a time."""
        with ThreadPoolExecutor(self._route.parallel) as pool:
            return list(pool.map(inheritable_thread_target(self._session)(work), members))

    def _gather_letters(self, staged: Mapping[str, Prepared], batch: RoutedBatch) -> int:
        """Finds the letters of all tables; among how many rows they were."""
        for name, prepared in staged.items():
            batch.by_table[name] = prepared.rejected
        return sum((one.counts for one in staged.values()), batch.unrouted).read

    def _collect(self, table: str, rejected: Sequence[Rejected]) -> None:
        """Takes the letters of a table, which may be others when it was staged again after they were put away."""
        batch = self._batch
        assert batch is not None, "tables are written within a batch"
        with self._lock:
            batch.by_table[table] = tuple(rejected)
            if batch.posted and self.letters is not None:
                self.letters.put(batch.rejected, batch.read, batch.part, batch.home_batch)

    def _each(self, names: Sequence[str], work: Callable[[str], None]) -> None:
        """Does the work for several tables at a time. One that fails does not keep the others from theirs."""
        if failed := self._tried(names, work):
            raise _first_of(names, failed)

    def _tried(self, names: Sequence[str], work: Callable[[str], None]) -> dict[str, BaseException]:
        """Does the work for several tables at a time; what went wrong, by table."""
        failed: dict[str, BaseException] = {}

        def guarded(name: str) -> None:
            try:
                work(name)
            except BaseException as error:  # noqa: BLE001 - raised when all have ended
                failed[name] = error

        with ThreadPoolExecutor(self._route.parallel) as pool:
            list(pool.map(inheritable_thread_target(self._session)(guarded), names))
        return failed


def _rows_of(pieces: Sequence[Piece], name: str) -> DataFrame:
    """The rows for a table, from all parts of a batch."""
    own = [rows for piece in pieces if (rows := piece.of(name)) is not None] or [pieces[0].none()]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), own)


def _first_of(names: Sequence[str], failed: Mapping[str, BaseException]) -> BaseException:
    """What went wrong first, in the order of the tables, with the table's name."""
    name, error = next((name, failed[name]) for name in names if name in failed)
    if not isinstance(error, FrazilError):
        return error
    others = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
    first = error.of_table(name, others)
    first.__cause__ = error
    return first


@contextmanager
def _at_hand(frame: DataFrame) -> Iterator[DataFrame]:
    """Caches the rows of a batch for all tables that are written from it."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
