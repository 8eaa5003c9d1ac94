"""The last row of each key in a batch, and a look at all of them before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row, Window, WindowSpec, functions
from pyspark.sql.types import IntegerType, LongType, StringType

from frazil.columns.counting import Counted
from frazil.columns.digest import distinguishing
from frazil.columns.schema import data_columns, quoted, unchanged
from frazil.errors import DataError
from frazil.model.changes import ChangeOptions
from frazil.model.commit import RowCounts
from frazil.model.hidden import DELETE, EXTRA, HIDDEN, IGNORE, IMAGES_MARK, LANE, LEFT, MOVED, OP, ORDER, UNCHANGED
from frazil.write.modes.combine import combined
from frazil.write.modes.doubts import APART, LOST, UNCLEAR, doubted, require_certain
from frazil.write.modes.row_state import is_extra, place_in_order

MOVED_AT, GONE_AT = f"{HIDDEN}moved_at", f"{HIDDEN}gone_at"
"""Where in the order a row got its key, if that was in this batch and from another one; and where an earlier row of it went."""
_RANK, _DIGEST, _MIXED, _DELETES, _NEWEST, _STANDS = (
    f"{HIDDEN}{name}" for name in ("rank", "digest", "mixed", "deletes", "newest", "stands")
)


@dataclass(frozen=True)
class Survey:
    """What the batch holds: changes read, and of those that are the last of their key how many are rows and how many deletes.

    ``changes`` are all, ``extra`` those that their source row has beside the main one: deletes of the key that it had before;
    ``ignored`` those that do nothing.
    """

    changes: int
    extra: int
    ignored: int
    upserts: int
    deletes: int
    unchanged: int
    lowest: tuple[Any, ...]
    highest: tuple[Any, ...]

    @property
    def keys(self) -> int:
        """How many keys the batch touches."""
        return self.upserts + self.deletes

    @property
    def superseded(self) -> int:
        """How many changes are not the last of their key."""
        return self.changes - self.ignored - self.keys


def counts_of(survey: Survey) -> RowCounts:
    """What became of the rows that came in."""
    return RowCounts(
        read=survey.changes - survey.extra,
        written=survey.upserts,
        filtered=survey.ignored,
        deleted=survey.deletes,
        superseded=survey.superseded,
        extra=survey.extra,
    )


@contextmanager
def latest(
    frame: DataFrame, keys: Sequence[str], options: ChangeOptions, *, keys_differ: bool = False
) -> Iterator[tuple[DataFrame, Survey]]:
    """The last change of each key, and the survey of them.

    They are cached while the batch is written from them. If ``keys_differ``, each change is the last of its key, and is read
    again from where it comes: the survey then reads the keys alone.

    With ``combine`` the changes of a key are combined instead. If existing rows are not updated, the first row of a key counts,
    unless it was deleted again.

    A value that the last change lacks because it did not change is taken from earlier changes, if they have it.

    Raises if the last one is ambiguous, if a delete has no place in the order beside other changes, or if a key is null.
    """
    if keys_differ:
        yield _without_record(frame), survey_of(frame, keys)
        return
    seen = Counted(frame, *_seen(frame))
    changes = _without_record(seen.frame)
    one = combined(changes, keys, options) if options.combine else _last(changes, keys, options)
    last = one.persist()
    try:
        yield last.drop(UNCLEAR, APART, LOST), _surveyed(last, keys, seen, options)
    finally:
        last.unpersist()


def _without_record(frame: DataFrame) -> DataFrame:
    """The changes that do something. The record that one is made from, which may be large, is not carried along."""
    kept = [name for name in (OP, ORDER, LANE, UNCHANGED, EXTRA, MOVED, LEFT) if name in frame.columns]
    changes = frame.select(*[functions.col(quoted(name)) for name in (*data_columns(frame), *kept)])
    return changes.where(functions.col(OP) != IGNORE) if OP in frame.columns else changes


def _op(frame: DataFrame) -> Column:
    return functions.col(OP) if OP in frame.columns else functions.lit("")


def _last(frame: DataFrame, keys: Sequence[str], options: ChangeOptions) -> DataFrame:
    """One row per key. Rows of which none is known to be the last are compared by digest: the survey shows if they differ."""
    digest = _digest(frame)
    frame = _with_beginnings(frame, keys, options)
    if not options.when_matched_update_all:
        frame = _with_standing(frame, keys)
    by_key = _of_key(keys).orderBy(*_ranked_by(frame))
    sent = _last_sent(frame, keys)
    ranked = _with_ties(frame.withColumn(_DIGEST, digest), keys, by_key).withColumns(
        {
            _RANK: functions.row_number().over(by_key),
            APART: _apart(frame, by_key),
            **({LOST: _lost(frame, by_key, options)} if _places_deletes(frame, options) else {}),
            **{_sent(name): value for name, value in sent.items()},
        }
    )
    last = ranked.where(functions.col(_RANK) == 1).drop(_RANK, _DIGEST, _STANDS, LANE)
    return _filled(last, list(sent)) if sent else last


def keeps_known(options: ChangeOptions) -> bool:
    """Whether what the table holds of a key matters to what becomes of its row."""
    return options.partial_updates or not options.when_matched_update_all or not options.when_not_matched_insert_all


def _ranked_by(frame: DataFrame) -> list[Column]:
    """In this order the row of a key that counts comes first."""
    if ORDER not in frame.columns:
        return [functions.lit(0)]
    order = functions.col(ORDER)
    return [functions.col(_STANDS).asc(), order.asc()] if _STANDS in frame.columns else [order.desc()]


def _with_ties(frame: DataFrame, keys: Sequence[str], by_key: WindowSpec) -> DataFrame:
    """Whether a row has the place of another one that differs from it."""
    if _STANDS not in frame.columns:
        return frame.withColumn(UNCLEAR, _differ(_DIGEST, by_key.rangeBetween(Window.currentRow, Window.currentRow)))
    peers = _of_key(keys).orderBy(ORDER).rangeBetween(Window.currentRow, Window.currentRow)
    if OP not in frame.columns:
        return frame.withColumn(UNCLEAR, _differ(_DIGEST, peers))
    # A delete beside another row: their order decides for all later rows whether the key starts over.
    since = functions.col(GONE_AT)
    matters = since.isNull() | (functions.col(ORDER) >= since)
    frame = frame.withColumn(_DELETES, functions.col(OP) == DELETE)
    frame = frame.withColumns({UNCLEAR: _differ(_DIGEST, peers), _MIXED: _differ(_DELETES, peers) & matters})
    return frame.withColumn(UNCLEAR, functions.col(UNCLEAR) | functions.max(_MIXED).over(_of_key(keys))).drop(_DELETES, _MIXED)


def _differ(name: str, rows: WindowSpec) -> Column:
    return functions.min(name).over(rows) != functions.max(name).over(rows)


def _with_standing(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """For the first row of a key to count: the delete that ended all, then rows that no delete has ended, then the others."""
    if ORDER not in frame.columns:
        return frame
    if OP not in frame.columns:
        return frame.withColumn(_STANDS, functions.lit(0))
    order, of_key = functions.col(ORDER), _of_key(keys)
    ends = (functions.col(OP) == DELETE) & (order == functions.max(order).over(of_key))
    ended = functions.col(GONE_AT).isNotNull() & (order <= functions.col(GONE_AT))
    return frame.withColumn(_STANDS, functions.when(ends, 0).when(~ended, 1).otherwise(2))


def _with_beginnings(frame: DataFrame, keys: Sequence[str], options: ChangeOptions) -> DataFrame:
    """Where the last row of each key began to have it, if it did so in this batch and it matters what was there before."""
    matters = UNCHANGED in frame.columns or keeps_known(options)
    if not matters or not {ORDER, OP} <= set(frame.columns):
        return frame
    order, of_key = functions.col(ORDER), _of_key(keys)
    is_gone = (functions.col(OP) == DELETE) & (order < functions.col(_NEWEST))
    gone = functions.when(is_gone & ~functions.col(LEFT) if LEFT in frame.columns else is_gone, order)
    frame = frame.withColumn(_NEWEST, functions.max(order).over(of_key))
    frame = frame.withColumn(GONE_AT, functions.max(gone).over(of_key)).drop(_NEWEST)
    if MOVED not in frame.columns:
        return frame
    moved = functions.max(functions.when(functions.col(MOVED), order)).over(of_key)
    stays = functions.col(GONE_AT).isNull() | (functions.col(MOVED_AT) > functions.col(GONE_AT))
    frame = frame.withColumn(MOVED_AT, moved).drop(MOVED)
    return frame.withColumn(MOVED_AT, functions.when(stays, functions.col(MOVED_AT)))


def began_here(last: DataFrame) -> Column:
    """Which rows got their key in this batch: what the table has under it is of another row."""
    began = [functions.col(name).isNotNull() for name in (MOVED_AT, GONE_AT) if name in last.columns]
    return reduce(Column.__or__, began, functions.lit(False))


def _apart(frame: DataFrame, by_key: WindowSpec) -> Column:
    """Whether a key has different rows in several lanes, which have no order between them."""
    if LANE not in frame.columns:
        return functions.lit(False)
    # In the order that the rows are sorted in already.
    all_of_key = by_key.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return functions.coalesce(_differ(LANE, all_of_key) & _differ(_DIGEST, all_of_key), functions.lit(False))


def _places_deletes(frame: DataFrame, options: ChangeOptions) -> bool:
    return bool(options.order_by) and {OP, ORDER} <= set(frame.columns)


def _lost(frame: DataFrame, by_key: WindowSpec, options: ChangeOptions) -> Column:
    """Whether a delete of a key would be lost, because it has no place in the order and a row of its key has one.

    Where rows come with the whole row from before, as an extra delete, that is before the row in any case.
    """
    place = place_in_order(frame)
    nowhere = reduce(Column.__and__, (place[f"o{number}"].isNull() for number in range(len(options.order_by))))
    deletes = functions.col(OP) == DELETE
    if frame.schema[OP].metadata.get(IMAGES_MARK):
        deletes &= ~is_extra(frame)
    all_of_key = by_key.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (functions.col(OP) != DELETE) & functions.max(deletes & nowhere).over(all_of_key)


def _last_sent(frame: DataFrame, keys: Sequence[str]) -> dict[str, Column]:
    """For each column the last value of it that a change of the key has, in a struct: null when none has one.

    What was there before the row got its key was of another row.
    """
    if UNCHANGED not in frame.columns or ORDER not in frame.columns:
        return {}
    order = at = functions.col(ORDER)
    if MOVED_AT in frame.columns:
        since = functions.col(MOVED_AT)
        order = functions.when(since.isNull() | (at >= since), order)
    if GONE_AT in frame.columns:
        since = functions.col(GONE_AT)
        order = functions.when(since.isNull() | (at > since), order)
    return {
        name: functions.max_by(
            functions.struct(functions.col(quoted(name)).alias("value")), functions.when(~unchanged(name), order)
        ).over(_of_key(keys))
        for name in data_columns(frame)
        if name not in keys
    }


def _of_key(keys: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*[functions.col(quoted(key)) for key in keys])


def _sent(name: str) -> str:
    return f"{HIDDEN}sent_{name}"


def _filled(last: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows with the values that changes before them had; unchanged stays what none has."""
    sent = {name: functions.col(quoted(_sent(name))) for name in names}
    values = {name: functions.when(unchanged(name), sent[name]["value"]).otherwise(functions.col(quoted(name))) for name in names}
    lacking = functions.array_compact(
        functions.array(*[functions.when(unchanged(name) & sent[name].isNull(), functions.lit(name)) for name in names])
    )
    filled = last.withColumns(values | {UNCHANGED: functions.when(functions.size(lacking) > 0, lacking)})
    return filled.drop(*[_sent(name) for name in names])


