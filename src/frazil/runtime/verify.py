"""Compares a source, the ledger, the history of a table, and what the table holds. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from frazil.columns.digest import key_digest
from frazil.columns.schema import quoted, table_name
from frazil.errors import ConfigError, DataError, Halted
from frazil.iceberg import IcebergTable, Lake
from frazil.model.changes import CommitMode
from frazil.model.commit import Position, SinkState, short_range
from frazil.model.pipeline import PipelineSpec
from frazil.model.publishing import MAIN
from frazil.model.settings import Settings
from frazil.model.sink import SinkSpec
from frazil.model.verify import Finding, Record, Verified, chain_findings, count_findings, expired
from frazil.runtime.compare import compared
from frazil.runtime.runner import start_spark
from frazil.runtime.versions import version_problems
from frazil.sources import open_source
from frazil.sources.base import Behind, Source
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for


@runtime_checkable
class Countable(Protocol):
    """A source that knows without reading how many rows lie between two positions."""

    def count(self, start: Position | None, end: Position) -> int | None:
        """So many; None when it does not know for these."""


@runtime_checkable
class Comparable(Protocol):
    """A source whose rows as they are now can be compared with a table's."""

    def waiting(self, position: Position) -> bool:
        """Whether there are changes after a position, so that the rows cannot be the same yet."""

    @property
    def table_names(self) -> Sequence[str]:
        """Its tables, by the names that routes know them by."""

    def rows(self, table: str) -> DataFrame:
        """The rows of a table as they are now, like those of a slice. They can be read until those of another are asked for."""

    def digest(self, table: str) -> tuple[int, int | None, Sequence[str]]:
        """How many rows a table has, a number that all their keys make unless they cannot be compared, and the keys' columns."""


def verify(pipeline: PipelineSpec, settings: Settings, *, values: bool = False) -> Verified:
    """Looks for gaps and for rows that are there twice; with ``values`` for other values in the rows, too."""
    spark = start_spark([pipeline], settings)
    session = session_for(spark, catalog_settings(pipeline.sink))
    source = open_source(
        pipeline.source, lambda: session, images=pipeline.sink.needs_images, versions=pipeline.sink.keeps_versions
    )
    try:
        return _verify(pipeline, session, source, values=values)
    finally:
        source.close()


def _verify(pipeline: PipelineSpec, session: SparkSession, source: Source, *, values: bool) -> Verified:
    sink = pipeline.sink
    lake = Lake(session, sink.catalog.name, sink.catalog.address)
    home = lake.load(sink.namespace_levels, sink.home_table or "", sink.written_branch)
    state = home.port(pipeline.sink_id).refresh().state if home is not None else None
    if home is None or state is None:
        raise ConfigError("nothing-to-verify", f"The pipeline {pipeline.name!r} has not written anything yet.")
    records = _records(home, pipeline.sink_id)
    findings = chain_findings(records, short_range(state.end))
    notes = []
    if gone := expired(records):
        notes.append(f"{gone} earlier batches are not in the history any more: their snapshots have expired.")
    if isinstance(source, Countable):
        findings += count_findings(records, source.count)
    home_name = f"{sink.namespace}.{sink.home_table}"
    findings += [one for name in dict.fromkeys([home_name, *state.followers]) for one in _held(session, lake, pipeline, name)]
    source.check()
    notes += _behind(source, state)
    by_value: tuple[str, ...] = ()
    if isinstance(source, Comparable) and source.table_names:
        late = sink.ignores_late and (bool(gone) or any(one.counts is not None and one.counts.superseded for one in records))
        comparison = _Comparison(session, pipeline, source, state, lake, late=late)
        by_value = comparison.run(values=values)
        findings, notes = findings + comparison.findings, notes + comparison.notes
    elif values:
        words = "cannot be asked for the rows that the table should have"
        notes.append(f"No values were compared: this {pipeline.source.connector} source {words}.")
    batches = [one.counts for one in records if one.counts is not None]
    rows = sum(one.read for one in batches)
    return Verified(pipeline.name, sink.full_name, len(batches), rows, tuple(findings), tuple(notes), by_value)


def _records(table: IcebergTable, sink_id: str) -> list[Record]:
    found = (Record.of(snapshot, summary) for snapshot, summary in table.history.summaries(sink_id))
    return [one for one in found if one is not None]


def _held(session: SparkSession, lake: Lake, pipeline: PipelineSpec, name: str) -> list[Finding]:
    """What is wrong with a table by itself: with its versions, or with the number of its rows."""
    sink = pipeline.sink
    levels, _, own_name = name.rpartition(".")
    is_home = name == f"{sink.namespace}.{sink.home_table}"
    letters = name == ".".join(sink.letters_name)
    table = lake.load(tuple(levels.split(".")), own_name, MAIN if letters else sink.written_branch)
    if table is None:
        return [Finding(name, "the table is not there any more")]
    own = sink if sink.route is None or is_home or letters else sink.routed(own_name)
    if sink.route is not None and is_home:
        return []
    if own.commit_mode is CommitMode.APPEND:
        return _counted(table, pipeline, name)
    if own.history is None or letters or table.base.head is None:
        return []
    keys = [key for key in table.identifier_fields if key != own.history.valid_from]
    rows = table.rows_at(session, table.base.head)
    return [Finding(name, problem) for problem in version_problems(rows, keys, own.history)]


