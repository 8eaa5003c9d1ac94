"""The ways a batch goes into a table: appended, in place of others, or by key."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from frazil.model.changes import CommitMode
from frazil.model.sink import SinkSpec
from frazil.write.fit import Fit
from frazil.write.modes.append import append
from frazil.write.modes.delete_insert import delete_insert
from frazil.write.modes.overwrite import deleted_where, overwrite
from frazil.write.modes.row_state import is_extra
from frazil.write.modes.settle import Settlement, compact, settle, too_many_files, too_many_keys
from frazil.write.modes.table_context import TableContext, Written
from frazil.write.modes.upsert import upsert

Strategy = Callable[[TableContext, DataFrame, Fit], Written]

_STRATEGIES: dict[CommitMode, Strategy] = {
    CommitMode.APPEND: append,
    CommitMode.OVERWRITE: overwrite,
    CommitMode.UPSERT: upsert,
    CommitMode.DELETE_INSERT: delete_insert,
}


def strategy_of(sink: SinkSpec) -> Strategy:
    """How batches of the sink are written."""
    return _STRATEGIES[sink.commit_mode]


__all__ = [
    "Settlement",
    "Strategy",
    "TableContext",
    "Written",
    "compact",
    "deleted_where",
    "is_extra",
    "settle",
    "strategy_of",
    "too_many_files",
    "too_many_keys",
]
