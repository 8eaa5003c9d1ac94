"""Every change of an Iceberg table between two of its snapshots, whoever made it, and in whatever way."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, Halted, KeyMissing
from frazil.model.source import TableSource
from frazil.sources.base import Lag
from sources.table.feed import Feed, Sql

KEYED = "CREATE TABLE {t} (id int NOT NULL, v string) USING iceberg TBLPROPERTIES ('format-version' = '%s', %s)"
MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")


def made(sql: Sql, *, version: int = 2, mode: str = "merge-on-read") -> None:
    """A table with the key `id`."""
    sql(KEYED % (version, ", ".join(f"'{name}' = '{mode}'" for name in MODES)))
    sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")


def compacted(sql: Sql) -> None:
    """All files are written anew."""
    sql("CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")


def head(spark: SparkSession, table: str) -> int:
    """The table's current snapshot."""
    row = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").first()
    assert row is not None
    return int(row.snapshot_id)


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        (3, "merge-on-read"),
        pytest.param(2, "merge-on-read", marks=pytest.mark.slow(seconds=20)),
        pytest.param(2, "copy-on-write", marks=pytest.mark.slow(seconds=20)),
    ],
)
def test_first_the_whole_table_then_every_change(spark: SparkSession, table: str, sql: Sql, version: int, mode: str) -> None:
    made(sql, version=version, mode=mode)
    feed = Feed(spark, table, images=True)
    assert feed.batch() is None, "an empty table has no snapshot"
    sql("INSERT INTO {t} SELECT cast(id AS int), 'a' FROM range(1, 6)")
    assert feed.batch() == [("insert", key, "a") for key in range(1, 6)]
    assert feed.batch() is None
    sql("INSERT INTO {t} VALUES (6, 'a')")
    sql("UPDATE {t} SET v = 'b' WHERE id = 2")
    sql("DELETE FROM {t} WHERE id = 3")
    sql(
        "MERGE INTO {t} USING (SELECT explode(array(4, 7)) AS id) s ON {t}.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'm')"
    )
    sql("UPDATE {t} SET id = 50 WHERE id = 5")
    compacted(sql)
    sql("DELETE FROM {t} WHERE id = 6")
    assert feed.batch() == sorted([
        ("before", 2, "a"), ("update", 2, "b"), ("before", 4, "a"), ("update", 4, "m"), ("insert", 7, "m"),
        ("delete", 3, "a"), ("delete", 5, "a"), ("insert", 50, "a"),
    ], key=repr)  # fmt: skip
    sql("DELETE FROM {t} WHERE true")
    sql("INSERT INTO {t} VALUES (1, 'a')")
    assert feed.batch() == [("delete", key, v) for key, v in ((2, "b"), (4, "m"), (50, "a"), (7, "m"))]
    assert not feed.source.finished(feed.ledger)


def test_only_what_was_changed_between_two_snapshots(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql)
    sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    first = head(spark, table)
    sql("UPDATE {t} SET v = 'b' WHERE id = 1")
    compacted(sql)
    sql("DELETE FROM {t} WHERE id = 2")
    last = head(spark, table)
    sql("INSERT INTO {t} VALUES (3, 'a')")
    feed = Feed(spark, table, after_snapshot=first, until_snapshot=last)
    assert feed.source.total_rows(None) is not None
    assert not feed.source.finished(None)
    assert feed.batch() == [("delete", 2, "a"), ("update", 1, "b")]
    assert (feed.batch(), feed.source.finished(feed.ledger)) == (None, True)
    assert Feed(spark, table, after_snapshot=last).batch() == [("insert", 3, "a")]
    until = Feed(spark, table, until_snapshot=first)
    assert (until.batch(), until.batch()) == ([("insert", 1, "a"), ("insert", 2, "a")], None)
    with pytest.raises(ConfigError, match="has no snapshot 7, which the source names as until_snapshot") as missing:
        Feed(spark, table, until_snapshot=7).batch()
    assert missing.value.code == "source-snapshot-missing"


def test_a_compaction_moves_on_without_rows(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql)
    sql("INSERT INTO {t} VALUES (1, 'a')")
    sql("INSERT INTO {t} VALUES (2, 'a')")
    feed = Feed(spark, table)
    feed.batch()
    compacted(sql)
    assert feed.source.total_rows(feed.ledger) == 0
    assert (feed.batch(), feed.batch()) == ([], None)
    compacted(sql)
    sql("DELETE FROM {t} WHERE id = 1")
    assert feed.batch() == [("delete", 1, "a")]


def test_a_slice_keeps_its_rows_and_takes_whole_snapshots(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql)
    sql("INSERT INTO {t} VALUES (0, 'a')")
    feed = Feed(spark, table)
    feed.batch()
    sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    sql("DELETE FROM {t} WHERE id = 0")
    part = feed.source.plan(feed.ledger, 2)
    assert part is not None
    assert (part.rows, part.full) == (3, True)
    sql("UPDATE {t} SET v = 'b'")
    assert feed.source.read(part).count() == 3
    assert feed.batch(2) == [("insert", key, "a") for key in (1, 2, 3)]
    assert feed.batch(2) == [("delete", 0, "a")]
    assert feed.batch(2) == [("update", key, "b") for key in (1, 2, 3)]


def test_only_files_that_differ_are_read(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql)
    sql("INSERT INTO {t} VALUES (1, 'a')")
    feed = Feed(spark, table)
    feed.batch()
    for row in spark.table(f"{table}.files").collect():
        Path(urlsplit(row.file_path).path).unlink()
    sql("INSERT INTO {t} VALUES (2, 'a'), (3, 'a')")
    sql("DELETE FROM {t} WHERE id = 3")
    assert feed.batch() == [("insert", 2, "a")]


