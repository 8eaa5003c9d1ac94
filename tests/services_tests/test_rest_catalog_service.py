"""The REST catalog is a real one: it keeps tables, and refuses a commit that was built on old metadata."""

from __future__ import annotations

import json
import urllib.request

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from services.rest_catalog import RestCatalog

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def test_it_answers_the_config_request(rest_catalog: RestCatalog) -> None:
    with urllib.request.urlopen(f"{rest_catalog.uri}/v1/config", timeout=10) as response:
        assert "POST /v1/{prefix}/transactions/commit" in json.load(response)["endpoints"]


def test_tables_are_put_into_the_warehouse(rest_catalog: RestCatalog) -> None:
    catalog = load_catalog("rest", type="rest", uri=rest_catalog.uri)
    catalog.create_namespace("in_the_warehouse")
    table = catalog.create_table("in_the_warehouse.t", schema=ROWS.schema)
    table.append(ROWS)
    assert table.location().startswith(rest_catalog.warehouse)
    assert catalog.load_table("in_the_warehouse.t").scan().to_arrow() == ROWS


def test_a_stale_commit_is_refused(rest_catalog: RestCatalog) -> None:
    catalog = load_catalog("rest", type="rest", uri=rest_catalog.uri)
    catalog.create_namespace("stale")
    catalog.create_table("stale.t", schema=ROWS.schema, properties={"commit.retry.num-retries": "0"})
    first, second = catalog.load_table("stale.t"), catalog.load_table("stale.t")
    first.append(ROWS)
    with pytest.raises(CommitFailedException):
        second.append(ROWS)
    assert len(catalog.load_table("stale.t").snapshots()) == 1
