"""The way of a batch into files: shaped by the sink, fitted to the table, written by its strategy, with its bad rows apart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Row, functions

from frazil.columns.counting import Counted
from frazil.errors import DataError, FrazilError, Halted
from frazil.iceberg import Base, IcebergTable, KeyIndex, fault_of
from frazil.iceberg.staging_faults import explain_staging
from frazil.model.changes import CommitMode
from frazil.model.commit import RowCounts
from frazil.model.hidden import ERROR, HIDDEN, PAIR
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.spark.uncompiled import interpreted_if_small
from frazil.write.deadletters import Rejected, with_record
from frazil.write.expectations import Expected
from frazil.write.fit import Fit, fit_of, null_column
from frazil.write.modes import TableContext, Written, is_extra, strategy_of
from frazil.write.part import Part
from frazil.write.shape import Tally, sink_rows
from frazil.write.table_after import FitInputs
from frazil.write.tombstones import Tombstones

_WHOSE, _ITS_ERROR = f"{HIDDEN}whose", f"{HIDDEN}its_error"

_log = logging.getLogger("frazil")

Explain = Callable[[Exception], FrazilError | None]


@dataclass(frozen=True)
class Staging:
    """A batch whose files are written: the change and the counts, and the frame that has its dead letters, if any.

    ``kept`` is the cached frame that these come from: they are selected by a condition on the error, into which Spark would
    otherwise inline everything that the rows are read and converted with, several times over.
    """

    written: Written
    rejected: tuple[Rejected, ...] = ()
    kept: DataFrame | None = None

    def let_go(self) -> None:
        """Releases the rows that were cached for the letters."""
        if self.kept is not None:
            self.kept.unpersist()


@contextmanager
def _explained(explain: Explain) -> Iterator[None]:
    """Foreign errors in words for people: what the source knows of them, or what is known of writing."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        raise explain(error) or explain_staging(fault_of(error)) from error


