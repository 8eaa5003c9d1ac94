"""`df.write.format("frazil")`: Spark's own writers as a door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameWriter

import frazil
from frazil.model.settings import RetrySettings
from frazil.model.sink import SinkSpec
from helpers.lakes import Lake


def options(lake: Lake) -> dict[str, str]:
    """The lake's catalog as options of a writer."""
    catalog = lake.catalog
    sql = catalog["sql"]
    return {"catalog.type": "sql", "catalog.sql.uri": sql["uri"], "catalog.sql.warehouse": sql["warehouse"]}


def writer(lake: Lake, query: str, mode: str = "append", **given: Any) -> DataFrameWriter:
    frazil.register(lake.spark)
    return lake.spark.sql(query).write.format("frazil").mode(mode).options(**options(lake), **given)


def test_rows_are_appended_and_overwritten(lake: Lake) -> None:
    writer(lake, "select id, 'a' v from range(3)").save(f"{lake.name}.db.t")
    writer(lake, "select id, 'b' v from range(3, 5)", table=f"{lake.name}.db.t").save()
    assert lake.rows() == [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, "b")]
    writer(lake, "select 9L id, 'c' v", "overwrite").save(f"{lake.name}.db.t")
    assert lake.rows() == [(9, "c")]


def test_two_names_are_refused(lake: Lake) -> None:
    table = f"{lake.name}.db.t"
    with pytest.raises(IllegalArgumentException, match=rf"table: {table} and {lake.name}\.db\.other are given"):
        writer(lake, "select 1L id", table=table).save(f"{lake.name}.db.other")
    with pytest.raises(IllegalArgumentException, match=r'is a place.*saveAsTable.*\n.*Write \.save\("lake\.sales\.orders"\)'):
        writer(lake, "select 1L id", table=table).saveAsTable("t")
    assert lake.nothing_written()
    writer(lake, "select 1L id", table=table).save(table)
    assert lake.count() == 1


@pytest.mark.slow
def test_an_overwrite_replaces_what_spark_s_own_would(lake: Lake) -> None:
    """All rows of a partitioned table; those of the touched partitions alone where the session or the write says dynamic."""
    name = f"{lake.name}.db.t"

    def write(query: str, mode: str = "overwrite", **given: str) -> list[tuple[Any, ...]]:
        writer(lake, query, mode, **given).partitionBy("p").save(name)
        return sorted(lake.rows("id, p"))

    assert write("select id, id % 3 p from range(3)", "append") == [(0, 0), (1, 1), (2, 2)]
    assert write("select 10L id, 0L p") == [(10, 0)]
    write("select id, id p from range(1, 3)", "append")
    assert write("select 11L id, 1L p", partitionOverwriteMode="Dynamic") == [(2, 2), (10, 0), (11, 1)]
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        assert write("select 12L id, 1L p") == [(2, 2), (10, 0), (12, 1)]
        assert write("select 13L id, 0L p", overwrite_where="p < 2") == [(2, 2), (13, 0)]
        assert write("select 14L id, 0L p", partitionOverwriteMode="static") == [(14, 0)]
    finally:
        lake.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.parametrize("call", ["read", "readStream"])
def test_whoever_reads_by_the_format_learns_what_to_use(lake: Lake, call: str) -> None:
    reader = getattr(lake.spark, call).format("frazil")
    text = rf'spark\.{call}\.format\("frazil"\): frazil writes .*\nWrite spark\.{call}\.table\("lake\.sales\.orders"\) instead'
    for asked in (reader, reader.schema("id long")):
        with pytest.raises(IllegalArgumentException, match=text):
            asked.option("table", "lake.db.t").load()


@pytest.mark.slow
def test_every_option_of_a_sink_and_of_retries_is_known_to_the_writer(lake: Lake) -> None:
    """A misspelled one is reported with the nearest: that it is there, and its name reaches the model."""
    known = [field.alias or name for name, field in SinkSpec.model_fields.items()]
    for key in [*known, *(f"retry.{name}" for name in RetrySettings.model_fields)]:
        with pytest.raises(IllegalArgumentException) as caught:
            writer(lake, "select 1L id", **{f"{key}x": "1"}).save(f"{lake.name}.db.t")
        assert f"{key}x: there is no option of this name.\nDid you mean '{key.rpartition('.')[2]}'?" in str(caught.value)
    with pytest.raises(IllegalArgumentException, match=r"retry\.max_retries: input should be less than or equal to 1000"):
        writer(lake, "select 1L id", **{"retry.max_retries": "1001"}).save(f"{lake.name}.db.t")
    assert lake.nothing_written()


@pytest.mark.slow
def test_options_of_a_sink_are_taken(lake: Lake) -> None:
    prop = "write.metadata.delete-after-commit.enabled"
    given = {"commit_mode": "upsert", "key_fields": "id, k", f"write_properties.{prop}": "true"}
    for value in ("old", "new"):
        query = f"select id, id % 2 k, '{value}' v from range({2 if value == 'new' else 4})"
        writer(lake, query, **given).partitionBy("k").save(f"{lake.name}.db.t")
    assert lake.rows("id, v") == [(0, "new"), (1, "new"), (2, "old"), (3, "old")]
    assert lake.metadata()["properties"][prop] == "true"
    assert [field["name"] for field in lake.metadata()["partition-specs"][0]["fields"]] == ["k"]


