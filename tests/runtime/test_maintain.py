"""Maintenance meets what it does not expect: nothing that is live is deleted, and what is wrong is said."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exactly_once.programs.moments import act_at
from frazil import iceberg
from frazil.errors import ConfigError, Fenced, Retryable
from frazil.iceberg import IcebergTable
from frazil.model.events import CommitFailed, Event, FencedOut, Maintained
from frazil.model.maintenance import USUAL_TASKS, MaintenanceTask, Outlook
from frazil.runtime.maintain import maintain
from frazil.write import maintenance
from helpers.lakes import IMPATIENT, Lake, doomed, let_all_be_due
from services.processes import wait_until

LATER = {"small_files": 4, "max_snapshots": 2, "reader_grace_minutes": 0, "enabled": False}
EAGER = LATER | {"enabled": True, "max_time_share": 1}


class Killed(BaseException):
    """The process that did this is no more."""


def write(lake: Lake, batches: range, given: dict[str, Any] = LATER, **options: Any) -> list[Event]:
    """Appends ten rows for each number; by default nothing is maintained."""
    events: list[Event] = []
    for batch in batches:
        lake.sink(f"select id + {batch * 10} id, 'name' v from range(0, 10, 1, 1)", maintenance=given, **options).listen(
            events.append
        ).write()
    return events


def look_after(lake: Lake, tasks: tuple[MaintenanceTask, ...] = USUAL_TASKS, heard: list[Event] | None = None) -> Outlook:
    sink = lake.sink(maintenance=LATER | {"enabled": None}).spec
    events = [] if heard is None else heard
    return maintain(sink, IMPATIENT, tasks, dry_run=False, orphan_age_hours=72, listen=events.append)


def expected(batches: int) -> list[tuple[Any, ...]]:
    return sorted([(n, "name") for n in range(batches * 10)], key=repr)


@pytest.mark.parametrize("moment", ["merging", "merge-staged", "merge-applied", "expired", "listed", "deleting"])
def test_a_maintainer_that_is_killed_leaves_a_table_that_the_next_one_finishes(lake: Lake, moment: str) -> None:
    write(lake, range(6))

    def die() -> None:
        raise Killed

    undo = act_at(moment, 1, die)
    try:
        with pytest.raises(Killed):
            look_after(lake)
    finally:
        undo()
    assert lake.rows() == expected(6)
    look_after(lake)
    assert lake.rows() == expected(6)
    assert len(lake.files()) == 1
    assert len(lake.meta("snapshots")) <= 4
    assert look_after(lake).nothing


def amid(moment: str, deed: Callable[[], object], work: Callable[[], Any]) -> Any:
    """Does something once amid some work, and returns what the work does."""
    undo = act_at(moment, 1, lambda: deed() and None)
    try:
        return work()
    finally:
        undo()


def test_the_first_of_two_maintainers_is_fenced(lake: Lake) -> None:
    write(lake, range(4))
    heard: list[Event] = []
    with pytest.raises(Fenced, match="frazil/maintenance"):
        amid("merge-staged", lambda: look_after(lake), lambda: look_after(lake, heard=heard))
    assert [event for event in heard if isinstance(event, FencedOut)]
    assert (lake.rows(), len(lake.files())) == (expected(4), 1)


def test_a_writer_is_not_fenced_by_a_maintainer_beside_it(lake: Lake) -> None:
    write(lake, range(4))
    events = amid("staged", lambda: look_after(lake), lambda: write(lake, range(4, 5), EAGER))
    assert not [event for event in events if isinstance(event, FencedOut)]
    assert (lake.rows(), len(lake.files())) == (expected(5), 2)
    amid("merge-staged", lambda: write(lake, range(5, 9)), lambda: look_after(lake))
    assert lake.rows() == expected(9)


def test_a_merge_that_another_column_comes_before_is_dropped_and_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TRIES", 2)
    write(lake, range(4))
    alter, heard = f"ALTER TABLE {lake.name}.db.t", list[Event]()

    def amid_merges(*changes: str) -> None:
        undone = [
            act_at("merge-staged", nth, lambda change=change: lake.spark.sql(f"{alter} {change}"))
            for nth, change in enumerate(changes, 1)
        ]
        try:
            look_after(lake, heard=heard)
        finally:
            for undo in reversed(undone):
                undo()

    with pytest.raises(Retryable, match="overtaken by other changes of the same files, 2 times") as failed:
        amid_merges("ADD COLUMN w int", "DROP COLUMN w")
    assert (failed.value.exit_code, failed.value.code) == (75, "not-all-maintained")
    assert not [event for event in heard if isinstance(event, Maintained) and event.kind == "merge_files"]
    assert len(lake.files()) == 4
    amid_merges("RENAME COLUMN v TO u")
    assert [event for event in heard if isinstance(event, CommitFailed)]
    assert (lake.rows("id, u"), len(lake.files())) == (expected(4), 1)


def test_files_that_merges_have_written_for_nothing_are_listed_where_nothing_is_deleted(lake: Lake) -> None:
    """Nobody else could know of them."""
    write(lake, range(4), write_properties={"commit.manifest-merge.enabled": "false"})
    merging = "'commit.manifest-merge.enabled'='true', 'commit.manifest.min-count-to-merge'='2'"
    lake.spark.sql(f"ALTER TABLE {lake.name}.db.t SET TBLPROPERTIES ({merging})")
    orphans = on_disk(lake) - known(lake)
    look_after(lake, (MaintenanceTask.COMPACT,))
    left = on_disk(lake) - known(lake) - orphans
    assert left
    assert left == {path.name for path in doomed(lake.table_folder)}
    look_after(lake, (MaintenanceTask.DELETE,))
    assert on_disk(lake) - known(lake) == orphans


def on_disk(lake: Lake) -> set[str]:
    return {path.name for path in (lake.table_folder / "metadata").glob("*.avro")}


def known(lake: Lake) -> set[str]:
    manifests = [row.path for row in lake.meta("all_manifests")] + [row.manifest_list for row in lake.meta("snapshots")]
    return {Path(path).name for path in manifests}


@pytest.mark.parametrize("hours", [-48, 48], ids=["behind", "ahead"])
def test_a_clock_that_is_far_off_deletes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    write(lake, range(4))
    before = sorted(lake.folder.rglob("*"))
    now_ms = maintenance.now_ms
    for module in ("frazil.runtime.maintain", "frazil.write.maintenance"):
        monkeypatch.setattr(f"{module}.now_ms", lambda: now_ms() + hours * 3_600_000)
    with pytest.raises(Retryable, match="none is deleted") as refused:
        look_after(lake, (*USUAL_TASKS, MaintenanceTask.ORPHANS))
    assert refused.value.code == "clock-differs"
    assert sorted(lake.folder.rglob("*")) == before, "it has not even claimed the table"
    if hours > 0:
        events = write(lake, range(4, 12), EAGER)
        assert [event for event in events if isinstance(event, CommitFailed) and "none is deleted" in event.message]
        assert all(path.exists() for path in before if path.suffix in (".parquet", ".avro"))
    assert lake.rows()[:40] == expected(12 if hours > 0 else 4)[:40]


def test_several_processes_may_ask_for_the_time_of_the_store_at_once(lake: Lake) -> None:
    write(lake, range(1))
    catalog = iceberg.Lake(lake.spark, lake.name, "here")

    def ask(_: int) -> None:
        table = catalog.load(("db",), "t")
        assert table is not None
        for _ in range(20):
            table.care.require_clock(maintenance.now_ms())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    assert not list(lake.folder.rglob("*clock*"))


def test_files_that_cannot_be_deleted_are_reported_and_the_pipeline_goes_on(lake: Lake) -> None:
    """A folder with something in it is what nobody may delete as a file, not even the superuser."""
    write(lake, range(4), EAGER | {"reader_grace_minutes": 60})
    stubborn = next(iter(doomed(lake.table_folder)))
    stubborn.unlink(missing_ok=True)
    stubborn.mkdir()
    (stubborn / "something").touch()
    let_all_be_due(lake.table_folder)
    with pytest.raises(Retryable, match=r"Not all .* files could be deleted") as failed:
        look_after(lake)
    assert (failed.value.exit_code, failed.value.code) == (75, "not-all-maintained")
    assert stubborn in doomed(lake.table_folder)
    events = write(lake, range(4, 14), EAGER)
    refused = lambda: [event for event in events if isinstance(event, CommitFailed) and "Not all" in event.message]  # noqa: E731
    wait_until(refused, 30, "the report of files that are deleted in the background")
    assert lake.rows() == expected(14)
    (stubborn / "something").unlink()
    look_after(lake)
    assert not stubborn.exists()


def test_what_somebody_deletes_between_two_merges_stays_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of several partitions are found together and merged one after the other, those of the smaller one first."""
    monkeypatch.setattr(maintenance, "BYTES_AT_ONCE", 1)
    query = "select id + {0} id, if(id = 0, 0, 1) p from range(0, 10, 1, 1)"
    for batch in range(3):
        lake.sink(query.format(batch * 10), maintenance=LATER, partition_by=["p"], format_version=2).write()
    name = f"{lake.name}.db.t"
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    heard: list[Event] = []
    amid("merging", lambda: lake.spark.sql(f"DELETE FROM {name} WHERE id = 5"), lambda: look_after(lake, heard=heard))
    assert [event.count for event in heard if isinstance(event, Maintained) and event.kind == "merge_files"] == [3, 3]
    assert {row[0] for row in lake.rows("id")} == set(range(30)) - {5}


def test_an_expiry_by_somebody_else_that_comes_first_does_not_stop_the_pipeline(lake: Lake) -> None:
    """The files of the snapshots that have just expired are looked up in others, which are gone by then."""
    several = EAGER | {"max_snapshots": 4}
    write(lake, range(8), several)
    call = f"CALL {lake.name}.system.expire_snapshots(table => 'db.t', retain_last => 1, older_than => now())"
    events = amid("expired", lambda: lake.spark.sql(call).collect(), lambda: write(lake, range(8, 12), several))
    assert [event for event in events if isinstance(event, CommitFailed) and event.kind == "upkeep"]
    assert lake.rows() == expected(12)


def test_tables_of_amazon_s3_are_left_to_the_service(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    write(lake, range(4))
    monkeypatch.setattr(IcebergTable, "location", f"s3://63a8e430-6e0b--table-s3{lake.folder}")
    with pytest.raises(ConfigError, match="S3 Tables maintains") as refused:
        look_after(lake)
    assert (refused.value.code, refused.value.exit_code) == ("maintained-by-service", 78)
    assert not [event for event in write(lake, range(4, 12), EAGER | {"enabled": None}) if isinstance(event, Maintained)]
