"""One stream into many tables: each batch is read once, and each table that it has rows for gets them in one commit.

The sink's home is a table of its own, which holds no rows: its ledger says how far the sink is, and which tables it writes to. A
batch goes into those first, a few at a time, then into the table of dead letters, and is done when the home says so. What was cut
off is found on the next start by the ledgers of the tables, and repeated as it was: those that have it already skip it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.util import inheritable_thread_target

from frazil.engine.deadletters import Collected, LetterBox, Post, Rejected, letters_sink, unfinished, with_record
from frazil.engine.iceberg import fault_of
from frazil.engine.part import Part
from frazil.engine.schema import ERROR, HEADERS, HIDDEN, data_columns, error_of, quoted
from frazil.engine.shape import Tally, shaped
from frazil.engine.stager import Explain
from frazil.engine.staging_faults import explain_staging
from frazil.engine.write import is_extra, without_marks
from frazil.engine.writer import SinkWriter
from frazil.errors import ConfigError, DataError, FrazilError, Halted
from frazil.model.commit import Position, RowCounts, SinkState
from frazil.model.dead_letters import OnError
from frazil.model.events import Committed, Listener
from frazil.model.route import RouteSpec
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec

ROUTE = f"{HIDDEN}route"
ORIGIN = f"{HIDDEN}table"
"""Where a row comes from: a topic, or the table of a database."""

# As many values as a person wants to see.
_SHOWN = 5


@dataclass(frozen=True)
class Found:
    """What a batch holds: the rows of each value that has a table, by table, and those that have none.

    ``filled`` are the columns that have a value in one of the rows for a table. ``records`` are the rows that stand for a record
    of their own, ``lost`` those of them that have no table.
    """

    tables: Mapping[str, dict[str, int]]
    filled: Mapping[str, frozenset[str]] = field(default_factory=dict)
    strays: Mapping[str | None, int] = field(default_factory=dict)
    broken: int = 0
    records: int = 0
    lost: int = 0

    @property
    def misfits(self) -> int:
        """Rows that go into no table."""
        return sum(self.strays.values()) + self.broken

    @property
    def unrouted(self) -> RowCounts:
        """What becomes of the rows that go into no table."""
        return RowCounts(self.lost, 0, dead_lettered=self.misfits, extra=self.misfits - self.lost)


@dataclass(frozen=True)
class Piece:
    """A part of a batch whose rows have the same columns."""

    rows: DataFrame
    found: Found

    def of(self, table: str) -> DataFrame | None:
        """The rows for a table."""
        values = self.found.tables.get(table)
        if values is None:
            return None
        return self._of_a_table(functions.col(ROUTE).isin(*values))

    def none(self) -> DataFrame:
        """No rows, for a table that is to have none."""
        return self._of_a_table(functions.lit(False))

    def _of_a_table(self, condition: Column) -> DataFrame:
        return self.rows.where(condition).drop(ROUTE, *([ERROR] if ERROR in self.rows.columns else []))

    def unfilled(self, table: str) -> frozenset[str]:
        """The columns that are here for the rows of other tables: those for this one have nothing in them."""
        if len(self.found.tables) == 1:
            return frozenset()
        return frozenset(data_columns(self.rows)) - self.found.filled.get(table, frozenset())


@dataclass
class Batch:
    """The batch that is being written, and its letters so far. ``solo``: it has rows for one table only."""

    part: Part
    lead: int
    misfits: tuple[Rejected, ...]
    solo: bool
    by_table: dict[str, tuple[Rejected, ...]] = field(default_factory=dict)

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """All letters that are known."""
        return (*(one for table in self.by_table.values() for one in table), *self.misfits)


class RoutedWriter:
    """The one writer of a sink with many tables in this process; to the pump it is like that of one."""

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
        post: Post | None = None,
    ) -> None:
        if sink.route is None:
            raise ValueError("a sink without a route has one table")
        self.name, self.sink, self.sink_id = name, sink, sink_id
        self._route: RouteSpec = sink.route
        self._session = session
        self._transforms = transforms
        self._listen = listen
        self._home = SinkWriter(session, sink.home, sink_id, name=name, retry=retry, listen=listen, sleep=sleep)
        self.letters: LetterBox | None = None
        if sink.on_error is OnError.DEAD_LETTER:
            self.letters = LetterBox(self._home.beside(letters_sink(sink)), sink, name, post)
        self._make: Callable[[str], SinkWriter] = lambda table: SinkWriter(
            session,
            sink.routed(table.rpartition(".")[2]),
            sink_id,
            name=name,
            retry=retry,
            listen=listen,
            sleep=sleep,
            letters=Collected(lambda rejected, read: self._collect(table, rejected, read)),
        )
        self._tables: dict[str, SinkWriter] = {}
        self._batch: Batch | None = None
        self._lock = threading.Lock()
        self.unfinished: Position | None = None

    @property
    def ready(self) -> bool:
        """The home is made when the sink is opened."""
        return self._home.ready

    @property
    def state(self) -> SinkState | None:
        """The home's ledger."""
        return self._home.state

    def open(self, *, claim: bool = True) -> SinkState | None:
        """Claims the home and every table that the sink has written to, and finds a batch that was cut off between them."""
        state = self._home.open(claim=claim)
        names = [name for name in (state.followers if state is not None else ()) if name not in self._letter_tables]
        self._each(names, self._open_table)
        ends = {unfinished(state, self._tables[name].state) for name in names}
        if self.letters is not None:
            ends.add(self.letters.open(state, claim=claim))
        ends.discard(None)
        if len(ends) > 1:
            raise Halted(
                "batch-differs",
                f"The tables of {self.sink_id!r} were cut off in different batches, ending at {' and '.join(map(str, ends))}.",
                fix="Two writers used one id without knowing of each other. Give the sink another id to begin anew.",
            )
        self.unfinished = ends.pop() if ends else None
        return state

    def look(self) -> SinkState | None:
        """Reads the home's ledger as it is now."""
        return self._home.look()

    def committed_before(self, end: Position) -> bool:
        """Whether a batch that ended there is in the home's history."""
        return self._home.committed_before(end)

    def position_at(self, snapshot: int) -> Position | None:
        """Where the sink was when its home had a snapshot."""
        return self._home.position_at(snapshot)

    def move(self, source: str, end: Position | None) -> None:
        """Lets the sink go on from another place of its source."""
        self._home.move(source, end)

    def ensure(self, frame: DataFrame, *, claim: bool = True) -> SinkState | None:  # noqa: ARG002 - the shape of a writer
        """The tables are made when rows come for them."""
        return self.state

    def abandon(self) -> Position | None:
        """Gives up a batch that was cut off and cannot be read again. It has one table, which gets its rows after their letters:

        one that has the batch has it whole, and only the home does not know. Without that, nothing is left of the batch.
        """
        lead = (self.state.batch if self.state is not None else 0) + 1
        states = [writer.state for writer in self._tables.values() if writer.state is not None]
        whole = next((state for state in states if self.unfinished is not None and state.lead == lead), None)
        if whole is not None and whole.end is not None:
            lost = self.letters.rows_of(lead) if self.letters is not None else 0
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
        """The same for a batch in several frames. Rows of several may be for one table."""
        began = time.monotonic()
        lead = (self.state.batch if self.state is not None else 0) + 1
        tallies = [Tally() for _ in frames]
        with ExitStack() as at_hand:
            pieces = []
            for frame, tally in zip(frames, tallies, strict=True):
                whole = with_record(frame) if self.letters is not None else frame
                rows = at_hand.enter_context(_at_hand(self._routed(whole, tally)))
                pieces.append(Piece(rows, self._look(rows, explain)))
            names = list(dict.fromkeys([*(name for piece in pieces for name in piece.found.tables), *self._always]))
            misfits = tuple(one for piece in pieces for one in self._misfits(piece))
            self._batch = Batch(part, lead, misfits, solo=len(names) == 1)
            self._introduce(names)
            self.unfinished = part.end  # from here on the very same part must be repeated
            done = self._write_tables(pieces, names, part, lead, explain)
            unrouted = sum((piece.found.unrouted for piece in pieces), RowCounts(0, 0))
            total = sum((one.counts for one in done), unrouted)
            if self.letters is not None:
                self.letters.put(self._batch.rejected, total.read, part, lead)
        reshaped = RowCounts(0, 0)
        for piece, tally in zip(pieces, tallies, strict=True):
            reshaped += tally.of(piece.found.records)
        return self._finish(part, total + reshaped, unrouted + reshaped, done, began)

    @property
    def _always(self) -> tuple[str, ...]:
        """The tables that get every batch, also with no rows at all."""
        values = self._route.tables if self._route.every_table else ()
        return tuple(f"{self.sink.namespace}.{self._route.table_of(value)}" for value in values)

    def _finish(self, part: Part, total: RowCounts, unrouted: RowCounts, done: Sequence[Committed], began: float) -> Committed:
        result = self._home.mark(part, total)
        self.unfinished = None

        def told(counts: RowCounts) -> Committed:
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

        # Each table has told of its own rows; what is left are those that went into none.
        self._listen(told(unrouted))
        return told(total)

    def _routed(self, frame: DataFrame, tally: Tally) -> DataFrame:
        frame = shaped(without_marks(frame, self.sink), self._transforms, tally)
        value = route_value(frame, self._route).cast("string")
        frame = frame.withColumn(
            ROUTE, value if ERROR not in frame.columns else functions.when(functions.col(ERROR).isNull(), value)
        )
        if self._route.remove_field and self._route.field is not None:
            frame = frame.drop(self._route.field)
        return frame

    def _look(self, rows: DataFrame, explain: Explain) -> Found:
        """Reads the batch, once, and sorts its values."""
        unread = functions.col(ERROR).isNotNull() if ERROR in rows.columns else functions.lit(False)
        names = data_columns(rows)
        has = [functions.max(functions.col(quoted(name)).isNotNull()).alias(f"has{n}") for n, name in enumerate(names)]
        count = functions.count(functions.lit(1)).alias("count")
        records = functions.count_if(~is_extra(rows)).alias("records")
        by_value = rows.groupBy(functions.col(ROUTE).alias("value"), unread.alias("broken"))
        try:
            counted = by_value.agg(count, records, *has).collect()
        except FrazilError:
            raise
        except Exception as error:
            raise explain(error) or explain_staging(fault_of(error)) from error
        tables: dict[str, dict[str, int]] = defaultdict(dict)
        filled: dict[str, frozenset[str]] = defaultdict(frozenset)
        strays: dict[str | None, int] = {}
        lost = 0
        for row in counted:
            name = None if row["value"] is None else self._route.table_of(row["value"])
            if row["broken"] or name is None:
                lost += int(row["records"])
            if row["broken"]:
                continue
            if name is None:
                strays[row["value"]] = int(row["count"])
            else:
                table = f"{self.sink.namespace}.{name}"
                tables[table][row["value"]] = int(row["count"])
                filled[table] |= {column for n, column in enumerate(names) if row[f"has{n}"]}
        broken = sum(int(row["count"]) for row in counted if row["broken"])
        found = Found(tables, filled, strays, broken, sum(int(row["records"]) for row in counted), lost)
        if found.misfits and self.letters is None:
            raise self._refusal(rows, found)
        return found

    def _refusal(self, rows: DataFrame, found: Found) -> DataError:
        if found.broken:
            first = rows.where(functions.col(ERROR).isNotNull()).select(ERROR).first()
            assert first is not None, "it was counted"
            return DataError(
                first[0]["code"],
                first[0]["text"],
                fix="Correct the data, or set on_error: dead_letter to go on without such records.",
            )
        shown = ", ".join(repr(value) for value in list(found.strays)[:_SHOWN])
        return DataError(
            "route-unknown",
            f"{found.misfits} rows belong to no table: by the {self._route.decides} their values are {shown}.",
            fix="Add them to route.tables, or set on_error: dead_letter to go on without such rows.",
        )

    def _introduce(self, names: Sequence[str]) -> None:
        """Writes tables down at home before they get anything, so that the next start looks into them."""
        state = self.state
        known = set(state.followers) if state is not None else set()
        new = [name for name in (*self._letter_tables, *names) if name not in known]
        if new:
            self._home.register((*(state.followers if state is not None else ()), *new))
        self._each([name for name in names if name not in self._tables], self._open_table)

    @property
    def _letter_tables(self) -> tuple[str, ...]:
        return self.letters.followers if self.letters is not None else ()

    def _open_table(self, name: str) -> None:
        writer = self._make(name)
        writer.open()
        with self._lock:
            self._tables[name] = writer

    def _write_tables(
        self, pieces: Sequence[Piece], names: Sequence[str], part: Part, lead: int, explain: Explain
    ) -> list[Committed]:
        done: list[Committed] = []

        def write(name: str) -> None:
            own = [rows for piece in pieces if (rows := piece.of(name)) is not None] or [pieces[0].none()]
            whole = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), own)
            writer = self._tables[name]
            others = [piece.unfilled(name) for piece in pieces if name in piece.found.tables]
            unfilled = frozenset.intersection(*others) if others else frozenset(data_columns(whole))
            if not writer.ready:
                writer.ensure(whole, unfilled=unfilled)
            count = sum(sum(piece.found.tables.get(name, {}).values()) for piece in pieces)
            written = writer.write(whole, Part(part.source, part.start, part.end, count, lead), explain, unfilled)
            with self._lock:
                done.append(written)

        self._each(names, write)
        return done

    def _misfits(self, piece: Piece) -> tuple[Rejected, ...]:
        """The rows that go into no table, with the reason."""
        rows, found = piece.rows, piece.found
        if not found.misfits:
            return ()
        lost = functions.col(ROUTE).isNull() | functions.col(ROUTE).isin(*[value for value in found.strays if value is not None])
        text = functions.concat(
            functions.lit(f"no table is known for the {self._route.decides}: "),
            functions.coalesce(functions.col(ROUTE), functions.lit("null")),
        )
        stray = functions.when(lost, error_of("route", "route-unknown", text))
        error = functions.coalesce(functions.col(ERROR), stray) if ERROR in rows.columns else stray
        return (Rejected(rows.withColumn(ERROR, error), "", found.misfits),)

    def _collect(self, table: str, rejected: Sequence[Rejected], read: int) -> None:
        """Takes the letters of a table, anew when it was staged again. Those of the only table are put away before its rows."""
        batch = self._batch
        assert batch is not None, "tables are written within a batch"
        with self._lock:
            batch.by_table[table] = tuple(rejected)
        if batch.solo and self.letters is not None:
            lost = sum(one.rows for one in batch.misfits)
            self.letters.put(batch.rejected, read + lost, batch.part, batch.lead)

    def _each(self, names: Sequence[str], work: Callable[[str], None]) -> None:
        """Does the work for several tables at a time. One that fails does not keep the others from theirs."""
        failed: dict[str, BaseException] = {}

        def guarded(name: str) -> None:
            try:
                work(name)
            except BaseException as error:  # noqa: BLE001 - told when all have ended
                failed[name] = error

        with ThreadPoolExecutor(self._route.parallel) as pool:
            list(pool.map(inheritable_thread_target(self._session)(guarded), names))
        for name in names:
            if (error := failed.get(name)) is not None:
                raise _of_table(name, error, len(failed)) from error


