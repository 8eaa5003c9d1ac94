"""`frazil check` tells the causes apart: each wrong setting has a message, a code, a cure and an exit code of its own.

Nothing is left behind, no secret is shown, and no trace of a program.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergRest
from pyiceberg.catalog.sql import SqlCatalog

from cli.answering import answering
from cli.commands import Frazil, Outcome, sink_file
from cli.expected import (
    CANARY,
    CLOCK,
    HOST_NOT_FOUND,
    NEEDED,
    NOT_SPOKEN,
    REFUSED,
    TIMEOUT,
    UNTRUSTED,
    WRONG_HOST,
    Expected,
    must_fail,
)
from cli.tables import SCHEMA, make_table
from services.amazon_rest import AmazonRest, glue_rest, s3_tables
from services.between import Asked, Made, between, s3_error
from services.certificates import HERE, make_certificates
from services.encrypting import ENCRYPTIONS, encrypting, small_store
from services.hive import HiveMetastore
from services.postgres import Postgres
from services.processes import free_port
from services.rest_catalog import RestCatalog
from services.s3proxy import KEY, REGION, SECRET, S3Store

ANY_CONFIG = b'{"defaults": {}, "overrides": {}}'


def rest_sink(folder: Path, uri: str, more: str = "", *options: str) -> None:
    sink_file(folder, f"{{type: rest, rest: {{uri: '{uri}', token: {CANARY}{more}}}}}", *options)


def s3_sink(
    folder: Path,
    endpoint: str,
    bucket: str = "shop",
    *,
    key: str = KEY,
    secret: str = SECRET,
    style: str = "true",
    more: str = "",
) -> None:
    """A sink whose catalog is a file, and whose files are in a bucket."""
    keys = f"access_key_id: '{key}', secret_access_key: '{secret}'{more}"
    sink_file(
        folder,
        f"{{type: sql, sql: {{uri: 'sqlite:///{folder}/catalog.db', warehouse: 's3://{bucket}/warehouse'}}}}",
        f"s3: {{endpoint: '{endpoint}', region: us-east-1, path_style_access: {style}, {keys}}}",
    )


def place_at(where: str, folder: Path, address: str) -> str:
    """A sink whose catalog, or whose store, is at an address; returns the step that meets it."""
    if where == "catalog":
        rest_sink(folder, address)
    else:
        s3_sink(folder, address, secret=CANARY)
    return where


both = pytest.mark.parametrize("where", ["catalog", "storage"])


@both
def test_a_host_that_nobody_knows(frazil: Frazil, tmp_path: Path, where: str) -> None:
    step = place_at(where, tmp_path, "http://no-such-host.invalid:8181")
    must_fail(frazil("check", "--json"), step, HOST_NOT_FOUND)


@both
def test_a_port_where_nothing_listens(frazil: Frazil, tmp_path: Path, where: str) -> None:
    step = place_at(where, tmp_path, f"http://127.0.0.1:{free_port()}")
    error = must_fail(frazil("check", "--json"), step, REFUSED)
    begins = {"catalog": "Failed to connect to catalog at http://127.0.0.1", "storage": "Failed to reach the storage at s3://"}
    assert error["message"].startswith(begins[where])


@both
def test_a_service_that_never_answers(frazil: Frazil, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real time limit is ten seconds, which a test need not wait for.
    monkeypatch.setattr(f"frazil.observe.{'greeting' if where == 'catalog' else 's3'}.ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        step = place_at(where, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        must_fail(frazil("check", "--json"), step, TIMEOUT)


def test_where_tokens_come_from_nothing_listens(frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog) -> None:
    tokens = f"http://127.0.0.1:{free_port()}/tokens"
    sink_file(
        tmp_path,
        f"{{type: rest, rest: {{uri: '{rest_catalog.uri}', credential: 'id:{CANARY}', oauth2_server_uri: '{tokens}'}}}}",
    )
    error = must_fail(frazil("check", "--json"), "catalog", REFUSED)
    assert f"where tokens come from, {tokens}" in error["message"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls") / "certificates", {"here": HERE, "away": "DNS:away.example"})


@both
def test_a_certificate_of_an_unknown_authority(frazil: Frazil, tmp_path: Path, certificates: Path, where: str) -> None:
    with answering(200, ANY_CONFIG, certificate=certificates / "here.both") as address:
        step = place_at(where, tmp_path, address)
        must_fail(frazil("check", "--json"), step, UNTRUSTED)


@both
def test_a_certificate_of_another_host(
    frazil: Frazil, tmp_path: Path, certificates: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates / "ca.pem"))
    with answering(200, ANY_CONFIG, certificate=certificates / "away.both") as address:
        step = place_at(where, tmp_path, address)
        must_fail(frazil("check", "--json"), step, WRONG_HOST)


def test_an_authority_that_is_given_is_trusted(
    frazil: Frazil, tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates / "ca.pem"))
    with answering(401, certificate=certificates / "here.both") as address:
        rest_sink(tmp_path, address)
        must_fail(frazil("check", "--json"), "catalog", Expected("not-authorized", 78, "refused the credentials", "token"))


@both
def test_https_where_the_server_speaks_plain_http(frazil: Frazil, tmp_path: Path, where: str) -> None:
    with answering(200, ANY_CONFIG) as address:
        step = place_at(where, tmp_path, address.replace("http:", "https:"))
        must_fail(frazil("check", "--json"), step, NOT_SPOKEN)


@both
def test_http_where_the_server_speaks_tls(frazil: Frazil, tmp_path: Path, certificates: Path, where: str) -> None:
    with answering(200, ANY_CONFIG, certificate=certificates / "here.both") as address:
        step = place_at(where, tmp_path, address.replace("https:", "http:"))
        must_fail(frazil("check", "--json"), step, NEEDED)


def test_http_where_a_gateway_says_that_it_wants_tls(frazil: Frazil, tmp_path: Path) -> None:
    """As nginx does. A stand-in: it is no server here."""
    with answering(400, b"<html><h1>The plain HTTP request was sent to HTTPS port</h1></html>", "text/html") as address:
        rest_sink(tmp_path, address)
        must_fail(frazil("check", "--json"), "catalog", NEEDED)


# How catalogs say it: the specification, Apache Polaris and Snowflake, Lakekeeper when none was named.
@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (404, "NoSuchWarehouseException", "Warehouse puddle does not exist"),
        (404, "NotFoundException", "Unable to find warehouse puddle"),
        (
            400,
            "BadRequestException",
            "No warehouse specified. Please specify the 'warehouse' parameter in the GET /config request.",
        ),
    ],
)
def test_a_warehouse_that_the_catalog_does_not_know(
    frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog, status: int, kind: str, words: str
) -> None:
    """The fixture takes any warehouse: what others answer is documented, and given by a stand-in."""

    def change(asked: Asked) -> Asked | Made:
        if not asked.target.startswith("/v1/config"):
            return asked
        error = {"error": {"message": words, "type": kind, "code": status}}
        return Made(status, json.dumps(error).encode(), {"Content-Type": "application/json"})

    with between(rest_catalog.uri, change) as uri:
        rest_sink(tmp_path, uri, ", warehouse: puddle")
        must_fail(
            frazil("check", "--json"), "catalog", Expected("warehouse-missing", 78, words, "Correct catalog.rest.warehouse")
        )


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_catalog_of_another_time(frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog, hours: int) -> None:
    """A stand-in writes another date: no clock of a server here can be set."""

    def change(asked: Asked) -> Asked | Made:
        date = format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True)
        return Made(200, ANY_CONFIG, {"Content-Type": "application/json", "Date": date})

    with between(rest_catalog.uri, change) as uri:
        rest_sink(tmp_path, uri)
        must_fail(frazil("check", "--json"), "catalog", CLOCK)


@pytest.mark.parametrize("listed", [True, False], ids=["lists-others", "lists-none"])
def test_a_catalog_that_commits_one_table_at_a_time(
    frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog, listed: bool
) -> None:
    """Servers that list no endpoints are taken to have those of the specification."""

    def change(asked: Asked) -> Asked | Made:
        if not asked.target.startswith("/v1/config"):
            return asked
        offered = ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", "GET /v1/{prefix}/namespaces/{namespace}"]
        body = {"defaults": {}, "overrides": {}} | ({"endpoints": offered} if listed else {})
        return Made(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    with between(rest_catalog.uri, change) as uri:
        rest_sink(tmp_path, uri)
        file = tmp_path / "frazil.yaml"
        file.write_text(file.read_text().replace("table: events", "route: {field: kind, atomic: true}"))
        result = frazil("check", "--json")
        if listed:
            words, fix = "it does not offer transactions/commit", "Leave out route.atomic"
            must_fail(result, "catalog", Expected("atomic-unsupported", 78, words, fix))
        else:
            assert [check["ok"] for check in result.json["checks"] if check["step"] == "catalog"] == [True]


def test_a_signature_that_a_catalog_finds_too_old(frazil: Frazil, tmp_path: Path) -> None:
    """As the services of Amazon answer a signed request; a stand-in."""
    words = "Signature expired: 20260101T000000Z is now earlier than 20260101T030000Z"
    error = {"error": {"message": words, "type": "ForbiddenException", "code": 403}}
    with answering(403, json.dumps(error).encode()) as uri:
        rest_sink(tmp_path, uri)
        must_fail(frazil("check", "--json"), "catalog", CLOCK)


def namespace_of(folder: Path, name: str) -> None:
    """The sink writes to a namespace of the test's own: the catalog is shared."""
    file = folder / "frazil.yaml"
    file.write_text(file.read_text().replace("namespace: shop", f"namespace: {name}"))