def _counted(table: IcebergTable, pipeline: PipelineSpec, name: str) -> list[Finding]:
    """Whether a table that only this sink adds rows to holds as many as its batches say."""
    records, everything = _records(table, pipeline.sink_id), table.history.summaries(None)
    others = len(everything) != len(table.history.summaries(pipeline.sink_id))
    if others or expired(records) or any(_takes_away(summary) for _, summary in everything):
        return []
    written = sum(one.counts.written for one in records if one.counts is not None)
    held = table.total("records")
    if held == written:
        return []
    return [Finding(name, f"it holds {held} rows, but its batches have written {written}")]


def _takes_away(summary: Mapping[str, str]) -> bool:
    """Whether a snapshot took rows out again: a reset, batches that were taken back, letters that were replayed."""
    gone, come, marked = (int(summary.get(name, 0)) for name in ("deleted-records", "added-records", "added-position-deletes"))
    return gone > come or marked > 0


def _behind(source: Source, state: SinkState) -> list[str]:
    rows = source.lag(state.end).rows if isinstance(source, Behind) else 0
    return [f"{rows} rows of the source are not in the table yet."] if rows else []


class _Comparison:
    """The rows of upserts' tables beside those of the source as they are now. ``late``: rows may have been left out as late."""

    def __init__(
        self, session: SparkSession, pipeline: PipelineSpec, source: Comparable, state: SinkState, lake: Lake, *, late: bool
    ) -> None:
        self._session = session
        self._pipeline = pipeline
        self._source = source
        self._state = state
        self._lake = lake
        self._late = late
        self.findings: list[Finding] = []
        self.notes: list[str] = []

    def run(self, *, values: bool) -> tuple[str, ...]:
        """Compares all tables, and returns those whose values were compared."""
        if self._waits():
            self.notes.append("There are changes that are not in the table yet: its rows were not compared with the source's.")
            return ()
        compared = tuple(name for name in map(self._by_value if values else self._by_keys, self._source.table_names) if name)
        if self.findings and self._waits():
            self.findings = []
            self.notes.append("Rows were changed in the source while they were compared, which says nothing: do it again.")
            return ()
        return compared

    def _waits(self) -> bool:
        return self._state.end is None or self._source.waiting(self._state.end)

    def _target(self, origin: str, *, transformed: bool) -> SinkSpec | None:
        """The table of one of the source's, when it can be compared with it."""
        sink = self._pipeline.sink
        name = sink.table if sink.route is None else sink.route.table_of(origin) if sink.route.source else None
        own = None if name is None else sink if sink.route is None else sink.routed(name)
        if own is None or own.commit_mode is not CommitMode.UPSERT or (self._pipeline.transforms and not transformed):
            kind = "an upsert" if transformed else "an upsert without transforms"
            self.notes.append(f"{origin}: its rows were not compared: only {kind} holds the same.")
            return None
        if self._late and own.ignores_late:
            self.notes.append(f"{origin}: its rows were not compared: some may have been left out as late.")
            return None
        return own

    def _frame(self, own: SinkSpec) -> DataFrame | None:
        """The rows of a table, of a history those that are current; None when it was not made yet."""
        rows = self._rows(own)
        return rows if rows is None or own.history is None else rows.where(quoted(own.history.current))

    def _rows(self, own: SinkSpec) -> DataFrame | None:
        if self._pipeline.sink.route is not None and own.full_name not in self._state.followers:
            return None
        table = None if own.branch is None else self._lake.load(own.namespace_levels, own.table or "", own.branch)
        if table is not None and table.base.head is not None:
            return table.rows_at(self._session, table.base.head)
        return self._session.table(table_name(own.catalog.name, own.namespace_levels, own.table or ""))

    def _by_keys(self, origin: str) -> None:
        own = self._target(origin, transformed=False)
        if own is None:
            return
        there, theirs, keys = self._source.digest(origin)
        frame = self._frame(own)
        here, ours = (0, 0) if frame is None else key_digest(frame, keys)
        if here != there:
            self.findings.append(Finding(own.full_name, f"it holds {here} rows, and {origin} has {there}"))
        elif theirs is not None and ours != theirs:
            self.findings.append(Finding(own.full_name, f"it holds as many rows as {origin}, but with other keys"))

    def _by_value(self, origin: str) -> str | None:
        own = self._target(origin, transformed=True)
        if own is None:
            return None
        frame = self._frame(own)
        table = None if frame is None else self._lake.load(own.namespace_levels, own.table or "", own.written_branch)
        if frame is None or table is None:
            self._by_keys(origin)
            return None
        pipeline = self._pipeline
        try:
            found = compared(
                frame, self._source.rows(origin), table, own, sink_id=pipeline.sink_id, transforms=pipeline.transforms
            )
        except (DataError, Halted) as error:
            self.findings.append(Finding(own.full_name, f"its values cannot be compared with those of {origin}: {error.message}"))
            return None
        self.findings += [Finding(own.full_name, one.message(origin)) for one in found.differences]
        if found.unreadable:
            self.notes.append(f"{origin}: {found.unreadable} rows cannot be written to the table, and were not compared.")
        if found.unknown:
            self.notes.append(f"{own.full_name}: not compared, since {origin} has no such columns: {', '.join(found.unknown)}.")
        return own.full_name
