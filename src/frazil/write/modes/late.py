"""Leaves out late rows: those that are lower in the order than what the table, or a remembered delete, has of their key.

Only the last change of each key is compared: if that is late, so are the others. What is found holds for the head that was looked
at, so that a batch which was compared fits no other. What is read are the keys and the order, in files that can have the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, functions

from frazil.columns.schema import quoted
from frazil.errors import ConfigError, DataError
from frazil.model.hidden import HIDDEN
from frazil.write.fit import Fit
from frazil.write.modes.choose import Facts
from frazil.write.modes.known_rows import rows_of_keys, with_keys
from frazil.write.modes.latest import Survey, is_delete
from frazil.write.modes.table_context import TableContext

_PLACE, _KNOWN, _LATE = (f"{HIDDEN}{name}" for name in ("place", "known", "late"))


@dataclass(frozen=True)
class InOrder:
    """The changes that are not late, their survey, and what is to be committed before them: the keys that the batch deletes."""

    last: DataFrame
    survey: Survey
    tombstones: Any = None


@contextmanager
def in_order(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, facts: Facts) -> Iterator[InOrder]:
    """The last change of each key without those that are late."""
    _require_kept(context, fit)
    if survey.unchanged:
        raise DataError(
            "late-unchanged",
            f"{survey.unchanged} rows came without values that did not change, and with late: ignore it is not known whether the "
            "table has them: a late row may have brought others.",
            fix="Let the source send whole rows (PostgreSQL: REPLICA IDENTITY FULL), or set late: apply.",
        )
    order = context.sink.order_by
    deletes = None
    if survey.deletes:
        deletes = last.where(is_delete(last)).select(*_columns(fit.keys, order))
        _require_order(deletes, order)
    with ExitStack() as opened:
        rows = opened.enter_context(rows_of_keys(context, last, survey, fit, facts))
        known = _highest_known(context, last, survey, fit, rows)
        kept = InOrder(last, survey) if known is None else opened.enter_context(_without_late(last, survey, fit, order, known))
        assert context.tombstones is not None, "the sink ignores late rows"
        # All deletes, late ones too: what is remembered then depends on nothing but the batch.
        yield kept if deletes is None else replace(kept, tombstones=context.tombstones.stage(deletes, survey.deletes))


def _require_kept(context: TableContext, fit: Fit) -> None:
    for name in context.sink.order_by:
        if name not in fit.names:
            raise ConfigError(
                "order-not-kept",
                f"late: ignore compares rows with those of {context.sink.full_name} by {name!r} of order_by, which is no column "
                "of that table.",
                fix="Name a column that the table keeps; a transform can add one.",
            )


def _require_order(deletes: DataFrame, order: Sequence[str]) -> None:
    """A delete without a place in the order would be late, and nobody would notice."""
    lacking = deletes.where(reduce(Column.__and__, (functions.col(quoted(name)).isNull() for name in order))).count()
    if lacking:
        raise DataError(
            "order-missing",
            f"{lacking} deletes of the batch have no value in order_by ({', '.join(order)}): it is not known whether they are "
            "late.",
            fix="Let the source send the order with deletes, or set late: apply.",
        )


def _columns(keys: Sequence[str], order: Sequence[str]) -> list[Column]:
    return [functions.col(quoted(name)) for name in dict.fromkeys([*keys, *order])]


def _highest_known(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, rows: DataFrame | None) -> DataFrame | None:
    """The highest place in the order that the table, or a delete, has of each key of the batch; None where both have nothing."""
    assert context.tombstones is not None, "the sink ignores late rows"
    order = context.sink.order_by
    names = [*dict.fromkeys([*fit.keys, *order])]
    columns = [functions.col(quoted(name)).cast(last.schema[name].dataType).alias(name) for name in names]
    sources = [] if rows is None else [rows.select(*columns)]
    if survey.keys and (deleted := context.tombstones.rows(names)) is not None:
        sources.append(with_keys(deleted.select(*columns), last, survey, fit))
    if not sources:
        return None
    known = reduce(DataFrame.union, sources)
    by_key = known.groupBy(*[functions.col(quoted(key)).alias(_key(number)) for number, key in enumerate(fit.keys)])
    return by_key.agg(functions.max(_place(order)).alias(_KNOWN))


def _place(order: Sequence[str]) -> Column:
    """A place in the order. Spark compares structs from the first part on, and null is below everything."""
    return functions.struct(*[functions.col(quoted(name)).alias(f"o{number}") for number, name in enumerate(order)])


def _key(number: int) -> str:
    return f"{HIDDEN}held_key{number}"


@contextmanager
def _without_late(last: DataFrame, survey: Survey, fit: Fit, order: Sequence[str], known: DataFrame) -> Iterator[InOrder]:
    same = reduce(
        Column.__and__, (functions.col(quoted(key)) == functions.col(_key(number)) for number, key in enumerate(fit.keys))
    )
    placed = last.withColumn(_PLACE, _place(order)).join(known, same, "left")
    late = functions.coalesce(functions.col(_PLACE) < functions.col(_KNOWN), functions.lit(False))
    marked = placed.withColumn(_LATE, late).select(*[quoted(name) for name in last.columns], _LATE).persist()
    try:
        deletes = is_delete(last)
        row = (
            marked.where(functions.col(_LATE))
            .agg(functions.count_if(deletes).alias("deletes"), functions.count_if(~deletes).alias("upserts"))
            .first()
        )
        assert row is not None, "an aggregate has one row"
        fewer = replace(survey, upserts=survey.upserts - row["upserts"], deletes=survey.deletes - row["deletes"])
        yield InOrder(marked.where(~functions.col(_LATE)).drop(_LATE), fewer)
    finally:
        marked.unpersist()
