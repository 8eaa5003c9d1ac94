"""What `frazil check` says of a wrong setting is what a run says when it meets it: the same code and exit code.

Check asks in Python, and a run in Java: neither shows secrets, or a trace of Java.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from cli.agreeing import must_agree, write
from cli.answering import answering
from cli.commands import Frazil
from cli.expected import CANARY
from frazil.spark.session import give_components
from helpers.lakes import fresh_name
from services.aws import Aws
from services.azure import Azure
from services.between import Made, between, s3_error
from services.certificates import HERE, make_certificates
from services.encrypting import ENCRYPTIONS, encrypting
from services.mariadb import MariaDb
from services.postgres import Postgres
from services.processes import free_port
from services.s3proxy import KEY, SECRET, S3Store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]


def rest(folder: Path, uri: str, more: str = "") -> None:
    write(folder, f"{{type: rest, rest: {{uri: '{uri}', token: {CANARY}{more}}}}}")


def s3_pipeline(
    folder: Path, endpoint: str, bucket: str = "shop", *, secret: str = SECRET, style: str = "true", more: str = ""
) -> None:
    keys = f"access_key_id: '{KEY}', secret_access_key: '{secret}'{more}"
    store = f"      s3: {{endpoint: '{endpoint}', region: us-east-1, path_style_access: {style}, {keys}}}"
    write(folder, f"{{type: sql, sql: {{uri: 'sqlite:///{folder}/catalog.db', warehouse: 's3://{bucket}/warehouse'}}}}", store)


def test_the_catalogs_host_is_not_known(frazil: Frazil, tmp_path: Path) -> None:
    rest(tmp_path, "http://no-such-host.invalid:8181")
    must_agree(frazil, "host-not-found", 75)


def test_nothing_listens_at_the_catalogs_port(frazil: Frazil, tmp_path: Path) -> None:
    rest(tmp_path, f"http://127.0.0.1:{free_port()}")
    must_agree(frazil, "connection-refused", 75)


def test_nobody_trusts_the_catalogs_certificate(frazil: Frazil, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "tls", {"here": HERE})
    with answering(200, b"{}", certificate=certificates / "here.both") as uri:
        rest(tmp_path, uri)
        must_agree(frazil, "tls-untrusted", 78)


def test_the_catalog_speaks_no_tls(frazil: Frazil, tmp_path: Path) -> None:
    with answering(200, b"{}") as uri:
        rest(tmp_path, uri.replace("http:", "https:"))
        must_agree(frazil, "tls-not-spoken", 78)


@pytest.mark.parametrize(
    ("status", "kind", "code", "exit_code"),
    [
        (401, "NotAuthorizedException", "not-authorized", 78),
        (403, "ForbiddenException", "no-permission", 1),
        (404, "NoSuchWarehouseException", "warehouse-missing", 78),
        (404, "NotFoundException", "warehouse-missing", 78),
    ],
)
def test_the_catalog_refuses(frazil: Frazil, tmp_path: Path, status: int, kind: str, code: str, exit_code: int) -> None:
    """Documented answers, given by a stand-in: the fixture has no users, and takes any warehouse."""
    error = {"error": {"message": "Unable to find warehouse puddle", "type": kind, "code": status}}
    with answering(status, json.dumps(error).encode()) as uri:
        rest(tmp_path, uri, ", warehouse: puddle")
        must_agree(frazil, code, exit_code)


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest, spark: SparkSession) -> Postgres | MariaDb:
    """A server whose driver the session has."""
    give_components(spark, ["postgres" if request.param == "postgres" else "mysql"])
    server: Postgres | MariaDb = request.getfixturevalue(request.param)
    return server


def sql(folder: Path, uri: str, user: str, password: str) -> None:
    login = f"user: '{user}', password: '{password}'"
    write(folder, f"{{type: sql, sql: {{uri: '{uri}', {login}, warehouse: '{folder}/warehouse'}}}}")


class TestDatabases:
    """PostgreSQL and MariaDB, which say the same by states and numbers of their own."""

    def test_the_password_is_wrong(self, frazil: Frazil, tmp_path: Path, database: Postgres | MariaDb) -> None:
        sql(tmp_path, database.create_database(fresh_name()), database.user, CANARY)
        must_agree(frazil, "not-authorized", 78)

    def test_the_database_is_not_there(self, frazil: Frazil, tmp_path: Path, database: Postgres | MariaDb) -> None:
        uri = database.create_database(fresh_name())
        sql(tmp_path, f"{uri}x", database.user, database.password)
        must_agree(frazil, "database-missing", 78)

    def test_nothing_listens_at_the_databases_port(self, frazil: Frazil, tmp_path: Path, database: Postgres | MariaDb) -> None:
        uri = database.create_database(fresh_name()).replace(str(database.port), str(free_port()))
        sql(tmp_path, uri, database.user, CANARY)
        must_agree(frazil, "connection-refused", 75)

    def test_the_catalogs_tables_may_not_be_read(self, frazil: Frazil, tmp_path: Path, database: Postgres | MariaDb) -> None:
        name, reader = fresh_name(), fresh_name()
        uri = database.create_database(name)
        driver = "postgresql+psycopg2" if isinstance(database, Postgres) else "mysql+pymysql"
        SqlCatalog("lake", uri=f"{driver}://{database.user}:{database.password}@{uri.partition('://')[2]}").close()
        known_by = "login password" if isinstance(database, Postgres) else "identified by"
        run_in(database, name, "create table beside (id int)")
        run_in(database, name, f"create user {reader} {known_by} '{CANARY}'")
        run_in(database, name, f"grant select on beside to {reader}")
        sql(tmp_path, uri, reader, CANARY)
        must_agree(frazil, "no-permission", 1)


def run_in(server: Postgres | MariaDb, database: str, statement: str) -> None:
    if isinstance(server, MariaDb):
        server.run(statement, database)
        return
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def with_aws(spark: SparkSession) -> None:
    """The session has the jars for stores that speak S3."""
    give_components(spark, ["aws"])


@pytest.mark.usefixtures("with_aws")
class TestStores:
    """Through S3FileIO of Iceberg."""

    def test_the_bucket_is_not_there(self, frazil: Frazil, tmp_path: Path, s3: S3Store) -> None:
        before = s3.files
        s3_pipeline(tmp_path, s3.endpoint, "no-such-bucket-here")
        must_agree(frazil, "no-such-bucket", 78)
        assert s3.files == before

    def test_the_keys_are_wrong(self, frazil: Frazil, tmp_path: Path, s3: S3Store) -> None:
        s3_pipeline(tmp_path, s3.endpoint, secret=CANARY)
        must_agree(frazil, "s3-keys-refused", 78)

    def test_nothing_listens_at_the_stores_port(self, frazil: Frazil, tmp_path: Path) -> None:
        s3_pipeline(tmp_path, f"http://127.0.0.1:{free_port()}")
        must_agree(frazil, "connection-refused", 75)

    def test_the_bucket_belongs_into_the_path(self, frazil: Frazil, tmp_path: Path) -> None:
        s3_pipeline(tmp_path, f"http://{socket.gethostname()}:9000", "shop-that-is-nowhere", style="false")
        must_agree(frazil, "path-style-needed", 78)

    @pytest.mark.parametrize(
        ("made", "code", "exit_code"),
        [
            (s3_error(403, "AccessDenied", "Access Denied"), "s3-access-denied", 1),
            (s3_error(403, "RequestTimeTooSkewed", "The difference is too large."), "clock-differs", 75),
            (s3_error(301, "PermanentRedirect", "Use the endpoint of the bucket."), "wrong-region", 78),
            (s3_error(400, "AuthorizationHeaderMalformed", "expecting 'eu-west-1'"), "wrong-region", 78),
        ],
        ids=["denied", "skewed", "301", "malformed"],
    )
    def test_the_store_refuses(self, frazil: Frazil, tmp_path: Path, s3: S3Store, made: Made, code: str, exit_code: int) -> None:
        """Documented answers, given by a stand-in before s3proxy."""
        with refusing(s3, made) as endpoint:
            s3_pipeline(tmp_path, endpoint)
            must_agree(frazil, code, exit_code)

    @pytest.mark.parametrize("encryption", ENCRYPTIONS)
    def test_the_bucket_requires_encryption(self, frazil: Frazil, tmp_path: Path, aws: Aws, encryption: str) -> None:
        """A stand-in before moto refuses what is not encrypted: s3proxy refuses what is."""
        bucket = f"encrypted-by-{encryption}"
        aws.create_bucket(bucket)
        with encrypting(aws.endpoint, encryption) as endpoint:
            s3_pipeline(tmp_path, endpoint, bucket)
            must_agree(frazil, "s3-access-denied", 1)
            s3_pipeline(tmp_path, endpoint, bucket, more=ENCRYPTIONS[encryption].settings)
            assert frazil("run", "--once").code == 0
        assert aws.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"] > 0


def test_azure_by_the_address_of_blobs(frazil: Frazil, tmp_path: Path, spark: SparkSession, azure: Azure) -> None:
    """A run writes where `wasbs` says, and check finds the table there."""
    give_components(spark, ["azure"])
    location = azure.create_bucket(fresh_name().replace("_", "-")).replace("abfss", "wasbs").replace(".dfs.", ".blob.")
    catalog = f"{{type: sql, sql: {{uri: 'sqlite:///{tmp_path}/catalog.db', warehouse: '{location}/warehouse'}}}}"
    write(tmp_path, catalog, f"      azure: {{connection_string: '{azure.connection_string}'}}")
    ran = frazil("run", "--once")
    assert ran.code == 0, ran.text
    checked = frazil("check", "--json")
    assert checked.code == 0, checked.text
    said = {done["step"]: done["message"] for done in checked.json["checks"]}
    assert "snapshot" in said["table"]
    assert said["storage"] == f"wrote, read and deleted a probe in {location}/warehouse/shop/events"


@contextmanager
def refusing(s3: S3Store, made: Made) -> Iterator[str]:
    """A stand-in that refuses every change."""
    with between(s3.endpoint, lambda asked: made if asked.method in ("PUT", "POST", "DELETE") else asked) as endpoint:
        yield endpoint
