"""`frazil status` and `frazil inspect`: what a table tells, without Spark."""

from __future__ import annotations

import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from cli.commands import FRAZIL, Frazil, everything_in, sink_file, sql_pipeline
from cli.tables import add_rows, commit, make_table, sqlite_catalog
from frazil.model.commit import position, state_property


def test_a_pipeline_that_never_ran(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    result = frazil("status", "--json")
    [pipeline] = result.json["pipelines"]
    assert result.code == 0
    assert (pipeline["pipeline"], pipeline["table"], pipeline["table_exists"]) == ("load", "shop.events", False)
    assert [path.name for path in tmp_path.iterdir()] == ["frazil.yaml"]
    assert "the table does not exist yet" in frazil("status").out


def test_a_table_that_the_pipeline_never_wrote_to(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    add_rows(make_table(sqlite_catalog(tmp_path)), 7)
    [pipeline] = frazil("status", "--json").json["pipelines"]
    assert (pipeline["table_exists"], pipeline["rows"], pipeline["batch"]) == (True, 7, None)
    assert pipeline["hints"] == ["this pipeline has never committed to the table"]


def test_the_ledger_tells_how_far_a_pipeline_is(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path))
    commit(table, 1)
    state = commit(table, 2, ago_seconds=5)
    before = everything_in(tmp_path)
    result = frazil("status", "--json")
    [pipeline] = result.json["pipelines"]
    assert result.code == 0
    assert (pipeline["batch"], pipeline["epoch"], pipeline["instance"]) == (2, 3, "abc")
    assert pipeline["position"] == {"row": 20}
    assert (pipeline["rows"], pipeline["snapshots"], pipeline["snapshot"]) == (20, 2, state.snapshot)
    assert 5 <= pipeline["age_seconds"] < 60
    assert pipeline["hints"] == []
    text = frazil("status").out
    assert all(word in text for word in ("load", "shop.events", "s ago", '{"row":20}'))
    assert everything_in(tmp_path) == before


def test_an_old_commit_and_a_rolled_back_table_are_pointed_out(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path))
    first = commit(table, 1)
    commit(table, 2, ago_seconds=7200)
    table.manage_snapshots().create_branch(first.snapshot, "kept").commit()
    table.manage_snapshots().rollback_to_snapshot(first.snapshot).commit()
    hints = frazil("status", "--json").json["pipelines"][0]["hints"]
    assert len(hints) == 2
    assert "rolled back" in hints[0]
    assert "2 h ago" in hints[1]


def test_values_that_the_source_cannot_send_are_pointed_out(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path))
    state = commit(table, 1)
    lacking = replace(state, end=position({"row": 10, "unfilled": {"public.orders": ["c", "d"]}}))
    with table.transaction() as change:
        change.set_properties({state_property("load/lake"): lacking.to_json()})
    [hint] = frazil("status", "--json").json["pipelines"][0]["hints"]
    assert "rows of public.orders may lack values in c, d" in hint
    assert "Values that are not in the log" in frazil("status").out


def test_rows_of_another_catalog_name_are_not_seen(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    make_table(sqlite_catalog(tmp_path, name="other"))
    assert frazil("status", "--json").json["pipelines"][0]["table_exists"] is False


@pytest.mark.parametrize("text", ['{"v": 99}', "[]", "null", "no JSON", '{"v": 1}', '{"v": 1, "epoch": "one"}'])
def test_a_ledger_that_cannot_be_read_is_an_error_not_a_guess(frazil: Frazil, tmp_path: Path, text: str) -> None:
    sql_pipeline(tmp_path)
    make_table(sqlite_catalog(tmp_path), properties={state_property("load/lake"): text})
    for command in ("status", "inspect"):
        result = frazil(command, "--json")
        assert result.code == 1
        assert "ledger-unreadable" in result.out + result.err


def test_a_rollback_is_pointed_out_when_its_snapshot_has_expired(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path))
    first = commit(table, 1)
    second = commit(table, 2)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot).commit()
    table.maintenance.expire_snapshots().by_id(second.snapshot).commit()
    [hint] = frazil("status", "--json").json["pipelines"][0]["hints"]
    assert "rolled back" in hint


def test_a_catalog_that_does_not_answer_is_worth_another_try(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path)
    file.write_text(file.read_text().replace("pipelines:", "pipelines:\n  far: {source: numbers, sink: away}"))
    config = "{catalog: {type: rest, rest: {uri: 'http://127.0.0.1:9'}}, namespace: a, table: b}"
    sink = f"  away:\n    connector: iceberg\n    config: {config}\n"
    file.write_text(file.read_text().replace("\npipelines:", f"\n{sink}pipelines:"))
    result = frazil("status", "--json")
    assert result.code == 75
    by_name = {pipeline["pipeline"]: pipeline for pipeline in result.json["pipelines"]}
    assert by_name["far"]["error"]["message"].startswith("Failed to connect to catalog at http://127.0.0.1:9")
    assert by_name["load"]["error"] is None
    assert frazil("status", "load").code == 0