def test_a_catalog_that_compares_and_swaps_is_not_changed_by_the_proof(
    frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog
) -> None:
    known = PyIcebergRest("lake", uri=rest_catalog.uri)
    before = make_table(known, ("swapped", "events")).metadata_location
    rest_sink(tmp_path, rest_catalog.uri)
    namespace_of(tmp_path, "swapped")
    result = frazil("check", "--json")
    assert result.code == 0
    steps = {check["step"]: check["message"] for check in result.json["checks"]}
    assert steps["commits"] == "the catalog refuses a stale commit to swapped.events"
    assert "; server: Jetty(" in steps["catalog"]
    assert known.load_table(("swapped", "events")).metadata_location == before
    assert known.list_tables("swapped") == [("swapped", "events")]


def test_a_catalog_that_does_not_compare_and_swap(frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog) -> None:
    """A stand-in takes what commits require away from them, so that the catalog does not see that they are stale."""

    def change(asked: Asked) -> Asked | Made:
        if asked.method != "POST":
            return asked
        return replace(asked, body=json.dumps(json.loads(asked.body) | {"requirements": []}).encode())

    known = PyIcebergRest("lake", uri=rest_catalog.uri)
    before = make_table(known, ("unswapped", "events")).metadata
    with between(rest_catalog.uri, change) as uri:
        rest_sink(tmp_path, uri)
        namespace_of(tmp_path, "unswapped")
        expected = Expected("no-compare-and-swap", 78, "it accepted a stale commit to unswapped.events", "compares and swaps")
        must_fail(frazil("check", "--json"), "commits", expected)
    after = known.load_table(("unswapped", "events")).metadata
    assert (after.properties, after.snapshots, after.schemas) == (before.properties, before.snapshots, before.schemas)


