"""Pipelines that read folders of files."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import frazil
from frazil.model.events import Event, Restarting, SourceFailed
from helpers.lakes import Lake, commits, run

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


def test_a_file_that_spark_cannot_read_stops_at_once_or_is_one_dead_letter(lake: Lake, folder: Path) -> None:
    write = pyarrow.parquet.write_table
    write(pyarrow.table({"id": [1, 2]}), folder / "good.parquet")
    write(pyarrow.table({"id": [3], "at": pyarrow.array([dt.time(1, 2)])}), folder / "odd.parquet")
    source = {"connector": "files", "path": str(folder), "format": "parquet"}
    events: list[Event] = []
    with pytest.raises(
        frazil.DataError, match=r"odd\.parquet cannot be read as parquet: .*'at', which is of type TIME"
    ) as caught:
        run(lake.pipeline(source), once=True, events=events)
    assert caught.value.code == "file-unreadable"
    assert not any(isinstance(event, Restarting | SourceFailed) for event in events)
    run(lake.pipeline(source, on_error="dead_letter"), once=True)
    assert lake.rows("id") == [(1,), (2,)]
    ((stage, code, at, raw),) = lake.rows("stage, code, at, cast(raw as string)", "db.t__dead_letters")
    uri = f"file:{folder}/odd.parquet"
    assert (stage, code, json.loads(at), raw) == ("decode", "file-unreadable", {"file": uri}, uri)
    # A batch with nothing else in it.
    write(pyarrow.table({"id": [4], "at": pyarrow.array([dt.time(1, 2)])}), folder / "odder.parquet")
    run(lake.pipeline(source, on_error="dead_letter"), once=True)
    assert (lake.count(), lake.count("db.t__dead_letters")) == (2, 2)


@pytest.mark.slow
def test_files_of_other_types_than_declared_stop_or_are_a_dead_letter_each(lake: Lake, folder: Path) -> None:
    write = pyarrow.parquet.write_table
    write(pyarrow.table({"id": [1, 2]}), folder / "a.parquet")
    write(pyarrow.table({"id": ["x"]}), folder / "b.parquet")
    write(pyarrow.table({"id": [3]}), folder / "c.parquet")
    (folder / "d.parquet").write_text("just text, and enough of it")
    write(pyarrow.table({"id": pyarrow.array([4.5])}), folder / "e.parquet")
    source = {"connector": "files", "path": str(folder), "format": "parquet", "schema": {"id": "long"}}
    with pytest.raises(frazil.DataError, match=r"[bde]\.parquet cannot be read as parquet"):
        run(lake.pipeline(source), once=True)
    run(lake.pipeline(source, on_error="dead_letter"), once=True)
    assert sorted(lake.rows("id")) == [(1,), (2,), (3,)]
    letters = lake.rows("cast(raw as string), error", "db.t__dead_letters")
    assert {raw.rpartition("/")[2]: "of type BINARY, and not bigint" in message for raw, message in letters} == {
        "b.parquet": True,
        "d.parquet": False,
        "e.parquet": False,
    }
    # The next batch is read as a whole again.
    write(pyarrow.table({"id": [5]}), folder / "f.parquet")
    run(lake.pipeline(source, on_error="dead_letter"), once=True)
    assert (lake.count(), lake.count("db.t__dead_letters")) == (4, 3)
