"""`frazil maintain`, and the health of a table that `frazil inspect` shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cli.commands import Frazil, sql_pipeline

UNTENDED = "maintenance: {enabled: false, max_snapshots: 4, reader_grace_minutes: 0}"


def looked_at(frazil: Frazil) -> dict[str, Any]:
    (found,) = frazil("inspect", "load", "--json").json["tables"]
    return dict(found)


def test_a_table_is_maintained_beside_its_pipeline(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "batch_size: 10", "max_batch_size: 10", UNTENDED, rows=120)
    assert frazil("run", "--once").code == 0
    before = looked_at(frazil)
    health = before["health"]
    assert (health["data_files"], health["small_files"], health["would_merge_files"]) == (12, 12, 12)
    assert health["would_expire_snapshots"] >= 8
    assert health["read_amplification"] == 12
    assert (health["would_merge_into"], health["read_amplification_after"]) == (1, 1)
    known = {path.name: path.stat().st_size for path in (tmp_path / "warehouse/shop/events/metadata").glob("[!.]*")}
    assert len(known) - 3 <= health["metadata_files"] <= len(known), "nobody deletes what merges of manifests leave"
    assert sum(known.values()) * 0.8 <= health["metadata_bytes"] <= sum(known.values())
    assert not health["metadata_bytes_are_least"]

    (planned,) = frazil("maintain", "load", "--dry-run", "--json").json["tables"]
    assert (planned["merge_files"], planned["expire_snapshots"]) == (12, health["would_expire_snapshots"])
    assert (planned["merge_files_after"], planned["read_amplification"], planned["read_amplification_after"]) == (1, 12, 1)
    assert planned["merge_bytes"] == health["would_rewrite_bytes"] == health["data_bytes"]
    assert "12 files into 1" in frazil("maintain", "load", "--dry-run").out
    assert looked_at(frazil)["metadata_location"] == before["metadata_location"], "a dry run changes nothing"

    done = frazil("maintain", "load")
    assert (done.code, "12 files" in done.out, "small files were merged" in done.err) == (0, True, True)
    after = looked_at(frazil)
    assert after["rows"] == 120
    assert (after["health"]["data_files"], after["health"]["would_merge_files"]) == (1, 0)
    assert after["snapshot_count"] <= 6
    lists = list((tmp_path / "warehouse/shop/events/metadata").glob("snap-*.avro"))
    assert len(lists) == after["snapshot_count"], "files of expired snapshots are deleted"
    assert "do nothing" in frazil("inspect", "load").out

    sql_pipeline(tmp_path, "batch_size: 10", "max_batch_size: 10", UNTENDED, rows=150)
    again = frazil("run", "--once", "--json").json["pipelines"][0]
    assert (again["rows"], looked_at(frazil)["rows"]) == (30, 150), "the pipeline was not fenced, and goes on where it was"


def test_old_files_that_nobody_knows_are_deleted_and_no_others(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, UNTENDED, rows=10)
    assert frazil("run", "--once").code == 0
    data = tmp_path / "warehouse/shop/events/data"
    old, young = data / "old.parquet", data / "young.parquet"
    for path in (old, young):
        path.write_bytes(b"left behind")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    (shown,) = frazil("maintain", "shop.events", "--only", "orphans", "--dry-run", "--json").json["tables"]
    assert [Path(path).name for path in shown["orphans"]] == ["old.parquet"]
    assert old.exists()
    assert frazil("maintain", "shop.events", "--only", "orphans").code == 0
    assert (old.exists(), young.exists(), looked_at(frazil)["rows"]) == (False, True, 10)


def test_what_is_refused(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=10)
    wrong = frazil("maintain", "load", "--only", "compct")
    assert (wrong.code, "compact" in wrong.err) == (2, True)
    missing = frazil("maintain", "load")
    assert (missing.code, "There is no table shop.events" in missing.err) == (1, True)
    assert frazil("maintain", "lod").code == 2


def test_files_that_may_belong_to_other_tables_stay(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "write_properties: {gc.enabled: 'false'}", rows=10)
    assert frazil("run", "--once").code == 0
    refused = frazil("maintain", "load")
    assert (refused.code, "gc.enabled=false" in refused.err) == (78, True)
