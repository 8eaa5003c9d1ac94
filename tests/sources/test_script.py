"""The scripted source of `frazil.testing`, asked as a run asks it; and what is wrong with a script."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from frazil.columns.schema import data_columns
from frazil.errors import ConfigError
from frazil.model.commit import RowCounts
from frazil.model.events import Committed, Staged
from frazil.sources.base import Slice
from frazil.testing import ABORT, BATCH, DELETE, EOF, Aborted, ScriptedSource

STAGED = Staged("p", 1, 1, 1, 0.0)
COMMITTED = Committed("p", "t", 1, 1, RowCounts(1, 1), 1, 1, 0.0, 1, 0)


def rows(*ids: int) -> list[dict[str, int]]:
    return [{"id": number} for number in ids]


def batches(source: ScriptedSource, start: str | None = None, limit: int = 100) -> list[Slice]:
    """The batches of a run that begins there."""
    source.on(None)  # type: ignore[arg-type]
    found = []
    while (part := source.plan(start, limit)) is not None:
        found.append(part)
        start = part.end
    return found


def test_batches_end_at_marks_and_at_the_limit() -> None:
    source = ScriptedSource([*rows(1, 2, 3), BATCH(), *rows(4), BATCH(), BATCH(), *rows(5, 6)])
    found = batches(source, limit=2)
    assert [part.rows for part in found] == [2, 1, 1, 2]
    assert [part.full for part in found] == [True, True, True, False]
    assert source.finished(found[-1].end)
    assert not source.finished(found[0].end)
    again = source.between(found[0].end, found[2].end)
    assert again.rows == 2, "a slice may be read over marks"


def test_a_run_ends_at_an_eof_and_the_next_one_continues_after_it() -> None:
    source = ScriptedSource([EOF(), *rows(1, 2), EOF(), *rows(3)])
    assert batches(source) == []
    assert source.finished(None)
    assert source.total_rows(None) == 2
    (first,) = batches(source)
    assert source.finished(first.end)
    (second,) = batches(source, first.end)
    assert (first.rows, second.rows) == (2, 1)
    assert first.full, "the run comes to the mark itself"


def test_a_run_crashes_between_batches_once() -> None:
    source = ScriptedSource([*rows(1), ABORT(), *rows(2), ABORT()])
    source.on(None)  # type: ignore[arg-type]
    first = source.plan(None, 10)
    assert first is not None
    source.listen(STAGED)
    source.listen(COMMITTED)
    with pytest.raises(Aborted, match="its item 1 is ABORT"):
        source.plan(first.end, 10)
    with pytest.raises(Aborted, match="its item 3 is ABORT"):
        batches(source, first.end)
    assert [part.rows for part in batches(source)] == [1, 1]


@pytest.mark.parametrize(("moment", "before", "then"), [("staged", COMMITTED, STAGED), ("committed", STAGED, COMMITTED)])
def test_a_run_crashes_while_a_batch_is_written_once(moment: Any, before: Any, then: Any) -> None:
    source = ScriptedSource([*rows(1, 2), ABORT(moment), *rows(3)])
    source.on(None)  # type: ignore[arg-type]
    source.plan(None, 1)
    source.listen(then)  # not the batch before the mark
    source.plan(None, 10)
    source.listen(before)
    with pytest.raises(Aborted, match=moment):
        source.listen(then)
    source.on(None)  # type: ignore[arg-type]
    source.plan(None, 10)
    source.listen(then)
    assert [part.rows for part in batches(source)] == [2, 1]


def test_a_moment_that_never_came_is_not_passed_over() -> None:
    source = ScriptedSource([*rows(1), ABORT("staged")])
    with pytest.raises(Aborted):
        batches(source)


def test_another_object_is_another_source() -> None:
    script = rows(1)
    assert ScriptedSource(script).fingerprint != ScriptedSource(script).fingerprint


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        ([{"id": 1}, ABORT], {}, r"script\[1\].*neither a row nor a mark"),
        ([{"id": 1}, 7], {}, r"script\[1\]: 7 is neither a row nor a mark"),
        ([ABORT("staged"), {"id": 1}], {}, r"script\[0\].*about the rows before it, and there are none"),
        ([{"id": 1}, BATCH(), ABORT("committed")], {}, r"script\[2\].*there are none"),
        ([DELETE({"id": 1})], {}, r"script\[0\]: a DELETE needs a key"),
        ([{"id": 1}, {"name": "x"}], {"key": ["id"]}, r"script\[1\]: the row has no value in the key column 'id'"),
        ([{"id": 1}, {"id": "one"}], {}, "column 'id' have no common type"),
        ([{"id": 2**70}], {}, "column 'id' have no common type"),
        ([{"id": 1, "x": 1}], {"schema": pa.schema({"id": pa.int64()})}, "column 'x', which the schema lacks"),
    ],
)
def test_what_is_wrong_with_a_script_is_an_error_where_it_is_made(script: Any, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        ScriptedSource(script, **options)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_there_are_only_these_moments() -> None:
    with pytest.raises(ConfigError, match="no moment 'later'"):
        ABORT("later")  # type: ignore[arg-type]


def test_types_are_those_of_all_rows_and_columns_those_of_the_batch(spark: SparkSession) -> None:
    given = [{"id": 1, "price": None}, BATCH(), {"id": 2, "price": Decimal("1.25"), "at": {"place": "x", "tags": ["a"]}}]
    source = ScriptedSource(given)
    first, second = (source.on(spark).read(part) for part in batches(source))
    assert first.schema.simpleString() == "struct<id:bigint,price:decimal(3,2)>"
    assert second.schema.simpleString() == "struct<id:bigint,price:decimal(3,2),at:struct<place:string,tags:array<string>>>"
    assert second.toArrow().to_pylist() == [given[2]]


def test_declared_types_and_keys(spark: SparkSession) -> None:
    schema = pa.schema({"id": pa.int32(), "name": pa.string()})
    source = ScriptedSource([{"id": 1}, DELETE({"id": 1})], key=["id"], schema=schema)
    (part,) = batches(source)
    frame = source.on(spark).read(part)
    assert data_columns(frame) == ["id", "name"]
    assert [tuple(row) for row in frame.collect()] == [(1, None, "update", 0), (1, None, "delete", 1)]
