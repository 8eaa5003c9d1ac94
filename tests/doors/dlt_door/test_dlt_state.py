"""What dlt keeps of itself: schemas, states and loads, found on another machine, and dropped together with tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import dlt
import pyarrow
import pytest
from dlt.common import logger
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt.pipeline.helpers import pipeline_drop
from dlt_lakes import DltLake, loaded, resource
from pyspark import SparkContext
from pyspark.sql import SparkSession

from frazil.doors.dlt.reading import SparkCursor, SparkCursorImpl

DLT_S_OWN = {"_dlt_loads", "_dlt_version", "_dlt_pipeline_state"}
SINCE: Any = dlt.sources.incremental("at", initial_value=0)


def elsewhere(lake: DltLake, machine: str) -> dlt.Pipeline:
    """The same pipeline on a machine that has never run it."""
    return dlt.pipeline("p", destination=lake.destination(), dataset_name="ds", pipelines_dir=str(lake.folder / machine))


@dlt.source
def shop(up_to: int) -> Any:
    """Orders with positions, from where the last load has ended, and their customers."""

    @dlt.resource(primary_key="id")
    def orders(at: Any = SINCE) -> Iterator[Any]:
        yield [{"id": n, "at": n, "positions": [{"n": n}]} for n in range(at.last_value + 1, up_to + 1)]

    @dlt.resource
    def customers() -> Iterator[Any]:
        dlt.current.resource_state()["asked"] = up_to
        yield [{"id": up_to}]

    return orders, customers


@pytest.mark.slow
def test_a_machine_that_is_new_goes_on_where_the_other_has_ended(lake: DltLake) -> None:
    loaded(elsewhere(lake, "one").run(shop(2)))
    # Rows of before would come again, if the state were not found.
    second = elsewhere(lake, "two")
    loaded(second.run(shop(3)))
    assert lake.rows("orders", "id") == [(1,), (2,), (3,)]
    assert second.state["sources"]["shop"]["resources"]["orders"]["incremental"]["at"]["last_value"] == 3
    # Both loads had the one schema, and each left a state.
    assert {*lake.rows("_dlt_loads", "schema_version_hash")} == {*lake.rows("_dlt_version", "version_hash")}
    assert len(lake.rows("_dlt_version", "version_hash")) == 1
    versions = [row[0] for row in lake.rows("_dlt_pipeline_state", "version")]
    assert len(set(versions)) == 2


@pytest.mark.slow
def test_sources_are_dropped_and_begin_anew(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run([shop(2), resource([{"id": 1}], "other")]))
    assert lake.tables() == {"orders", "orders__positions", "customers", "other", *DLT_S_OWN}
    # Of the source one resource is loaded, and all of its tables and its whole state go.
    loaded(pipeline.run(shop(1).with_resources("orders"), refresh="drop_sources"))
    assert lake.tables() == {"orders", "orders__positions", "other", *DLT_S_OWN}
    assert (lake.rows("orders", "id"), lake.rows("orders__positions", "n"), lake.rows("other", "id")) == ([(1,)], [(1,)], [(1,)])
    assert set(pipeline.state["sources"]["shop"]["resources"]) == {"orders"}


@pytest.mark.slow
def test_the_command_drops_resources_with_their_tables_and_state(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(shop(2)))
    command = pipeline_drop(pipeline, resources=["re:ord.*"])
    assert set(command.info["tables"]) == {"orders", "orders__positions"}
    command()
    assert lake.tables() == {"customers", *DLT_S_OWN}
    # Another machine knows nothing of them, too.
    again = elsewhere(lake, "two")
    again.sync_destination()
    assert "orders" not in again.default_schema.tables
    assert set(again.state["sources"]["shop"]["resources"]) == {"customers"}
    loaded(again.run(shop(1)))
    assert lake.rows("orders", "id") == [(1,)]


@pytest.mark.slow
def test_a_dataset_that_was_dropped_is_noticed_beside_tables_of_others(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(shop(2)))
    lake.catalog.create_table("analytics.theirs", pyarrow.schema([("id", pyarrow.int64())]))
    with pipeline.destination_client() as client:
        assert client.is_storage_initialized()
        client.drop_storage()
        assert not client.is_storage_initialized()
    assert lake.tables() == {"theirs"}
    # With the state of before nothing would be loaded.
    loaded(lake.pipeline().run(shop(2)))
    assert lake.rows("orders", "id") == [(1,), (2,)]


@pytest.mark.parametrize("namespace", ["analytics", "{dataset_name}"])
def test_dev_mode_in_a_namespace_that_runs_share_is_reported(
    lake: DltLake, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(logger, "warning", lambda text, *_: warned.append(text))
    destination, folder = lake.destination(namespace=namespace), str(lake.folder / "dlt")
    pipeline = dlt.pipeline("p", destination=destination, dataset_name="ds", pipelines_dir=folder, dev_mode=True)
    loaded(pipeline.run(resource([{"id": 1}])))
    assert pipeline.dataset().t.df()["id"].to_list() == [1]
    messages = [text for text in warned if "dev_mode" in text]
    assert len(messages) == (namespace == "analytics")
    assert all('With namespace="{dataset_name}" each has' in text for text in messages)


@pytest.mark.slow
def test_contracts_decide_about_rows_values_tables_and_types(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    loaded(pipeline.run(resource([{"id": 1, "n": 1}])))
    odd = [{"id": 2, "n": 2, "more": "x"}, {"id": 3, "n": 3}]
    loaded(pipeline.run(resource(odd), schema_contract={"columns": "discard_row"}))
    assert lake.rows("t", "id") == [(1,), (3,)]
    loaded(pipeline.run(resource([{"id": 4, "n": "four"}]), schema_contract={"data_type": "discard_value"}))
    assert lake.rows("t", "id", "n") == [(1, 1), (3, 3), (4, None)]
    for rows, contract in (([{"id": 5, "n": "five"}], "data_type"), ([{"id": 5, "parts": [{"n": 1}]}], "tables")):
        with pytest.raises(PipelineStepFailed, match=f"Contract on `{contract}` with `contract_mode=freeze`"):
            pipeline.run(resource(rows), schema_contract={contract: "freeze"})
        pipeline.abort_packages()
    loaded(pipeline.run(resource([{"id": 6, "n": "six", "parts": [{"n": 1}]}]), schema_contract="evolve"))
    assert (6, None, "six") in lake.rows("t", "id", "n", "n__v_text")
    assert lake.rows("t__parts", "n") == [(1,)]


def test_tables_as_the_catalog_has_them(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    columns: Any = {
        "small": {"data_type": "bigint", "precision": 16}, "price": {"data_type": "decimal", "precision": 10, "scale": 2},
        "wei": {"data_type": "wei"}, "at": {"data_type": "timestamp", "description": "when"},
        "naive": {"data_type": "timestamp", "timezone": False}, "json": {"data_type": "json", "nullable": False},
    }  # fmt: skip
    pipeline.extract(resource([{"json": {}}], columns=columns))
    pipeline.normalize()
    with pipeline.destination_client() as client:
        client.initialize_storage()
        client.update_stored_schema()
        found = dict(client.get_storage_tables(["t", "not_there"]))
        assert (found["not_there"], client.get_storage_table("not_there")) == ({}, (False, {}))
        assert found["t"]["json"] == {"name": "json", "data_type": "text", "nullable": False}
        assert found["t"]["at"] == {"name": "at", "data_type": "timestamp", "nullable": True, "description": "when"}
        assert found["t"]["naive"]["timezone"] is False
        assert found["t"]["wei"]["data_type"] == "wei"
        assert (found["t"]["price"]["precision"], found["t"]["price"]["scale"], found["t"]["small"]["precision"]) == (10, 2, 32)


@pytest.mark.slow
def test_relations_of_a_dataset(lake: DltLake) -> None:
    pipeline = lake.pipeline()
    first = loaded(pipeline.run(shop(2).with_resources("orders")))
    loaded(pipeline.run(shop(4).with_resources("orders")))
    dataset = pipeline.dataset()
    assert {"orders", "orders__positions"} <= set(dataset.tables)
    orders = dataset.orders
    assert orders.select("at").max().fetchscalar() == 4
    assert orders.order_by("id", "desc").limit(2).select("id").fetchall() == [(4,), (3,)]
    assert [len(rows) for rows in orders.select("id").iter_fetch(3)] == [3, 1]
    assert [table.num_rows for table in orders.iter_arrow(3)] == [3, 1]
    assert orders.where("id > 1 AND id < 3").select("id").fetchall() == [(2,)]
    # Nested tables know which row they belong to.
    joined = dataset.table("orders__positions").join("orders", alias="o")
    assert sorted((row["n"], row["o__id"]) for row in joined.arrow().to_pylist()) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    of_first = dataset.table("orders__positions").from_loads(first.loads_ids)
    assert sorted(of_first.arrow()["n"].to_pylist()) == [1, 2]
    assert dataset.latest_load_id() != first.loads_ids[0]
    # The clients of a pipeline answer queries as well, with arguments.
    with pipeline.destination_client() as client:
        assert client.sql_client.execute_sql("SELECT id FROM orders WHERE at = %s", 3) == [(3,)]
    with pipeline.sql_client() as asked:
        assert asked.execute_sql(f"SELECT max(id) FROM {asked.make_qualified_table_name('orders')}") == [(4,)]
        # A name that a query makes is that of a table where the query does not know it yet.
        assert asked.execute_sql("WITH orders AS (SELECT id FROM orders WHERE id > 3) SELECT id FROM Orders") == [(4,)]
        assert asked.execute_sql("WITH ORDERS AS (SELECT 7 AS id) SELECT id FROM orders") == [(7,)]
        # In texts and comments nothing stands for an argument.
        answer = asked.execute_sql("SELECT '%s', '5%%', id %% 3 FROM orders WHERE id = %s AND id < %s -- %s", 4, 5)
        assert answer == [("%s", "5%", 1)]


def test_chunks_are_read_a_part_at_a_time(spark: SparkSession) -> None:
    """The last part cannot be read: whoever reads all of it before the first chunk gets none."""
    late = "CASE WHEN id < 90 THEN id ELSE raise_error('late') END AS id"
    at = "timestamp_seconds(id) AS at"

    def cursor() -> SparkCursorImpl:
        return SparkCursorImpl(SparkCursor(spark.range(0, 100, 1, 10).selectExpr(late, at)))  # type: ignore[arg-type]

    first = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    tables = cursor().iter_arrow(7)
    assert [next(tables)["id"].to_pylist() for _ in range(2)] == [[*range(7)], [*range(7, 14)]]
    fetched = next(cursor().iter_fetch(12))
    assert [row[0] for row in fetched] == [*range(12)]
    assert fetched[0][1].astimezone(dt.UTC) == first
    assert cursor().fetchone() == (0, fetched[0][1])
    with pytest.raises(Exception, match="late"):
        cursor().fetchall()
    whole = spark.range(0, 20, 1, 4).selectExpr("id", at)
    in_chunks = pyarrow.concat_tables(SparkCursorImpl(SparkCursor(whole)).iter_arrow(3))  # type: ignore[arg-type]
    assert in_chunks.equals(whole.toArrow())


@pytest.mark.slow
def test_names_keep_their_case(lake: DltLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEMA__NAMING", "sql_cs_v1")
    hints: Any = {"write_disposition": "merge", "primary_key": "MyId"}
    loaded(lake.pipeline().run(resource([{"MyId": 1, "V": "a"}], "MyTable", **hints)))
    pipeline = elsewhere(lake, "two")
    loaded(pipeline.run(resource([{"MyId": 1, "V": "b"}], "MyTable", **hints)))
    assert lake.rows("MyTable", "MyId", "V") == [(1, "b")]
    assert pipeline.dataset()["MyTable"].select("MyId", "V").fetchall() == [(1, "b")]


def test_rows_of_dlt_s_own_tables_need_no_python_process_of_spark_s(lake: DltLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a process costs a load more than the commit of its row."""

    def refused(*_: object) -> None:
        raise AssertionError("Spark takes rows from here with the help of a Python process")

    monkeypatch.setattr(SparkContext, "parallelize", refused)
    before = dt.datetime.now(dt.UTC)
    (load,) = loaded(lake.pipeline().run(resource([{"id": 1}]))).loads_ids
    ((found, status, at),) = lake.rows("_dlt_loads", "load_id", "status", "inserted_at")
    assert (found, status) == (load, 0)
    assert before <= at <= dt.datetime.now(dt.UTC)