def _digest(frame: DataFrame) -> Column:
    """A number that distinguishes rows by their values, and by what they do."""
    unsent = [functions.sort_array(functions.col(UNCHANGED))] if UNCHANGED in frame.columns else []
    return functions.xxhash64(_op(frame), *unsent, *distinguishing(frame, data_columns(frame)))


def _seen(frame: DataFrame) -> list[Column]:
    """What is counted of all changes."""
    numbers = {"changes": functions.lit(True), "extra": is_extra(frame), "ignored": _op(frame) == IGNORE}
    return [_count_if(condition).alias(name) for name, condition in numbers.items()]


def _counted(frame: DataFrame, keys: Sequence[str]) -> list[Column]:
    """What is counted of the changes that do something, and the least and the greatest of each key column."""
    counts = _op(frame) != IGNORE
    numbers = {
        "upserts": counts & (_op(frame) != DELETE),
        "deletes": _op(frame) == DELETE,
        "without_key": counts & without_key(keys),
        "unchanged": counts & lacks_values(frame),
    }
    bounds = [
        f(_bounded(frame, key)).alias(f"{f.__name__}{n}") for n, key in enumerate(keys) for f in (functions.min, functions.max)
    ]
    return [*(_count_if(condition).alias(name) for name, condition in numbers.items()), *bounds]


