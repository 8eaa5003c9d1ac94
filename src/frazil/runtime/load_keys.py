"""The keys of a load's files, checked without Spark: most loads have each key once, and then need not be sorted by key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow
import pyarrow.parquet

# What is read of keys is kept in this process's memory while they are compared. A load with more of them is compared by Spark.
MOST_ROWS = 5_000_000
MOST_BYTES = 256 * 1024 * 1024


def keys_differ(files: Sequence[str], key: Sequence[str]) -> bool:
    """Whether no two rows of the files have the same key. False also means that a quick check cannot decide."""
    if not key or not files or any("." in name for name in key):  # PyArrow takes a dot for the way into a struct
        return False
    opened = [pyarrow.parquet.ParquetFile(path) for path in files]
    try:
        if sum(file.metadata.num_rows for file in opened) > MOST_ROWS or not _small(opened, key):
            return False
        tables = [file.read(columns=list(key)) for file in opened]
        if any(table.schema.types != tables[0].schema.types for table in tables):
            return False
        return _all_differ(pyarrow.concat_tables(tables))
    except pyarrow.ArrowNotImplementedError:
        return False  # a type that PyArrow does not compare
    finally:
        for file in opened:
            file.close()


def _all_differ(keys: pyarrow.Table) -> bool:
    first = keys.column(0)
    if keys.num_columns == 1 and pyarrow.types.is_integer(first.type) and not first.null_count:
        ordered = np.sort(first.to_numpy())  # takes a tenth of the time of groups
        return bool((ordered[1:] != ordered[:-1]).all())
    return bool(keys.group_by(keys.column_names).aggregate([]).num_rows == keys.num_rows)


def _small(files: Sequence[pyarrow.parquet.ParquetFile], key: Sequence[str]) -> bool:
    """Whether the key columns, which all of the files must have, take little memory."""
    total = 0
    for file in files:
        places = {name: n for n, name in enumerate(file.schema.names)}
        if not set(key) <= set(file.schema_arrow.names) or not set(key) <= places.keys():
            return False
        groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
        total += sum(group.column(places[name]).total_uncompressed_size for group in groups for name in key)
    return total <= MOST_BYTES
