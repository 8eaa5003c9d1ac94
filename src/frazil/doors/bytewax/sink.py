"""The sink that a Bytewax flow writes to.

Items are ``(key, row)``: the key chooses the part, the row is a dictionary. Unit of parallelism: a part, which one worker owns.
Delivery: exactly once with Bytewax's recovery, whatever fails; every part is a sink of its own in the table's ledger, which
says how far it is.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition

from frazil.doors.bytewax.config import IcebergSinkConfig, require_error_columns
from frazil.doors.bytewax.cures import own_cures
from frazil.doors.bytewax.progress import SOURCE, Beginning, Mark, State, beginning
from frazil.doors.bytewax.rows import RowMaker
from frazil.errors import ConfigError, DataError, Halted, Retryable
from frazil.model.commit import RowCounts
from frazil.model.events import CommitFailed, Committed, Event, Listener, told_to
from frazil.model.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.engine.part import Part
    from frazil.engine.writer import SinkWriter

log = logging.getLogger("frazil.bytewax")

# One Spark a process, whichever worker and whichever sink needs it first.
_starting = threading.Lock()


class IcebergSink(FixedPartitionedSink[Mapping[str, Any], dict[str, Any]]):
    """An Iceberg table as the end of a flow: ``op.output("lake", stream_of_key_and_row, IcebergSink(config))``.

    The table is looked at, or made, when the flow starts: a schema that does not fit stops it there. Listeners are told of
    every event, e.g. each commit.
    """

    def __init__(self, config: IcebergSinkConfig, listeners: tuple[Listener, ...] = ()) -> None:
        if not isinstance(config, IcebergSinkConfig):
            raise ConfigError(
                "bytewax-option", f"config: it must be an IcebergSinkConfig, not {type(config).__name__}.",
                fix="Write IcebergSink(IcebergSinkConfig(...)).",
            )  # fmt: skip
        self.config = config
        self._pass_on = told_to(listeners)
        self._session: SparkSession | None = None
        self._maker: RowMaker | None = None
        self._broken = threading.Event()

    def list_parts(self) -> list[str]:
        """`part-0`, `part-1`, ... This is what Bytewax asks for first, in every worker, so the table is checked here."""
        self._start()
        if self._broken.is_set():  # by an execution before this one
            self._broken = threading.Event()
        return [f"part-{number}" for number in range(self.config.num_partitions)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> IcebergSinkPartition:
        """A part that goes on where Bytewax does: what the table has beyond that is taken back first."""
        config = self.config
        session, maker = self._start()
        try:
            state = State.read(resume_state, for_part, config.num_partitions)
            writer = self._writer(session, f"{config.spec.id or step_id}/{for_part}")
            with own_cures():
                writer.open()
                begins = self._set_back(writer, state, for_part)
        except BaseException:
            self._broken.set()
            raise
        return IcebergSinkPartition(for_part, config, writer=writer, maker=maker, mark=begins.mark, broken=self._broken)

    def _set_back(self, writer: SinkWriter, state: State | None, part: str) -> Beginning:
        ledger = Mark.read(writer.state.end if writer.state is not None else None)
        try:
            begins = beginning(ledger, state, self.config.on_fresh_start, uuid.uuid4().hex[:12])
        except Halted as halted:
            raise Halted(halted.code, f"{writer.sink.full_name}, {part}: {halted.message}", fix=halted.fix) from None
        if taken := writer.take_back(begins.kept):
            log.warning(
                "%s, %s: %d flushes were taken back, which Bytewax sends again", writer.sink.full_name, part, taken
            )  # fmt: skip
        return begins

    def _start(self) -> tuple[SparkSession, RowMaker]:
        """Starts Spark and checks the table, once a process."""
        with _starting:
            if self._session is None or self._maker is None:
                session = _session(self.config)
                spec, rows, declared = self.config.spec, self.config.rows, self.config.declared
                with own_cures():
                    table = self._writer(session, spec.id or "").prepare()
                if declared is not None:
                    _require_same(declared.columns, table, spec.full_name)
                columns = table if declared is None else declared.columns
                require_error_columns(columns, rows)
                self._maker = RowMaker(
                    columns, rows.extra_columns == "refuse", rows.error_column, rows.raw_column, rows.epoch_unit
                )
                self._session = session
            return self._session, self._maker

    def _writer(self, session: SparkSession, sink_id: str) -> SinkWriter:
        from frazil.engine.writer import SinkWriter

        return SinkWriter(
            session, self.config.spec, sink_id, name=sink_id, retry=self.config.settings.retry, listen=self._tell
        )  # fmt: skip

    def _tell(self, event: Event) -> None:
        match event:
            case Committed() if event.counts.read:
                log.info("%s: %d rows committed in %d files", event.table, event.counts.written, event.files)
            case CommitFailed():
                # Parts meet each other all the time, which is no reason to worry anybody.
                usual = event.kind == "conflict" and event.will_retry
                log.log(logging.DEBUG if usual else logging.WARNING, "%s: %s", event.pipeline, event.message)
        self._pass_on(event)


class IcebergSinkPartition(StatefulSinkPartition[Mapping[str, Any], dict[str, Any]]):
    """One part: its rows wait until there are enough, they have waited long enough, or Bytewax takes a snapshot.

    A flush is one commit for all partitions of the table. A thread of its own sees to the time, so that rows do not wait for
    others to come.
    """

    def __init__(
        self,
        name: str,
        config: IcebergSinkConfig,
        *,
        writer: SinkWriter,
        maker: RowMaker,
        mark: Mark,
        broken: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._config = config
        self._writer = writer
        self._maker = maker
        self._mark = mark
        self._broken = broken
        self._clock = clock
        self._rows: list[Mapping[str, Any]] = []
        # The rows of a flush that has failed. The table may have them all the same, and knows a flush by its number: they are
        # tried again as they were, and rows that came since are another flush.
        self._tried: list[Mapping[str, Any]] = []
        self._oldest = 0.0
        self._settled = False
        self._closed = False
        self._failure: BaseException | None = None
        self._turn = threading.Condition()
        self._timer: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """How many rows wait for a flush."""
        return len(self._tried) + len(self._rows)

    def write_batch(self, values: list[Mapping[str, Any]]) -> None:
        """Takes rows, and flushes when there are enough."""
        with self._at_work():
            for value in values:
                if not isinstance(value, Mapping):
                    raise _not_a_row(value)
            if not self.waiting:
                self._oldest = self._clock()
            self._rows.extend(values)
            self._settled = False
            if self.waiting >= self._config.batch_size:
                self._flush()
            elif self._timer is None:
                self._timer = threading.Thread(target=self._keep_time, name=f"frazil-{self.name}", daemon=True)
                self._timer.start()
            else:
                self._turn.notify()

    def snapshot(self) -> dict[str, Any]:
        """Commits what is waiting: what Bytewax remembers from here on is in the table."""
        with self._at_work():
            self._flush(snapshot=True)
            self._settled = True
            mark = self._mark
            return State(self.name, self._config.num_partitions, mark.run, mark.seq, mark.snapshots).to_bytewax()

    def close(self) -> None:
        """Ends the part, also when the flow was aborted: what is waiting is not written, since Bytewax sends it again.

        When nothing is waiting after a snapshot and nothing has failed, the flow may have come to its end, which is written down.
        Bytewax cannot take an error here.
        """
        with self._turn:
            self._closed = True
            self._turn.notify()
            if self._settled and not self.waiting and not self._broken.is_set():
                self._finish()
        if self._timer is not None:
            self._timer.join()

    def _finish(self) -> None:
        finished = replace(self._mark, finished=True)
        try:
            self._writer.mark(self._part(finished), RowCounts(0, 0))
        except Exception as error:  # noqa: BLE001 - the process would be aborted, and all rows are in the table
            log.warning("%s: that the flow has ended could not be written down: %s", self._writer.sink_id, error)

    def _keep_time(self) -> None:
        """Flushes what has waited long enough, until the part is closed."""
        with self._turn:
            while not self._closed and self._failure is None:
                due = self._oldest + self._config.batch_interval_seconds if self.waiting else None
                left = None if due is None else due - self._clock()
                if left is None or left > 0:
                    self._turn.wait(left)
                    continue
                try:
                    self._flush()
                except Retryable as error:
                    log.warning("%s: a flush failed, and is tried again: %s", self._writer.sink_id, error)
                    self._oldest = self._clock()
                except Exception as error:  # noqa: BLE001 - carried to the thread of the worker
                    # Told to Bytewax by the next call, which is the only way to stop the flow.
                    log.error("%s: a flush failed: %s", self._writer.sink_id, error)  # noqa: TRY400 - the message says it all
                    self._failed(error)

    def _flush(self, *, snapshot: bool = False) -> None:
        """Commits all that is waiting, what has failed before first."""
        if self._tried:
            self._commit(self._mark.next(snapshot=False))
        self._tried, self._rows = self._rows, []
        if self._tried:
            self._commit(self._mark.next(snapshot=snapshot))
        elif snapshot:
            self._mark = replace(self._mark, snapshots=self._mark.snapshots + 1)

    def _commit(self, after: Mark) -> None:
        from frazil.engine.arrow import frame_of

        frame = frame_of(self._writer.session, self._maker.table(self._tried), self._maker.columns)
        with own_cures():
            self._writer.write(frame, self._part(after, len(self._tried)))
        self._mark, self._tried = after, []

    def _part(self, after: Mark, rows: int = 0) -> Part:
        from frazil.engine.part import Part

        state = self._writer.state
        return Part(SOURCE, state.end if state is not None else None, after.position, rows)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """The part's turn in the thread of the worker, where whatever fails ends the run."""
        with self._turn:
            if self._failure is not None:
                raise self._failure
            try:
                yield
            except BaseException as error:
                self._failed(error)
                raise

    def _failed(self, error: BaseException) -> None:
        self._failure = error
        self._broken.set()