def survey_of(rows: DataFrame, keys: Sequence[str]) -> Survey:
    """The survey of rows that are all to be written."""
    row = rows.agg(*_seen(rows), *_counted(rows, keys)).first()
    assert row is not None, "an aggregate has one row"
    return _survey(row, row, keys)


def _surveyed(last: DataFrame, keys: Sequence[str], seen: Counted, options: ChangeOptions) -> Survey:
    """The survey of the last changes. Refuses keys of which none is known to be the last."""
    row = last.agg(*_counted(last, keys), *doubted(last, keys)).first()
    assert row is not None, "an aggregate has one row"
    survey = _survey(row, seen.get(), keys)
    require_certain(row, options.order_by, ordered=ORDER in last.columns)
    return survey


def _survey(row: Row, seen: Row, keys: Sequence[str]) -> Survey:
    require_keys(int(row["without_key"]), keys)
    return Survey(
        changes=int(seen["changes"]),
        extra=int(seen["extra"]),
        ignored=int(seen["ignored"]),
        upserts=int(row["upserts"]),
        deletes=int(row["deletes"]),
        unchanged=int(row["unchanged"]),
        lowest=tuple(row[f"min{n}"] for n in range(len(keys))),
        highest=tuple(row[f"max{n}"] for n in range(len(keys))),
    )