class Stager:
    """Stages the batches of one sink, one after the other: it remembers how the last one fitted."""

    def __init__(
        self,
        sink: SinkSpec,
        sink_id: str,
        transforms: tuple[TransformSpec, ...],
        index: KeyIndex | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        self._sink = sink
        self._index = index
        self._tombstones = tombstones
        self._sink_id = sink_id
        self._transforms = transforms
        self._fit: Fit | None = None
        self._sound_for: FitInputs | None = None
        self._nulls: frozenset[str] = frozenset()
        self._seen: Base | None = None
        self._unfilled: frozenset[str] = frozenset()
        self._is_first = True

    def begin(self, unfilled: frozenset[str] = frozenset()) -> None:
        """Another batch begins. ``unfilled`` columns have no value in it, and are not added to the table."""
        self._seen, self._unfilled = None, unfilled

    def shaped(self, frame: DataFrame, tally: Tally | None = None, *, proven: bool = True) -> DataFrame:
        """The rows of the source as the sink's transforms make them. ``proven``: there is a table that has such rows."""
        return sink_rows(frame, self._sink, self._transforms, tally, proven=proven)

    def _filled(self, frame: DataFrame, table: IcebergTable) -> DataFrame:
        """The frame without columns that have no value in it and that the table does not have."""
        have = {column.name for column in table.schema.fields}
        return frame.drop(*(self._unfilled - have)) if self._unfilled - have else frame

    def staging_of(self, table: IcebergTable, frame: DataFrame, part: Part, explain: Explain) -> Staging:
        """Writes the files of a batch. ``explain`` says what an error means that is the source's."""
        table.require_past()
        with interpreted_if_small(frame, part.rows) if self._is_first else nullcontext():
            staging = self._written(table, frame, part, explain)
        self._is_first = False
        return staging

    def _written(self, table: IcebergTable, frame: DataFrame, part: Part, explain: Explain) -> Staging:
        whole = False
        while True:
            try:
                staging = self._once(table, frame, part, explain, whole=whole)
                if staging is not None:
                    return staging
                whole = True
            except DataError as error:
                column = null_column(error, self._fit, self._sink) if self._fit is not None else None
                if column is None or column in self._nulls:
                    raise
                self._nulls |= {column}  # the table stops requiring it in the same commit

    def _fitted(self, table: IcebergTable, frame: DataFrame) -> Fit:
        before = self._fit.notes if self._fit is not None else ()
        self._fit = fit_of(table, self._sink, self._sink_id, frame, last=self._fit, nulls=self._nulls)
        for note in self._fit.notes:
            if note not in before:
                _log.warning("%s: %s", self._sink.full_name, note)
        return self._fit

    def _once(self, table: IcebergTable, frame: DataFrame, part: Part, explain: Explain, *, whole: bool) -> Staging | None:
        """None when it must be done again with the two changes of a source row kept together, ``whole``: one of them is wrong."""
        source, tally = frame, Tally()
        frame = self._filled(self.shaped(frame, tally), table)
        fit = fitted = self._fitted(table, frame)
        self._seen = self._seen or table.base
        context = TableContext(
            table,
            self._sink,
            fit.schema,
            fit.partition,
            self._seen,
            part.rows,
            part.keys_differ,
            self._index,
            self._tombstones,
        )
        wrong = None
        expected = Expected.now(self._sink.expect, frame)
        if fit.error is not None or self._sink.expect:
            applied = self._judged(fit, frame, expected)
            applied = _together(applied) if whole else applied
            bad = functions.col(ERROR).isNotNull()
            beside = functions.count_if(bad & is_extra(applied)).alias("extra")
            paired = functions.col(PAIR).isNotNull() if PAIR in applied.columns else functions.lit(False)
            torn = functions.count_if(bad & paired).alias("torn")
            wrong = Counted(applied, functions.count_if(bad).alias("rows"), beside, torn, *expected.counts)
            frame = expected.without_marks(wrong.frame.where(functions.col(ERROR).isNull()).drop(ERROR))
            fit = replace(fit, columns=None, error=None)
        with _explained(explain):
            written = strategy_of(self._sink)(context, frame, fit)
            found = wrong.get() if wrong is not None else Row(rows=0, extra=0, torn=0)
        written = replace(written, change=replace(written.change, columns=fitted.ids))
        counts = written.counts
        if found["torn"] and not whole:
            return None
        if wrong is not None:
            with _explained(explain):
                expected.require_met(applied, found, self._sink.full_name)
            counts += RowCounts(0, 0, unmet=expected.found(found))
        rejected, extra = int(found["rows"]), int(found["extra"])
        if rejected and not counts.written and self._sink.commit_mode is CommitMode.OVERWRITE:
            with _explained(explain):
                emptied = self._would_empty(applied, rejected)
            raise emptied
        counts += RowCounts(read=rejected - extra, written=0, dead_lettered=rejected, extra=extra)
        counts += tally.of(counts.read)
        if not rejected:
            return Staging(replace(written, counts=counts))
        with ExitStack() as undo:
            kept = with_record(source).persist()
            undo.callback(kept.unpersist)
            letters = self._judged(fitted, self._filled(self.shaped(kept), table), expected)
            apart = Rejected(_together(letters) if whole else letters, self._sink.full_name, rejected)
            with _explained(explain):
                again = apart.frame.where(functions.col(ERROR).isNotNull()).count()
            if again != rejected:
                raise _not_the_same(rejected, again)
            undo.pop_all()
        return Staging(replace(written, counts=counts), (apart,), kept)

    def _judged(self, fit: Fit, frame: DataFrame, expected: Expected) -> DataFrame:
        """The rows as the table is to have them, with what is wrong with them, and which do not meet what is expected."""
        applied = fit.applied(frame)
        if self._sound_for is not fit.inputs:
            expected.require_sound(applied)
            self._sound_for = fit.inputs
        return expected.applied(applied)

    def _would_empty(self, applied: DataFrame, rejected: int) -> Halted:
        row = applied.where(functions.col(ERROR).isNotNull()).select(ERROR).first()
        example = "" if row is None else f" The first: {row[ERROR]['text']}."
        return Halted(
            "overwritten-by-nothing",
            f"None of the batch's {rejected} rows can be written, and the rows of {self._sink.full_name} that it is to replace "
            f"would be gone.{example} Nothing was changed.",
            fix="Look at what the source sends. To empty the table, run frazil reset.",
        )


def _not_the_same(rejected: int, again: int) -> DataError:
    return DataError(
        "frame-differs",
        f"The batch was read for its rows, and again for its dead letters, and was not the same: {rejected} of its rows could "
        f"not be written the first time, and {again} the second. Rows would be lost or doubled; nothing was written.",
        fix="Let the frame be the same each time: take out what is random, or persist it before it is written.",
    )


def _together(applied: DataFrame) -> DataFrame:
    """The rows with an error of any change of a source row reported on its main row, and the additional change cancelled.

    Half of a change must not be written: a changed key would be deleted under its old value, and missing under its new one.
    """
    wrong = applied.where(functions.col(ERROR).isNotNull() & functions.col(PAIR).isNotNull())
    errors = wrong.groupBy(functions.col(PAIR).alias(_WHOSE)).agg(functions.first(ERROR).alias(_ITS_ERROR))
    both = applied.join(errors, functions.col(PAIR) == functions.col(_WHOSE), "left")
    error = functions.coalesce(functions.col(ERROR), functions.col(_ITS_ERROR))
    undone = is_extra(applied) & functions.col(ERROR).isNull() & functions.col(_ITS_ERROR).isNotNull()
    return both.where(~undone).withColumn(ERROR, error).drop(_WHOSE, _ITS_ERROR)
