"""The lists of files to delete, which several processes keep: none loses what another has listed, or deletes it too early."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from exactly_once.ground import Ground, Recorded, sqlite_ground
from frazil.iceberg import disposal
from frazil.iceberg.jvm import Jvm
from frazil.model.events import TableMeasured
from frazil.write import maintenance
from helpers.lakes import doomed, is_list, let_all_be_due

PATIENT = {"small_files": 4, "max_snapshots": 3, "reader_grace_minutes": 60, "max_time_share": 1}
HOUR_MS = 3_600_000


@pytest.fixture
def ground(spark: SparkSession, tmp_path: Path) -> Ground:
    return sqlite_ground(spark, tmp_path)


def writer(ground: Ground, name: str) -> Recorded:
    found = ground.writer(f"{name}/lake", maintenance=PATIENT)
    found.open()
    return found


def folder(ground: Ground) -> Path:
    return Path(urlsplit(ground.table().location()).path)


def settle_down(*writers: Recorded) -> None:
    """Waits for what is deleted in the background."""
    for one in writers:
        if (deleting := one.writer._upkeep._deleting) is not None:
            deleting.result(60)


def write(batches: range, *writers: Recorded) -> None:
    """One batch after the other, each by all writers."""
    for number in batches:
        for one in writers:
            one.write(number * 10, number * 10 + 10)
            settle_down(one)


def test_two_sinks_of_a_table_keep_each_others_lists(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disposal, "MOST_LISTS", 3)
    one, other = writer(ground, "one"), writer(ground, "other")
    write(range(2), one, other)
    # As an older version has left it.
    old = folder(ground) / "data" / "old.parquet"
    old.touch()
    before = folder(ground) / "metadata" / "frazil-expired.json"
    before.write_text(json.dumps({"version": 1, "files": [[4_102_444_800_000, str(old)]]}))
    ever: set[Path] = set()
    for number in range(2, 6):
        write(range(number, number + 1), one, other)
        ever |= set(doomed(folder(ground)))
    assert old in ever
    assert len(ever) > 8
    assert set(doomed(folder(ground))) == ever, "neither has lost what the other has listed"
    assert all(path.exists() for path in ever), "nothing was deleted early"
    assert not [failed for each in (one, other) for failed in each.failures if failed.kind == "upkeep"]

    before.write_text(json.dumps({"version": 1, "files": [[0, str(old)]]}))
    before.with_name(f".{before.name}.crc").unlink(missing_ok=True)
    let_all_be_due(folder(ground))
    third = writer(ground, "third")
    write(range(5), third)
    measured = [event.figures.files_to_delete for event in third.heard(TableMeasured)]
    assert not [path for path in ever if path.exists()], "a process deletes what is due on any list"
    assert not ever & set(doomed(folder(ground)))
    assert measured[-1] == len(doomed(folder(ground)))
    assert len([path for path in folder(ground).rglob("*.json") if is_list(path)]) <= 4


def test_a_clock_that_is_set_wrong_later_deletes_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = maintenance.now_ms
    one = writer(ground, "one")
    write(range(6), one)
    there = set(doomed(folder(ground)))
    assert there
    monkeypatch.setattr(maintenance, "now_ms", lambda: now_ms() + 48 * HOUR_MS)
    write(range(6, 11), one)
    assert [failed for failed in one.failures if "none is deleted" in failed.message]
    assert all(path.exists() for path in there)


@pytest.mark.slow(seconds=20)
def test_files_that_a_clock_behind_has_listed_are_kept_for_readers(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list says when it was written, and so does the store."""
    now_ms = maintenance.now_ms
    monkeypatch.setattr(maintenance, "now_ms", lambda: now_ms() - 48 * HOUR_MS)
    behind = writer(ground, "behind")
    write(range(9), behind)
    there = {path: due for path, due in doomed(folder(ground)).items() if path.suffix == ".parquet"}
    assert there
    assert max(there.values()) < now_ms() - 24 * HOUR_MS
    monkeypatch.undo()
    write(range(6), writer(ground, "right"))
    assert all(path.exists() for path in there)


@pytest.mark.slow(seconds=20)
def test_a_store_that_cannot_be_listed_has_one_list_that_is_read_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store of the tests can be listed: the answer is made up."""
    is_a = Jvm.is_a
    monkeypatch.setattr(Jvm, "is_a", lambda jvm, value, kind: kind != "io.SupportsPrefixOperations" and is_a(jvm, value, kind))
    one, other = writer(ground, "one"), writer(ground, "other")
    ever: set[Path] = set()
    for number in range(5):
        write(range(number, number + 1), one, other)
        ever |= set(doomed(folder(ground)))
    assert [path.name for path in folder(ground).rglob("*.json") if is_list(path)] == ["frazil-expired.json"]
    assert ever
    assert set(doomed(folder(ground))) == ever
    assert all(path.exists() for path in ever)
