"""The sink that a Bytewax flow writes to.

Items are ``(key, row)``: the key chooses the part, the row is a dictionary. Unit of parallelism: a part, which one worker owns.
Delivery: exactly once with Bytewax's recovery, whatever fails; every part is a sink of its own in the table's ledger, which
says how far it is.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition

from frazil.doors.bytewax.config import IcebergSinkConfig, require_error_columns
from frazil.doors.bytewax.cures import own_cures
from frazil.doors.bytewax.execution import Execution, Runs, joined
from frazil.doors.bytewax.progress import SOURCE, Beginning, Family, FlowMark, FlowState, beginning, taken_back
from frazil.doors.bytewax.rows import RowMaker
from frazil.doors.bytewax.schema import CODE, require_writable
from frazil.errors import ConfigError, DataError, Fenced, Halted, Retryable
from frazil.model.arguments import functions, located_at_caller
from frazil.model.commit import RowCounts, SinkState
from frazil.model.events import CommitFailed, Committed, Event, Listener, notify_all
from frazil.model.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from frazil.write.part import Part
    from frazil.write.writer import SinkWriter

log = logging.getLogger("frazil.bytewax")

# One Spark a process, whichever worker and whichever sink needs it first.
_starting = threading.Lock()


class IcebergSink(FixedPartitionedSink[Mapping[str, Any], dict[str, Any]]):
    """An Iceberg table as the end of a flow: ``op.output("lake", stream_of_key_and_row, IcebergSink(config))``.

    The table is looked at, or made, when the flow starts: a schema that does not fit stops it there. Listeners are called with
    every event, e.g. each commit.
    """

    @located_at_caller
    def __init__(
        self,
        config: IcebergSinkConfig,
        listeners: Sequence[Listener] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(config, IcebergSinkConfig):
            raise ConfigError(
                CODE, f"config: it must be an IcebergSinkConfig, not {type(config).__name__}.",
                fix="Write IcebergSink(IcebergSinkConfig(...)).",
            )  # fmt: skip
        self.config = config
        self._pass_on = notify_all(functions("listeners", listeners, code=CODE))
        self._clock = clock
        self._session: SparkSession | None = None
        self._maker: RowMaker | None = None
        self._execution = Execution()
        self._runs = Runs(clock)

    def list_parts(self) -> list[str]:
        """`part-0`, `part-1`, ... This is what Bytewax asks for first, in every worker, so the table is checked here."""
        self._start()
        execution = joined()
        if execution is not self._execution:
            self._execution, self._runs = execution, Runs(self._clock)
        return [f"part-{number}" for number in range(self.config.num_partitions)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> IcebergSinkPartition:
        """A part that goes on where Bytewax does: what the table has beyond that is taken back first."""
        config, execution, runs = self.config, self._execution, self._runs
        execution.is_building = True
        session, maker = self._start()
        try:
            state = FlowState.read(resume_state, for_part, config.num_partitions)
            sink_id = config.spec.id or step_id
            writer = self._writer(session, f"{sink_id}/{for_part}")
            with own_cures():
                writer.open()
                if state is None:
                    self._decide_for_all(writer, sink_id)
                begins = self._begin(writer, state, runs.family)
            if state is not None:
                runs.resume(begins.mark.run)
        except BaseException:
            execution.broken.set()
            raise
        return IcebergSinkPartition(
            for_part, config, writer=writer, maker=maker, mark=begins.mark, execution=execution, runs=runs, clock=self._clock
        )  # fmt: skip

    def _decide_for_all(self, writer: SinkWriter, sink_id: str) -> None:
        """What a start without a state means for the rows of the run before, before the first of them is taken back.

        Removed parts are settled here, since nobody builds them. The others settle themselves.
        """
        runs = self._runs
        with runs.deciding:
            family, here = runs.family, _mark(writer.state)
            deciding = (sink_id, here.run if here is not None else None)
            if deciding in runs.decided or family.resumed:
                return
            orphans = []
            for other, state in sorted(writer.claimed.states(f"{sink_id}/part-").items()):
                number, mark = re.fullmatch(r"part-(\d+)", other.removeprefix(f"{sink_id}/")), _mark(state)
                if number is None or mark is None:
                    continue
                is_orphan = int(number[1]) >= self.config.num_partitions
                # One that another worker has begun with meanwhile was perhaps resumed: that is decided there.
                of_this_run = here is not None and mark.run == here.run and state.at_ms < runs.began_ms
                if is_orphan or of_this_run or other == writer.sink_id:
                    with _named(self.config.spec.full_name, other):
                        taken_back(mark, self.config.on_fresh_start, family)
                if is_orphan and mark.seq:
                    orphans.append(other)
            for other in orphans:
                self._settle(self._writer(writer.session, other), family)
            runs.decided.add(deciding)

    def _settle(self, writer: SinkWriter, family: Family) -> None:
        """Takes back what a removed part wrote, or records, for all later starts, that its rows stay."""
        try:
            writer.open()
            begins = self._begin(writer, None, family)
            if _mark(writer.state) != begins.mark:
                _announce(writer, begins.mark)
        except Fenced:
            log.info("%s: another process settles what becomes of its rows", writer.sink_id)

    def _begin(self, writer: SinkWriter, state: FlowState | None, family: Family) -> Beginning:
        from frazil.write.take_back import take_back

        table = self.config.spec.full_name
        with _named(table, writer.sink_id):
            begins = beginning(_mark(writer.state), state, self.config.on_fresh_start, family, uuid.uuid4().hex[:8])
        if taken := take_back(writer.claimed, begins.kept, then=begins.mark.position):
            part = _part_name(writer.sink_id)
            log.warning("%s, %s: %d flushes were taken back, which Bytewax sends again", table, part, taken)
        elif begins.announced:
            _announce(writer, begins.mark)
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
                require_writable(columns, f"table {spec.full_name}")
                require_error_columns(columns, rows)
                self._maker = RowMaker(
                    columns, rows.extra_columns == "refuse", rows.error_column, rows.raw_column, rows.epoch_unit
                )
                self._session = session
            return self._session, self._maker

    def _writer(self, session: SparkSession, sink_id: str) -> SinkWriter:
        from frazil.write.setup import WriterSetup
        from frazil.write.writer import SinkWriter

        setup = WriterSetup(session, sink_id, sink_id, self.config.settings.retry, self._tell)
        return SinkWriter(setup, self.config.spec)

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
        mark: FlowMark,
        execution: Execution,
        runs: Runs,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self._config = config
        self._writer = writer
        self._maker = maker
        self._mark = mark
        self._execution = execution
        self._runs = runs
        self._clock = clock
        self._rows: list[Mapping[str, Any]] = []
        # The rows of a flush that has failed, and its mark. The table may have them all the same, and knows a flush by its mark:
        # they are tried again as they were, and rows that came since are another flush.
        self._tried: list[Mapping[str, Any]] = []
        self._trying = mark
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
            return FlowState.at(self._mark, self.name, self._config.num_partitions).to_bytewax()

    def close(self) -> None:
        """Ends the part, also when the flow was aborted: what is waiting is not written, since Bytewax sends it again.

        When nothing is waiting after a snapshot and nothing has failed, the flow may have come to its end, which is written down.
        Bytewax cannot take an error here.
        """
        with self._turn:
            self._closed = True
            self._turn.notify()
            if self._settled and not self.waiting and not self._execution.broken.is_set():
                self._finish()
        if self._timer is not None:
            self._timer.join()

    def _finish(self) -> None:
        finished = replace(self._mark, finished=True)
        try:
            _announce(self._writer, finished)
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
                    # The next call raises it, which is the only way to stop the flow.
                    log.error("%s: a flush failed: %s", self._writer.sink_id, error)  # noqa: TRY400 - the message says it all
                    self._failed(error)

    def _flush(self, *, snapshot: bool = False) -> None:
        """Commits all that is waiting, what has failed before first."""
        if self._tried:
            self._commit()
        self._tried, self._rows = self._rows, []
        if self._tried:
            self._trying = self._mark.next(snapshot=snapshot, seconds=self._runs.seconds())
            self._commit()
        elif snapshot:
            mark = replace(self._mark, snapshots=self._mark.snapshots + 1)
            if mark.cut and mark.snapshots == 1:
                # Whether Bytewax can know of a branch at all is what a stale state is judged by.
                _announce(self._writer, mark)
            self._mark = mark

    def _commit(self) -> None:
        from frazil.runtime.arrow import frame_of

        frame = frame_of(self._writer.session, self._maker.table(self._tried), self._maker.columns)
        with own_cures():
            self._writer.write(frame, _part(self._writer, self._trying, len(self._tried)))
        self._mark, self._tried = self._trying, []

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
        self._execution.broken.set()


def _mark(state: SinkState | None) -> FlowMark | None:
    return FlowMark.read(state.end if state is not None else None)


def _part(writer: SinkWriter, after: FlowMark, rows: int = 0) -> Part:
    from frazil.write.part import Part

    return Part(SOURCE, writer.state.end if writer.state is not None else None, after.position, rows)


def _announce(writer: SinkWriter, mark: FlowMark) -> None:
    """Writes a mark into the ledger that comes without rows."""
    with own_cures():
        writer.mark(_part(writer, mark), RowCounts(0, 0))


def _part_name(sink_id: str) -> str:
    return sink_id.rpartition("/")[2]


@contextmanager
def _named(table: str, sink_id: str) -> Iterator[None]:
    """The error that stops a part is reported with the part's name."""
    try:
        yield
    except Halted as halted:
        raise Halted(halted.code, f"{table}, {_part_name(sink_id)}: {halted.message}", fix=halted.fix) from None


def _session(config: IcebergSinkConfig) -> SparkSession:
    from frazil.spark.catalogs import catalog_settings
    from frazil.spark.session import export_environment, session_for, spark_session, with_settings

    catalog, asked = catalog_settings(config.spec), config.settings.spark
    export_environment([catalog])
    spark = spark_session(asked, catalog.components)
    wanted = asked.conf.get("spark.local.dir")
    have = spark.sparkContext.getConf().get("spark.local.dir")
    if wanted is not None and wanted != have:
        raise ConfigError(
            "bytewax-option",
            f"temp_dir: Spark runs in this process already, with {have or 'its own folder'} for temporary files, not {wanted}.",
            fix="Use the same temp_dir for all sinks of a process, or leave it out.",
        )
    # Options that can be set while Spark runs are those of this sink alone.
    return session_for(with_settings(spark.newSession(), asked) if asked.conf or asked.master else spark, catalog)


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
