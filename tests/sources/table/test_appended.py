"""Spark tables as a source of what is appended: Iceberg tables from snapshot to snapshot, others once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, Halted, Retryable
from frazil.model.source import TableSource
from frazil.sources.base import Lag
from frazil.sources.table import SparkTable
from sources.table.feed import Sql


class Reader:
    """What a pipeline does with the table."""

    def __init__(self, spark: SparkSession, table: str, on_change: str = "stop") -> None:
        self.source = SparkTable(TableSource.model_validate({"table": table, "on_change": on_change}), spark)
        self.ledger: str | None = None

    def batch(self, limit: int = 1000) -> list[int] | None:
        part = self.source.plan(self.ledger, limit)
        if part is None:
            return None
        rows = sorted(row.id for row in self.source.read(part).collect())
        assert part.rows in (None, len(rows))
        self.ledger = part.end
        return rows


def test_first_the_whole_table_then_what_is_appended(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    reader = Reader(spark, table)
    assert reader.batch() is None, "an empty table has no snapshot"
    assert reader.source.total_rows(None) == 0
    sql("INSERT INTO {t} VALUES (1), (2)")
    sql("INSERT INTO {t} VALUES (3)")
    assert reader.source.total_rows(None) == 3
    assert reader.batch() == [1, 2, 3]
    assert reader.batch() is None
    sql("INSERT INTO {t} VALUES (4)")
    sql("ALTER TABLE {t} ADD COLUMN name string")
    sql("INSERT INTO {t} VALUES (5, 'five')")
    assert reader.source.total_rows(reader.ledger) == 2
    assert reader.batch() == [4, 5]
    assert not reader.source.finished(reader.ledger)


def test_a_slice_keeps_its_rows_when_the_table_grows(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1)")
    source = Reader(spark, table).source
    whole = source.plan(None, 10)
    assert whole is not None
    sql("INSERT INTO {t} VALUES (2)")
    appended = source.plan(whole.end, 10)
    assert appended is not None
    sql("INSERT INTO {t} VALUES (3)")
    assert [row.id for row in source.read(whole).collect()] == [1]
    assert [row.id for row in source.read(appended).collect()] == [2]


def test_the_limit_takes_whole_snapshots_and_at_least_one(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (0)")
    reader = Reader(spark, table)
    reader.batch()
    sql("INSERT INTO {t} VALUES (1), (2), (3)")
    sql("INSERT INTO {t} VALUES (4)")
    part = reader.source.plan(reader.ledger, 2)
    assert part is not None
    assert (part.rows, part.full) == (3, True)
    assert reader.batch(2) == [1, 2, 3]
    assert reader.batch(2) == [4]


def test_a_compaction_is_passed_over(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1)")
    reader = Reader(spark, table)
    assert reader.batch() == [1]
    sql("INSERT INTO {t} VALUES (2)")
    sql("CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))")
    assert reader.batch() == [2]
    assert reader.batch() is None


def test_deleted_rows_stop_or_are_ignored(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1), (2)")
    stops, goes_on = Reader(spark, table), Reader(spark, table, on_change="ignore")
    assert stops.batch() == goes_on.batch() == [1, 2]
    sql("DELETE FROM {t} WHERE id = 1")
    sql("INSERT INTO {t} VALUES (3)")
    assert goes_on.batch() == [3]
    with pytest.raises(Halted, match="replaced or deleted rows") as caught:
        stops.batch()
    assert caught.value.code == "source-rows-changed"
    assert "on_change: ignore" in caught.value.fix


@pytest.mark.slow
def test_a_snapshot_that_expired_unread_stops(spark: SparkSession, table: str, sql: Sql) -> None:
    expire = "CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2999-01-01 00:00:00')"
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1)")
    reader = Reader(spark, table)
    reader.batch()
    sql("INSERT INTO {t} VALUES (2)")
    sql(expire)
    assert reader.batch() == [2], "the snapshot where the last batch ended may expire: the next one knows it"
    sql("INSERT INTO {t} VALUES (3)")
    sql("INSERT INTO {t} VALUES (4)")
    sql(expire)
    with pytest.raises(Halted, match="expired") as caught:
        reader.batch()
    assert caught.value.code == "source-snapshot-expired"


def test_a_rolled_back_table_stops(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1)")
    first = Reader(spark, table).source.plan(None, 1)
    assert first is not None
    sql("INSERT INTO {t} VALUES (2)")
    reader = Reader(spark, table)
    reader.batch()
    sql("CALL {catalog}.system.rollback_to_snapshot('{name}', " + first.end.split(":")[1].rstrip("}") + ")")
    with pytest.raises(Halted) as caught:
        reader.batch()
    assert caught.value.code == "source-rolled-back"


@pytest.fixture
def view(spark: SparkSession) -> Iterator[str]:
    name = f"view_{uuid.uuid4().hex[:8]}"
    spark.range(3).selectExpr("cast(id AS int) AS id").createOrReplaceTempView(name)
    yield name
    spark.catalog.dropTempView(name)


def test_any_other_table_is_read_once(spark: SparkSession, view: str) -> None:
    reader = Reader(spark, view)
    assert not reader.source.finished(None)
    assert reader.batch() == [0, 1, 2]
    assert reader.source.finished(reader.ledger)
    assert reader.batch() is None


@pytest.mark.parametrize("name", ["{table}", "nowhere.db.t", "no_such_table"])
def test_a_table_that_spark_does_not_know_is_reported_by_check_and_by_plan(spark: SparkSession, table: str, name: str) -> None:
    reader = Reader(spark, name.format(table=table))
    for ask in (reader.source.check, reader.batch):
        with pytest.raises(ConfigError, match="Spark knows no table") as caught:
            ask()
        assert caught.value.code == "source-missing"


def test_a_catalog_that_does_not_answer_may_answer_later(spark: SparkSession) -> None:
    name = f"src_{uuid.uuid4().hex[:8]}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", "http://127.0.0.1:9")
    with pytest.raises(Retryable, match=f"The table {name}.db.t could not be read") as caught:
        Reader(spark, f"{name}.db.t").source.check()
    assert caught.value.code == "source-unreachable"
    assert "\n" not in caught.value.message


def test_a_position_of_another_source_halts(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1)")
    with pytest.raises(Halted) as caught:
        Reader(spark, table).source.plan('{"read":"all"}', 1)
    assert caught.value.code == "position-unknown"


def test_how_far_it_is_behind_is_known_in_rows_and_seconds(spark: SparkSession, table: str, sql: Sql) -> None:
    sql("CREATE TABLE {t} (id int) USING iceberg")
    sql("INSERT INTO {t} VALUES (1), (2)")
    reader = Reader(spark, table)
    assert reader.source.lag(None) == Lag(rows=2)
    reader.batch()
    assert reader.source.lag(reader.ledger) == Lag(rows=0, seconds=0.0)
    sql("INSERT INTO {t} VALUES (3)")
    sql("INSERT INTO {t} VALUES (4), (5)")
    behind = reader.source.lag(reader.ledger)
    assert (behind.rows, 0 <= (behind.seconds or -1) < 600) == (3, True)
