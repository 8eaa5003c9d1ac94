"""Completes the changes of a batch by the rows that the table has of their keys, before anything is written.

Some changes do not say what is to become of a row: they lack columns or values, are to be added to what is there, or count only
for keys that the table has, or does not have. What they lead to is worked out here, for all ways of an upsert. It holds for the
head that was read, so that a batch which was completed fits no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Row, functions

from frazil.columns.schema import quoted
from frazil.errors import DataError
from frazil.iceberg import IndexFailed
from frazil.model.changes import ChangeOptions
from frazil.model.commit import RowCounts
from frazil.model.hidden import DELETE, HIDDEN, OP, UNCHANGED
from frazil.write.fit import Fit
from frazil.write.modes.choose import Facts, uses_index
from frazil.write.modes.latest import GONE_AT, Survey, began_here, counts_of, is_delete, keeps_known, lacks_values, near
from frazil.write.modes.moved_rows import require_followed, with_moved
from frazil.write.modes.row_values import NEW, OLD, new, new_values, old, same_key, updated_values
from frazil.write.modes.table_context import TableContext

_KNOWN, _FATE, _KEEPS, _UNKNOWN = (f"{HIDDEN}{name}" for name in ("known", "fate", "keeps", "unknown"))
# What becomes of a change.
_WRITTEN, _DELETED, _LEFT = "written", "deleted", "left"
# The keys of so many changes are sent to all tasks, so that the table's rows need not be shuffled.
_MOST_SENT = 1_000_000


@dataclass(frozen=True)
class Completed:
    """What a batch does: whole rows, and deletes. ``replaces``: the table may have rows that go because of it."""

    last: DataFrame
    survey: Survey
    replaces: bool
    counts: RowCounts


@contextmanager
def rows_of_keys(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, facts: Facts) -> Iterator[DataFrame | None]:
    """The rows that the table has of a batch's keys; None if it is known to have none."""
    if facts.empty or facts.disjoint or not survey.keys:
        yield None
        return
    with ExitStack() as opened:
        rows = _found(context, _keys_of(last, fit), fit, opened) if uses_index(context.sink, facts) else None
        if rows is None:
            copy = opened.enter_context(context.table.working_copy(fit.evolution, None, last.sparkSession))
            rows = near(copy.evolved_rows, survey, fit.keys)
        yield with_keys(rows, last, survey, fit)


def with_keys(rows: DataFrame, last: DataFrame, survey: Survey, fit: Fit) -> DataFrame:
    """The rows that have keys of the batch."""
    keys = _keys_of(last, fit)
    return rows.join(functions.broadcast(keys) if survey.keys <= _MOST_SENT else keys, list(fit.keys), "left_semi")


def _keys_of(last: DataFrame, fit: Fit) -> DataFrame:
    return last.select(*[functions.col(quoted(key)) for key in fit.keys])


def _found(context: TableContext, keys: DataFrame, fit: Fit, opened: ExitStack) -> DataFrame | None:
    """The rows of the files that have such keys by the key index; None if that cannot be used."""
    assert context.index is not None, "there is one where it is chosen"
    try:
        return opened.enter_context(context.table.rows_beside(context.index, keys, fit.evolution))
    except IndexFailed:
        return None


@contextmanager
def completed(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, facts: Facts) -> Iterator[Completed]:
    """The last change of each key, completed."""
    sink = context.sink
    if survey.extra:
        require_followed(sink, fit)
    with ExitStack() as opened:
        rows = opened.enter_context(rows_of_keys(context, last, survey, fit, facts))
        made = opened.enter_context(_cached(_completed(last, rows, fit, sink)))
        counts, unknown = _counted(made)
        if unknown is not None:
            raise _unknown(unknown, fit)
        kept = made.where(functions.col(_FATE) != _LEFT)
        if sum(counts.values()) > survey.keys:
            _require_whole(made, fit)
            kept = opened.enter_context(_cached(kept.dropDuplicates(list(fit.keys))))
            counts, _ = _counted(kept)
        replacing, deletes = counts[_WRITTEN, True], counts[_DELETED, True]
        upserts = counts[_WRITTEN, False] + replacing
        yield Completed(
            kept.select(*[quoted(name) for name in fit.names], OP),
            replace(survey, upserts=upserts, deletes=deletes),
            bool(replacing or deletes),
            replace(counts_of(survey), written=upserts, filtered=survey.ignored + survey.upserts - upserts),
        )


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    try:
        yield frame.persist()
    finally:
        frame.unpersist()