@contextmanager
def of_amazon(kind: str, catalog: str, store: S3Store) -> Iterator[tuple[AmazonRest, str]]:
    """The stand-in for one of Amazon's endpoints, and the catalog that it is for a sink, with the keys in braces."""
    with s3_tables(catalog, store, "checked") if kind == "s3tables" else glue_rest(catalog, store) as found:
        where = (
            f"type: s3tables, s3tables: {{{{warehouse: '{found.warehouse}', uri: '{found.base}', {{keys}}}}}}"
            if kind == "s3tables"
            else f"type: glue, warehouse: 's3://any', glue: {{{{rest: true, region: {REGION}, catalog_id: '{found.warehouse}', "
            f"endpoint: '{found.base}', {{keys}}}}}}"
        )
        yield found, where


@pytest.mark.slow(seconds=30)
@pytest.mark.parametrize("kind", ["s3tables", "glue"])
def test_endpoints_of_amazon(frazil: Frazil, tmp_path: Path, rest_catalog_s3: RestCatalog, s3: S3Store, kind: str) -> None:
    """They get a stale commit, too; a key that they do not know is reported, and leaves nothing behind."""

    def forgetful(asked: Asked) -> Asked | Made:
        if not (asked.method == "POST" and asked.target.endswith("/tables/events")):
            return asked
        return replace(asked, body=json.dumps(json.loads(asked.body) | {"requirements": []}).encode())

    name = f"amazon_{kind}"
    known = PyIcebergRest("lake", uri=rest_catalog_s3.uri, **s3.properties)
    known.create_namespace(name)
    known.create_table((name, "events"), SCHEMA, location=s3.create_bucket(f"{kind}--table-s3"))
    before = (known.list_namespaces(), s3.files)

    def check(catalog: str, secret: str = SECRET) -> Outcome:
        with of_amazon(kind, catalog, s3) as (found, where):
            keys = f"access_key_id: '{KEY}', secret_access_key: '{secret}'"
            store = f"s3: {{endpoint: '{found.endpoint}', path_style_access: true, region: {REGION}, {keys}}}"
            sink_file(tmp_path, f"{{{where.format(keys=keys)}}}", store)
            namespace_of(tmp_path, name)
            return frazil("check", "--json")

    asked = {done["step"]: done["message"] for done in check(rest_catalog_s3.uri).json["checks"]}
    assert asked["commits"] == f"the catalog refuses a stale commit to {name}.events"
    words = "The request signature we calculated does not match"
    must_fail(check(rest_catalog_s3.uri, CANARY), "catalog", Expected("no-permission", 1, words, "Check the permissions"))
    assert (known.list_namespaces(), s3.files) == before
    with between(rest_catalog_s3.uri, forgetful) as uri:
        expected = Expected("no-compare-and-swap", 78, f"it accepted a stale commit to {name}.events", "compares and swaps")
        must_fail(check(uri), "commits", expected)


