"""Tables that stay healthy under a stream of small commits: few files, few snapshots, little metadata, and never a row less."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from frazil.iceberg import FilesToDelete, TableCare
from frazil.iceberg.folder import Folder
from frazil.model.events import CommitFailed, Event, Maintained, TableMeasured
from frazil.model.maintenance import MaintenanceTask, Outlook
from frazil.runtime.maintain import maintain
from helpers.lakes import IMPATIENT, Lake, doomed, is_list
from helpers.readers import by_duckdb, by_pyiceberg, tuples
from services.processes import wait_until

EAGER = {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def write(lake: Lake, batches: Sequence[int], maintenance: dict[str, Any] | None = None, **options: Any) -> list[Event]:
    """Appends ten rows for each number."""
    events: list[Event] = []
    for batch in batches:
        query = f"select id + {batch * 10} id, id % 2 p, 'name' v from range(10)"
        lake.sink(query, maintenance=EAGER | (maintenance or {}), **options).listen(events.append).write()
    return events


def done(events: Sequence[Event], kind: str) -> list[Maintained]:
    return [event for event in events if isinstance(event, Maintained) and event.kind == kind]


def expected(batches: int) -> list[tuple[Any, ...]]:
    return sorted([(n, n % 2, "name") for n in range(batches * 10)], key=repr)


def on_disk(lake: Lake) -> set[str]:
    """The files of the table, but for the lists of those that are to be deleted."""
    found = [path for path in lake.table_folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    return {path.name for path in found if not is_list(path)}


def listed(lake: Lake) -> set[str]:
    """The files that are to be deleted."""
    return {path.name for path in doomed(lake.table_folder)}


def reachable(lake: Lake) -> set[str]:
    """The files that a snapshot or the history of metadata needs."""
    paths = [row.file_path for row in lake.meta("all_files")] + [row.path for row in lake.meta("all_manifests")]
    paths += [row.manifest_list for row in lake.meta("snapshots")] + [row.file for row in lake.meta("metadata_log_entries")]
    return {Path(path).name for path in paths}


@pytest.mark.parametrize("partition", [[], ["p"]], ids=["whole", "partitioned"])
def test_small_files_are_merged_and_every_reader_reads_the_same_rows(lake: Lake, version: int, partition: list[str]) -> None:
    events = write(lake, range(9), format_version=version, partition_by=partition)
    assert done(events, "merge_files")
    assert len(lake.files()) <= 8
    assert lake.rows() == tuples(by_duckdb(lake)) == tuples(by_pyiceberg(lake)) == expected(9)


def test_more_than_a_pause_allows_is_merged_part_by_part(lake: Lake) -> None:
    """Files of more than half of the size that they should have, too: each would only be written again by a task of its own."""
    events: list[Event] = []
    given = {"target_file_size_mb": 1, "maintenance": EAGER | {"max_rewrite_mb": 2, "max_snapshots": 100}}
    for batch in range(4):
        query = f"select id, sha2(string(id), 512) v from range({batch}0000, {batch}0000 + 5000, 1, 1)"
        lake.sink(query, **given).listen(events.append).write()
        (size,) = [size for size in live_files(lake)[:1] if batch == 0] or [600_000]
        assert 550_000 < size < 750_000, "too large for two in a file, and four are more than a pause allows"
    (merged,) = done(events, "merge_files")
    assert (merged.count, merged.bytes <= 2 * 1024 * 1024) == (3, True)
    assert len(live_files(lake)) == 3
    assert len(lake.rows("id")) == 4 * 5000


def live_files(lake: Lake) -> list[int]:
    """The sizes of the table's data files."""
    return [row.file_size_in_bytes for row in lake.meta("files")]


def test_old_snapshots_expire_and_no_file_is_left_that_nobody_needs(lake: Lake, version: int) -> None:
    events = write(lake, range(14), format_version=version)
    assert sum(one.count for one in done(events, "expire_snapshots")) >= 5
    assert len(lake.meta("snapshots")) <= 7
    for row in lake.meta("snapshots"):
        assert lake.table(at=row.snapshot_id).count() == int(row.summary["total-records"])
    assert reachable(lake) <= on_disk(lake), "every file that a snapshot needs is there"
    left = on_disk(lake) - reachable(lake)
    assert left <= listed(lake), "what is left is on the list, for the next run"
    assert len(left) < 30


