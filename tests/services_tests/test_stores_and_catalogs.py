"""The services that hold catalogs and files are real ones, or say where they are not."""

from __future__ import annotations

from dataclasses import replace

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog

from helpers.lakes import fresh_name
from services.aws import Aws
from services.hive import HiveMetastore
from services.mariadb import MariaDb
from services.nessie import Nessie
from services.processes import ServiceFailed
from services.rest_catalog import RestCatalog
from services.s3proxy import S3Store

pytestmark = pytest.mark.slow(seconds=60)

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def a_client(store: S3Store, secret: str) -> object:
    return boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        region_name="us-east-1",
        aws_access_key_id=store.access_key_id,
        aws_secret_access_key=secret,
    )


def test_the_store_keeps_objects_as_files_and_checks_signatures(s3: S3Store) -> None:
    location = s3.create_bucket("of-a-test")
    a_client(s3, s3.secret_access_key).put_object(Bucket="of-a-test", Key="a/b.txt", Body=b"ice")  # type: ignore[attr-defined]
    assert s3.file(f"{location}/a/b.txt").read_bytes() == b"ice"
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        a_client(s3, "another").get_object(Bucket="of-a-test", Key="a/b.txt")  # type: ignore[attr-defined]


def test_a_rest_catalog_puts_its_tables_into_a_bucket(rest_catalog_s3: RestCatalog, s3: S3Store) -> None:
    catalog, namespace = load_catalog("rest", type="rest", uri=rest_catalog_s3.uri, **s3.properties), fresh_name()
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.t", schema=ROWS.schema)
    table.append(ROWS)
    assert table.location().startswith(f"{rest_catalog_s3.warehouse}/")
    assert s3.file(catalog.load_table(f"{namespace}.t").metadata_location).is_file()


def test_nessie_shows_the_newest_snapshot_alone(nessie: Nessie, s3: S3Store) -> None:
    catalog, namespace = load_catalog("nessie", type="rest", uri=nessie.uri, **s3.properties), fresh_name()
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.t", schema=ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    loaded = catalog.load_table(f"{namespace}.t")
    assert (loaded.scan().to_arrow().num_rows, len(loaded.snapshots())) == (6, 1)
    assert loaded.location().startswith(f"{nessie.location}/")


def test_the_metastore_can_lock(hive: HiveMetastore) -> None:
    from hive_metastore.ttypes import ShowLocksRequest

    with hive.client() as client:
        assert "default" in client.get_all_databases()
        assert client.show_locks(ShowLocksRequest(dbname="default")).locks == []


def test_the_emulator_has_glue_s3_and_sts(aws: Aws) -> None:
    name = fresh_name()
    aws.client("glue").create_database(DatabaseInput={"Name": name})
    assert name in {found["Name"] for found in aws.client("glue").get_databases()["DatabaseList"]}
    assert aws.create_bucket(name.replace("_", "-")).startswith("s3://")
    assert aws.client("sts").get_caller_identity()["Account"] == "123456789012"


def test_the_database_asks_for_its_password_and_keeps_to_this_machine(mariadb: MariaDb) -> None:
    name = fresh_name()
    assert mariadb.create_database(name) == f"mariadb://127.0.0.1:{mariadb.port}/{name}"
    assert mariadb.run("select database(), @@bind_address", name).split() == [name, "127.0.0.1"]
    with pytest.raises(ServiceFailed, match="Access denied"):
        replace(mariadb, password="wrong").run("select 1")
