"""Publishes a branch: checks what was written to it, and moves main to exactly what was checked."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from frazil.commit.fast_forward import BranchesView, Goal, fast_forward, require_publishable
from frazil.commit.protocol import AttemptFailed, Failed
from frazil.errors import ConfigError, DataError, FrazilError
from frazil.iceberg import IcebergTable, fault_of
from frazil.iceberg.faults import explain
from frazil.model.events import CommitFailed, Listener
from frazil.model.pipeline import PipelineSpec
from frazil.model.publishing import TABLE, CheckResult, CheckSpec, Publication, Step, rows_finding, rows_written
from frazil.model.settings import RetrySettings, Settings
from frazil.model.sink import SinkSpec
from frazil.runtime.runner import start_spark
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from frazil.write.claim import ClaimedSink
from frazil.write.shape.expressions import spark_words

ROWS = "rows"
"""The check that is always made: that the branch holds as many rows as were written to it."""
SAMPLE = 5
"""So many of the rows that a check has found are shown."""


def publish(pipeline: PipelineSpec, settings: Settings, *, dry_run: bool, listen: Listener) -> Publication:
    """Publishes the branch that a pipeline writes to; with ``dry_run`` everything is checked, and main stays."""
    sink, name = pipeline.sink, pipeline.name
    _require_branch(sink, name)
    spark = start_spark([pipeline], settings)
    return publish_sink(spark, sink, pipeline.sink_id, name=name, retry=settings.retry, listen=listen, dry_run=dry_run)


def publish_sink(
    spark: SparkSession, sink: SinkSpec, sink_id: str, *, name: str, retry: RetrySettings, listen: Listener, dry_run: bool
) -> Publication:
    """Publishes the branch that a sink writes to."""
    _require_branch(sink, name)
    catalog = catalog_settings(sink)
    session = session_for(spark, catalog.read_only if dry_run else catalog)
    return Publisher(session, sink, sink_id, name=name, retry=retry, listen=listen).publish(dry_run=dry_run)


def current_session(frame: DataFrame | None) -> SparkSession:
    """The session of a data frame; without one, the session that runs."""
    session = frame.sparkSession if frame is not None else SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("no-spark", "There is no Spark session.", fix="Make one with frazil.session().")
    return session


def _require_branch(sink: SinkSpec, name: str) -> None:
    if sink.branch is None:
        raise ConfigError(
            "no-branch",
            f"{name!r} writes to main: there is nothing to publish.",
            fix="Give the sink a branch.",
        )
    if catalog_settings(sink).is_unborn:
        raise _no_table(sink)


class Publisher:
    """The branch of one sink, on its way to main. Delivery: main gets a snapshot once, whatever answers are lost."""

    def __init__(
        self, session: SparkSession, sink: SinkSpec, sink_id: str, *, name: str, retry: RetrySettings, listen: Listener
    ) -> None:
        self._session = session
        self._sink = sink
        self._name = name
        self._retry = retry
        self._listen = listen
        self._claimed = ClaimedSink(session, sink, sink_id, name=name, retry=retry, listen=listen, sleep=time.sleep)

    def publish(self, *, dry_run: bool) -> Publication:
        """Checks the head of the branch, and moves main to it."""
        claimed, sink = self._claimed, self._sink
        table = claimed.retried(lambda: claimed.lake.load(sink.namespace_levels, sink.table or "", sink.written_branch))
        if table is None:
            raise _no_table(sink)
        claimed.take(table, claim=False, make=False, followers=None)
        head = table.branch_head
        if head is None:
            raise DataError(
                "branch-missing",
                f"{sink.full_name} has no branch {sink.branch!r}.",
                fix="A run of the pipeline makes it, or correct the name.",
            )
        goal = Goal(table.uuid, sink.written_branch, head)
        view = self._view(table, goal)
        found = Publication(self._name, sink.full_name, goal.branch, head, view.main)
        if view.published:
            return replace(found, done=True)
        require_publishable(view, goal)
        steps = table.history.steps(view.main, head)
        checks = (self._rows_check(table, view, head, steps), *self._queries(table.rows_at(self._session, head)))
        found = replace(found, snapshots=len(steps), rows=rows_written(steps), checks=checks)
        if dry_run or found.failed:
            return found
        fast_forward(table.publisher(goal), goal, self._retry, on_failure=self._failed_attempt)
        claimed.retried(table.refresh)
        claimed.show()
        return replace(found, done=True)

    def _view(self, table: IcebergTable, goal: Goal) -> BranchesView:
        def seen() -> BranchesView:
            try:
                return table.publisher(goal).refresh()
            except AttemptFailed as failed:
                raise failed.outcome.error from failed

        return self._claimed.retried(seen)

    def _failed_attempt(self, failed: Failed, attempt: int) -> None:
        self._listen(CommitFailed(self._name, failed.kind.value, failed.error.message, attempt, will_retry=True))

    # Checks

    def _rows_check(self, table: IcebergTable, view: BranchesView, head: int, steps: Sequence[Step]) -> CheckResult:
        def count(snapshot: int | None) -> int:
            return 0 if snapshot is None else table.rows_at(self._session, snapshot).count()

        with _explained(ROWS):
            return CheckResult(ROWS, problem=rows_finding(count(head), count(view.main), steps))

    def _queries(self, rows: DataFrame) -> list[CheckResult]:
        """The results of the sink's own checks, on exactly the rows that are to be published."""
        view = f"frazil_branch_{uuid.uuid4().hex[:12]}"
        checks = self._sink.publish.checks if self._sink.publish is not None else ()
        rows.createOrReplaceTempView(view)
        try:
            return [self._query(check, view) for check in checks]
        finally:
            self._session.catalog.dropTempView(view)

    def _query(self, check: CheckSpec, view: str) -> CheckResult:
        # As a part of a query, nothing but a query can be understood.
        text = f"select * from (\n{check.sql.strip().rstrip(';').replace(TABLE, view)}\n)"
        with _explained(check.name):
            frame = self._session.sql(text)
            first = frame.limit(SAMPLE + 1).collect()
            count = len(first) if len(first) <= SAMPLE else frame.count()
            return CheckResult(check.name, count, tuple(frame.columns), tuple(tuple(row) for row in first[:SAMPLE]))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns what Spark raises in a check into an error that names the check."""
    try:
        yield
    except FrazilError:
        raise
    except (AnalysisException, ParseException) as error:
        raise ConfigError(
            "check-refused",
            f"The check {name!r} is no query that Spark understands: {spark_words(error)}",
            fix=f"Write a query: select * from {TABLE} where ...",
        ) from error
    except Exception as error:
        fault = fault_of(error)
        raise explain(fault) or DataError("check-failed", f"The check {name!r} could not be made: {fault.line}") from error


def _no_table(sink: SinkSpec) -> DataError:
    return DataError("table-missing", f"There is no table {sink.full_name}.", fix="A run makes it, or correct the name.")
