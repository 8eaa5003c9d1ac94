"""Catalogs of a Spark session: its own, several of one name, and empty ones that many open at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import frazil
from frazil import iceberg
from frazil.model.catalog import CatalogSpec
from frazil.model.sink import SinkSpec
from frazil.spark.catalogs import catalog_settings
from frazil.spark.session import session_for
from helpers.lakes import Lake, run


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


def test_a_catalog_that_the_session_does_not_know_is_reported(lake: Lake) -> None:
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
