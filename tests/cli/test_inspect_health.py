"""The health that `frazil inspect` reads without Spark is what `frazil maintain` finds with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import Frazil
from helpers.lakes import Lake

UNTENDED = {"enabled": False, "max_snapshots": 4, "reader_grace_minutes": 0}
# The names of what both say.
SAME = {
    "settle_deletes": "would_settle_deletes",
    "merge_files": "would_merge_files",
    "merge_files_after": "would_merge_into",
    "merge_bytes": "would_rewrite_bytes",
    "rewrite_manifests": "would_rewrite_manifests",
    "write_statistics": "would_write_statistics",
    "expire_snapshots": "would_expire_snapshots",
    "delete_files": "would_delete_files",
    "read_amplification": "read_amplification",
    "read_amplification_after": "read_amplification_after",
    "manifests_opened": "manifests_opened",
    "manifests_opened_after": "manifests_opened_after",
}


@pytest.fixture(params=[2, 3], ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def compared(lake: Lake, frazil: Frazil, **maintenance: Any) -> dict[str, Any]:
    """The health of the lake's table, after it was compared with what maintenance finds."""
    config = {"catalog": lake.catalog, "namespace": "db", "table": "t", "maintenance": UNTENDED | maintenance}
    file = lake.folder / "frazil.yaml"
    file.write_text(json.dumps({"version": "1.0", "sinks": {"lake": {"connector": "iceberg", "config": config}}}))
    (found,) = frazil("inspect", "db.t", "-c", file, "--json").json["tables"]
    (planned,) = frazil("maintain", "db.t", "-c", file, "--dry-run", "--json").json["tables"]
    health: dict[str, Any] = found["health"]
    assert {name: health[other] for name, other in SAME.items()} == {name: planned[name] for name in SAME}
    return health


def shown(lake: Lake, frazil: Frazil) -> str:
    return frazil("inspect", "db.t", "-c", lake.folder / "frazil.yaml").out


def maintained(lake: Lake, frazil: Frazil, *arguments: str | Path) -> str:
    done = frazil("maintain", "db.t", "-c", lake.folder / "frazil.yaml", *arguments)
    assert done.code == 0, done.text
    return done.err


def test_deletes_of_every_kind(lake: Lake, frazil: Frazil, version: int) -> None:
    """A file is as large as the table wants it, and most of its rows are deleted; others have equality deletes."""
    given = {"commit_mode": "upsert", "key_fields": ["id"], "upsert_strategy": "equality_delete", "format_version": version}
    given |= {"maintenance": UNTENDED, "max_equality_deletes": None, "write_properties": {"write.delete.mode": "merge-on-read"}}
    lake.sink("select id, uuid() v from range(0, 2000, 1, 1)", **given).write()
    size = max(path.stat().st_size for path in lake.files())
    name = f"{lake.name}.db.t"
    lake.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.target-file-size-bytes' = '{size}')")
    health = compared(lake, frazil)
    assert (health["small_files"], health["mostly_deleted_files"], health["would_merge_files"]) == (0, 0, 0)
    lake.spark.sql(f"DELETE FROM {name} WHERE id >= 500 AND id < 1000")
    health = compared(lake, frazil)
    assert (health["position_deletes"], health["mostly_deleted_files"]) == (500, 0), "a quarter is not enough"
    lake.spark.sql(f"DELETE FROM {name} WHERE id >= 1000 AND id < 1500")
    lake.sink("select id, 'new' v from range(2)", **given).write()
    health = compared(lake, frazil, statistics=True)
    assert (health["mostly_deleted_files"], health["would_merge_files"], health["would_settle_deletes"]) == (1, 2, 2)
    assert health["would_write_statistics"]
    text = shown(lake, frazil)
    words = ("1 large and mostly deleted", "settle 2 equality deletes", "merge 2 files into", "count the values", "orphan files")
    assert [one for one in words if one not in text] == []
    said = maintained(lake, frazil, "--only", "settle,compact")
    assert all(words in said for words in ("settle ...", "2 deletes by key became", "compact ...", "compact took")), said
    health = compared(lake, frazil)
    assert (health["delete_files"], health["mostly_deleted_files"], health["would_settle_deletes"]) == (0, 0, 0)
    assert lake.count() == 1000


def test_manifests_and_files_of_expired_snapshots(lake: Lake, frazil: Frazil) -> None:
    properties = {"commit.manifest-merge.enabled": "false", "commit.manifest.target-size-bytes": "9000"}
    for batch in range(6):
        query = f"select id + {batch * 8} id, id % 8 p from range(8)"
        lake.sink(query, partition_by=["p"], maintenance=UNTENDED, write_properties=properties).write()
    health = compared(lake, frazil)
    assert health["would_rewrite_manifests"] == 6
    assert health["manifests_opened"] > health["manifests_opened_after"]
    assert health["would_expire_snapshots"] > 0
    assert (health["files_to_delete"], health["would_delete_files"]) == (0, 0)
    text = shown(lake, frazil)
    assert all(words in text for words in ("rewrite 6 manifests", "how many files only the snapshots need"))
    maintained(lake, frazil, "--only", "manifests,expire")
    health = compared(lake, frazil)
    assert health["would_rewrite_manifests"] == 0
    assert health["files_to_delete"] == health["would_delete_files"] > 0
    assert f"delete {health['would_delete_files']} files of expired snapshots" in shown(lake, frazil)
    assert "delete took" in maintained(lake, frazil, "--only", "delete")
    assert compared(lake, frazil)["files_to_delete"] == 0