def test_manifests_that_were_written_for_nothing_are_deleted(lake: Lake) -> None:
    """An append writes a manifest of its own before it merges several into one."""
    write(lake, range(6), {"small_files": 100, "max_snapshots": 100})
    manifests = {Path(row.path).name for row in lake.meta("all_manifests")}

    def deleted() -> bool:
        return {path.name for path in (lake.folder / "warehouse/db/t/metadata").glob("*-m*.avro")} == manifests

    wait_until(deleted, 20, "the deletion of manifests")


def test_snapshots_of_tags_branches_and_other_sinks_stay_with_their_files(lake: Lake, version: int) -> None:
    write(lake, [0], format_version=version)
    lake.sink("select 0L id, 0L p, 'other' v", id="other").write()
    name = f"{lake.name}.db.t"
    lake.spark.sql(f"ALTER TABLE {name} CREATE TAG kept")
    write(lake, range(1, 3))
    lake.spark.sql(f"ALTER TABLE {name} CREATE BRANCH theirs")
    write(lake, range(3, 16))
    assert lake.spark.table(f"{name}.tag_kept").count() == 11
    assert lake.spark.table(f"{name}.branch_theirs").count() == 31
    ledger = json.loads(lake.properties()["frazil.sink.other"])["snapshot"]
    assert ledger in {row.snapshot_id for row in lake.meta("snapshots")}
    assert len(lake.meta("snapshots")) <= 7 + 5
    assert reachable(lake) <= on_disk(lake)


@pytest.mark.slow(seconds=15)
def test_upserts_are_merged_with_their_deletes(lake: Lake, version: int) -> None:
    events: list[Event] = []
    for batch in range(9):
        query = f"select id, {batch}L v from range({batch}, 20)"
        given = {"commit_mode": "upsert", "key_fields": ["id"], "format_version": version, "max_equality_deletes": 30}
        lake.sink(query, maintenance=EAGER, **given).listen(events.append).write()
    assert done(events, "merge_files")
    assert done(events, "expire_snapshots")
    assert not [event for event in events if isinstance(event, CommitFailed)]
    assert lake.rows() == sorted([(n, min(n, 8)) for n in range(20)], key=repr)
    assert reachable(lake) <= on_disk(lake)


def test_equality_deletes_are_settled_with_every_merge_unless_they_are_not_bounded(lake: Lake) -> None:
    def live_deletes(name: str, **options: Any) -> int:
        for batch in range(5):
            given = {"commit_mode": "upsert", "key_fields": ["id"], "format_version": 3, **options}
            lake.sink(f"select id, {batch}L v from range(10)", f"db.{name}", maintenance=EAGER, **given).write()
        head = lake.spark.table(f"{lake.name}.db.{name}.snapshots").orderBy("committed_at").collect()[-1]
        assert lake.spark.table(f"{lake.name}.db.{name}").count() == 10
        return int(head.summary["total-equality-deletes"])

    assert live_deletes("settled", upsert_strategy="equality_delete") <= 10
    assert live_deletes("left", upsert_strategy="equality_delete", max_equality_deletes=None, max_delete_files=None) > 10


def meddled(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Lets somebody else do something between a merge and its commit, once."""
    merge, left = TableCare.merge, [deed]

    def disturbed(table: TableCare, *asked: Any) -> Any:
        merged = merge(table, *asked)
        while left:
            left.pop()()
        return merged

    monkeypatch.setattr(TableCare, "merge", disturbed)


def test_a_row_that_somebody_deletes_while_files_are_merged_stays_deleted(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, range(3), format_version=version)
    name = f"{lake.name}.db.t"
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    meddled(monkeypatch, lambda: lake.spark.sql(f"DELETE FROM {name} WHERE id = 5"))
    write(lake, range(3, 9))
    assert lake.rows() == [row for row in expected(9) if row[0] != 5]


def test_a_key_that_another_sink_upserts_while_files_are_merged_is_there_once(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge is committed all the same: later equality deletes apply to what it wrote."""
    write(lake, range(3), format_version=version)
    given = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "equality_delete", "id": "other"}
    meddled(monkeypatch, lambda: lake.sink("select 5L id, 7L p, 'new' v", **given).write())
    events = write(lake, range(3, 7))
    assert done(events, "merge_files")
    assert lake.rows() == sorted([*(row for row in expected(7) if row[0] != 5), (5, 7, "new")], key=repr)