def test_a_user_who_may_read_a_table_and_not_commit(frazil: Frazil, tmp_path: Path, rest_catalog: RestCatalog) -> None:
    """The fixture has no users: a stand-in refuses the commit."""

    def change(asked: Asked) -> Asked | Made:
        error = {"error": {"message": "Principal is not authorized for UPDATE_TABLE", "type": "ForbiddenException", "code": 403}}
        return Made(403, json.dumps(error).encode(), {"Content-Type": "application/json"}) if asked.method == "POST" else asked

    known = PyIcebergRest("lake", uri=rest_catalog.uri)
    before = make_table(known, ("readable", "events")).metadata_location
    with between(rest_catalog.uri, change) as uri:
        rest_sink(tmp_path, uri)
        namespace_of(tmp_path, "readable")
        expected = Expected("no-permission", 1, "this user may read readable.events and not commit to it", "Grant the right")
        must_fail(frazil("check", "--json"), "commits", expected)
    assert known.load_table(("readable", "events")).metadata_location == before


@pytest.mark.slow(seconds=30)
def test_a_metastore_says_its_version(frazil: Frazil, tmp_path: Path, hive: HiveMetastore) -> None:
    sink_file(tmp_path, f"{{type: hive, hive: {{uri: '{hive.uri}', warehouse: '{tmp_path}/warehouse'}}}}")
    result = frazil("check", "--json")
    steps = {check["step"]: check["message"] for check in result.json["checks"]}
    assert steps["catalog"].endswith("; server: Hive metastore 3.1.3"), result.out
    assert steps["commits"].startswith("not checked: Iceberg compares and swaps itself")


def test_a_database_that_is_not_there(frazil: Frazil, tmp_path: Path, postgres: Postgres) -> None:
    uri = f"postgresql://{postgres.user}:{postgres.password}@{postgres.host}:{postgres.port}/puddle"
    sink_file(tmp_path, f"{{type: sql, sql: {{uri: '{uri}', warehouse: '{tmp_path}'}}}}")
    expected = Expected("database-missing", 78, 'database "puddle" does not exist', "Create the database")
    must_fail(frazil("check", "--json"), "catalog", expected)


