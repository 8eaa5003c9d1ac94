"""What a pipeline does with the changes of a table: it applies one slice after the other to what it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from frazil.columns.schema import data_columns
from frazil.model.hidden import COLUMN_MARK, EXTRA, OP, ORDER
from frazil.model.source import TableSource
from frazil.sources import open_source
from frazil.sources.base import Source

Sql = Callable[[str], None]


class Feed:
    """The changes of a table, read slice by slice. ``state`` has for each key the values of the columns, by the columns' ids."""

    def __init__(self, spark: SparkSession, table: str, *, images: bool = False, key: Sequence[str] = (), **options: int) -> None:
        spec = TableSource.model_validate({"table": table, "changes": True, "key_fields": key, **options})
        self.source: Source = open_source(spec, lambda: spark, images=images)
        self.ledger: str | None = None
        self.state: dict[Any, dict[str, Any]] = {}

    def batch(self, limit: int = 1000) -> list[tuple[Any, ...]] | None:
        """The next changes: what each does, and its values; a row as it was before an update as `before`."""
        found = self.read(limit)
        if found is None:
            return None
        frame, rows = found
        names = data_columns(frame)
        told = [("before" if row[EXTRA] else row[OP], *(row[name] for name in names)) for row in rows]
        return sorted(told, key=repr)

    def follow(self, key: str, limit: int = 1000) -> int | None:
        """Applies the next changes to the state; how many there were."""
        found = self.read(limit)
        if found is None:
            return None
        frame, rows = found
        ids = {name: str(frame.schema[name].metadata[COLUMN_MARK]) for name in data_columns(frame)}
        for row in rows:
            if row[OP] == "delete":
                del self.state[row[key]]
            else:
                assert (row[key] in self.state) == (row[OP] == "update"), row
                self.state[row[key]] = {column: row[name] for name, column in ids.items()}
        return len(rows)

    def read(self, limit: int) -> tuple[DataFrame, list[Row]] | None:
        """The rows of the next slice, those that are deleted first."""
        part = self.source.plan(self.ledger, limit)
        if part is None:
            return None
        frame = self.source.read(part)
        rows = frame.orderBy(ORDER).collect()
        self.ledger = part.end
        self.source.committed(part.end)
        return frame, rows