def test_without_a_key_a_changed_row_is_a_delete_and_an_insert(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int, m map<string, int>, l array<string>) USING iceberg")
    sql("INSERT INTO {t} VALUES (1, map('a', 1), array('x')), (1, map('a', 1), array('x')), (2, NULL, array('x', NULL))")
    feed, by_id = Feed(spark, table), Feed(spark, table, key=["id"])
    assert feed.batch() == by_id.batch()
    sql("INSERT INTO {t} VALUES (1, map('a', 1), array('x'))")
    sql("UPDATE {t} SET l = array(NULL, 'x') WHERE id = 2")
    compacted(sql)
    assert feed.batch() == [
        ("delete", 2, None, ["x", None]), ("insert", 1, {"a": 1}, ["x"]), ("insert", 2, None, [None, "x"]),
    ]  # fmt: skip
    assert by_id.batch() == [("insert", 1, {"a": 1}, ["x"]), ("update", 2, None, [None, "x"])]


def test_a_table_that_was_rolled_back_has_the_difference_undone(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql, version=3)
    sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    before = head(spark, table)
    sql("DELETE FROM {t} WHERE id = 1")
    sql("UPDATE {t} SET v = 'b' WHERE id = 2")
    feed = Feed(spark, table)
    assert feed.batch() == [("insert", 2, "b"), ("insert", 3, "a")]
    sql(f"CALL {{catalog}}.system.rollback_to_snapshot('{{name}}', {before})")
    assert feed.source.total_rows(feed.ledger) is None
    assert feed.batch() == [("insert", 1, "a"), ("update", 2, "a")]


def test_columns_that_change_between_the_snapshots(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int NOT NULL, a string, b string) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    sql("ALTER TABLE {t} SET IDENTIFIER FIELDS id")
    sql("INSERT INTO {t} SELECT cast(id AS int), 'a', 'b' FROM range(3)")
    feed = Feed(spark, table)
    feed.batch()
    sql("ALTER TABLE {t} ADD COLUMN c int")
    sql("ALTER TABLE {t} RENAME COLUMN a TO a2")
    sql("ALTER TABLE {t} DROP COLUMN b")
    assert feed.batch() is None
    sql("UPDATE {t} SET c = 1 WHERE id = 1")
    compacted(sql)
    found = feed.read(1000)
    assert found is not None
    frame, rows = found
    assert [field.name for field in frame.schema if not field.name.startswith("__")] == ["id", "a2", "c"]
    assert [(row.id, row.a2, row.c) for row in rows] == [(1, "a", 1)]


def test_an_expired_snapshot_stops(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql)
    sql("INSERT INTO {t} VALUES (1, 'a')")
    feed = Feed(spark, table)
    feed.batch()
    sql("INSERT INTO {t} VALUES (2, 'a')")
    sql("CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2999-01-01 00:00:00')")
    with pytest.raises(Halted, match="has expired") as caught:
        feed.batch()
    assert caught.value.code == "source-snapshot-expired"
    assert "frazil reset" in caught.value.fix


def test_a_table_that_was_made_again_stops(spark: SparkSession, table: str, sql: Sql) -> None:
    for value in ("a", "b"):
        made(sql)
        sql(f"INSERT INTO {{t}} VALUES (1, '{value}')")
        if value == "a":
            feed = Feed(spark, table)
            feed.batch()
            sql("DROP TABLE {t} PURGE")
    with pytest.raises(Halted, match="made again") as caught:
        feed.batch()
    assert caught.value.code == "source-recreated"


def test_what_cannot_be_followed_is_said_by_check(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1)")
    with pytest.raises(KeyMissing, match="no column 'no'"):
        Feed(spark, table, key=["no"]).source.check()
    with pytest.raises(ConfigError, match="Spark knows no table") as missing:
        Feed(spark, f"{table}_no").source.check()
    assert missing.value.code == "source-missing"
    spark.range(1).createOrReplaceTempView("no_table")
    with pytest.raises(ConfigError, match="no Iceberg table") as other:
        Feed(spark, "no_table").source.check()
    assert other.value.code == "source-not-iceberg"
    with pytest.raises(Halted) as position:
        Feed(spark, table).source.plan('{"snapshot":1}', 1)
    assert position.value.code == "position-unknown"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"key_fields": "id"}, "without changes"),
        ({"changes": True, "key_fields": ["id", "id"]}, "a column twice"),
        ({"changes": True, "on_change": "ignore"}, "on_change has no meaning"),
    ],
)
def test_options_that_would_change_nothing_are_refused(option: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TableSource.model_validate({"table": "a.b.c", **option})


@pytest.mark.parametrize("option", [{"after_snapshot": 1}, {"until_snapshot": 1}, {"key_fields": "id"}])
def test_options_of_changes_are_refused_without_changes(option: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(option))} has no meaning without changes: true"):
        TableSource.model_validate({"table": "lake.shop.orders", **option})


def test_how_far_it_is_behind_is_known_in_rows_and_seconds(spark: SparkSession, table: str, sql: Sql) -> None:
    made(sql)
    feed = Feed(spark, table)
    assert feed.source.lag(None) == Lag(rows=0, seconds=0.0)
    sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    assert feed.source.lag(None) == Lag(rows=2)
    feed.batch()
    assert feed.source.lag(feed.ledger) == Lag(rows=0, seconds=0.0)
    compacted(sql)
    assert feed.source.lag(feed.ledger) == Lag(rows=0, seconds=0.0)
    sql("INSERT INTO {t} VALUES (3, 'a')")
    behind = feed.source.lag(feed.ledger)
    assert (behind.rows, 0 <= (behind.seconds or -1) < 600) == (1, True)
