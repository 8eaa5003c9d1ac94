"""Flows that end in a lake of one folder, and what is in the lake, as PyIceberg reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from zlib import adler32

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.inputs import AbortExecution, FixedPartitionedSource, StatefulSourcePartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from frazil.bytewax import IcebergSink, IcebergSinkConfig

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
EVERY_ITEM = timedelta(0)


class _Numbers(StatefulSourcePartition[int, int]):
    """Numbers one by one. Unlike Bytewax's own source for tests, it goes on at the right place after several aborts."""

    def __init__(self, count: int, abort_at: int | None, at: int) -> None:
        self._count, self._abort_at, self._at, self._polls = count, abort_at, at, 0

    def next_batch(self) -> list[int]:
        self._polls += 1
        if self._polls == self._abort_at:
            raise AbortExecution
        if self._at >= self._count:
            raise StopIteration
        self._at += 1
        return [self._at - 1]

    def snapshot(self) -> int:
        return self._at


@dataclass
class Numbers(FixedPartitionedSource[int, int]):
    """So many numbers from 0; the execution is aborted at a poll."""

    count: int
    abort_at: int | None = None

    def list_parts(self) -> list[str]:
        return ["numbers"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Numbers:
        return _Numbers(self.count, self.abort_at, resume_state or 0)


class _Script(StatefulSourcePartition[tuple[str, Any], int]):
    def __init__(self, batches: Sequence[list[tuple[str, Any]]], at: int) -> None:
        self._batches, self._at = batches, at

    def next_batch(self) -> list[tuple[str, Any]]:
        if self._at >= len(self._batches):
            raise StopIteration
        self._at += 1
        return self._batches[self._at - 1]

    def snapshot(self) -> int:
        return self._at


@dataclass
class Script(FixedPartitionedSource[tuple[str, Any], int]):
    """Keys and rows, so many at each poll, perhaps none."""

    batches: Sequence[list[tuple[str, Any]]]

    def list_parts(self) -> list[str]:
        return ["script"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Script:
        return _Script(self.batches, resume_state or 0)


@dataclass
class Pond:
    """A lake of one folder, and a recovery store beside it."""

    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    def config(self, **given: Any) -> IcebergSinkConfig:
        made = {
            "catalog_uri": f"sqlite:///{self.folder}/catalog.db",
            "table_name": "db.t",
            "warehouse_path": str(self.folder / "warehouse"),
            "catalog_type": "sql",
            "arrow_schema": SCHEMA,
        }
        return IcebergSinkConfig(**(made | self.options | given))

    def sink(self, **given: Any) -> IcebergSink:
        return IcebergSink(self.config(**given))

    @property
    def recovery(self) -> RecoveryConfig:
        store = self.folder / "recovery"
        if not store.exists():
            store.mkdir()
            init_db_dir(store, 1)
        return RecoveryConfig(store)

    def flow(
        self, source: Numbers, row: Callable[[int], Any] | None = None, sink: IcebergSink | None = None, **given: Any
    ) -> Dataflow:
        """Numbers as rows, each number its own key."""
        flow = Dataflow("flow")
        numbers = op.input("numbers", flow, source)
        rows = op.map("row", numbers, lambda n: (str(n), (row or plain)(n)))
        op.output("lake", rows, sink or self.sink(**given))
        return flow

    def run(self, source: Numbers, *, recovery: bool = True, epoch: timedelta | None = EVERY_ITEM, **given: Any) -> None:
        """Runs a flow to its end, or to where it is aborted."""
        run_main(self.flow(source, **given), epoch_interval=epoch, recovery_config=self.recovery if recovery else None)

    def resume_from(self, epoch: int) -> None:
        """Lets Bytewax resume from an epoch, as when a worker was no further, whatever others have stored since."""
        with closing(sqlite3.connect(self.folder / "recovery" / "part-0.sqlite3")) as store, store:
            (execution,) = store.execute("SELECT MAX(ex_num) FROM exs").fetchone()
            store.execute("DELETE FROM fronts WHERE ex_num = ?", [execution])
            store.execute("INSERT INTO fronts (ex_num, worker_index, worker_frontier) VALUES (?, 0, ?)", [execution, epoch])

    def table(self, name: str = "db.t") -> Table:
        uri, warehouse = f"sqlite:///{self.folder}/catalog.db", (self.folder / "warehouse").as_uri()
        return load_catalog("lake", type="sql", uri=uri, warehouse=warehouse).load_table(name)

    def rows(self, *table: str) -> list[dict[str, Any]]:
        return list(self.table(*table).scan().to_arrow().to_pylist())

    def ids(self, *table: str) -> list[int]:
        """The numbers in the table, sorted, each as often as it is there."""
        return sorted(row["id"] for row in self.rows(*table))

    def snapshots(self, kind: str = "data") -> list[dict[str, str]]:
        """The summaries of the snapshots of a kind, without those that only say that the flow has ended."""
        found = [dict(one.summary.additional_properties) for one in self.table().snapshots() if one.summary]
        return [one for one in found if one.get("frazil.kind") == kind and one.get("frazil.rows-in") != "0"]


def key_of(part: int, parts: int) -> str:
    """A key whose rows go to a part."""
    return next(key for key in map(str, range(1000)) if adler32(key.encode()) % parts == part)


def plain(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}"}


def rows_of(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [plain(number) for number in numbers]