def test_a_named_batch_is_written_once(lake: Lake) -> None:
    for _ in range(2):
        writer(lake, "select 1L id", batch="2026-11-16").save(f"{lake.name}.db.t")
    assert lake.count() == 1


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        ("error", {}, r'cannot write with \.mode\("errorifexists"\)'),
        ("ignore", {}, r'cannot write with \.mode\("ignore"\)'),
        ("append", {"table": ""}, "'' is not catalog.namespace.table"),
        ("append", {"ky_fields": "id"}, "ky_fields: there is no option of this name.*\n?.*key_fields"),
        ("append", {"catalog.sql.urri": "x"}, r"catalog\.sql\.urri: there is no option"),
        ("append", {"batch_size": "many"}, "batch_size: "),
        ("append", {"schema": "{nope"}, "schema: this is not JSON"),
        ("overwrite", {"commit_mode": "upsert"}, "upsert and the mode of the write, overwrite, say different things"),
        ("append", {"commit_mode": "upsert"}, "upsert sinks must specify a key"),
        ("append", {"partition_by": "day(nope)"}, "there is no column 'nope'"),
        ("append", {"retry": "3"}, "retry: it is a section"),
        (
            "append",
            {"partitionOverwriteMode": "static"},
            r'partitionOverwriteMode: it has no meaning without \.mode\("overwrite"\)',
        ),
        ("overwrite", {"partitionOverwriteMode": "some"}, "partitionOverwriteMode: there is no mode 'some'"),
        (
            "overwrite",
            {"partitionOverwriteMode": "dynamic", "overwrite_where": "id > 1"},
            "partitionOverwriteMode: overwrite_where says which rows",
        ),
    ],
)
def test_what_is_wrong_is_reported_in_frazils_words(lake: Lake, mode: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalArgumentException, match=message) as caught:
        writer(lake, "select 1L id", mode, **({"table": f"{lake.name}.db.t"} | given)).save()
    assert "Traceback" not in str(caught.value)


def test_a_stream_is_written_once_over_restarts(lake: Lake, tmp_path: Path) -> None:
    frazil.register(lake.spark)
    landing = tmp_path / "landing"
    landing.mkdir()

    def run(number: int) -> None:
        (landing / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        query = stream(lake, landing, tmp_path / "checkpoint").option("table", f"{lake.name}.db.t").start()
        query.awaitTermination()

    writer(lake, "select 0L id").save(f"{lake.name}.db.t")
    run(1)
    run(2)
    lake = lake.introduced()
    assert lake.rows() == [(0,), (1,), (2,)]
    # Spark forgets its last batch, as after a crash before it could note it: it comes again, and is known.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
    run(3)
    assert lake.rows() == [(0,), (1,), (2,), (3,)]


def test_a_wrong_option_of_a_stream_stops_its_query(lake: Lake, tmp_path: Path) -> None:
    frazil.register(lake.spark)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    query = stream(lake, tmp_path / "in", tmp_path / "c").option("table", f"{lake.name}.db.t").option("batch", "x").start()
    with pytest.raises(StreamingQueryException, match="Spark numbers the batches of a stream"):
        query.awaitTermination()


@pytest.mark.slow
def test_groups_that_change_must_be_upserted(lake: Lake, tmp_path: Path) -> None:
    frazil.register(lake.spark)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": 3}\n')
    counted = rows_of(lake, tmp_path / "in").selectExpr("id % 2 odd").groupBy("odd").count()

    def start(**given: str) -> None:
        out = counted.writeStream.format("frazil").outputMode("update").options(**options(lake), **given)
        out.option("table", f"{lake.name}.db.t").option("checkpointLocation", str(tmp_path / f"c{len(given)}")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="rows of earlier batches come again"):
        start()
    start(commit_mode="upsert", key_fields="odd")
    assert lake.introduced().rows() == [(1, 2)]


@pytest.mark.slow
def test_a_complete_answer_takes_the_place_of_the_last(lake: Lake, tmp_path: Path) -> None:
    frazil.register(lake.spark)
    (tmp_path / "in").mkdir()

    def count(number: int, **given: str) -> None:
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        counted = rows_of(lake, tmp_path / "in").selectExpr("id % 2 odd").groupBy("odd").count()
        out = counted.writeStream.format("frazil").outputMode("complete").options(**options(lake), **given)
        out.option("checkpointLocation", str(tmp_path / f"c{len(given)}")).trigger(availableNow=True).start(
            f"{lake.name}.db.t"
        ).awaitTermination()

    for number in (1, 2, 3):
        count(number)
    assert lake.introduced().rows() == [(0, 1), (1, 2)]
    with pytest.raises(StreamingQueryException, match=r'overwrite_where: \.outputMode\("complete"\) takes the place of all rows'):
        count(4, overwrite_where="odd = 1")


def rows_of(lake: Lake, folder: Path) -> DataFrame:
    return lake.spark.readStream.schema("id long").json(str(folder))


def stream(lake: Lake, folder: Path, checkpoint: Path) -> Any:
    made = rows_of(lake, folder).writeStream.format("frazil").options(**options(lake))
    return made.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
