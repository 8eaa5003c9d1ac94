"""What a soak writes: tables of several kinds, and the rows that each holds after so many changes of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from exactly_once.ground import Numbers, row_of
from frazil.model.catalog import CatalogSpec
from frazil.model.sink import SinkSpec
from frazil.sources.base import Slice
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for

NAMESPACE = "soak"
# Changes go around these keys: each is there a few times among the batches that a table remembers.
KEYS = 40
Row = tuple[int, int, int]

EAGER = {"small_files": 4, "max_snapshots": 6, "reader_grace_minutes": 0, "max_time_share": 1}
"""Limits so small that everything happens every few commits."""


@dataclass(frozen=True)
class Kind:
    """One table: its name, and how it is written."""

    name: str
    version: int
    upsert: bool = False
    partitioned: bool = False
    strategy: str = "equality_delete"

    @property
    def options(self) -> dict[str, Any]:
        """The options of its sink."""
        found: dict[str, Any] = {
            "schema": {"id": "long", "p": "long", "v": "long"},
            "format_version": self.version,
            "batch_size": 10,
            "maintenance": EAGER,
        }
        if self.partitioned:
            found["partition_by"] = ["bucket(2, id)" if self.upsert else "p"]
        if self.upsert:
            upsert = {"commit_mode": "upsert", "key_fields": ["id"], "op_field": "op", "upsert_strategy": self.strategy}
            found |= upsert | {"max_equality_deletes": 60}
        return found

    @property
    def parts(self) -> int:
        """How many partitions it has."""
        return 1 if not self.partitioned else 2 if self.upsert else 3

    def rows_after(self, changes: int) -> list[Row]:
        """What the table holds when the first so many changes are in it."""
        if not self.upsert:
            return [(n, n % 3, n) for n in range(changes)]
        held: dict[int, Row] = {}
        for number in range(changes):
            key = number * 7 % KEYS
            if number % 13 == 5:
                held.pop(key, None)
            else:
                held[key] = (key, key % 3, number)
        return sorted(held.values())

    def changes(self, session: SparkSession, first: int, last: int) -> DataFrame:
        """The changes from one number up to another."""
        numbers = session.range(first, last, 1, 1)
        if not self.upsert:
            return numbers.selectExpr("id", "id % 3 p", "id v")
        key = f"id * 7 % {KEYS}"
        return numbers.selectExpr(f"{key} id", f"{key} % 3 p", "id v", "if(id % 13 = 5, 'd', 'u') op")


KINDS = (
    Kind("append_v2", 2),
    Kind("append_v2_parts", 2, partitioned=True),
    Kind("append_v3", 3),
    Kind("append_v3_parts", 3, partitioned=True),
    Kind("upsert_v2", 2, upsert=True),
    Kind("upsert_v2_parts", 2, upsert=True, partitioned=True),
    Kind("upsert_v3", 3, upsert=True),
    Kind("upsert_v3_parts", 3, upsert=True, partitioned=True),
    Kind("upsert_v2_positions", 2, upsert=True, strategy="position"),
    Kind("upsert_v3_positions", 3, upsert=True, partitioned=True, strategy="position"),
)


@dataclass(frozen=True)
class Place:
    """The table of one kind in a catalog of a folder."""

    folder: Path
    kind: Kind

    @property
    def sink_id(self) -> str:
        """The sink in the ledger."""
        return f"{self.kind.name}/lake"

    @property
    def name(self) -> str:
        """The table's name in the catalog."""
        return f"{NAMESPACE}.{self.kind.name}"

    @property
    def files(self) -> Path:
        """The table's folder."""
        return self.folder / "warehouse" / NAMESPACE / self.kind.name

    @cached_property
    def catalog(self) -> Mapping[str, str]:
        """Where the catalog is."""
        return {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": (self.folder / "warehouse").as_uri()}

    def sink(self, **options: Any) -> SinkSpec:
        """The sink to the table."""
        catalog = CatalogSpec.model_validate({"type": "sql", "sql": self.catalog})
        given = {"catalog": catalog, "namespace": NAMESPACE, "table": self.kind.name} | self.kind.options | options
        return SinkSpec.model_validate(given)

    def session(self, spark: SparkSession) -> SparkSession:
        """A session that knows the catalog."""
        return session_for(spark.newSession(), catalog_settings(self.sink()))


class Changes(Numbers):
    """The changes of a kind, numbered from 0, as a source."""

    fingerprint = "soak"

    def __init__(self, kind: Kind, rows: int, session: SparkSession) -> None:
        super().__init__(rows, session)
        self._kind = kind

    def read(self, part: Slice) -> DataFrame:
        """The changes of a slice."""
        return self._kind.changes(self._session, row_of(part.start), row_of(part.end))
