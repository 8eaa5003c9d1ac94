"""A sink's table and its place in the ledger, as this process holds them: all looks at them and all commits go through here.

Delivery: what is committed is committed once, whatever answers are lost; the newest holder of a sink fences out the others.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from pyspark.sql import SparkSession

from frazil.commit.protocol import (
    AttemptFailed,
    Failed,
    FailureKind,
    Intent,
    Moved,
    Swap,
    TablePort,
    TableView,
    commit,
    contiguous,
    ledger_holds,
    not_fenced,
    not_rolled_back,
    same_table,
)
from frazil.commit.retry import contended, retried
from frazil.commit.together import Each, Member, TablesPort
from frazil.errors import CredentialsRefused, Fenced, Retryable
from frazil.iceberg import Append, Change, Expired, IcebergPort, IcebergTable, Lake, Restage
from frazil.iceberg.biglake import BigLakeTable
from frazil.model.commit import Batch, CommitResult, SinkState
from frazil.model.events import CommitFailed, FencedOut, Listener
from frazil.model.maintenance import Retention, TableFigures
from frazil.model.pausing import Pause, pause_in, pause_property
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from frazil.spark.catalogs import catalog_settings, sqlite_file
from frazil.write import target

T = TypeVar("T")

# Nobody should wait for a minute because of a mistyped address, unless the settings say how long to wait.
TRIES_TO_OPEN = 4


class ClaimedSink:
    """One sink, whose table may still have to be found or created. ``name`` is the pipeline's, for events and messages."""

    def __init__(
        self,
        session: SparkSession,
        sink: SinkSpec,
        sink_id: str,
        *,
        name: str,
        retry: RetrySettings,
        listen: Listener,
        sleep: Callable[[float], object],
    ) -> None:
        self.sink = sink
        self.sink_id = sink_id
        self.name = name
        self.listen = listen
        self.retry = retry
        self.sleep = sleep
        self.instance = uuid.uuid4().hex[:12]
        self.state: SinkState | None = None
        self.retention: Retention | None = None
        """Which snapshots of the table stay when something is committed; None: all."""
        self.commit_seconds = 0.0
        """How long the last commit took."""
        self.expired: list[Expired] = []
        """The snapshots that went, and whose files were not looked at yet."""
        self.unreferenced: list[Callable[[], list[str]]] = []
        """Find files that commits have written for nothing, and that were not deleted yet."""
        self._last: IcebergPort | None = None
        self._looked = 0.0
        self._epoch: int | None = None
        self._table: IcebergTable | None = None
        if file := sqlite_file(catalog_settings(sink)):
            file.parent.mkdir(parents=True, exist_ok=True)  # SQLite makes the file, not its folder
        self.opening = retry if retry.model_fields_set else retry.model_copy(update={"max_retries": TRIES_TO_OPEN})
        self.lake = self.retried(lambda: Lake(session, sink.catalog.name, sink.catalog.address), self.opening)
        self._shown: BigLakeTable | None = None
        if sink.biglake is not None:
            self._shown = BigLakeTable(sink.biglake, sink.table or "", pipeline=name, retry=retry, listen=listen, sleep=sleep)

    @property
    def ready(self) -> bool:
        """Whether the table is there."""
        return self._table is not None

    @property
    def table(self) -> IcebergTable:
        """The table, which must have been taken."""
        if self._table is None:
            raise RuntimeError("the sink is not open")
        return self._table

    def take(self, table: IcebergTable, *, claim: bool, make: bool, followers: tuple[str, ...] | None) -> None:
        """From now on this is the sink's table. Without ``claim`` only its ledger is read, unless it lacks properties."""
        self._table, self._looked = table, time.monotonic()
        lacking = target.lacking_properties(table, self.sink) if make else {}
        if not claim and not lacking:
            self.look()
            return
        change = Change(Append(), table.base, properties=lacking) if lacking else None
        self.run(Intent(self.sink_id, self.instance, at_ms=now_ms(), table_uuid=table.uuid, change=change, followers=followers))
        self.retried(table.refresh)
        self.show()

    # Looks

    def look(self) -> SinkState | None:
        """Reads the ledger as it is now, without a claim."""
        view = self._view()
        not_rolled_back(view, self.intent())
        self.state = view.state
        return self.state

    def awaits(self, batch: Batch) -> bool:
        """Whether the ledger as it is now lacks a batch; stops when that could not be committed to it."""
        view, intent = self._view(), replace(self.intent(), batch=batch)
        with self._fence_reported():
            same_table(view, intent)
            not_fenced(view, intent)
            not_rolled_back(view, intent)
            self.state = view.state
            if view.state is not None and ledger_holds(view.state, batch):
                return False
            contiguous(view, intent)
        return True

    def pause(self, after: float = 0.0) -> Pause | None:
        """Whether somebody has paused the sink, as its table says. It is looked at again if that is so many seconds ago."""
        if not self.ready:
            return None
        if time.monotonic() - self._looked >= after:
            self.retried(self.table.refresh)
            self._looked = time.monotonic()
        return pause_in(self.table.property_text(pause_property(self.sink_id)), self.sink_id)

    def set_pause(self, pause: Pause | None) -> None:
        """Pauses the sink, or lets it go on, whoever writes to it. Nothing is claimed."""
        value = None if pause is None else pause.to_json()
        self.retried(lambda: self.table.set_property(pause_property(self.sink_id), value))

    def states(self, beginning: str) -> dict[str, SinkState]:
        """The ledger's entries of all sinks of the table whose ids begin like this, as they are now, without a claim."""
        self.retried(self.table.refresh)
        return self.table.states(beginning)

    def _view(self) -> TableView:
        table = self.table

        def seen() -> TableView:
            try:
                return table.port(self.sink_id).refresh()
            except AttemptFailed as failed:
                raise failed.outcome.error from failed

        return self.retried(seen)

    # Commits

    def intent(self, change: Change | None = None) -> Intent:
        """What is to be committed, by this holder."""
        uuid = self.table.uuid
        return Intent(self.sink_id, self.instance, at_ms=now_ms(), epoch=self._epoch, table_uuid=uuid, change=change)

    def commit(self, batch: Batch, change: Change | None) -> CommitResult:
        """Commits a batch."""
        return self.run(replace(self.intent(change), batch=batch))

    def move(self, moved: Moved, change: Change | None = None) -> CommitResult:
        """Commits another place in the source, and what becomes of the table with it."""
        return self.run(replace(self.intent(change), moved=moved))

    def register(self, followers: tuple[str, ...]) -> None:
        """Writes down the other tables of the sink, before they get anything."""
        self.run(replace(self.intent(), followers=followers))

    def run(self, intent: Intent) -> CommitResult:
        """Through the commit loop; the state is what the ledger says then."""
        port = self.table.port(self.sink_id, self.retention)
        result = self._committed(port, intent)
        self._note(port, result)
        return result

    def run_together(self, intent: Intent, others: Sequence[tuple[ClaimedSink, Intent]], each: Each) -> list[CommitResult]:
        """Through the commit loop in one step with other tables of the catalog; this sink is their home, and comes first.

        ``each`` does what can be done for several tables at a time.
        """
        sinks = {one.sink.full_name: one for one in (self, *(one for one, _ in others))}
        ports = {name: one.table.port(one.sink_id, one.retention) for name, one in sinks.items()}
        intents = zip(sinks, (intent, *(theirs for _, theirs in others)), strict=True)
        home, *members = [Member(name, ports[name], one) for name, one in intents]

        def swap_all(swaps: Mapping[str, Swap]) -> None:
            self.lake.swap_together({sinks[name].place: (ports[name], swap) for name, swap in swaps.items()})

        port = TablesPort(home, members, swap_all, each)
        result = self._committed(port, intent)
        results = [result, *(port.result_of(member, result) for member in members)]
        for (name, one), what in zip(sinks.items(), results, strict=True):
            one._note(ports[name], what)
        return results

    @property
    def place(self) -> tuple[tuple[str, ...], str]:
        """Where the catalog has the table: its namespace and its name."""
        return self.sink.namespace_levels, self.sink.table or ""

    def _committed(self, port: TablePort, intent: Intent) -> CommitResult:
        began = time.monotonic()
        with self._fence_reported():
            result = commit(port, intent, self.retry, on_failure=self._failed_attempt, sleep=self.sleep)
        self.commit_seconds = time.monotonic() - began
        return result

    def _note(self, port: IcebergPort, result: CommitResult) -> None:
        """Remembers what a commit to this table has changed."""
        self.state, self._epoch = result.state, result.state.epoch
        self._looked = time.monotonic()
        if port.expired is not None:
            self.expired.append(port.expired)
        if port.unreferenced is not None:
            self.unreferenced.append(port.unreferenced)
        self._last = port

    @property
    def figures(self) -> TableFigures | None:
        """What the last commit says of the table. Whoever lets snapshots expire has them at hand."""
        return None if self._last is None else self._last.figures(with_snapshots=self.retention is not None)

    def until_it_fits(self, attempt: Callable[[], T]) -> T:
        """Stages and commits again when what was staged no longer fits a table that somebody else has changed meanwhile."""
        return contended(
            lambda: self._with_new_credentials(attempt), self.retry, Restage, lambda: self.retried(self.table.refresh)
        )

    def _with_new_credentials(self, attempt: Callable[[], T]) -> T:
        """What an attempt returns; when its credentials are refused, it is made once more with new ones.

        The table is opened anew: a catalog gives out other credentials of its files then, and logs in again where it must.
        """
        try:
            return attempt()
        except CredentialsRefused as refused:
            levels, name, branch = self.sink.namespace_levels, self.sink.table or "", self.sink.written_branch
            opened = self.retried(lambda: self.lake.load_anew(levels, name, branch))
            if opened is None or opened.uuid != self.table.uuid:
                raise
            self._table = opened
            self.listen(CommitFailed(self.name, FailureKind.REFUSED.value, refused.message, 1, will_retry=True))
            return attempt()

    def show(self) -> None:
        """Lets other systems know of the table as it is now."""
        if self._shown is None:
            return
        self.retried(self.table.look)
        if (metadata := self.table.metadata_location) is not None:
            self._shown.show(metadata)

    # Failures

    def retried(
        self,
        call: Callable[[], T],
        retry: RetrySettings | None = None,
        *,
        but: Callable[[Retryable], bool] = lambda _: False,
    ) -> T:
        """What the catalog or the store answers before, between and after commits, with the patience of a commit."""

        def tell(error: Retryable, failures: int, final: bool) -> None:
            self._failed_attempt(Failed(FailureKind.UNREACHABLE, error, final), failures)

        return retried(call, retry or self.retry, tell, self.sleep, but=but)

    def _failed_attempt(self, failed: Failed, attempt: int) -> None:
        again = not failed.final or isinstance(failed.error, Restage)
        self.listen(CommitFailed(self.name, failed.kind.value, failed.error.message, attempt, will_retry=again))

    @contextmanager
    def _fence_reported(self) -> Iterator[None]:
        try:
            yield
        except Fenced as fenced:
            self.listen(FencedOut(self.name, fenced.message))
            raise


def now_ms() -> int:
    """The time now, in milliseconds."""
    return time.time_ns() // 1_000_000
