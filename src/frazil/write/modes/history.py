"""History tables: every version of a row, each with the time from which and to which it was valid.

A batch is put into the order of the versions that the table has of its keys. A row that comes late gets its place between them:
the version before it ends where it begins. What is then to be written, new versions and those that now end elsewhere, replaces
rows by their key and the time from which they are valid, as any upsert does.

Delivery: one version for each key and time, and of each key at most one that is current. It is made from the versions of one
snapshot: if others commit meanwhile, the batch is staged again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec, functions

from frazil.columns.schema import quoted, tells_changes, unchanged
from frazil.errors import ConfigError, DataError
from frazil.model.dead_letters import OnError
from frazil.model.hidden import CHANGED_AT, DELETE, HIDDEN, INSERT, ROW_MARK, UNCHANGED, UPDATE
from frazil.model.history import History
from frazil.model.sink import SinkSpec
from frazil.write.fit import Fit
from frazil.write.modes.latest import Survey, is_delete, near, survey_of
from frazil.write.modes.row_state import place_in_order
from frazil.write.modes.row_values import struct_of
from frazil.write.modes.table_context import TableContext

_NEW, _GONE, _WAS, _BEFORE, _FILL, _REPLACED, _TAKEN = (
    f"{HIDDEN}version_{name}" for name in ("new", "gone", "was", "before", "fill", "replaced", "taken")
)


def version_columns(frame: DataFrame, sink: SinkSpec, history: History) -> dict[str, Column]:
    """What a row is as a version, before anything is known of others: valid since its place in the order."""
    since = _since(frame, sink)
    kind = frame.select(since).schema[0].dataType
    values = (since, functions.lit(None).cast(kind), functions.lit(True), functions.lit(UPDATE))
    return dict(zip(history.columns, values, strict=True))


def _since(frame: DataFrame, sink: SinkSpec) -> Column:
    """Since when the row is as it is: by the first column of order_by, or by the source."""
    if sink.order_by:
        first = sink.order_by[0]
        if first in frame.columns and frame.schema[first].metadata.get(ROW_MARK):
            raise ConfigError(
                "history-order",
                f"order_by: {first!r} is a column of the rows, of which a delete has the value from before, or none: it does not "
                "say when the row went.",
                fix="Leave order_by out: versions then begin at the times at which the source says that its rows were changed.",
            )
        return place_in_order(frame)["o0"]
    if CHANGED_AT in frame.columns:
        return functions.col(CHANGED_AT)
    if sink.error_handling is OnError.DEAD_LETTER and tells_changes(frame):
        return functions.lit(None).cast("timestamp")
    raise ConfigError(
        "history-order",
        "history: the source does not tell when its changes were made (`source.ts_ms` of Debezium's envelopes), and there is no "
        "order_by.",
        fix="Name in order_by a column that says since when a row is as it is.",
    )


@contextmanager
def versions(context: TableContext, last: DataFrame, survey: Survey, fit: Fit) -> Iterator[tuple[DataFrame, Survey]]:
    """The rows to write, each with a key and a time of its own, and the survey of them.

    They fit the table only as it is now: they are made from the versions that it has.
    """
    sink = context.sink
    assert sink.history is not None, "it was asked for"
    with context.table.working_copy(fit.evolution, session=last.sparkSession) as copy:
        known = None if context.table.holds_no_files else near(copy.evolved_rows, survey, _row_keys(fit))
        timeline = _timeline(last, known, fit, sink.history)
        if UNCHANGED not in last.columns:
            timeline = timeline.drop(UNCHANGED)
        rows = _to_write(timeline, fit, sink)
        if UNCHANGED in last.columns and sink.unchanged_missing == "stop":
            _require_known(rows, fit)
        rows = rows.drop(UNCHANGED).persist()
        try:
            yield rows, survey_of(rows, fit.keys)
        finally:
            rows.unpersist()


def _timeline(last: DataFrame, known: DataFrame | None, fit: Fit, history: History) -> DataFrame:
    """The batch's changes, and the versions that the table has of their keys."""
    gone = is_delete(last)
    names = [functions.col(quoted(name)) for name in fit.names]
    unsent = functions.col(UNCHANGED) if UNCHANGED in last.columns else functions.lit(None).cast("array<string>")
    was = functions.struct(*[functions.col(quoted(name)) for name in (history.valid_to, history.current, history.operation)])
    new = last.select(*names, gone.alias(_GONE), unsent.alias(UNCHANGED), was.alias(_WAS), functions.lit(True).alias(_NEW))
    if known is None:
        return new
    of_rows = _row_keys(fit)
    touched = new.select(*map(quoted, of_rows)).distinct()
    held = known.join(touched, list(of_rows), "left_semi")
    was_gone = functions.coalesce(functions.col(quoted(history.operation)) == DELETE, functions.lit(False))
    nothing = functions.lit(None).cast("array<string>")
    old = held.select(*names, was_gone.alias(_GONE), nothing.alias(UNCHANGED), was.alias(_WAS), functions.lit(False).alias(_NEW))
    return old.unionByName(new)


