"""Puts dead letters through their pipeline again: those that fit now leave their table, the others stay with the current reason.

A replay is a batch of a separate sink beside the pipeline's, which can continue meanwhile: the letters in a snapshot of their
table that match a condition. Rows, and the letters of those that still do not fit, are committed first; then the old letters
are removed. An interrupted replay is finished by the next one, which finds it in the ledger.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession, functions

from frazil.columns.fixed_time import at_one_time
from frazil.errors import ConfigError, Halted
from frazil.iceberg import Lake
from frazil.model.changes import CommitMode
from frazil.model.commit import Position, RowCounts, position
from frazil.model.dead_letters import OnError
from frazil.model.pipeline import PipelineSpec
from frazil.model.settings import Settings
from frazil.model.types import StructType
from frazil.runtime.runner import open_pipeline, start_spark
from frazil.sources import rereader
from frazil.spark.catalogs import catalog_settings
from frazil.spark.running_java import require_answer
from frazil.spark.session import session_for
from frazil.write.deadletters import LetterBox, letters_sink, literal
from frazil.write.many_tables import RoutedWriter
from frazil.write.part import Part
from frazil.write.writer import SinkWriter

SUFFIX = "/replay"
SOURCE = "dead-letters"
"""The fingerprint of what a replay reads."""


@dataclass(frozen=True)
class Replayed:
    """What became of the letters. ``done``: they were replayed, and not only counted. ``codes``: why they are there."""

    pipeline: str
    table: str
    letters: int
    codes: Mapping[str, int] = field(default_factory=dict)
    counts: RowCounts | None = None
    done: bool = False


@dataclass(frozen=True)
class Chosen:
    """The letters of a replay: those in a snapshot of their table that match a condition.

    ``batches`` are the last batches of each sink that has written letters, and ``until_us`` is when the last letter failed:
    later letters have later ones, so the letters of the replay can be distinguished from them at any later time.
    """

    snapshot: int
    until_us: int
    batches: tuple[tuple[str | None, int], ...]
    where: str

    @classmethod
    def at(cls, position: Position) -> Chosen:
        """What a position of the ledger means."""
        fields = json.loads(position)
        batches = tuple((sink, last) for sink, last in fields["batches"])
        return cls(fields["snapshot"], fields["until_us"], batches, fields["where"])

    @property
    def position(self) -> Position:
        """The value as stored in the ledger."""
        return position(asdict(self))

    @property
    def among(self) -> str:
        """The letters of the snapshot, as it can be asked of the table at any later time."""
        each = " or ".join(f"({_is('sink', sink)} and batch <= {last})" for sink, last in self.batches)
        return f"failed_at <= timestamp_micros({self.until_us}) and ({each})"


def replay(pipeline: PipelineSpec, settings: Settings, where: str | None, *, really: bool) -> Replayed:
    """Replays the letters of the pipeline that the condition names, all without one; or only counts them."""
    _require_replayable(pipeline)
    spark = start_spark([pipeline], settings)
    session = session_for(spark, catalog_settings(pipeline.sink))
    reread = rereader(pipeline.source, session, each=pipeline.sink.route is not None, exactly=pipeline.sink.strict_casting)
    letters = letters_sink(pipeline.sink)
    lake = Lake(session, letters.catalog.name, letters.catalog.address)
    nothing = Replayed(pipeline.name, letters.full_name, 0, done=really)
    table = lake.load(letters.namespace_levels, letters.table or "")
    if table is None:
        return nothing
    mine = f"pipeline = {literal(pipeline.name)}"
    wanted = mine if where is None else f"{mine} and ({at_one_time(session, where, 'where')})"
    codes = _codes(session.table(table.sql_name), wanted)
    if not really:
        return Replayed(pipeline.name, letters.full_name, sum(codes.values()), codes)
    sink = pipeline.sink.model_copy(
        update={"id": pipeline.sink_id + SUFFIX, "max_dead_letters": None, "max_dead_letter_rate": None}
    )
    again = pipeline.model_copy(update={"sink": sink, "dead_letter_topic": None})
    writer, source = open_pipeline(again, settings, spark, lambda _: None, threading.Event())
    source.close()
    done = _Replay(session, writer, table.sql_name, reread).run(wanted)
    return nothing if done is None else Replayed(pipeline.name, letters.full_name, done.read, codes, done, done=True)


def _require_replayable(pipeline: PipelineSpec) -> None:
    sink = pipeline.sink
    if sink.error_handling is not OnError.DEAD_LETTER:
        raise ConfigError(
            "no-dead-letters", f"The pipeline {pipeline.name!r} keeps no dead letters: on_error is {sink.error_handling}."
        )
    fix = "Correct the data or the pipeline, and run it again."
    for one in (sink, *sink.apart.values()):
        if one.commit_mode in (CommitMode.OVERWRITE, CommitMode.DELETE_INSERT):
            table = "the table" if one is sink else f"the table {one.full_name}"
            raise ConfigError(
                "replay-impossible",
                f"The pipeline {pipeline.name!r} replaces what is in {table}: dead letters alone would replace it, too.",
                fix=fix,
            )
    if sink.route is not None and sink.route.every_table:
        raise ConfigError(
            "replay-impossible",
            f"The pipeline {pipeline.name!r} writes each batch to every table, also to those that dead letters have no rows for.",
            fix=fix,
        )


def _codes(letters: DataFrame, wanted: str) -> dict[str, int]:
    try:
        rows = letters.where(wanted).groupBy("code").count().collect()
    except (AnalysisException, ParseException) as error:
        text = str(error).strip().splitlines()[0]
        raise ConfigError(
            "replay-where",
            f"--where is not a condition on dead letters: {text}",
            fix="Its columns are table, stage, code, error, at, key, raw, sent_at, headers, failed_at, sink and batch.",
        ) from error
    return {str(row["code"]): int(row["count"]) for row in rows}


def _is(column: str, value: str | None) -> str:
    return f"{column} is null" if value is None else f"{column} = {literal(value)}"


@dataclass(frozen=True)
class _Replay:
    session: SparkSession
    writer: SinkWriter | RoutedWriter
    letters: str
    reread: Callable[[DataFrame, StructType | None], Sequence[DataFrame]]

    def run(self, wanted: str) -> RowCounts | None:
        """Finishes what was cut off, or replays the letters that are wanted."""
        writer = self.writer
        state = writer.open()
        before = None if state is None else state.end
        box = writer.letters
        assert isinstance(box, LetterBox), "the sink keeps dead letters"
        if not writer.ready:  # a table that takes its columns from the first rows
            (rows,) = self.reread(self.session.table(self.letters).where(wanted), writer.source_columns)
            writer.ensure(rows)
        if state is not None and before is not None and writer.unfinished is None and not box.cleared(state.batch):
            self._clear(box, Chosen.at(before))  # of one that was cut off before it came to this
        chosen = self._choose(box, wanted) if writer.unfinished is None else Chosen.at(writer.unfinished)
        if chosen is None:
            return None
        done = writer.write_each(self.reread(self._chosen(chosen), writer.source_columns), Part(SOURCE, before, chosen.position))
        self._clear(box, chosen)
        return done.counts

    def _clear(self, box: LetterBox, chosen: Chosen) -> None:
        """Takes the letters of the last replay out, once: others may be made to fit its condition later."""
        assert self.writer.state is not None, "it was written"
        box.remove(chosen.where, chosen.among, SOURCE, self.writer.state.batch)

    def _chosen(self, chosen: Chosen) -> DataFrame:
        try:
            table = self.session.read.option("versionAsOf", chosen.snapshot).table(self.letters)
            return table.where(chosen.where)
        except Exception as error:
            require_answer(error)
            raise Halted(
                "replay-cut-off",
                f"A replay was cut off when some tables had its rows already, and snapshot {chosen.snapshot} of {self.letters} "
                f"that it read is gone.",
                fix="Look for the letters' rows in the tables by `at`, and delete those letters that are there.",
            ) from error

    def _choose(self, box: LetterBox, wanted: str) -> Chosen | None:
        snapshot = box.head
        if snapshot is None:
            return None
        table = self.session.read.option("versionAsOf", snapshot).table(self.letters)
        last = functions.max("batch").alias("batch"), functions.max(functions.unix_micros("failed_at")).alias("until")
        rows = table.where(wanted).groupBy("sink").agg(*last).collect()
        if not rows:
            return None
        batches = tuple((row["sink"], int(row["batch"])) for row in rows)
        return Chosen(snapshot, max(int(row["until"]) for row in rows), batches, wanted)