@pytest.mark.slow(seconds=15)
def test_a_compaction_and_an_expiry_by_somebody_else_do_no_harm(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{lake.name}.system"
    write(lake, range(3))

    def foreign() -> None:
        lake.spark.sql(f"CALL {name}.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))").collect()
        lake.spark.sql(f"CALL {name}.expire_snapshots(table => 'db.t', retain_last => 1, older_than => now())").collect()

    meddled(monkeypatch, foreign)
    write(lake, range(3, 12))
    assert lake.rows() == expected(12)
    assert reachable(lake) <= on_disk(lake)


@pytest.mark.slow(seconds=15)
def test_files_of_a_sorted_table_stay_sorted(lake: Lake) -> None:
    write(lake, range(6), sort_by=["id desc"])
    import pyarrow.parquet

    largest = max(lake.files(), key=lambda path: path.stat().st_size)
    ids = pyarrow.parquet.read_table(largest)["id"].to_pylist()
    assert len(ids) > 10
    assert ids == sorted(ids, reverse=True)


@pytest.mark.slow(seconds=15)
def test_a_table_that_frazil_did_not_make_is_looked_after_only_when_asked(lake: Lake) -> None:
    lake.introduced()
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.name}.db")
    lake.spark.sql(f"CREATE TABLE {lake.name}.db.t (id bigint, p bigint, v string) USING iceberg")
    assert not [event for event in write(lake, range(9)) if isinstance(event, Maintained)]
    assert [event for event in write(lake, range(9, 14), {"enabled": True}) if isinstance(event, Maintained)]
    assert lake.rows() == expected(14)


