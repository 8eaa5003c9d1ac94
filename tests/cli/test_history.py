"""A history of a table's changes by `frazil run`, and what `frazil verify` says of it while it is right, and when it is not."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cli.commands import Frazil
from helpers.children import write_project
from helpers.lakes import Lake, sqlite_lake


def changed(lake: Lake, values: str) -> None:
    """One snapshot of the source's table."""
    query = f"select cast(id as long) id, cast(name as string) name, op from values {values} t(id, name, op)"
    lake.sink(query, "db.people", commit_mode="upsert", key_fields=["id"], op_field="op").write()


def project(lake: Lake) -> dict[str, object]:
    """A pipeline from the changes of that table into its history, one of whose columns has another name."""
    history = {"type": "scd2", "current": "latest"}
    sink = {"catalog": lake.catalog, "namespace": "db", "table": "past", "commit_mode": "upsert", "history": history}
    return {
        "sources": {"people": {"connector": "table", "config": {"table": f"{lake.name}.db.people", "changes": True}}},
        "sinks": {"past": {"connector": "iceberg", "config": sink}},
        "pipelines": {"follow": {"source": "people", "sink": "past"}},
    }


def test_a_history_is_made_and_verified(frazil: Frazil, spark: SparkSession, tmp_path: Path) -> None:
    lake = sqlite_lake(spark, tmp_path).introduced()
    changed(lake, "(1, 'Ada', 'c'), (2, 'Bob', 'c')")
    file = write_project(tmp_path, project(lake))
    assert frazil("run", "--once", "-c", file).code == 0
    for values in ("(1, 'Eve', 'u')", "(1, 'Eva', 'u'), (2, null, 'd')", "(2, 'Bob', 'c'), (3, 'Cid', 'c')"):
        changed(lake, values)
    lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files(table => 'db.people', options => map('rewrite-all', 'true'))")
    changed(lake, "(3, null, 'd')")
    assert frazil("run", "--once", "-c", file).code == 0
    rows = lake.table("db.past").orderBy("id", "valid_from").collect()
    assert [(row.id, row.name, row.operation, row.latest) for row in rows] == [
        (1, "Ada", "insert", False),
        (1, "Eve", "update", False),
        (1, "Eva", "update", True),
        (2, "Bob", "insert", False),
        (2, "Bob", "delete", False),
        (2, "Bob", "insert", True),
        (3, "Cid", "insert", False),
        (3, "Cid", "delete", False),
    ]
    assert [row.valid_to for row in rows[:2]] == [row.valid_from for row in rows[1:3]]
    moments = {row.committed_at for row in lake.data_snapshots("db.people")}
    assert {row.valid_from for row in rows} == moments
    verified = frazil("verify", "--values", "--json", "-c", file)
    assert (verified.code, verified.json["pipelines"][0]["findings"], verified.json["pipelines"][0]["notes"]) == (0, [], [])
    assert verified.json["pipelines"][0]["compared"] == ["db.past"]
    assert frazil("verify", "-c", file).code == 0

    past = f"{lake.name}.db.past"
    spark.sql(f"DELETE FROM {past} WHERE id = 2 AND operation = 'delete'")
    spark.sql(f"UPDATE {past} SET valid_to = null, operation = 'insert' WHERE name IN ('Ada', 'Eve')")
    spark.sql(f"UPDATE {past} SET latest = true, valid_to = valid_from + interval 1 day WHERE id = 3 AND operation = 'delete'")
    verified = frazil("verify", "--json", "-c", file)
    assert verified.code == 1
    problems = [one["problem"].partition(", for example ")[0] for one in verified.json["pipelines"][0]["findings"]]
    assert problems == [
        "2 versions are valid beyond the beginning of the next one",
        "1 versions end before the next one begins, and no delete says that the row was gone",
        "1 versions are of deletes, and valid for some time",
        "1 versions say wrongly in latest whether they are the current one",
        "2 versions say in operation what was not done",
        "it holds 3 rows, and " + f"{lake.name}.db.people has 2",
    ]
    spark.sql(f"UPDATE {past} SET name = 'Ida' WHERE name = 'Eva'")
    spark.sql(f"UPDATE {past} SET latest = false WHERE id = 3")
    assert "1 rows have other values" in frazil("verify", "--values", "-c", file).text
