"""Rows by key: each replaces the row with its key, wherever in the table that is; a delete takes it away.

Delivery: after a batch the table has its last row of each key once, and earlier rows with these keys went in the same commit, in
whichever way it was written. A batch that was decided by the table's rows fits only those: if others commit meanwhile, it is
staged again. Unit of parallelism: tasks that share the keys among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, functions

from frazil.columns.counting import Counted
from frazil.columns.schema import quoted
from frazil.iceberg import Change, Delta, Fits, IcebergTable, IndexFailed, StagedFiles
from frazil.model.changes import UpsertStrategy
from frazil.model.commit import RowCounts
from frazil.model.evolution import AddUnpartitionedSpec, TableChange
from frazil.model.hidden import DELETE, IGNORE, OP
from frazil.write.fit import Fit
from frazil.write.modes.choose import (
    APPEND,
    MERGE,
    POSITION,
    Choice,
    Facts,
    choose,
    misread,
    unfit_for_duckdb,
    why_known_rows,
)
from frazil.write.modes.history import versions
from frazil.write.modes.known_rows import completed
from frazil.write.modes.last_rows import in_few_tasks, write_last_rows
from frazil.write.modes.late import in_order
from frazil.write.modes.latest import Survey, counts_of, latest, require_keys, without_key
from frazil.write.modes.merge import merge
from frazil.write.modes.position import by_position, why_no_index
from frazil.write.modes.table_context import TableContext, Written, together


def upsert(context: TableContext, frame: DataFrame, fit: Fit) -> Written:
    """Stages the last row of each key, and what takes away those before it."""
    table, sink = context.table, context.sink
    if sink.history is not None:
        return _into_history(context, fit.applied(frame), fit)
    if context.keys_differ and table.holds_no_files and sink.when_not_matched_insert_all and not sink.ignores_late:
        return _into_empty(context, fit.applied(frame), fit)
    with latest(fit.applied(frame), fit.keys, sink, keys_differ=context.keys_differ) as (last, survey):
        facts = _facts(context, survey, fit)
        if not sink.ignores_late:
            return _written(context, last, survey, fit, facts)
        base = table.base
        with in_order(context, last, survey, fit, facts) as kept:
            written = _written(context, kept.last, kept.survey, fit, replace(facts, keys=kept.survey.keys))
        change = replace(written.change, base=base, decided=True)
        return replace(written, change=change, tombstones=kept.tombstones)


def _facts(context: TableContext, survey: Survey, fit: Fit) -> Facts:
    """What is known of the table and the batch before rows are read."""
    table, sink = context.table, context.sink
    return Facts(
        empty=table.holds_no_files,
        disjoint=(sink.upsert_strategy is UpsertStrategy.AUTO or sink.ignores_late) and _lacks_keys(table, survey, fit),
        keys=survey.keys,
        debt=table.total("equality-deletes"),
        unchanged=survey.unchanged,
        lacks_columns=fit.lacks_parts,
        misread=misread(fit.keys, fit.schema),
        unfit=unfit_for_duckdb(sink, fit.keys, fit.schema, fit.partition, everywhere=deletes_everywhere(table, fit)),
        no_index=why_no_index(context, survey.keys),
        vectors=table.keeps_vectors,
        unindexed=table.total("records") if context.index is None or not context.index.is_there else 0,
    )


def _written(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, facts: Facts) -> Written:
    """Stages these changes, once they are known to be whole rows."""
    if (why := why_known_rows(context.sink, facts)) is None:
        return _in_its_way(context, last, survey, fit, facts)
    base = context.table.base
    with completed(context, last, survey, fit, facts) as whole:
        written = _in_its_way(context, whole.last, whole.survey, fit, replace(facts, read=why, replaces=whole.replaces))
    return Written(replace(written.change, base=base, decided=True), whole.counts)


def _in_its_way(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, facts: Facts) -> Written:
    """Stages changes in the way that suits them."""
    choice = choose(context.sink, facts)
    if choice.way == POSITION:
        try:
            return by_position(context, last, survey, fit, choice)
        except IndexFailed as failed:
            choice = choose(context.sink, replace(facts, no_index=failed.message))
    if choice.way == MERGE:
        return merge(context, last, survey, fit, choice)
    return _by_key(context, last, survey, fit, choice)


def _into_history(context: TableContext, applied: DataFrame, fit: Fit) -> Written:
    """The versions that a batch adds, and those that it makes different, in the way that suits them."""
    base = context.table.base
    with latest(applied, fit.keys, context.sink) as (last, survey), versions(context, last, survey, fit) as (rows, all_rows):
        written = _written(context, rows, all_rows, fit, _facts(context, all_rows, fit))
    return Written(replace(written.change, base=base, decided=True), counts_of(survey))


def _into_empty(context: TableContext, applied: DataFrame, fit: Fit) -> Written:
    """Rows of which each has a key of its own, into a table that has none: they are read once, and written as they come."""
    base = context.table.base
    op = functions.col(OP) if OP in applied.columns else functions.lit("")
    numbers = {
        "changes": functions.count(functions.lit(1)),
        "deletes": functions.count_if(op == DELETE),
        "ignored": functions.count_if(op == IGNORE),
        "keyless": functions.count_if(without_key(fit.keys)),
    }
    seen = Counted(applied, *[number.alias(name) for name, number in numbers.items()])
    rows = seen.frame.where(~op.isin(DELETE, IGNORE)).select(*[quoted(name) for name in fit.names])
    staged = context.write_files(rows, fit.evolution)
    row = seen.get()
    require_keys(int(row["keyless"]), fit.keys)
    counts = RowCounts(read=int(row["changes"]), written=staged.rows, deleted=int(row["deletes"]), filtered=int(row["ignored"]))
    summary = Choice(APPEND, "the table is empty").summary
    return Written(Change(Delta(staged, StagedFiles(), Fits.HEAD), base, fit.evolution, summary=summary), counts)


def _by_key(context: TableContext, last: DataFrame, survey: Survey, fit: Fit, choice: Choice) -> Written:
    """Data files of the rows, and delete files of all keys unless nothing has them. The cost is that of the batch alone."""
    table = context.table
    base = table.base
    last = in_few_tasks(last, survey)
    by_key = bool(survey.keys) and choice.way != APPEND
    everywhere = by_key and deletes_everywhere(table, fit)
    evolution: tuple[TableChange, ...] = fit.evolution
    if everywhere and fit.partition and table.unpartitioned_spec is None:
        evolution = (*evolution, AddUnpartitionedSpec())

    def keys() -> StagedFiles:
        if not by_key:
            return StagedFiles()
        named = last.select(*[quoted(key) for key in fit.keys])
        return table.write_deletes(named, context.options, fit.keys, evolution, everywhere=everywhere)

    staged, deletes = together(lambda: write_last_rows(context, last, survey, fit), keys, session=last.sparkSession)
    delta = Delta(staged, deletes, Fits.HEAD if choice.way == APPEND else Fits.LAYOUT)
    return Written(Change(delta, base, evolution, summary=choice.summary), counts_of(survey))


def _lacks_keys(table: IcebergTable, survey: Survey, fit: Fit) -> bool:
    keys = fit.keys_before
    return keys is not None and table.lacks_keys(keys, survey.lowest, survey.highest)


def deletes_everywhere(table: IcebergTable, fit: Fit) -> bool:
    """Whether deletes must apply in every partition.

    Deletes of one partition cost readers less. They find all earlier rows of a key only if the key alone decides the partition,
    and always did: no file was ever written under another spec.
    """
    return deletes_everywhere_by(table, fit, fit.keys)


def deletes_everywhere_by(table: IcebergTable, fit: Fit, columns: Sequence[str]) -> bool:
    """Whether equality deletes by these columns must be written for every partition."""
    repartitioned = table.base.specs > 1 or fit.repartitions
    return repartitioned or not all(source in columns for source, _ in fit.partition)
