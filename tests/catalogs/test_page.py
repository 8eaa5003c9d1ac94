"""The page of catalogs has a configuration for each place of the matrix, and none that was not run."""

from __future__ import annotations

import re

from catalogs.conftest import DIAGONAL, THE_REST
from catalogs.places import PAGE, block_of, described

VARIABLES = (
    "FOLDER BUCKET S3_ENDPOINT S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY POSTGRES_URI POSTGRES_USER POSTGRES_PASSWORD REST_URI "
    "NESSIE_URI HIVE_URI GLUE_ENDPOINT MARIADB_URI MARIADB_USER MARIADB_PASSWORD GCS_ENDPOINT CONTAINER ACCOUNT "
    "CONNECTION_STRING S3TABLES_URI TABLE_BUCKET GLUE_REST_URI ACCOUNT_ID NAME_NODE HDFS_FOLDER"
)
ADDRESSES = {
    "POSTGRES_URI": "postgresql://host/database",
    "MARIADB_URI": "mariadb://host/database",
    "REST_URI": "http://host",
    "NESSIE_URI": "http://host/iceberg",
    "S3TABLES_URI": "http://host/iceberg",
    "TABLE_BUCKET": "arn:aws:s3tables:us-east-1:123456789012:bucket/lake",
    "GLUE_REST_URI": "http://host/iceberg",
    "CONNECTION_STRING": "AccountName=account;AccountKey=a2V5",
}


def test_every_block_is_run_and_every_place_is_described() -> None:
    titles = re.findall(r"^```yaml\n# (.*)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(titles) == sorted({block_of(title) for title in (*DIAGONAL, *THE_REST)})


def test_every_block_is_read_as_it_stands() -> None:
    variables = dict.fromkeys(VARIABLES.split(), "a-value") | ADDRESSES
    for title in (*DIAGONAL, *THE_REST):
        sink, store = described(title, variables), block_of(title).partition(", ")[2]
        assert [sink.s3 is not None, sink.gcs is not None, sink.azure is not None] == [store == s for s in ("S3", "GCS", "Azure")]
