"""The page of catalogs has a configuration for each place of the matrix, and none that was not run."""

from __future__ import annotations

import re

from catalogs.conftest import DIAGONAL, THE_REST
from catalogs.places import PAGE, blocks, described

VARIABLES = (
    "FOLDER BUCKET S3_ENDPOINT S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY POSTGRES_URI POSTGRES_USER POSTGRES_PASSWORD REST_URI "
    "NESSIE_URI HIVE_URI GLUE_ENDPOINT MARIADB_URI MARIADB_USER MARIADB_PASSWORD"
)
ADDRESSES = {
    "POSTGRES_URI": "postgresql://host/database",
    "MARIADB_URI": "mariadb://host/database",
    "REST_URI": "http://host",
    "NESSIE_URI": "http://host/iceberg",
}


def test_every_block_is_run_and_every_place_is_described() -> None:
    titles = re.findall(r"^```yaml\n# (.*)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(titles) == sorted((*DIAGONAL, *THE_REST))


def test_every_block_is_read_as_it_stands() -> None:
    variables = dict.fromkeys(VARIABLES.split(), "a-value") | ADDRESSES
    for title in (*DIAGONAL, *THE_REST):
        assert (described(title, variables).s3 is not None) == title.endswith(", S3")
    assert set(blocks()) >= {*DIAGONAL, *THE_REST}