def _session(config: IcebergSinkConfig) -> SparkSession:
    from frazil.engine.catalogs import catalog_settings
    from frazil.engine.session import export_environment, session_for, spark_session

    catalog = catalog_settings(config.spec)
    export_environment([catalog])
    spark = spark_session(config.settings.spark, catalog.components)
    wanted = config.settings.spark.conf.get("spark.local.dir")
    have = spark.sparkContext.getConf().get("spark.local.dir")
    if wanted is not None and wanted != have:
        raise ConfigError(
            "bytewax-option",
            f"temp_dir: Spark runs in this process already, with {have or 'its own folder'} for temporary files, not {wanted}.",
            fix="Use the same temp_dir for all sinks of a process, or leave it out.",
        )
    return session_for(spark, catalog)


def _require_same(declared: StructType, table: StructType, name: str) -> None:
    """The schema is static: what was declared is what the table has."""
    problems = []
    for column in declared.fields:
        found = table.column(column.name)
        if found is None:
            problems.append(f"the field {column.name!r} is not in the table")
        elif str(found.type) != str(column.type):
            problems.append(f"the field {column.name!r} is declared as {column.type}, and the table has {found.type}")
    problems += [
        f"the table requires {column.name!r}, which is not declared"
        for column in table.fields
        if column.required and declared.column(column.name) is None
    ]
    if problems:
        raise ConfigError(
            "schema-differs",
            f"The declared schema is not that of {name}: {'; '.join(problems)}.",
            fix="Correct table_schema or arrow_schema, or change the table; leave the schema out to take the table's own.",
        )


def _not_a_row(value: Any) -> DataError:
    made = " Call its model_dump() in the step before." if hasattr(value, "model_dump") else ""
    return DataError(
        "not-a-row",
        f"The sink takes (key, row) with a dictionary as the row, not {type(value).__name__}.",
        fix=f"Make a flat dictionary of it before the output.{made}",
    )
