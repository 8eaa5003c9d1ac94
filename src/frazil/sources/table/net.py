"""What became of rows between two states of a table, from the rows that are gone and those that came."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from frazil.columns.digest import distinguishing
from frazil.columns.schema import quoted
from frazil.model.hidden import DELETE, EXTRA, HIDDEN, INSERT, OP, PAIR, UPDATE

_CAME, _NUMBER, _OTHERS = f"{HIDDEN}came", f"{HIDDEN}number", f"{HIDDEN}others"
_HASHES = [f"{HIDDEN}hash{half}" for half in (0, 1)]


def net_changes(gone: DataFrame | None, came: DataFrame | None, keys: Sequence[str], *, images: bool) -> DataFrame:
    """The rows with what they do: a row that came under the key of one that is gone is an update.

    A row that is gone, and came with the same values, has only been moved: both are left out. Without ``keys`` there are no
    updates. With ``images`` each update has its previous row beside it, as an extra delete.
    """
    sides = [frame.withColumn(_CAME, sf.lit(came_)) for came_, frame in ((False, gone), (True, came)) if frame is not None]
    assert sides, "somebody asks only where something can have changed"
    insert = sf.when(sf.col(_CAME), INSERT).otherwise(DELETE)
    if len(sides) == 1:
        return _with_changes(sides[0].withColumns({OP: insert, EXTRA: sf.lit(False)}), keys)
    moved = sides[0].unionAll(sides[1])
    rows = _without_moved(moved, keys)
    if not keys:
        return _with_changes(rows.withColumns({OP: insert, EXTRA: sf.lit(False)}), keys)
    of_key = Window.partitionBy(*map(quoted, keys))
    both = sf.max(~sf.col(_CAME)).over(of_key) & sf.max(_CAME).over(of_key)
    rows = rows.withColumn(EXTRA, ~sf.col(_CAME) & both)
    rows = rows.withColumn(OP, sf.when(sf.col(_CAME) & both, UPDATE).otherwise(insert))
    return _with_changes(rows if images else rows.where(~sf.col(EXTRA)), keys)


def _without_moved(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows without those that are on both sides, as often as they are on the other.

    Rows are compared by 128 bits of hash; where they have keys, only with those of the same key.
    """
    names = [name for name in rows.columns if name != _CAME]
    values = distinguishing(rows, names)
    hashed = rows.withColumns({name: sf.xxhash64(sf.lit(seed), *values) for seed, name in enumerate(_HASHES)})
    # All of them begin with the same columns, so that rows are shuffled once.
    same = [*map(quoted, keys), *_HASHES]
    all_same = Window.partitionBy(*same)
    came = sf.count_if(_CAME).over(all_same)
    others = sf.when(sf.col(_CAME), sf.count(sf.lit(1)).over(all_same) - came).otherwise(came)
    number = sf.row_number().over(Window.partitionBy(*same, _CAME).orderBy(sf.lit(0)))
    counted = hashed.withColumns({_NUMBER: number, _OTHERS: others})
    return counted.where(sf.col(_NUMBER) > sf.col(_OTHERS)).drop(_NUMBER, _OTHERS, *_HASHES)


def _with_changes(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Both rows of an update share a value, so that neither is written without the other."""
    if keys:
        paired = sf.col(EXTRA) | (sf.col(OP) == UPDATE)
        rows = rows.withColumn(PAIR, sf.when(paired, sf.struct(*map(quoted, keys))))
    return rows.drop(_CAME)
