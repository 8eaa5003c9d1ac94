"""The private copy that SQL changes: nothing of the table itself goes with it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.iceberg import WorkingCopy
from helpers.lakes import Lake

FORGETFUL = {"write.metadata.delete-after-commit.enabled": True, "write.metadata.previous-versions-max": 1}
UPSERT = {"commit_mode": "upsert", "key_fields": ["id"]}
BY_KEY = UPSERT | {"upsert_strategy": "equality_delete"}
MODES: dict[str, dict[str, Any]] = {
    "merge": UPSERT | {"upsert_strategy": "merge"},
    "settlement": BY_KEY | {"max_equality_deletes": 0},
    "compaction": BY_KEY | {"max_delete_files": 0},
    "overwrite": {"commit_mode": "overwrite", "overwrite_where": "id < 3"},
    "delete and insert": {"commit_mode": "delete_insert", "replace_by": ["id"], "readers": ["pyiceberg"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_forgets_its_past_keeps_what_it_has(lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg deletes metadata that is too old after each commit. Those to the copy are none that the table has had."""
    discard, seen = WorkingCopy.discard, []

    def opened_by_others(copy: WorkingCopy, original: Any) -> None:
        """Whoever opens the table while a batch is prepared, or after the process was killed there."""
        catalog = SqlCatalog(lake.name, uri=f"sqlite:///{lake.folder / 'catalog.db'}")
        seen.append(catalog.load_table("db.t"))
        catalog.engine.dispose()
        discard(copy, original)

    lake.sink("select id, 'old' v from range(6)", write_properties=FORGETFUL).write()
    monkeypatch.setattr(WorkingCopy, "discard", opened_by_others)
    for turn in range(2):
        lake.sink(f"select id, 'new{turn}' v from range(3)", **MODES[mode]).write()
    assert lake.rows() == [(n, "new1" if n < 3 else "old") for n in range(6)]
    assert seen, "the copy was used"
    assert len(list(lake.folder.rglob("*.metadata.json"))) == 2, "the newest and the one before it"


def test_what_cannot_be_cleared_away_is_reported_and_stops_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Stands for a store to which one may write and from which one may not delete: a superuser's folder is none."""

    def denied(_copy: WorkingCopy, _original: Any) -> None:
        raise PermissionError("s3:DeleteObject is denied")

    lake.sink("select id, 'old' v from range(6)").write()
    monkeypatch.setattr(WorkingCopy, "discard", denied)
    with caplog.at_level(logging.WARNING):
        lake.sink("select id, 'new' v from range(3)", **MODES["merge"]).write()
    assert lake.rows() == [(n, "new" if n < 3 else "old") for n in range(6)]
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["s3:DeleteObject is denied"]