def near(rows: DataFrame, survey: Survey, keys: Sequence[str]) -> DataFrame:
    """The rows between the lowest and the highest key of a batch: the statistics of files show which have none.

    ``keys`` are the first columns of the batch's key, or all of them.
    """
    for key, low, high in zip(keys, survey.lowest, survey.highest, strict=False):
        if low is not None and high is not None:
            rows = rows.where(functions.col(quoted(key)).between(functions.lit(low), functions.lit(high)))
    return rows


def without_key(keys: Sequence[str]) -> Column:
    """Which rows lack a value in one of the key columns."""
    return reduce(Column.__or__, (functions.col(quoted(key)).isNull() for key in keys))


def require_keys(lacking: int, keys: Sequence[str]) -> None:
    """Refuses a batch in which so many rows lack a key."""
    if lacking:
        raise DataError(
            "key-null",
            f"{lacking} rows of the batch have no value in a key column ({', '.join(keys)}).",
            fix="Correct the data, or leave the rows out with a filter.",
        )


def _bounded(last: DataFrame, key: str) -> Column:
    """A key whose least and greatest value are of use. Moments at the ends of time could not even be brought to Python."""
    bounded = isinstance(last.schema[key].dataType, IntegerType | LongType | StringType)
    return functions.col(quoted(key)) if bounded else functions.lit(None).cast("int")


def is_delete(last: DataFrame) -> Column:
    """Which changes take a key away."""
    return _op(last) == DELETE


def lacks_values(last: DataFrame) -> Column:
    """Which rows are to be written and lack a value that did not change."""
    return (_op(last) != DELETE) & functions.col(UNCHANGED).isNotNull() if UNCHANGED in last.columns else functions.lit(False)


def _count_if(condition: Column) -> Column:
    return functions.coalesce(functions.count_if(condition), functions.lit(0))
