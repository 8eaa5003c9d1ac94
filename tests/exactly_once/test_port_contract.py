"""The contract of a port on Iceberg itself, in both kinds of catalogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import count

import pytest

from commit.contract import Bench, PortContract
from exactly_once.ground import Foreign, Ground, numbers
from exactly_once.truth import Truth
from frazil.iceberg import Append, Change, IcebergPort, IcebergTable, Lake
from frazil.model.types import StructType
from frazil.write.target import created

pytestmark = pytest.mark.slow


class IcebergBench:
    """A table of a real catalog as a bench."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._session = ground.session()
        self._lake = Lake(self._session, "lake", "the catalog")
        self._foreign = Foreign(ground)
        self._numbers = count()
        self.make_table()

    def make_table(self) -> None:
        if self._ground.direct.table_exists(self._ground.name):
            self._ground.direct.drop_table(self._ground.name)
        sink = self._ground.sink()
        created(self._lake, sink, sink.declared_schema or StructType(()))

    def port(self, sink_id: str) -> IcebergPort:
        return self._table().port(sink_id)

    def change(self, rows: int) -> Change:
        first = next(self._numbers) * 1000
        table = self._table()
        return Change(Append(table.write_files(numbers(self._session, first, first + rows), {})), table.base)

    def rows(self) -> Counter[Hashable]:
        return Counter(Truth(self._ground.table()).rows)

    def foreign_append(self) -> None:
        self._foreign.append()

    def rollback(self, to: int) -> None:
        self._ground.procedure(f"rollback_to_snapshot('{self._ground.name}', {to})")

    def expire(self) -> None:
        self._ground.expire()

    def expire_abandoned(self) -> None:
        self._ground.expire(retain_last=1000)

    def _table(self) -> IcebergTable:
        table = self._lake.load((self._ground.namespace,), "t")
        assert table is not None
        return table


class TestIcebergPort(PortContract):
    @pytest.fixture
    def bench(self, either: Ground) -> Bench:
        return IcebergBench(either)