def test_a_database_whose_host_nobody_knows(frazil: Frazil, tmp_path: Path) -> None:
    uri = f"postgresql://bob:{CANARY}@no-such-host.invalid/x"
    sink_file(tmp_path, f"{{type: sql, sql: {{uri: '{uri}', warehouse: '{tmp_path}'}}}}")
    must_fail(frazil("check", "--json"), "catalog", HOST_NOT_FOUND)


def test_a_store_that_takes_everything_is_left_as_it_was(frazil: Frazil, tmp_path: Path, s3: S3Store) -> None:
    s3.create_bucket("untouched")
    s3_sink(tmp_path, s3.endpoint, "untouched")
    result = frazil("check", "--json")
    assert result.code == 0, result.out
    assert result.json["checks"][-1]["message"] == "wrote, read and deleted a probe in s3://untouched/warehouse"
    assert s3.left_in("untouched") == set()


def test_keys_of_the_environment_serve_where_the_file_has_none(
    frazil: Frazil, tmp_path: Path, s3: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_bucket("environment")
    s3_sink(tmp_path, s3.endpoint, "environment")
    file = tmp_path / "frazil.yaml"
    file.write_text(file.read_text().replace(f", access_key_id: '{KEY}', secret_access_key: '{SECRET}'", ""))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert frazil("check").code == 0
    assert s3.left_in("environment") == set()


@pytest.mark.parametrize(
    ("key", "secret", "code"), [(KEY, CANARY, "SignatureDoesNotMatch"), ("AKIA", CANARY, "InvalidAccessKeyId")]
)
def test_keys_that_the_store_refuses(frazil: Frazil, tmp_path: Path, s3: S3Store, key: str, secret: str, code: str) -> None:
    s3_sink(tmp_path, s3.endpoint, key=key, secret=secret)
    expected = Expected("s3-keys-refused", 78, f"it refused the keys, {code}", "Verify AWS credentials are set")
    must_fail(frazil("check", "--json"), "storage", expected)


def test_a_bucket_that_is_not_there(frazil: Frazil, tmp_path: Path, s3: S3Store) -> None:
    before = s3.files
    s3_sink(tmp_path, s3.endpoint, "puddle")
    expected = Expected("no-such-bucket", 78, "s3://puddle/warehouse: there is no such bucket", "correct the warehouse")
    must_fail(frazil("check", "--json"), "storage", expected)
    assert s3.files == before


@contextmanager
def store_that_answers(s3: S3Store, method: str, made: Made) -> Iterator[str]:
    """A stand-in in front of the store that gives one answer to all requests of a method."""
    with between(s3.endpoint, lambda asked: made if asked.method == method else asked) as endpoint:
        yield endpoint


@pytest.mark.parametrize(("method", "right"), [("PUT", "s3:PutObject"), ("GET", "s3:GetObject"), ("DELETE", "s3:DeleteObject")])
def test_a_permission_that_is_missing_is_named(frazil: Frazil, tmp_path: Path, s3: S3Store, method: str, right: str) -> None:
    """s3proxy allows everything or nothing: a stand-in refuses one operation."""
    bucket = f"without-{method.lower()}"
    s3.create_bucket(bucket)
    denied = s3_error(403, "AccessDenied", "User: arn:aws:iam::1:user/bob is not authorized")
    with store_that_answers(s3, method, denied) as endpoint:
        s3_sink(tmp_path, endpoint, bucket)
        expected = Expected("s3-access-denied", 1, f"which needs {right}", f"Grant {right}")
        error = must_fail(frazil("check", "--json"), "storage", expected)
    assert error["message"].startswith("Access Denied (Service: S3, Status Code: 403): ")
    assert s3.left_in(bucket) == set()


# As Amazon documents them.
ELSEWHERE = "The bucket you are attempting to access must be addressed using the specified endpoint."
MALFORMED = "The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'"
EXPIRED = Expected("s3-keys-refused", 78, "expired", "session_token")
SLOW_DOWN = Expected("storage-unreachable", 75, "SlowDown", "network")
SKEWED = "The difference between the request time and the current time is too large."


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            s3_error(301, "PermanentRedirect", ELSEWHERE, **{"x-amz-bucket-region": "eu-west-1"}),
            Expected("wrong-region", 78, "the bucket is in another region", "Set s3.region: eu-west-1."),
        ),
        (
            s3_error(400, "AuthorizationHeaderMalformed", MALFORMED, "<Region>eu-west-1</Region>"),
            Expected("wrong-region", 78, "expecting 'eu-west-1'", "Set s3.region: eu-west-1."),
        ),
        (s3_error(403, "RequestTimeTooSkewed", SKEWED), replace(CLOCK, message=SKEWED)),
        (s3_error(403, "AccessDenied", "Forbidden", Date="Thu, 01 Jan 2026 00:00:00 GMT"), CLOCK),
        (
            s3_error(400, "ExpiredToken", "The provided token has expired."),
            EXPIRED,
        ),
        (
            s3_error(503, "SlowDown", "Please reduce your request rate."),
            SLOW_DOWN,
        ),
    ],
    ids=["301", "malformed", "skewed", "date", "expired", "slow-down"],
)
def test_what_stores_answer_to_wrong_settings(
    frazil: Frazil, tmp_path: Path, s3: S3Store, made: Made, expected: Expected
) -> None:
    """No server here gives these answers: a stand-in does."""
    before = s3.files
    with store_that_answers(s3, "DELETE", made) as endpoint:
        s3_sink(tmp_path, endpoint)
        must_fail(frazil("check", "--json"), "storage", expected)
    assert s3.files == before