def _to_write(timeline: DataFrame, fit: Fit, sink: SinkSpec) -> DataFrame:
    """The versions that are new, and those that others make different, as they are to be."""
    history = sink.history
    assert history is not None, "it was asked for"
    values = [name for name in fit.names if name not in (*fit.keys, *history.columns)]
    made = _in_place(_without_replaced(timeline, values, fit), values, fit, sink, history)
    said = (history.valid_to, history.current, history.operation)
    mended = [~functions.col(quoted(name)).eqNullSafe(functions.col(_WAS)[name]) for name in said]
    follows_new = functions.col(_GONE) & functions.coalesce(functions.col(_BEFORE)[_NEW], functions.lit(False))
    changed = made.where(reduce(Column.__or__, mended, functions.col(_NEW) | follows_new))
    # What a row was is not known if it is deleted before it was ever seen.
    required = {column.name for column in fit.schema.fields if column.required}
    for name in values:
        if name in required:
            changed = changed.where(~(functions.col(_GONE) & functions.col(quoted(name)).isNull()))
    lacking = [UNCHANGED] if UNCHANGED in made.columns else []
    return changed.select(*[quoted(name) for name in fit.names], *lacking)


def _without_replaced(timeline: DataFrame, values: Sequence[str], fit: Fit) -> DataFrame:
    """The versions without those that a change takes the place of, which it knows: what it does not say was as they say."""
    *of_rows, since = (functions.col(quoted(key)) for key in fit.keys)
    same = Window.partitionBy(*of_rows).orderBy(since).rangeBetween(Window.currentRow, Window.currentRow)
    new, held = functions.col(_NEW), functions.when(~functions.col(_NEW), struct_of([*values, _NEW, _GONE]))
    replaced = functions.when(new, functions.first(held, ignorenulls=True).over(same))
    marked = timeline.withColumns({_REPLACED: replaced, _TAKEN: functions.max(_NEW).over(same)})
    return marked.where(new | ~functions.col(_TAKEN)).drop(_TAKEN)


def _in_place(timeline: DataFrame, values: Sequence[str], fit: Fit, sink: SinkSpec, history: History) -> DataFrame:
    """Each version between the one before it and the one after it. A delete has the values of the row that went."""
    gone, since = functions.col(_GONE), functions.col(quoted(history.valid_from))
    in_order = Window.partitionBy(*[functions.col(quoted(key)) for key in _row_keys(fit)]).orderBy(since)
    following = functions.lead(since).over(in_order)
    begins = functions.lag(gone, 1, True).over(in_order)
    row = functions.when(~gone, struct_of([*values, _NEW, _GONE]))
    row_before = functions.last(row, ignorenulls=True).over(_earlier(in_order))
    replaced = functions.col(_REPLACED)
    went_at_once = functions.when(~replaced[_GONE], replaced)
    made = _filled(timeline, values, in_order).withColumn(_BEFORE, functions.coalesce(went_at_once, row_before, replaced))
    made = made.withColumns(
        {
            history.valid_to: functions.when(gone, since).otherwise(following),
            history.current: ~gone & following.isNull(),
            history.operation: functions.when(gone, DELETE).when(begins, INSERT).otherwise(UPDATE),
        }
    )
    before = functions.col(_BEFORE)
    went = gone & before.isNotNull()
    # The time of a delete is its own.
    kept = [name for name in values if name not in sink.order_by]
    return made.withColumns({name: functions.when(went, before[name]).otherwise(functions.col(quoted(name))) for name in kept})


def _filled(timeline: DataFrame, values: Sequence[str], in_order: WindowSpec) -> DataFrame:
    """The versions with the values that did not change and were not sent, from the version before, if there is one."""
    if UNCHANGED not in timeline.columns or not values:
        return timeline
    gone, was, sent = functions.col(_GONE), functions.col(_REPLACED), {}
    for name in values:
        own = functions.struct(gone.alias(_GONE), functions.col(quoted(name)).alias("value"))
        replaced = functions.when(was.isNotNull(), functions.struct(was[_GONE].alias(_GONE), was[name].alias("value")))
        known = functions.when(gone | ~unchanged(name), own).otherwise(replaced)
        sent[name] = functions.coalesce(replaced, functions.last(known, ignorenulls=True).over(_earlier(in_order)))
    frame = timeline.withColumn(_FILL, functions.struct(*[value.alias(name) for name, value in sent.items()]))
    filled, lacking = {}, []
    for name in values:
        before, takes = functions.col(_FILL)[name], unchanged(name) & ~gone
        is_known = ~functions.coalesce(before[_GONE], functions.lit(True))
        filled[name] = functions.when(takes & is_known, before["value"]).otherwise(functions.col(quoted(name)))
        lacking.append(functions.when(takes & ~is_known, functions.lit(name)))
    return frame.withColumns(filled | {UNCHANGED: functions.array_compact(functions.array(*lacking))}).drop(_FILL)


def _require_known(rows: DataFrame, fit: Fit) -> None:
    """A row that lacks values because they did not change must have a version before it, which has them."""
    row = rows.where(functions.size(UNCHANGED) > 0).select(*map(quoted, fit.keys), UNCHANGED).first()
    if row is None:
        return
    key = ", ".join(f"{name} = {row[name]}" for name in fit.keys)
    raise DataError(
        "unchanged-missing",
        f"A row ({key}) came without the values of {', '.join(row[UNCHANGED])}, which did not change, and the table has no "
        "version of the row from before: it was never read, or comes after a delete.",
        fix="Let the database log whole rows (REPLICA IDENTITY FULL), or set unchanged_missing: write_null.",
    )


def _row_keys(fit: Fit) -> tuple[str, ...]:
    """What identifies a row, whatever its versions: the key but for the time."""
    return fit.keys[:-1]


def _earlier(in_order: WindowSpec) -> WindowSpec:
    return in_order.rowsBetween(Window.unboundedPreceding, -1)
