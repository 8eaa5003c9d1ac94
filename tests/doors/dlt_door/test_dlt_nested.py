"""Nested tables: they belong to their root, whatever is refused, however the resource was loaded before, and whatever repeats."""

from __future__ import annotations

from typing import Any

import pytest
from dlt.common.schema.exceptions import SchemaCorruptedException
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_lakes import DltLake, loaded, resource

UPSERT: Any = {"write_disposition": {"disposition": "merge", "strategy": "upsert"}, "primary_key": "id"}
INSERT_ONLY: Any = {"write_disposition": {"disposition": "merge", "strategy": "insert-only"}, "primary_key": "id"}
DELETE_INSERT: Any = {"write_disposition": "merge", "primary_key": "id"}


def parts(lake: DltLake) -> list[tuple[Any, ...]]:
    """The nested rows, each with the id of the row that it belongs to."""
    roots = dict(lake.rows("t", "_dlt_id", "id"))
    return sorted((roots.get(parent, "nobody"), n) for parent, n in lake.rows("t__parts", "_dlt_parent_id", "n"))


def bits(lake: DltLake) -> list[tuple[Any, ...]]:
    """Those of the level below, each with the number of the row that it belongs to."""
    above = dict(lake.rows("t__parts", "_dlt_id", "n"))
    return sorted((above.get(parent, "nobody"), b) for parent, b in lake.rows("t__parts__bits", "_dlt_parent_id", "b"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "strict", "wrong"),
    [
        ("column-reserved", False, {"v": 2, "_pos": 1}),
        ("strict-casting", True, {"v": "2"}),
        ("value-not-convertible", False, {"v": "two"}),
    ],
)
def test_a_root_that_is_refused_leaves_no_nested_rows(lake: DltLake, code: str, strict: bool, wrong: dict[str, Any]) -> None:
    loaded(lake.pipeline().run(resource([{"id": 1, "v": 1, "parts": [{"n": 1}]}])))
    # Another pipeline, which knows nothing of the table.
    other = lake.pipeline("other", strict_casting=strict)
    with pytest.raises(PipelineStepFailed, match=rf"\[{code}\]"):
        other.run(resource([{"id": 2, "parts": [{"n": 2}], **wrong}]))
    assert (lake.rows("t", "id"), parts(lake)) == ([(1,)], [(1, 1)])
    corrected = lake.pipeline("corrected")
    loaded(corrected.run(resource([{"id": 2, "v": 2, "parts": [{"n": 2}]}])))
    assert (lake.rows("t", "id"), parts(lake)) == ([(1,), (2,)], [(1, 1), (2, 2)])


@pytest.mark.slow
@pytest.mark.parametrize("hints", [DELETE_INSERT, UPSERT], ids=["delete-insert", "upsert"])
def test_rows_that_were_appended_are_replaced_with_their_root(lake: DltLake, hints: Any) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 1}]}, {"id": 2, "parts": [{"n": 2}]}])))
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 10}]}], **hints)))
    assert parts(lake) == [(1, 10), (2, 2)]
    loaded(pipeline.run(resource([{"id": 1}], **hints)))
    assert parts(lake) == [(2, 2)]


@pytest.mark.slow
def test_rows_of_deeper_levels_that_were_appended_stop_a_merge(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 1, "bits": [{"b": 1}]}]}])))
    changed = [{"id": 1, "parts": [{"n": 2, "bits": [{"b": 2}]}]}]
    with pytest.raises(PipelineStepFailed, match=r"'_dlt_root_id'.*\n.*drop_resources.*\[nested-without-root\]"):
        pipeline.run(resource(changed, **DELETE_INSERT))
    assert (parts(lake), bits(lake)) == ([(1, 1)], [(1, 1)])
    pipeline.abort_packages()
    loaded(pipeline.run(resource(changed, **DELETE_INSERT), refresh="drop_resources"))
    assert (parts(lake), bits(lake)) == ([(1, 2)], [(2, 2)])
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 3}]}], **DELETE_INSERT)))
    assert (parts(lake), bits(lake)) == ([(1, 3)], [])


