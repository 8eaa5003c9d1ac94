"""Whether the versions in a history table fit together: those of a row follow each other, and say what they are."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, functions

from frazil.columns.schema import quoted
from frazil.model.hidden import DELETE, HIDDEN, INSERT, UPDATE
from frazil.model.history import History

_NEXT, _BEFORE, _LAST = (f"{HIDDEN}version_{name}" for name in ("next", "before", "last"))


def version_problems(rows: DataFrame, keys: Sequence[str], history: History) -> list[str]:
    """What is wrong with the versions of the rows that these columns identify, and with how many of them."""
    if missing := [name for name in history.columns if name not in rows.columns]:
        return [f"it is no history: it has no column {missing[0]!r}"]
    of_row = Window.partitionBy(*map(quoted, keys)).orderBy(quoted(history.valid_from))
    since, operation = (functions.col(quoted(name)) for name in (history.valid_from, history.operation))
    beside = {
        _NEXT: functions.lead(since).over(of_row),
        _BEFORE: functions.lag(operation).over(of_row),
        _LAST: functions.lead(functions.lit(False), 1, True).over(of_row),
    }
    version = functions.to_json(functions.struct(*[functions.col(quoted(name)) for name in (*keys, history.valid_from)]))
    wrong = _wrong(history)
    counts = [
        one
        for number, condition in enumerate(wrong.values())
        for one in (
            functions.count_if(condition).alias(f"count{number}"),
            functions.min(functions.when(condition, version)).alias(f"example{number}"),
        )
    ]
    row = rows.withColumns(beside).agg(*counts).first()
    assert row is not None, "an aggregate has one row"
    return [
        f"{row[f'count{number}']} versions {words}, for example {row[f'example{number}']}"
        for number, words in enumerate(wrong)
        if row[f"count{number}"]
    ]


def _wrong(history: History) -> dict[str, Column]:
    """What can be wrong with a version, and how it is seen. Earlier versions of a row may have been taken away."""
    since, until, current, operation = (functions.col(quoted(name)) for name in history.columns)
    following, before, last = (functions.col(name) for name in (_NEXT, _BEFORE, _LAST))
    gone = operation == DELETE
    return {
        f"have no {history.valid_from}": since.isNull(),
        "begin when another one of their row does": following == since,
        "are valid beyond the beginning of the next one": ~gone & ~last & (until.isNull() | (until > following)),
        "end before the next one begins, and no delete says that the row was gone": ~gone & ~last & (until < following),
        "end, and neither a later one nor a delete follows": ~gone & last & until.isNotNull(),
        "are of deletes, and valid for some time": gone & ~until.eqNullSafe(since),
        f"say wrongly in {history.current} whether they are the current one": ~current.eqNullSafe(~gone & last),
        f"say in {history.operation} what was not done": ~functions.coalesce(
            operation.isin(INSERT, UPDATE, DELETE)
            & ~((operation == INSERT) & functions.coalesce(before != DELETE, functions.lit(False)))
            & ~((operation == UPDATE) & functions.coalesce(before == DELETE, functions.lit(False))),
            functions.lit(False),
        ),
    }
