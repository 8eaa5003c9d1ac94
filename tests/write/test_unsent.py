"""Values that were not sent, since they did not change, under transforms: kept where they are only renamed, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import frazil
from helpers.lakes import Lake, run

MARK = "__unchanged"
FIRST = {"id": 1, "n": 1, "note": "long", "other": "x"}
LATER = {"id": 1, "n": 2, "note": MARK, "other": "y"}


def written(
    lake: Lake, folder: Path, *transforms: dict[str, Any], rows: tuple[Any, ...] = (FIRST, LATER), **options: Any
) -> None:
    """Each row is a batch of its own."""
    folder.mkdir(exist_ok=True)
    columns = {"id": "long", "n": "int", "note": "string", "other": "string"}
    source = {"connector": "files", "path": str(folder), "format": "json", "schema": columns}
    given = {"commit_mode": "upsert", "key_fields": ["id"], "unchanged_value": MARK, "batch_size": 1000, **options}
    for number, row in enumerate(rows):
        if not (file := folder / f"{number}.json").exists():
            file.write_text(json.dumps(row))
        run(lake.pipeline(source, transforms=transforms, **given), once=True)


RENAME = {"type": "rename_field", "from": "note", "to": "text"}


@pytest.mark.parametrize(
    ("transforms", "columns", "kept"),
    [
        ([RENAME], "text", "long"),
        ([{"type": "select", "expressions": ["id", "note as text", "other"]}], "text, other", "long|y"),
        ([{"type": "map_fields", "columns": {"id": "id", "text": "note", "other": "other"}}], "text, other", "long|y"),
        ([{"type": "select", "expressions": ["*", "upper(note) as loud"]}], "note, loud", "long|LONG"),
        ([{"type": "add_field", "field": "size", "expression": "length(note)"}], "note, size", "long|4"),
        ([{"type": "add_field", "field": "one", "value": 1}], "note, one", "long|1"),
        ([{"type": "add_field", "field": "next", "expression": "n + 1"}], "note, next", "long|3"),
        ([RENAME, {"type": "rename_field", "from": "text", "to": "words"}], "words", "long"),
        ([{"type": "where", "condition": "n > 0"}], "note", "long"),
    ],
    ids=str,
)
def test_what_is_made_from_them_alone_stays_as_it_is(
    lake: Lake, tmp_path: Path, transforms: list[dict[str, Any]], columns: str, kept: str
) -> None:
    written(lake, tmp_path / "in", *transforms)
    ((*values,),) = lake.rows(columns)
    assert "|".join(map(str, values)) == kept


def test_a_hash_stays_the_hash_of_the_value(lake: Lake, tmp_path: Path) -> None:
    written(lake, tmp_path / "in", {"type": "hash_field", "field": "note", "salt": "s" * 8}, rows=(FIRST,))
    before = lake.rows("note")
    written(lake, tmp_path / "in", {"type": "hash_field", "field": "note", "salt": "s" * 8})
    assert lake.rows("note, n") == [(*before[0], 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "transform",
    [
        {"type": "add_field", "field": "both", "expression": "concat(note, other)"},
        {"type": "select", "expressions": ["id", "n", "concat(other, note) as both"]},
        {"type": "where", "condition": "note <> ''"},
        {"type": "filter", "field": "note", "equals": "long"},
    ],
    ids=lambda one: one["type"],
)
def test_what_needs_others_too_cannot_be_known(lake: Lake, tmp_path: Path, transform: dict[str, Any]) -> None:
    with pytest.raises(frazil.DataError, match=f"{transform['type']} needs a value that the source did not send") as stopped:
        written(lake, tmp_path / "in", transform)
    assert stopped.value.code == "unchanged-needed"
    assert lake.rows("n") == [(1,)]
    written(lake, tmp_path / "in", transform, on_error="dead_letter")
    assert lake.rows("stage, code", "db.t__dead_letters") == [("transform", "unchanged-needed")]


@pytest.mark.slow
def test_an_earlier_name_is_followed(lake: Lake, tmp_path: Path) -> None:
    written(lake, tmp_path / "in", aliases={"text": "note"}, schema_evolution="full")
    assert lake.rows("n, text") == [(2, "long")]