@pytest.mark.slow(seconds=15)
def test_files_that_may_not_be_deleted_are_reported_and_kept_on_the_list(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that forbids it cannot be had on a local disk: the answer is made up."""

    def forbidden(*_: Any) -> None:
        raise PermissionError("delete is not allowed")

    monkeypatch.setattr(FilesToDelete, "delete", forbidden)
    monkeypatch.setattr(Folder, "time_ms", forbidden)
    events = write(lake, range(16))
    assert any(isinstance(event, CommitFailed) and "delete is not allowed" in event.message for event in events)
    assert lake.rows() == expected(16)
    wait_until(lambda: on_disk(lake) - reachable(lake) <= listed(lake), 20, "a list of all that is not needed")
    assert [name for name in listed(lake) if "-m" in name], "manifests that no snapshot named are among it"


@pytest.mark.slow(seconds=15)
def test_readers_have_time_to_finish(lake: Lake) -> None:
    """Files that no snapshot needs any longer stay for the grace of readers."""
    write(lake, range(14), {"reader_grace_minutes": 60})
    assert len(lake.meta("snapshots")) <= 7
    assert len([name for name in on_disk(lake) if name.endswith(".parquet")]) >= 14


@pytest.mark.slow(seconds=15)
def test_the_list_of_files_to_delete_is_bounded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.iceberg.disposal.MOST", 3)
    write(lake, range(14), {"reader_grace_minutes": 60})
    assert len(listed(lake)) == 3


def test_metadata_files_do_not_pile_up(lake: Lake) -> None:
    write(lake, range(14))
    assert len([name for name in on_disk(lake) if name.endswith(".metadata.json")]) <= 12
    assert len(lake.meta("manifests")) <= 10


def test_what_is_measured_after_a_commit_is_what_the_table_has(lake: Lake, version: int) -> None:
    given = {"commit_mode": "upsert", "key_fields": ["id"], "format_version": version, "upsert_strategy": "equality_delete"}
    events: list[Event] = []
    for batch in range(5):
        lake.sink(f"select id, {batch}L v from range(10)", maintenance=EAGER, **given).listen(events.append).write()
        measured = [event for event in events if isinstance(event, TableMeasured)][-1].figures
        assert measured.data_files == len(lake.meta("data_files"))
        assert measured.delete_files == len(lake.meta("delete_files"))
        assert measured.manifests == len(lake.meta("manifests"))
        assert measured.snapshots == len(lake.meta("snapshots"))
        by_key = [row.record_count for row in lake.meta("delete_files") if row.content == 2]
        assert measured.equality_deletes == sum(by_key)
    looked = [event.figures for event in events if isinstance(event, TableMeasured) and event.figures.small_files is not None]
    assert looked, "small files are counted where they are looked for"
    metadata = Path(urlsplit(lake.meta("metadata_log_entries")[-1].file).path)
    assert 0 < (looked[-1].metadata_file_bytes or 0) <= 2 * metadata.stat().st_size
    assert (looked[-1].read_amplification or 0) >= 1


def test_a_table_that_is_not_looked_after_is_measured_by_its_summary_alone(lake: Lake) -> None:
    events = write(lake, range(2), {"enabled": False})
    measured = [event.figures for event in events if isinstance(event, TableMeasured)]
    assert [one.data_files for one in measured] == [2, 4]
    assert measured[-1].snapshots is measured[-1].small_files is None


# Manifests of a few kilobytes stand for those of megabytes.
SMALL_MANIFESTS = {"commit.manifest.target-size-bytes": "8000", "commit.manifest-merge.enabled": "false"}


def write_to_all_partitions(lake: Lake, batch: int, version: int, maintenance: dict[str, Any]) -> list[Event]:
    events: list[Event] = []
    given = {"partition_by": ["p"], "format_version": version, "write_properties": SMALL_MANIFESTS}
    query = f"select id, id % 8 p, {batch}L v from range(16)"
    lake.sink(query, maintenance=EAGER | {"max_snapshots": 100} | maintenance, **given).listen(events.append).write()
    return events


def require_clustered(lake: Lake, batches: int) -> None:
    expected_rows = sorted(((n, n % 8, batch) for n in range(16) for batch in range(batches)), key=repr)
    assert lake.rows() == tuples(by_pyiceberg(lake)) == expected_rows
    assert "manifests" in {row.summary["frazil.kind"] for row in lake.meta("snapshots")}
    assert len([one for one in lake.meta("manifests") if within(one, 3)]) <= 2
    assert reachable(lake) <= on_disk(lake)


def test_manifests_are_rewritten_by_partition_where_a_scan_of_one_gains(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are taken for large enough."""
    monkeypatch.setattr(TableCare, "small_files", lambda _: [])
    batches = 0
    while not done(write_to_all_partitions(lake, batches, 3, {}), "rewrite_manifests"):
        batches += 1
        assert batches < 6, "four manifests are too many for a scan of one partition"
    require_clustered(lake, batches + 1)


def test_manifests_are_rewritten_on_demand(lake: Lake) -> None:
    for batch in range(5):
        write_to_all_partitions(lake, batch, 2, {"enabled": False})
    events: list[Event] = []

    def maintained(*, dry_run: bool) -> Outlook:
        spec, asked = lake.sink().spec, [MaintenanceTask.MANIFESTS]
        return maintain(spec, IMPATIENT, asked, dry_run=dry_run, orphan_age_hours=72, listen=events.append)

    outlook = maintained(dry_run=True)
    assert (outlook.rewrite_manifests, outlook.manifests_opened, outlook.manifests_opened_after) == (5, 5, 1)
    assert not events
    maintained(dry_run=False)
    assert [one.count for one in done(events, "rewrite_manifests")] == [5]
    require_clustered(lake, 5)
    assert maintained(dry_run=True).nothing, "what was done is not done again"


def within(manifest: Any, partition: int) -> bool:
    """Whether a scan of the partition opens the manifest."""
    (bounds,) = manifest.partition_summaries
    return int(bounds.lower_bound) <= partition <= int(bounds.upper_bound)


def test_values_are_counted_for_engines_that_plan_joins(lake: Lake) -> None:
    """The statistics stay when their snapshot expires, and only one file of them stays."""
    events = write(lake, range(10), {"statistics": True, "max_snapshots": 2})
    counted = done(events, "write_statistics")
    assert 2 <= len(counted) <= 4, "not again for every few rows"
    events += write(lake, range(10, 13), {"statistics": True, "max_snapshots": 2})
    assert not [event for event in events if isinstance(event, CommitFailed)]
    assert lake.rows() == expected(13)
    metadata = lake.metadata()
    (known,) = metadata["statistics"]
    assert known["snapshot-id"] in {one["snapshot-id"] for one in metadata["snapshots"]}
    path = urlsplit(known["statistics-path"]).path
    assert Path(path).read_bytes()[:4] == b"PFA1"
    ids, parts, names = sorted((blob["fields"][0], int(blob["properties"]["ndv"])) for blob in known["blob-metadata"])
    assert known["snapshot-id"] != known["blob-metadata"][0]["snapshot-id"], "that one has expired"
    assert 40 < ids[1] <= 130
    assert (parts[1], names[1]) == (2, 1)
    left = {name for name in on_disk(lake) if name.endswith(".stats")}
    assert left <= {Path(path).name, *listed(lake)}
    assert distinct_values(lake) == ids[1], "Spark reads them"


def distinct_values(lake: Lake) -> int:
    """How many values Spark's planner takes the first column to have."""
    lake.spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        known = lake.table().select("id")._jdf.queryExecution().optimizedPlan().stats().attributeStats()
        return int(str(known.values().head().distinctCount().get()))
    finally:
        lake.spark.conf.unset("spark.sql.cbo.enabled")
