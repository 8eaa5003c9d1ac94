"""`frazil plan` and `frazil run` with the real engine: what they print, how they end, and that a refusal writes nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli.commands import Frazil, everything_in, frazil_process, sql_pipeline, without_java
from cli.tables import sqlite_catalog

pytestmark = pytest.mark.usefixtures("spark")


def event_numbers(folder: Path) -> list[int]:
    """What another reader finds in the table."""
    scan = sqlite_catalog(folder).load_table("shop.events").scan(selected_fields=("event_number",))
    return sorted(scan.to_arrow()["event_number"].to_pylist())


def files_pipeline(folder: Path, rows: list[dict[str, object]], *options: str) -> Path:
    """A pipeline from a folder of JSON into the SQLite catalog."""
    (folder / "in").mkdir(exist_ok=True)
    number = len(list((folder / "in").iterdir()))
    (folder / "in" / f"{number}.json").write_text("\n".join(json.dumps(row) for row in rows))
    file = sql_pipeline(folder, *options)
    text = file.read_text().replace("connector: generator", "connector: files")
    file.write_text(text.replace("{rows: 1000, rows_per_second: 1000}", f"{{path: '{folder / 'in'}', format: json}}"))
    return file


def test_a_run_writes_and_a_second_one_goes_on(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "batch_size: 400", rows=1000)
    result = frazil("run", "--once", "--json")
    assert result.code == 0, result.err
    [total] = result.json["pipelines"]
    assert (total["pipeline"], total["table"], total["rows"], total["error"]) == ("load", "shop.events", 1000, None)
    assert total["batches"] == 3
    assert total["snapshot"] == frazil("status", "--json").json["pipelines"][0]["snapshot"]
    assert event_numbers(tmp_path) == list(range(1000))
    again = frazil("run", "--once")
    assert (again.code, again.err.count("batch_committed")) == (0, 0)
    assert "shop.events" in again.out
    assert event_numbers(tmp_path) == list(range(1000))


def test_the_file_may_stand_among_the_pipelines(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=10, name="other.yaml")
    assert frazil("run", "--once", "other.yaml", "load").code == 0
    assert event_numbers(tmp_path) == list(range(10))


def test_what_init_writes_runs_as_it_stands(frazil: Frazil) -> None:
    assert frazil("init").code == 0
    result = frazil("run", "--once", "--json")
    assert result.code == 0, result.text
    assert result.json["pipelines"][0]["rows"] == 20_000


def test_a_once_run_serves_only_what_the_file_asks_for(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path, rows=10)
    assert "http://" not in frazil("run", "--once").err
    file.write_text(file.read_text() + "settings: {metrics: {port: 0}}\n")
    err = frazil("run", "--once").err
    assert "metrics: http://127.0.0.1:" in err
    assert "health: http" not in err


def test_json_logs_are_json_from_the_first_line_to_the_last(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path, rows=10)
    file.write_text(file.read_text() + "settings: {metrics: {port: 0}, log_format: json}\n")
    result = frazil("run", "--once", "--json")
    events = [json.loads(line)["event"] for line in result.err.splitlines()]
    assert events == ["serving", "starting", "pipeline_started", "batch_committed", "pipeline_stopped"]
    assert result.json["pipelines"][0]["rows"] == 10


def test_a_plan_tells_what_would_happen_and_changes_nothing(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "partition_by: [day(event_time)]", rows=500)
    before = everything_in(tmp_path)
    result = frazil("plan", "--json")
    assert result.code == 0, result.err
    [plan] = result.json["pipelines"]
    assert (plan["create_table"], plan["create_namespaces"], plan["partition"]) == (True, ["shop"], ["day(event_time)"])
    assert (plan["rows"], plan["start"], plan["epoch"]) == (500, None, 1)
    assert ("event_number", "long", "create") in [
        (column["name"], column["type"], column["change"]) for column in plan["columns"]
    ]
    text = frazil("plan").out
    assert all(word in text for word in ("create shop.events", "create shop", "day(event_time)", "the beginning", "500"))
    assert everything_in(tmp_path) == before
    assert frazil("run", "--once").code == 0
    after = everything_in(tmp_path)
    [plan] = frazil("plan", "--json").json["pipelines"]
    assert (plan["create_table"], plan["epoch"]) == (False, 2)
    assert json.loads(plan["start"])["row"] == 500
    assert "keep shop.events" in frazil("plan").out
    assert everything_in(tmp_path) == after


def test_a_plan_starts_no_java_where_there_are_no_rows_to_look_at(frazil: Frazil, tmp_path: Path) -> None:
    environment, started = without_java(tmp_path)
    file = sql_pipeline(tmp_path, "partition_by: [day(event_time)]", rows=50)
    new = frazil_process("plan", "--json", cwd=tmp_path, env=environment)
    assert new.code == 0, new.err
    [plan] = new.json["pipelines"]
    assert (plan["create_table"], len(plan["columns"]), plan["rows"]) == (True, 13, 50)
    assert frazil("run", "--once").code == 0
    file.write_text(file.read_text().replace("rows: 50", "rows: 60"))
    more = frazil_process("plan", "--json", cwd=tmp_path, env=environment)
    assert more.code == 0, more.err
    [plan] = more.json["pipelines"]
    assert ({c["change"] for c in plan["columns"]}, plan["rows"], json.loads(plan["start"])["row"]) == ({"keep"}, 10, 50)
    files_pipeline(tmp_path, [{"id": 1}], "id: from-files", "partition_by: [bucket(4, id)]")
    file.write_text(file.read_text().replace("table: events", "table: rows"))
    assert frazil("run", "--once").code == 0
    nothing_new = frazil_process("plan", "--json", cwd=tmp_path, env=environment)
    assert nothing_new.code == 0, nothing_new.err
    [plan] = nothing_new.json["pipelines"]
    assert (plan["notes"], plan["partition"]) == (["The source has nothing to read now."], ["bucket(4, id)"])
    assert not started.exists()


def test_a_plan_for_a_database_in_which_no_catalog_was_made_yet(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, rows=5)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute("create table somebody_elses (n integer)")
    before = everything_in(tmp_path)
    planned = frazil("plan", "--json")
    assert planned.code == 0, planned.err
    assert planned.json["pipelines"][0]["create_namespaces"] == ["shop"]
    assert everything_in(tmp_path) == before


def test_a_plan_shows_how_the_table_would_change(frazil: Frazil, tmp_path: Path) -> None:
    schema = "schema: {id: int, mail: string, old: string, item: 'struct<a: int>'}"
    row = {"id": 1, "mail": "a", "old": "x", "item": {"a": 1}}
    files_pipeline(tmp_path, [row], schema, "partition_by: ['bucket(4, id)']")
    assert frazil("run", "--once").code == 0
    evolving = ("schema_evolution: full", "aliases: {email: mail}", "dropped_columns: hard", "partition_by: ['bucket(8, id)']")
    files_pipeline(tmp_path, [{"id": 2**40, "email": "b", "item": {"a": 2**40, "b": "B"}, "more": 1.5}], *evolving)
    before = everything_in(tmp_path)
    result = frazil("plan", "--json")
    assert result.code == 0, result.err
    [plan] = result.json["pipelines"]
    changes = {c["name"]: (c["type"], c["change"], c["old_name"], c["old_type"]) for c in plan["columns"]}
    assert changes == {
        "id": ("long", "widen", None, "int"),
        "email": ("string", "rename", "mail", None),
        "item": ("struct<a: long, b: string>", "keep", None, None),
        "more": ("double", "add", None, None),
        "item.a": ("long", "widen", None, "int"),
        "item.b": ("string", "add", None, None),
        "old": ("string", "drop", None, None),
    }
    assert (plan["partition"], plan["old_partition"]) == (["bucket(8, id)"], ["bucket(4, id)"])
    lines = [" ".join(line.split()) for line in frazil("plan").out.splitlines()]
    for line in ("table change shop.events", "id long widen was int", "email string rename was mail", "old string drop"):
        assert line in lines
    assert "partitioned by bucket(8, id) (change; what is in the table stays by bucket(4, id))" in lines
    assert everything_in(tmp_path) == before
    assert frazil("run", "--once").code == 0
    fields = sqlite_catalog(tmp_path).load_table("shop.events").schema().fields
    assert [(field.name, str(field.field_type)) for field in fields[:2]] == [("id", "long"), ("email", "string")]
    [plan] = frazil("plan", "--json").json["pipelines"]
    assert ({c["change"] for c in plan["columns"]}, plan["old_partition"]) == ({"keep"}, None)


def test_a_catalog_that_does_not_answer(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path)
    lines = ["rest: {uri: 'http://127.0.0.1:9'}" if "sql: {" in line else line for line in file.read_text().splitlines()]
    text = "\n".join(line.replace("type: sql", "type: rest") for line in lines).replace("rest: {uri", "        rest: {uri")
    file.write_text(text + "\nsettings: {retry: {max_retries: 1, initial_backoff_ms: 1}}\n")
    for command in (("run", "--once"), ("plan",)):
        result = frazil(*command)
        assert result.code == 75, result.err
        assert "Failed to connect to catalog at http://127.0.0.1:9" in result.err
        assert "Traceback" not in result.err


def test_a_missing_table_that_may_not_be_made(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "auto_create_table: false")
    result = frazil("run", "--once")
    assert result.code == 78, result.err
    assert "Table shop.events does not exist and auto_create_table is disabled" in result.err
    assert not (tmp_path / "warehouse").exists()


def test_a_source_folder_that_does_not_exist(frazil: Frazil, tmp_path: Path) -> None:
    file = files_pipeline(tmp_path, [])
    file.write_text(file.read_text().replace(str(tmp_path / "in"), str(tmp_path / "nowhere")))
    result = frazil("run", "--once")
    assert result.code == 78, result.err
    assert "nowhere" in result.err
    assert not (tmp_path / "warehouse").exists()


def test_a_transform_that_does_not_fit_its_column(frazil: Frazil, tmp_path: Path) -> None:
    sql_pipeline(tmp_path, "partition_by: [day(country)]")
    for command in (("plan",), ("run", "--once")):
        result = frazil(*command)
        assert result.code == 78, result.err
        assert "day(country) cannot be applied" in result.err
    assert not (tmp_path / "warehouse").exists()


def test_a_table_of_another_shape_in_strict_mode(frazil: Frazil, tmp_path: Path) -> None:
    files_pipeline(tmp_path, [{"id": 1}], "schema_evolution: strict")
    assert frazil("run", "--once").code == 0
    files_pipeline(tmp_path, [{"id": 2, "surprise": "x"}], "schema_evolution: strict")
    before = sqlite_catalog(tmp_path).load_table("shop.events")
    result = frazil("run", "--once")
    assert result.code == 1, result.err
    assert "Schema evolution not allowed in strict mode" in result.err
    after = sqlite_catalog(tmp_path).load_table("shop.events")
    assert after.schema() == before.schema()
    assert after.scan().to_arrow()["id"].to_pylist() == [1]


def test_a_store_that_may_not_be_written(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path)
    # Not even the superuser may write there.
    file.write_text(file.read_text().replace(f"{tmp_path}/warehouse", "/proc/warehouse"))
    result = frazil("run", "--once")
    # As for any store that cannot be used now: the operator mends it, and the same command goes on.
    assert result.code == 75, result.err
    assert "[warehouse-not-writable]" in result.err
    assert "/proc/warehouse" in result.err
    assert "Traceback" not in result.err


def test_each_that_fails_is_reported(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path, rows=50)
    names = ("one", "two")
    sinks = "".join(f"  {name}:\n    connector: iceberg\n    config: {lost_config(tmp_path, name)}\n" for name in names)
    pipelines = "".join(f"  {name}: {{source: numbers, sink: {name}}}\n" for name in names)
    file.write_text(file.read_text().replace("\npipelines:\n", f"\n{sinks}pipelines:\n{pipelines}"))
    result = frazil("run", "--once")
    assert result.code == 78
    for name in names:
        assert f"Table shop.{name} does not exist and auto_create_table is disabled" in result.err
    assert len(frazil("run", "--once", "--json").json["errors"]) == 2


def lost_config(folder: Path, table: str) -> str:
    catalog = f"{{type: sql, sql: {{uri: 'sqlite:///{folder}/catalog.db', warehouse: '{folder}/warehouse'}}}}"
    return f"{{catalog: {catalog}, namespace: shop, table: {table}, auto_create_table: false}}"


def test_one_that_fails_does_not_hide_the_other_in_json(frazil: Frazil, tmp_path: Path) -> None:
    file = sql_pipeline(tmp_path, rows=50)
    text = file.read_text().replace("pipelines:\n", "pipelines:\n  lost: {source: numbers, sink: strict}\n")
    sink = f"  strict:\n    connector: iceberg\n    config: {lost_config(tmp_path, 'lost')}\n"
    file.write_text(text.replace("\npipelines:", f"\n{sink}pipelines:"))
    result = frazil("run", "--once", "--json")
    assert result.code == 78
    assert result.json["error"]["message"] == "Table shop.lost does not exist and auto_create_table is disabled"
    assert {total["pipeline"]: total["rows"] for total in result.json["pipelines"]} == {"load": 50, "lost": 0}


@pytest.mark.parametrize(
    ("config", "passes"),
    [
        ("connector: query\n    config: {query: 'select 1 as id'}", True),
        ("connector: query\n    config: {query: 'selekt 1'}", False),
        ("connector: table\n    config: {table: lake.shop.nothing}", False),
    ],
    ids=["query", "wrong query", "missing table"],
)
def test_check_looks_at_tables_and_queries_with_spark(frazil: Frazil, tmp_path: Path, config: str, passes: bool) -> None:
    file = sql_pipeline(tmp_path)
    old = "connector: generator\n    config: {rows: 1000, rows_per_second: 1000}"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, config))
    result = frazil("check", "--source", "numbers", "--json")
    assert result.json["ok"] is passes
    assert (result.code == 0) is passes
    assert "Traceback" not in result.text


def test_a_hadoop_table_is_looked_at_without_spark(frazil: Frazil, tmp_path: Path, spark: SparkSession) -> None:
    file = sql_pipeline(tmp_path, "batch_size: 100", rows=300)
    lines = [line for line in file.read_text().splitlines() if "sql: {" not in line]
    file.write_text("\n".join(lines).replace("type: sql", f"type: hadoop\n        warehouse: '{tmp_path}/warehouse'"))
    assert frazil("run", "--once").code == 0
    [pipeline] = frazil("status", "--json").json["pipelines"]
    assert (pipeline["rows"], pipeline["batch"], pipeline["position"]["row"]) == (300, 3, 300)
    (tmp_path / "warehouse" / "shop" / "events" / "metadata" / "version-hint.text").unlink()
    [found] = frazil("inspect", "--json").json["tables"]
    assert found["rows"] == 300
    assert found["metadata_location"].endswith(f"v{found['snapshot_count'] + 1}.metadata.json")
    assert frazil("check", "--json").json["ok"] is True