@pytest.mark.slow
def test_a_resource_that_was_appended_to_takes_new_keys_with_all_that_is_nested(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 1, "bits": [{"b": 1}]}]}])))
    more = [{"id": n, "gone": n == 3, "parts": [{"n": n * 10, "bits": [{"b": n * 10}]}]} for n in (1, 2, 3)]
    columns = {"gone": {"hard_delete": True, "data_type": "bool"}}
    for _ in range(2):
        loaded(pipeline.run(resource(more, columns=columns, **INSERT_ONLY)))
        assert (parts(lake), bits(lake)) == ([(1, 1), (2, 20)], [(1, 1), (20, 20)])


@pytest.mark.slow
@pytest.mark.parametrize("hints", [UPSERT, INSERT_ONLY], ids=["upsert", "insert-only"])
@pytest.mark.parametrize(
    "twice",
    [
        [{"id": 1, "parts": [{"n": 1}, {"n": 2}]}, {"id": 1, "parts": [{"n": 3}]}],
        [{"id": 1, "parts": [{"n": 1}]}, {"id": 1}],
        [{"id": 1, "parts": [{"n": 1, "bits": [{"b": 1}]}]}, {"id": 1, "parts": [{"n": 1, "bits": [{"b": 2}]}]}],
    ],
    ids=["changed", "gone", "deeper"],
)
def test_rows_of_one_key_with_different_nested_rows_are_refused_where_these_share_names(
    lake: DltLake, hints: Any, twice: list[Any]
) -> None:
    pipeline = lake.pipeline()
    text = r"several rows with one key \(id = 1\).*\n.*delete-insert.*\[versions-mixed\]"
    with pytest.raises(PipelineStepFailed, match=text):
        pipeline.run(resource([{"id": 2, "parts": [{"n": 5}]}, *twice], **hints))
    assert (lake.rows("t", "id"), lake.rows("t__parts", "n")) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("hints", [UPSERT, INSERT_ONLY], ids=["upsert", "insert-only"])
def test_rows_of_one_key_with_the_same_nested_rows_or_none_that_count_are_one(lake: DltLake, hints: Any) -> None:
    whole = {"id": 1, "parts": [{"n": 1, "bits": [{"b": 1}, {"b": 2}]}, {"n": 2}]}
    ended = [{"id": 2, "parts": [{"n": 3}], "gone": False}, {"id": 2, "gone": True}]
    columns = {"gone": {"hard_delete": True, "data_type": "bool"}}
    loaded(lake.pipeline().run(resource([whole, whole, *ended, {"id": 3}, {"id": 3}], columns=columns, **hints)))
    assert lake.rows("t", "id") == [(1,), (3,)]
    assert (parts(lake), bits(lake)) == ([(1, 1), (1, 2)], [(1, 1), (1, 2)])


@pytest.mark.slow
@pytest.mark.parametrize("hints", [{}, INSERT_ONLY], ids=["append", "insert-only"])
def test_a_load_that_only_adds_leaves_tables_alone_that_it_has_no_rows_for(lake: DltLake, hints: Any) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "parts": [{"n": 1}]}], **hints)))
    before = len(lake.table("t__parts").snapshots())
    loaded(pipeline.run(resource([{"id": 2}], **hints)))
    assert lake.rows("t", "id") == [(1,), (2,)]
    assert len(lake.table("t__parts").snapshots()) == before


@pytest.mark.slow
def test_a_column_may_be_called_as_spark_calls_what_it_knows_of_files(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    for value in ("a", "b"):
        loaded(pipeline.run(resource([{"id": 1, "_metadata": value, "parts": [{"_metadata": value}]}], **UPSERT)))
    assert (lake.rows("t", "id", "_metadata"), lake.rows("t__parts", "_metadata")) == ([(1, "b")], [("b",)])


def test_a_nested_table_is_written_as_its_root_is(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    rows = [{"id": 1, "parts": [{"n": 1}]}]
    pipeline.extract(resource(rows, write_disposition="replace", nested_hints={"parts": {"write_disposition": "append"}}))
    pipeline.normalize()
    text = "Table 't__parts': its write_disposition is 'append', and that of 't'.* is 'replace'"
    with pipeline.destination_client() as client, pytest.raises(SchemaCorruptedException, match=text):
        client.verify_schema()
