"""Each guard of maintenance is needed: with it nothing is lost, and without it something is that somebody needs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from exactly_once.ground import QUICK, row_of, row_position
from exactly_once.programs.moments import act_at
from frazil.errors import ConfigError
from frazil.iceberg import Lake as Catalog
from frazil.iceberg import TableCare, expiry
from frazil.model.maintenance import MaintenanceTask, References
from frazil.runtime.maintain import maintain
from frazil.write.part import Part
from frazil.write.setup import WriterSetup
from frazil.write.writer import SinkWriter
from helpers.lakes import IMPATIENT, Lake

EAGER = {"small_files": 4, "max_snapshots": 2, "max_snapshot_age_hours": 1e-6, "reader_grace_minutes": 0, "max_time_share": 1}
ORPHANS = (MaintenanceTask.ORPHANS,)
LONG_AGO = 1_000_000_000
GONE = re.compile("does not exist|NotFound")

Patch = pytest.MonkeyPatch


def written(lake: Lake, frames: Sequence[DataFrame], **options: Any) -> None:
    """Writes batches, one after the other, by one writer that goes on where the last one ended."""
    sink = lake.sink(**({"maintenance": EAGER} | options)).spec
    writer = SinkWriter(WriterSetup(lake.introduced().spark, "guarded", "guarded", QUICK, lambda _: None), sink)
    writer.open()
    for frame in frames:
        writer.ensure(frame)
        end = writer.state.end if writer.state is not None else None
        writer.write(frame, Part("frames", end, row_position(row_of(end) + 1) or ""))


def write(lake: Lake, batches: Sequence[int], **options: Any) -> None:
    """Appends ten rows for each number."""
    queries = [f"select id + {batch * 10} id, id % 2 p, 'name' v from range(10)" for batch in batches]
    written(lake, [lake.frame(query) for query in queries], **options)


def name(lake: Lake) -> str:
    return f"{lake.name}.db.t"


def rows(lake: Lake, of: str) -> int:
    """How many rows a branch or tag has; they are read, not counted in metadata."""
    return len(lake.spark.table(f"{name(lake)}.{of}").collect())


def changed(patch: Patch, change: Callable[[References], References]) -> None:
    """Lets expiry see other references than there are."""
    seen = expiry._references
    patch.setattr(expiry, "_references", lambda *asked: change(seen(*asked)))


@pytest.mark.slow(seconds=15)
def test_the_snapshot_of_a_ledger(lake: Lake, monkeypatch: Patch) -> None:
    write(lake, [0])
    lake.sink("select 0L id, 0L p, 'other' v", id="other").write()
    snapshot = max(row.snapshot_id for row in lake.data_snapshots() if row.summary["frazil.sink"] == "other")
    write(lake, range(1, 6))
    assert snapshot in {row.snapshot_id for row in lake.meta("snapshots")}
    monkeypatch.setattr(expiry, "ledger_entries", lambda *_: {})
    write(lake, range(6, 9))
    assert snapshot not in {row.snapshot_id for row in lake.meta("snapshots")}


@pytest.mark.slow(seconds=15)
def test_tags(lake: Lake, monkeypatch: Patch) -> None:
    write(lake, [0])
    lake.spark.sql(f"ALTER TABLE {name(lake)} CREATE TAG kept")
    write(lake, range(1, 6))
    assert rows(lake, "tag_kept") == 10
    changed(monkeypatch, lambda seen: replace(seen, pinned=frozenset()))
    write(lake, range(6, 9))
    assert "kept" not in {row.name for row in lake.meta("refs")}


@pytest.mark.slow(seconds=15)
def test_the_history_of_other_branches(lake: Lake, monkeypatch: Patch) -> None:
    write(lake, [0])
    lake.spark.sql(f"ALTER TABLE {name(lake)} CREATE BRANCH theirs")
    for number in (100, 101):
        lake.spark.sql(f"INSERT INTO {name(lake)}.branch_theirs VALUES ({number}, 0, 'theirs')")
    head = next(row.snapshot_id for row in lake.meta("refs") if row.name == "theirs")
    (parent,) = [row.parent_id for row in lake.meta("snapshots") if row.snapshot_id == head]
    write(lake, range(1, 6))
    assert lake.table(at=parent).count() == 11
    changed(monkeypatch, lambda seen: replace(seen, branches=frozenset()))
    write(lake, range(6, 9))
    assert parent not in {row.snapshot_id for row in lake.meta("snapshots")}


def opened(lake: Lake) -> Table:
    """The table as a query of PyIceberg has begun to read it."""
    catalog = SqlCatalog(lake.name, uri=f"sqlite:///{lake.folder / 'catalog.db'}")
    try:
        return catalog.load_table("db.t")
    finally:
        catalog.engine.dispose()


@pytest.mark.slow(seconds=15)
def test_the_grace_of_readers(lake: Lake) -> None:
    write(lake, range(2))
    reader = opened(lake)
    write(lake, range(2, 10), maintenance=EAGER | {"reader_grace_minutes": 60})
    assert reader.scan().to_arrow().num_rows == 20
    reader = opened(lake)
    write(lake, range(10, 20))
    with pytest.raises(FileNotFoundError):
        reader.scan().to_arrow()


def without_live_files(patch: Patch) -> None:
    patch.setattr(expiry, "_live_files", lambda *_: set())


@pytest.mark.slow(seconds=20)
def test_files_of_a_branch_that_the_main_branch_does_not_have(lake: Lake, monkeypatch: Patch) -> None:
    write(lake, range(2))
    lake.spark.sql(f"ALTER TABLE {name(lake)} CREATE BRANCH theirs")
    write(lake, range(2, 9))
    assert rows(lake, "branch_theirs") == 20
    lake.spark.sql(f"ALTER TABLE {name(lake)} CREATE OR REPLACE BRANCH others")
    without_live_files(monkeypatch)
    write(lake, range(9, 20))
    with pytest.raises(Exception, match=GONE):
        rows(lake, "branch_others")


@pytest.mark.slow(seconds=20)
def test_a_file_that_was_picked_from_a_branch_which_still_has_it(lake: Lake, monkeypatch: Patch) -> None:
    """In the main branch it is newer than in the branch, so that sequence numbers say nothing."""
    write(lake, range(2))
    lake.spark.sql(f"ALTER TABLE {name(lake)} CREATE BRANCH theirs")
    lake.spark.sql(f"INSERT INTO {name(lake)}.branch_theirs VALUES (1000, 0, 'theirs')")
    picked = next(row.snapshot_id for row in lake.meta("refs") if row.name == "theirs")
    write(lake, [2])
    lake.spark.sql(f"CALL {lake.name}.system.cherrypick_snapshot('db.t', {picked})")
    spared = recorded(monkeypatch)
    write(lake, range(3, 9))
    assert (rows(lake, "branch_theirs"), lake.count()) == (21, 91)
    assert 1000 in {row.id for row in lake.spark.read.parquet(*spared).collect()}


def recorded(patch: Patch) -> set[str]:
    """The files that would be deleted, were it not for a look at what is live."""
    look, spared = expiry._live_files, set[str]()

    def looked(*asked: Any) -> set[str]:
        found = look(*asked)
        spared.update(found)
        return found

    patch.setattr(expiry, "_live_files", looked)
    return spared


@pytest.mark.slow(seconds=20)
def test_deletion_vectors_that_share_a_file(lake: Lake, monkeypatch: Patch) -> None:
    """The vector of one data file goes with that file; the file in which it was has another one that is needed."""
    upsert = {"commit_mode": "upsert", "key_fields": ["id", "p"], "partition_by": ["p"], "format_version": 3}
    upsert |= {"max_equality_deletes": 1, "upsert_strategy": "equality_delete"}
    written(lake, [lake.frame(f"select id, id % 2 p, {v} v from range({n})") for v, n in ((0, 20), (1, 4))], **upsert)
    (shared,) = {row.file_path for row in lake.meta("delete_files")}
    assert len(lake.meta("delete_files")) == 2
    spared = recorded(monkeypatch)
    # Only one partition gets more files, and is merged.
    written(lake, [lake.frame(f"select {100 + 2 * n}L id, 0L p, 2 v") for n in range(7)], **upsert)
    assert [row.file_path for row in lake.meta("delete_files") if row.partition.p == 1] == [shared]
    assert shared in spared
    expected = {(n, n % 2, int(n < 4)) for n in range(20)} | {(100 + 2 * n, 0, 2) for n in range(7)}
    assert set(lake.rows()) == expected


def look_for_orphans(lake: Lake, **options: Any) -> None:
    sink = lake.sink(maintenance=EAGER, **options).spec
    maintain(sink, IMPATIENT, ORPHANS, dry_run=False, orphan_age_hours=72, listen=lambda _: None)


def without_age(patch: Patch, folder: Path) -> None:
    """Every file counts as old."""
    look = TableCare.orphans

    def aged(table: TableCare, older_than_ms: int) -> list[str]:
        for path in folder.rglob("*.parquet"):
            os.utime(path, (LONG_AGO, LONG_AGO))
        return look(table, older_than_ms)

    patch.setattr(TableCare, "orphans", aged)


@contextmanager
def staged(deed: Callable[[], None]) -> Iterator[None]:
    """Does something while a batch is written and not committed."""
    undo = act_at("staged", 1, deed)
    try:
        yield
    finally:
        undo()


@pytest.mark.slow(seconds=20)
def test_the_age_of_files_that_a_batch_has_written_and_not_committed(lake: Lake, monkeypatch: Patch) -> None:
    write(lake, [0])
    with staged(lambda: look_for_orphans(lake)):
        write(lake, [1])
    assert len(lake.rows()) == 20
    without_age(monkeypatch, lake.folder)
    with staged(lambda: look_for_orphans(lake)):
        write(lake, [2])
    with pytest.raises(Exception, match=GONE):
        lake.rows()


@pytest.mark.slow(seconds=20)
def test_a_folder_with_another_table_below_it(lake: Lake, monkeypatch: Patch) -> None:
    """Even one that this catalog does not list beside it: its metadata is found in the folder."""
    parent = lake.folder / "warehouse" / "everything"
    write(lake, [0], location=str(parent))
    lake.sink("select 1 a", table="elsewhere.u", location=str(parent / "u")).write()
    theirs = [path for path in (parent / "u").rglob("*") if path.is_file()]
    for path in theirs:
        os.utime(path, (LONG_AGO, LONG_AGO))
    with pytest.raises(ConfigError, match="is metadata of another table") as refused:
        look_for_orphans(lake)
    assert refused.value.code == "folders-nested"
    assert all(path.exists() for path in theirs)
    monkeypatch.setattr(TableCare, "require_own_folder", lambda _: None)
    look_for_orphans(lake)
    assert not any(path.exists() for path in theirs if path.suffix == ".parquet")


@pytest.mark.slow(seconds=20)
def test_a_folder_that_is_that_of_another_table_of_the_namespace(lake: Lake, monkeypatch: Patch) -> None:
    write(lake, [0])
    lake.spark.sql(f"CREATE TABLE {lake.name}.db.copy (a int) USING iceberg LOCATION '{lake.folder}/warehouse/db/t'")
    lake.spark.sql(f"INSERT INTO {lake.name}.db.copy VALUES (1)")
    for path in (lake.folder / "warehouse/db/t/data").rglob("*.parquet"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    with pytest.raises(ConfigError, match=r"also that of db\.copy"):
        look_for_orphans(lake)
    assert len(lake.spark.table(f"{lake.name}.db.copy").collect()) == 1
    monkeypatch.setattr(TableCare, "require_own_folder", lambda _: None)
    monkeypatch.setattr(Catalog, "sharing_folder", lambda *_: [])
    look_for_orphans(lake)
    with pytest.raises(Exception, match=GONE):
        lake.spark.table(f"{lake.name}.db.copy").collect()
