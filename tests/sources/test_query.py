"""Queries as a source: above a cursor, once, or once a run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, DataError, Halted
from frazil.model.source import QuerySource
from frazil.sources.query import Query


class Events:
    """A view whose rows the test sets."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.name = f"events_{uuid.uuid4().hex[:8]}"

    def hold(self, *rows: str, kind: str = "int") -> None:
        """`rows` are values of the column `at`, as SQL."""
        values = ", ".join(f"(cast({row} AS {kind}))" for row in rows)
        self.spark.sql(f"SELECT * FROM VALUES {values} AS t(at)").createOrReplaceTempView(self.name)


@pytest.fixture
def events(spark: SparkSession) -> Iterator[Events]:
    view = Events(spark)
    yield view
    spark.catalog.dropTempView(view.name)


class Reader:
    """What a pipeline does with the query. `at` comes back as text."""

    def __init__(self, spark: SparkSession, query: str, **settings: Any) -> None:
        self.source = Query(QuerySource.model_validate({"query": query, **settings}), spark)
        self.ledger: str | None = None

    def batch(self, limit: int = 1000) -> list[str] | None:
        part = self.source.plan(self.ledger, limit)
        if part is None:
            return None
        rows = sorted(row[0] for row in self.source.read(part).selectExpr("cast(at AS string)").collect())
        assert part.rows in (None, len(rows))
        self.ledger = part.end
        return rows


@pytest.mark.parametrize(
    ("kind", "values", "more"),
    [
        ("int", ("1", "2"), "3"),
        ("bigint", ("-9223372036854775808", "9223372036854775806"), "9223372036854775807"),
        ("decimal(30,3)", ("0.001", "12345678901234567890.123"), "12345678901234567890.124"),
        ("double", ("1e-300", "0.1"), "0.30000000000000004"),
        ("date", ("'2027-01-01'", "'2027-01-02'"), "'2027-01-03'"),
        ("timestamp", ("'2027-10-31 00:30:00.000001 Europe/Berlin'", "'2027-10-31 02:30:00.000001 Europe/Berlin'"),
         "'2027-10-31 02:30:00.000002 Europe/Berlin'"),
        ("timestamp_ntz", ("'2027-03-28 02:30:00'", "'2027-03-28 02:30:00.5'"), "'2027-03-28 02:30:00.500001'"),
        ("string", ("'a'", "'it''s'"), "'z'"),
    ],
)  # fmt: skip
def test_only_rows_above_the_cursor_are_new(
    spark: SparkSession, events: Events, kind: str, values: tuple[str, str], more: str
) -> None:
    events.hold(*values, kind=kind)
    reader = Reader(spark, f"SELECT * FROM {events.name}", cursor="at")
    assert reader.source.total_rows(None) == 2
    assert len(reader.batch() or ()) == 2
    assert reader.batch() is None
    events.hold(*values, more, kind=kind)
    assert reader.source.total_rows(reader.ledger) == 1
    assert len(reader.batch() or ()) == 1
    assert reader.batch() is None
    assert not reader.source.finished(reader.ledger)


def test_a_cursor_in_time_does_not_depend_on_the_zone_of_the_session(spark: SparkSession, events: Events) -> None:
    events.hold("'2027-06-01T12:00:00Z'", kind="timestamp")
    reader = Reader(spark, f"SELECT * FROM {events.name}", cursor="at")
    assert len(reader.batch() or ()) == 1
    assert json.loads(reader.ledger or "")["cursor"]["value"] == "2027-06-01T12:00:00+00:00"
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
        events.hold("'2027-06-01T12:00:00Z'", "'2027-06-01T12:00:00.000001Z'", kind="timestamp")
        assert len(reader.batch() or ()) == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_more_than_the_limit_is_read_in_parts_and_equal_values_stay_together(spark: SparkSession, events: Events) -> None:
    events.hold("5", "1", "2", "2", "2", "9")
    reader = Reader(spark, f"SELECT * FROM {events.name}", cursor="at")
    part = reader.source.plan(None, 2)
    assert part is not None
    assert part.full
    reader.ledger = part.end
    assert sorted(row.at for row in reader.source.read(part).collect()) == [1, 2, 2, 2]
    assert reader.batch(2) == ["5", "9"]


def test_a_slice_does_not_take_what_comes_later(spark: SparkSession, events: Events) -> None:
    events.hold("1")
    source = Reader(spark, f"SELECT * FROM {events.name}", cursor="at").source
    part = source.plan(None, 10)
    assert part is not None
    events.hold("1", "2")
    assert [row.at for row in source.read(part).collect()] == [1]


def test_rows_without_a_cursor_stop(spark: SparkSession, events: Events) -> None:
    events.hold("1", "NULL", "NULL")
    with pytest.raises(DataError, match="2 rows of the query have no value in the cursor column 'at'") as caught:
        Reader(spark, f"SELECT * FROM {events.name}", cursor="at").batch()
    assert caught.value.code == "cursor-null"


