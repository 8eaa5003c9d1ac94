"""A bucket in the name of its host, as Amazon addresses them, and a store that is reached through a proxy.

The names are known to nobody here: the proxy is asked for them, and leads all to the one store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalogs.places import lake_of
from frazil.model.sink import SinkSpec
from frazil.observe.check import check_sink
from frazil.observe.lake import open_table
from helpers.lakes import commits, run, sqlite_lake
from services.between import Asked, between
from services.s3proxy import REGION, running_s3

pytestmark = pytest.mark.slow(seconds=30)

DOMAIN = "localhost"


def test_a_bucket_is_the_name_of_a_host(spark: SparkSession, tmp_path: Path) -> None:
    hosts: set[str] = set()

    def seen(asked: Asked) -> Asked:
        hosts.add(asked.headers["Host"])
        return asked

    with running_s3(tmp_path, DOMAIN) as store, between(store.endpoint, seen) as proxy:
        store.create_bucket("shop")
        port = store.endpoint.rpartition(":")[2]
        keys = {"access_key_id": store.access_key_id, "secret_access_key": store.secret_access_key}
        sink: dict[str, Any] = {
            "catalog": {
                "type": "sql",
                "sql": {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://shop/warehouse"},
                # What the machine says of proxies does not count.
                "properties": {
                    "http-client.proxy-endpoint": proxy,
                    "http-client.proxy-use-system-property-values": "false",
                    "http-client.proxy-use-environment-variable-values": "false",
                    "s3.proxy-uri": proxy,
                },
            },
            "s3": {"endpoint": f"http://{DOMAIN}:{port}", "region": REGION} | keys,
        }
        lake = lake_of(sqlite_lake(spark, tmp_path), SinkSpec.model_validate(sink | {"namespace": "n", "table": "t"}))
        events = run(lake.pipeline({"connector": "generator", "rows": 20}, batch_size=10), once=True)
        assert len(commits(events)) == 2
        table = open_table(lake.sink().spec)
        assert table is not None
        assert table.scan().to_arrow().num_rows == lake.introduced().count() == 20
        assert [step.message for step in check_sink("lake", lake.sink().spec) if not step.passed] == []
    assert hosts == {f"shop.{DOMAIN}:{port}"}