@pytest.mark.parametrize("encryption", ENCRYPTIONS)
def test_a_bucket_that_requires_encryption(frazil: Frazil, tmp_path: Path, encryption: str) -> None:
    """A stand-in refuses what is not encrypted as the policy of the bucket requires it."""
    with small_store() as (store, files), encrypting(store, encryption) as endpoint:
        s3_sink(tmp_path, endpoint)
        denied = Expected("s3-access-denied", 1, "which needs s3:PutObject", "Grant s3:PutObject")
        must_fail(frazil("check", "--json"), "storage", denied)
        s3_sink(tmp_path, endpoint, more=ENCRYPTIONS[encryption].settings)
        result = frazil("check", "--json")
    assert result.code == 0, result.out
    assert files == {}


def test_a_store_that_wants_the_bucket_in_the_path(frazil: Frazil, tmp_path: Path) -> None:
    """This machine's name is known, and none with a bucket in front of it."""
    s3_sink(tmp_path, f"http://{socket.gethostname()}:9000", "shop-that-is-nowhere", secret=CANARY, style="false")
    expected = Expected("path-style-needed", 78, f"shop-that-is-nowhere.{socket.gethostname()}", "path_style_access: true")
    must_fail(frazil("check", "--json"), "storage", expected)


@pytest.mark.slow
def test_a_table_in_a_store_is_checked_where_its_files_are(frazil: Frazil, tmp_path: Path, s3: S3Store) -> None:
    """And nothing is left there either."""
    s3.create_bucket("of-a-table")
    s3_sink(tmp_path, s3.endpoint, "of-a-table")
    files = {"s3.endpoint": s3.endpoint, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse="s3://of-a-table/warehouse", **files)
    catalog.create_namespace("shop")
    catalog.create_table("shop.events", SCHEMA)
    before = s3.left_in("of-a-table")
    result = frazil("check", "--json")
    assert (result.code, result.json["checks"][-1]["message"].rpartition("/")[2]) == (0, "events"), result.out
    assert s3.left_in("of-a-table") == before


@pytest.mark.slow
def test_a_table_whose_store_is_away_is_reported_once(frazil: Frazil, tmp_path: Path) -> None:
    """The table's metadata is in the store, and PyArrow, which reads it, has words of its own for what went wrong."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    make_table(catalog, ("shop", "events"))
    catalog.close()
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute("update iceberg_tables set metadata_location = 's3://shop/warehouse/metadata.json'")
    s3_sink(tmp_path, f"http://127.0.0.1:{free_port()}", secret=CANARY)
    must_fail(frazil("check", "--json"), "table", replace(REFUSED, message="the connection was refused (curlCode: 7"))
