"""Pipelines that read folders of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.lakes import Lake, commits, run

NOON = 1_790_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


def test_of_files_with_the_same_time_the_last_by_name_wins(lake: Lake, folder: Path) -> None:
    for number in (3, 4):
        path = folder / f"part-{number:05}.json"
        path.write_text(f'{{"id":1,"n":{number}}}\n')
        os.utime(path, (NOON, NOON))
    source = {"connector": "files", "path": str(folder), "format": "json"}
    events = run(lake.pipeline(source, commit_mode="upsert", key_fields=["id"], order_by=["n"], batch_size=1), once=True)
    assert len(commits(events)) == 2
    assert lake.rows("id, n") == [(1, 4)]
