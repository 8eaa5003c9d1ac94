"""The contract of a port on the table in memory, for both kinds of catalogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import count

import pytest

from commit.contract import Bench, PortContract
from commit.memory_table import Compare, MemoryCatalog, MemoryPort, Row


class MemoryBench:
    """A memory catalog as a bench."""

    def __init__(self, compare: Compare) -> None:
        self._catalog = MemoryCatalog(compare)
        self._numbers = count()

    def make_table(self) -> None:
        self._catalog.recreate()

    def port(self, sink_id: str) -> MemoryPort:
        return self._catalog.port(sink_id)

    def change(self, rows: int) -> tuple[Row, ...]:
        return tuple(("own", next(self._numbers)) for _ in range(rows))

    def rows(self) -> Counter[Hashable]:
        return Counter(self._catalog.metadata.rows)

    def foreign_append(self) -> None:
        self._catalog.append(("foreign", next(self._numbers)))

    def rollback(self, to: int) -> None:
        self._catalog.rollback(to)

    def expire(self) -> None:
        self._catalog.expire()

    def expire_abandoned(self) -> None:
        self._catalog.expire_abandoned()


class TestMemoryPort(PortContract):
    @pytest.fixture(params=[Compare.BRANCH, Compare.METADATA])
    def bench(self, request: pytest.FixtureRequest) -> Bench:
        return MemoryBench(request.param)
