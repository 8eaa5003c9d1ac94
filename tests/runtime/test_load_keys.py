"""Whether the keys of a load's files differ, found out without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from frazil.runtime import load_keys
from frazil.runtime.load_keys import keys_differ


def files(folder: Path, *tables: dict[str, Any]) -> list[str]:
    paths = [folder / f"{n}.parquet" for n in range(len(tables))]
    for path, columns in zip(paths, tables, strict=True):
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("tables", "key", "differ"),
    [
        ([{"id": [1, 2, 3]}], ["id"], True),
        ([{"id": [1, 2, 1]}], ["id"], False),
        ([{"id": [1, 2]}, {"id": [3]}], ["id"], True),
        ([{"id": [1, 2]}, {"id": [2]}], ["id"], False),
        ([{"id": [None, None, 1]}], ["id"], False),
        ([{"id": [1, 1], "day": ["a", "b"]}], ["id", "day"], True),
        ([{"id": [1, 1], "day": ["a", "a"]}], ["id", "day"], False),
        ([{"id": [{"a": 1}, {"a": 2}]}], ["id"], False),  # what cannot be compared is left to Spark
        ([{"id": [1]}, {"id": ["2"]}], ["id"], False),
        ([{"id": [1]}, {"other": [2]}], ["id"], False),
        ([{"a.b": [1, 2]}], ["a.b"], False),
        ([{"id": [1]}], [], False),
        ([], ["id"], False),
    ],
)
def test_keys_that_come_once_are_known_and_all_else_is_left_to_spark(
    tmp_path: Path, tables: list[dict[str, Any]], key: list[str], differ: bool
) -> None:
    assert keys_differ(files(tmp_path, *tables), key) is differ


@pytest.mark.parametrize("bound", ["MOST_ROWS", "MOST_BYTES"])
def test_more_keys_than_memory_is_spent_on_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    made = files(tmp_path, {"id": [1, 2, 3]})
    monkeypatch.setattr(load_keys, bound, 2)
    assert not keys_differ(made, ["id"])