def test_a_cursor_that_is_not_a_number_stops(spark: SparkSession, events: Events) -> None:
    events.hold("1", "'NaN'", kind="double")
    with pytest.raises(DataError) as caught:
        Reader(spark, f"SELECT * FROM {events.name}", cursor="at").batch()
    assert caught.value.code == "cursor-nan"


def test_a_cursor_of_another_type_than_before_stops(spark: SparkSession, events: Events) -> None:
    events.hold("1")
    reader = Reader(spark, f"SELECT * FROM {events.name}", cursor="at")
    reader.batch()
    events.hold("'2'", kind="string")
    with pytest.raises(Halted, match="was int and is string") as caught:
        reader.batch()
    assert caught.value.code == "cursor-type-changed"


def test_a_position_without_a_cursor_halts(spark: SparkSession) -> None:
    with pytest.raises(Halted) as caught:
        Reader(spark, "SELECT 1 AS at", cursor="at").source.plan('{"read":"all"}', 1)
    assert caught.value.code == "position-unknown"


def test_without_a_cursor_the_result_is_read_once(spark: SparkSession) -> None:
    reader = Reader(spark, "SELECT 7 AS at")
    assert not reader.source.finished(None)
    assert reader.batch() == ["7"]
    assert reader.source.finished(reader.ledger)
    assert reader.batch() is None


def test_every_run_reads_the_result_once_more(spark: SparkSession) -> None:
    ledger = None
    for _ in range(3):
        reader = Reader(spark, "SELECT 7 AS at", every_run=True)
        reader.ledger = ledger
        assert not reader.source.finished(ledger)
        assert reader.batch() == ["7"]
        assert reader.source.finished(reader.ledger)
        assert reader.batch() is None
        ledger = reader.ledger
    assert ledger == '{"run":3}'


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT\n * FORM x y", "line 2"),
        ("SELECT * FROM no_such_table", "`no_such_table` cannot be found"),
        ("SELECT a FROM (SELECT 1 AS b)", "`a` cannot be resolved"),
        ("DROP TABLE IF EXISTS x", "Syntax error"),
        ("CREATE TABLE made_by_a_query (a int)", "Syntax error"),
    ],
)
def test_a_bad_query_is_reported_in_one_line_and_does_nothing(spark: SparkSession, query: str, message: str) -> None:
    source = Reader(spark, query).source
    with pytest.raises(ConfigError) as caught:
        source.check()
    assert caught.value.code == "query-invalid"
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert "[" not in caught.value.message.partition(":")[2][:3]
    assert not spark.catalog.tableExists("made_by_a_query")


@pytest.mark.parametrize(
    "query", ["SELECT 7 AS at;", "WITH x AS (SELECT 7 AS at) SELECT * FROM x -- all of it", "VALUES (7) AS t(at)"]
)
def test_queries_of_all_shapes_are_read(spark: SparkSession, query: str) -> None:
    assert Reader(spark, query.replace("VALUES (7) AS", "SELECT * FROM VALUES (7) AS")).batch() == ["7"]


@pytest.mark.parametrize(("cursor", "code"), [("other", "cursor-missing"), ("flag", "cursor-type"), ("AT", "cursor-missing")])
def test_a_cursor_must_be_a_column_with_an_order(spark: SparkSession, cursor: str, code: str) -> None:
    with pytest.raises(ConfigError, match=repr(cursor)) as caught:
        Reader(spark, "SELECT 1 AS at, true AS flag", cursor=cursor).source.check()
    assert caught.value.code == code


def test_what_fails_in_the_query_while_it_runs_is_explained(spark: SparkSession) -> None:
    source = Reader(spark, "SELECT 1 / id AS at FROM range(3)").source
    part = source.plan(None, 10)
    assert part is not None
    with pytest.raises(Exception) as caught:
        source.read(part).write.format("noop").mode("overwrite").save()
    explained = source.explain(caught.value)
    assert isinstance(explained, DataError)
    assert (explained.code, "Division by zero" in explained.message) == ("query-failed", True)
    assert source.explain(RuntimeError("the catalog is down")) is None


def test_what_fails_in_the_query_while_it_is_planned_is_explained_too(spark: SparkSession) -> None:
    with pytest.raises(DataError, match="Division by zero") as caught:
        Reader(spark, "SELECT 1 / id AS at FROM range(3)", cursor="at").batch()
    assert caught.value.code == "query-failed"


def test_white_space_does_not_make_another_query(spark: SparkSession) -> None:
    one = Reader(spark, "SELECT  1\nAS at").source.fingerprint
    assert Reader(spark, "SELECT 1 AS at").source.fingerprint == one
    assert Reader(spark, "SELECT 2 AS at").source.fingerprint != one
