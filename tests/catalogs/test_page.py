"""The page of catalogs has a configuration for each place of the matrix, and none that was not run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalogs.conftest import DIAGONAL, THE_REST
from catalogs.places import PAGE, block_of, described, read
from frazil.observe.catalogs import pyiceberg_properties
from frazil.spark.catalogs import catalog_settings
from services.rest_servers import SERVERS

VARIABLES = (
    "FOLDER BUCKET S3_ENDPOINT S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY POSTGRES_URI POSTGRES_USER POSTGRES_PASSWORD REST_URI "
    "NESSIE_URI NESSIE_SERVER HIVE_URI GLUE_ENDPOINT MARIADB_URI MARIADB_USER MARIADB_PASSWORD GCS_ENDPOINT CONTAINER ACCOUNT "
    "CONNECTION_STRING S3TABLES_URI TABLE_BUCKET GLUE_REST_URI ACCOUNT_ID NAME_NODE HDFS_FOLDER CATALOG_URI WAREHOUSE CLIENT_ID "
    "CLIENT_SECRET TOKEN_URI"
)
ADDRESSES = {
    "POSTGRES_URI": "postgresql://host/database",
    "MARIADB_URI": "mariadb://host/database",
    "REST_URI": "http://host",
    "NESSIE_URI": "http://host/iceberg",
    "NESSIE_SERVER": "http://host",
    "S3TABLES_URI": "http://host/iceberg",
    "TABLE_BUCKET": "arn:aws:s3tables:us-east-1:123456789012:bucket/lake",
    "GLUE_REST_URI": "http://host/iceberg",
    "CATALOG_URI": "http://host/iceberg",
    "TOKEN_URI": "http://host/tokens",
    "CONNECTION_STRING": "AccountName=account;AccountKey=a2V5",
}


def test_every_block_is_run_and_every_place_is_described() -> None:
    titles = re.findall(r"^```yaml\n# (.*)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(titles) == sorted({block_of(title) for title in (*DIAGONAL, *THE_REST)})


def test_every_block_is_read_as_it_stands() -> None:
    variables = dict.fromkeys(VARIABLES.split(), "a-value") | ADDRESSES
    for title in (*DIAGONAL, *THE_REST):
        kind, _, store = block_of(title).partition(", ")
        sink, told = described(title, variables), None if kind in SERVERS else store
        assert [sink.s3 is not None, sink.gcs is not None, sink.azure is not None] == [told == s for s in ("S3", "GCS", "Azure")]


def test_the_block_of_a_catalog_that_cannot_be_run_is_read_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"## BigQuery metastore.*?```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    sink = read(block, {})
    options = catalog_settings(sink).options
    expected = {"type": "bigquery", "gcp.bigquery.project-id": "my-project", "warehouse": "gs://bucket/lake"}
    assert expected.items() <= options.items()
    assert pyiceberg_properties(sink)["gcp.bigquery.credential-file"] == "key.json"