def _counted(made: DataFrame) -> tuple[Counter[tuple[str, bool]], Row | None]:
    """How many changes have each fate, by whether the table has their key; and a key whose values are nowhere."""
    counted = functions.count(functions.lit(1)), functions.first(_UNKNOWN, ignorenulls=True)
    rows = [tuple(row) for row in made.groupBy(_FATE, _KNOWN).agg(*counted).collect()]
    unknown = next((row for *_, row in rows if row is not None), None)
    return Counter({(fate, known): count for fate, known, count, _ in rows}), unknown


def _completed(last: DataFrame, rows: DataFrame | None, fit: Fit, options: ChangeOptions) -> DataFrame:
    """Each change with the values that its row will have, and what becomes of it."""
    others = [name for name in fit.names if name not in fit.keys]
    if rows is None:
        rows = last.sparkSession.createDataFrame([], last.select(*[quoted(name) for name in fit.names]).schema)
    last = with_moved(last, rows, fit)
    both = last.alias(NEW).join(rows.withColumn(_KNOWN, functions.lit(True)).alias(OLD), same_key(fit), "left")
    known = functions.coalesce(functions.col(_KNOWN), functions.lit(False))
    # The row that the table has was deleted in this batch: what comes is a new one, which takes nothing from it.
    anew = functions.col(GONE_AT).isNotNull() if keeps_known(options) and GONE_AT in last.columns else functions.lit(False)
    fate = _fate(last, options, known, anew)
    updated, inserted = updated_values(last, fit, options), new_values(fit)
    is_written, is_update = fate == _WRITTEN, known & ~anew
    values = {
        name: functions.when(is_written & is_update, updated.get(name, old(name)))
        .when(is_written, inserted[name])
        .otherwise(new(name))
        for name in others
    }
    return both.select(
        *[new(key).alias(key) for key in fit.keys],
        *[value.alias(name) for name, value in values.items()],
        functions.when(fate == _DELETED, functions.lit(DELETE)).otherwise(functions.lit("")).alias(OP),
        known.alias(_KNOWN),
        fate.alias(_FATE),
        (is_written & is_update & _keeps(last, fit, options)).alias(_KEEPS),
        _lacking(last, fit, options, is_written & ~(known & ~began_here(last))).alias(_UNKNOWN),
    )


def _fate(last: DataFrame, options: ChangeOptions, known: Column, anew: Column) -> Column:
    """What becomes of each change."""
    written, deleted, left = (functions.lit(fate) for fate in (_WRITTEN, _DELETED, _LEFT))
    gone = functions.when(known, deleted).otherwise(left)
    is_new = written if options.when_not_matched_insert_all else gone
    is_known = written if options.when_matched_update_all else left
    return functions.when(is_delete(last), gone).when(known & ~anew, is_known).otherwise(is_new)


def _lacking(last: DataFrame, fit: Fit, options: ChangeOptions, unknown: Column) -> Column:
    """The key of a row whose values did not change and were not sent, and are not in the table either; and which they are."""
    asked = UNCHANGED in last.columns and options.unchanged_missing == "stop"
    lacks = lacks_values(last) & unknown if asked else functions.lit(False)
    names = functions.col(UNCHANGED) if asked else functions.array().cast("array<string>")
    return functions.when(lacks, functions.struct(*[new(key).alias(key) for key in fit.keys], names.alias(UNCHANGED)))


def _unknown(row: Row, fit: Fit) -> DataError:
    return DataError(
        "unchanged-missing",
        f"A row ({_key_text(row, fit)}) came without the values of {', '.join(row[UNCHANGED])}, which did not change, and the "
        "table has no such row: it was never read, or came after a delete of its key in the batch, or its key changed, and the "
        "old one was itself new, or taken again, in the same batch.",
        fix="Let the database log whole rows (REPLICA IDENTITY FULL), or set unchanged_missing: write_null.",
    )


def _keeps(last: DataFrame, fit: Fit, options: ChangeOptions) -> Column:
    """Which rows keep values of the table's row."""
    if options.combine or (options.partial_updates and fit.lacks_parts):
        return functions.lit(True)
    return lacks_values(last)


def _require_whole(made: DataFrame, fit: Fit) -> None:
    """Refuses rows that would keep values of the table when it is not known which row has these values."""
    by_key = made.where(_KEEPS).groupBy(*[quoted(key) for key in fit.keys]).count()
    row = by_key.where(functions.col("count") > 1).first()
    if row is not None:
        raise DataError(
            "key-held-twice",
            f"The table has several rows with one key ({_key_text(row, fit)}), and values of the table's are to be kept: "
            "it is not known which of the rows has them.",
            fix="Delete all but one of these rows from the table.",
        )


def _key_text(row: Row, fit: Fit) -> str:
    return ", ".join(f"{name} = {row[name]}" for name in fit.keys)
