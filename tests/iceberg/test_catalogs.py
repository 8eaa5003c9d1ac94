"""Every kind of catalog that can run here: namespaces and table are made, batches are appended, Spark reads them back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import frazil
from frazil import iceberg
from frazil.model.catalog import CatalogSpec
from frazil.model.events import Maintained
from frazil.model.sink import SinkSpec
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from helpers.lakes import Lake, commits, fresh_name, run
from services.postgres import Postgres
from services.rest_catalog import RestCatalog

Kinds = dict[str, dict[str, Any]]


@pytest.fixture(params=["sqlite", "postgres", "rest", "hadoop", "memory", "memory without a warehouse"])
def some_lake(request: pytest.FixtureRequest, lake: Lake) -> Lake:
    match request.param:
        case "sqlite":
            return lake
        case "postgres":
            return lake.with_catalog(on_postgres(request.getfixturevalue("postgres"), lake.folder))
        case "rest":
            server: RestCatalog = request.getfixturevalue("rest_catalog")
            return lake.with_catalog({"type": "rest", "rest": {"uri": server.uri}})
        case "hadoop":
            return lake.with_catalog({"type": "hadoop", "hadoop": {"warehouse": str(lake.folder / "warehouse")}})
        case "memory":
            return lake.with_catalog({"type": "memory", "warehouse": str(lake.folder / "warehouse")})
        case _:
            return lake.with_catalog({"type": "memory"})


def on_postgres(server: Postgres, folder: Path) -> dict[str, Any]:
    address = server.create_database(fresh_name())
    sql = {"uri": address, "user": server.user, "password": server.password, "warehouse": str(folder / "warehouse")}
    return {"type": "sql", "sql": sql}


def test_nested_namespaces_and_the_table_are_made_and_two_batches_appended(some_lake: Lake) -> None:
    table = f"{fresh_name()}.eu.north.orders"
    first = some_lake.sink("select 1 id, 'a' name", table).write()
    second = some_lake.sink("select 2 id, 'b' name union all select 3, 'c'", table).write()
    assert (first.batch, second.batch) == (1, 2)
    assert some_lake.rows(table=table) == [(1, "a"), (2, "b"), (3, "c")]
    assert some_lake.rows(table=table, at=first.snapshot) == [(1, "a")]


def test_a_pipeline_of_several_batches_goes_on_where_it_ended(some_lake: Lake) -> None:
    table = f"{fresh_name()}.events"
    begun = run(some_lake.pipeline({"connector": "generator", "rows": 30}, table, batch_size=20), once=True)
    ended = run(some_lake.pipeline({"connector": "generator", "rows": 50}, table, batch_size=20), once=True)
    assert [commit.counts.written for commit in commits(begun) + commits(ended)] == [20, 10, 20]
    assert some_lake.rows("event_number", table) == sorted([(number,) for number in range(50)], key=repr)


def test_a_pipeline_keeps_its_table_healthy(some_lake: Lake) -> None:
    table = f"{fresh_name()}.events"
    eager = {"small_files": 4, "max_snapshots": 5, "reader_grace_minutes": 0, "max_time_share": 1}
    events = run(some_lake.pipeline({"connector": "generator", "rows": 60}, table, batch_size=4, maintenance=eager), once=True)
    assert len(commits(events)) == 15
    kinds = {event.kind for event in events if isinstance(event, Maintained)}
    assert kinds == {"merge_files", "expire_snapshots", "delete_files"}
    assert len(some_lake.meta("snapshots", table)) <= 7
    assert len(some_lake.meta("files", table)) <= 10
    for row in some_lake.meta("snapshots", table):
        assert some_lake.table(table, row.snapshot_id).count() == int(row.summary["total-records"])
    assert some_lake.rows("event_number", table) == sorted([(number,) for number in range(60)], key=repr)


def test_the_sessions_own_catalog_is_used_by_its_name(lake: Lake) -> None:
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": f"file://{lake.folder / 'warehouse'}",
        ".cache-enabled": "false",
    }.items():
        lake.spark.conf.set(f"spark.sql.catalog.{lake.name}{key}", value)
    frazil.sink(lake.frame("select 7 id")).to(f"{lake.name}.db.t").write()
    assert lake.rows() == [(7,)]
    assert (lake.folder / "warehouse" / "db" / "t" / "metadata").is_dir()


def test_a_catalog_that_the_session_does_not_know_is_told(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match=f"knows no catalog '{lake.name}'"):
        frazil.sink(lake.frame("select 1 id")).to(f"{lake.name}.db.t").write()


def test_two_sinks_may_call_their_catalogs_by_the_same_name(lake: Lake, tmp_path: Path) -> None:
    other = Lake(lake.spark, {**lake.catalog, "type": "hadoop", "hadoop": {"warehouse": str(tmp_path / "other")}}, tmp_path)
    del other.catalog["sql"]
    one = lake.pipeline({"connector": "generator", "rows": 3}, name="one")
    session_for(lake.spark, catalog_settings(one.sink))  # the test reads this one by the name, whoever begins first
    run(one, other.pipeline({"connector": "generator", "rows": 5}, name="two"), once=True)
    reader = lake.spark.newSession()
    reader.conf.set("spark.sql.catalog.there", "org.apache.iceberg.spark.SparkCatalog")
    reader.conf.set("spark.sql.catalog.there.type", "hadoop")
    reader.conf.set("spark.sql.catalog.there.warehouse", f"file://{tmp_path / 'other'}")
    assert (lake.count(), reader.table("there.db.t").count()) == (3, 5)


def test_many_sinks_that_begin_at_once_in_an_empty_catalog_all_succeed(lake: Lake) -> None:
    pipelines = [lake.pipeline({"connector": "generator", "rows": 2}, f"a.b.t{n}", name=f"p{n}") for n in range(6)]
    run(*pipelines, once=True)
    assert [lake.count(f"a.b.t{n}") for n in range(6)] == [2] * 6


def test_sinks_that_begin_at_once_in_one_table_all_succeed(lake: Lake) -> None:
    run(*(lake.pipeline({"connector": "generator", "rows": 2, "seed": n}, name=f"p{n}") for n in range(4)), once=True)
    assert lake.count() == 8


def test_a_new_sql_catalog_may_be_opened_by_many_at_once(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(6):
        spec = CatalogSpec.model_validate(
            {"name": "lake", "type": "sql", "sql": {"uri": f"sqlite:///{tmp_path}/{number}.db", "warehouse": str(tmp_path)}}
        )
        settings = catalog_settings(SinkSpec(catalog=spec, namespace="db", table="t"))
        sessions = [spark.newSession() for _ in range(4)]
        for session in sessions:
            for key, value in settings.spark_conf.items():
                session.conf.set(key, value)
        begin = threading.Barrier(len(sessions))

        def opened(session: SparkSession, begin: threading.Barrier = begin) -> iceberg.Lake:
            begin.wait()
            return iceberg.Lake(session, "lake", "the catalog")

        with ThreadPoolExecutor(len(sessions)) as pool:
            lakes = list(pool.map(opened, sessions))
        assert [lake.missing_namespaces(("db",)) for lake in lakes] == [("db",)] * len(sessions)