def test_a_memory_catalog_cannot_be_looked_at(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path)
    file.write_text(file.read_text().replace("type: sql", "type: memory").replace("sql: {", "x: {"))
    lines = [line for line in file.read_text().splitlines() if "x: {" not in line]
    file.write_text("\n".join(lines))
    result = frazil("status", "--json")
    assert (result.code, result.json["pipelines"][0]["error"]["code"]) == (78, "memory-catalog")


def test_inspect_shows_the_table_and_its_history(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path), properties={"s3.secret-access-key": "c4nary-in-the-mine", "owner": "shop"})
    for batch in (1, 2, 3):
        commit(table, batch)
    [found] = frazil("inspect", "load", "-n", "2", "--json").json["tables"]
    assert [(column["name"], column["type"], column["required"]) for column in found["columns"]] == [
        ("id", "long", True),
        ("name", "string", False),
    ]
    assert found["properties"] == {"s3.secret-access-key": "**********", "owner": "shop"}
    assert (found["rows"], found["snapshot_count"], found["format_version"]) == (30, 3, 2)
    assert [snapshot["frazil"]["frazil.batch"] for snapshot in found["snapshots"]] == ["3", "2"]
    assert [snapshot["current"] for snapshot in found["snapshots"]] == [True, False]
    assert found["ledgers"]["load/lake"]["batch"] == 3
    text = frazil("inspect", "shop.events").out
    assert "c4nary" not in text
    assert all(word in text for word in ("load/lake", "30 in 3 files", "required", "append", "the newest 3 of 3"))


def test_inspect_names_types_and_partitions_as_the_file_does(frazil: Frazil, tmp_path: Path) -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
    from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType, TimestamptzType

    product = StructType(NestedField(5, "name", StringType(), required=True), NestedField(6, "size", LongType()))
    columns = [
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "product", product),
        NestedField(4, "tags", ListType(7, StringType(), element_required=True)),
    ]
    partition = [
        PartitionField(2, 1000, DayTransform(), "at_day"),
        PartitionField(1, 1001, BucketTransform(16), "id_bucket_16"),
        PartitionField(1, 1002, IdentityTransform(), "id"),
    ]
    sql_pipeline(tmp_path)
    catalog = sqlite_catalog(tmp_path)
    catalog.create_namespace("shop")
    catalog.create_table("shop.events", Schema(*columns, identifier_field_ids=[1]), partition_spec=PartitionSpec(*partition))
    [found] = frazil("inspect", "--json").json["tables"]
    assert [column["type"] for column in found["columns"]] == [
        "long",
        "timestamptz",
        "struct<name: string, size: long>",
        "list<string>",
    ]
    assert found["partition"] == ["day(at)", "bucket(16, id)", "id"]
    assert found["identifier_fields"] == ["id"]


def test_inspect_finds_tables_that_no_pipeline_writes_to(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    make_table(sqlite_catalog(tmp_path), ("archive", "old", "events"))
    assert frazil("inspect", "archive.old.events", "--json").json["tables"][0]["name"] == "archive.old.events"
    missing = frazil("inspect", "archive.new.events")
    assert (missing.code, "There is no table archive.new.events" in missing.err) == (1, True)
    assert frazil("inspect", "nothing").code == 2


def test_inspect_of_a_file_without_pipelines(frazil: Frazil, tmp_path: Path) -> None:
    sink_file(tmp_path, f"{{type: sql, sql: {{uri: 'sqlite:///{tmp_path}/catalog.db', warehouse: '{tmp_path}/warehouse'}}}}")
    add_rows(make_table(sqlite_catalog(tmp_path)), 3)
    assert frazil("inspect", "--json").json["tables"][0]["rows"] == 3


@pytest.mark.parametrize("content", [b"not a database at all", b""])
def test_a_file_that_is_no_catalog(frazil: Frazil, tmp_path: Path, content: bytes) -> None:
    sql_pipeline(tmp_path)
    (tmp_path / "catalog.db").write_bytes(content)
    result = frazil("status", "--json")
    [pipeline] = result.json["pipelines"]
    if content:
        assert (result.code, pipeline["error"]["code"]) == (78, "not-a-catalog")
    else:
        assert (result.code, pipeline["table_exists"]) == (0, False)
    assert (tmp_path / "catalog.db").read_bytes() == content


def test_it_is_shown_again_until_it_is_stopped(tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    table = make_table(sqlite_catalog(tmp_path))
    commit(table, 1)
    with subprocess.Popen([FRAZIL, "status", "--watch", "0.5"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        wait_for_batch(watching.stdout, 1)
        commit(table, 2)
        wait_for_batch(watching.stdout, 2)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0


def wait_for_batch(stream: IO[str], batch: int) -> None:
    """Reads up to a line of the pipeline with this batch."""
    assert any(re.search(rf"load\s+shop\.events\s.* ago\s+{batch}\s", line) for line in stream)


def test_a_watch_prints_no_documents(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path)
    result = frazil("status", "--watch", "1", "--json")
    assert (result.code, "exclude each other" in result.text) == (2, True)