def _of_table(name: str, error: BaseException, failures: int) -> BaseException:
    if not isinstance(error, FrazilError):
        return error
    others = f" ({failures - 1} more failed)" if failures > 1 else ""
    return type(error)(error.code, f"Table {name}: {error.message}{others}", fix=error.fix, location=error.location)


def route_value(frame: DataFrame, route: RouteSpec) -> Column:
    """The value of a row that decides its table."""
    if route.expression is not None:
        return functions.expr(route.expression)
    if route.source:
        _require(ORIGIN in frame.columns, "source", "the source has only one kind of rows")
        return functions.col(ORIGIN)
    if route.header is not None:
        _require(HEADERS in frame.columns, "header", "the source has no headers")
        named = functions.filter(functions.col(HEADERS), lambda header: header["key"].eqNullSafe(route.header or ""))
        return functions.try_element_at(named, functions.lit(-1))["value"]
    path = route.field or ""
    whole = path in frame.columns
    known = ", ".join(data_columns(frame))
    _require(whole or path.partition(".")[0] in frame.columns, "field", f"there is no column {path!r}. Columns: {known}")
    return functions.col(quoted(path) if whole else path)


def _require(there: bool, option: str, why: str) -> None:
    if not there:
        raise ConfigError("route-column", f"route.{option}: {why}")


@contextmanager
def _at_hand(frame: DataFrame) -> Iterator[DataFrame]:
    """Keeps the rows of a batch for all tables that are made of it."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
