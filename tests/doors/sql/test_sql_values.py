"""What statements mean: every option changes the pipeline that a sink is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sql_cases import BESIDE, LAKE, blocks, refused, run, session

from frazil.doors.sql import parse
from frazil.doors.sql.select import with_tables
from frazil.doors.sql.statements import Query
from frazil.model.history import History
from frazil.model.pipeline import PipelineSpec
from frazil.model.source import FilesSource, GeneratorSource, KafkaSource, PostgresCdcSource
from frazil.spark.catalogs import catalog_settings

KAFKA = "CREATE CONNECTION kafka TO KAFKA (BROKERS ('a:9092', 'b:9092'));"
REGISTRY = (
    "CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY (URL 'http://registry:8081', USERNAME 'u', PASSWORD 'registry-password');"
)
TO = "INTO ICEBERG CATALOG CONNECTION lake (NAMESPACE 'n', TABLE 't')"


def pipeline(folder: Path, script: str, name: str = "s") -> PipelineSpec:
    here = session(folder)
    run(here, script)
    return {one.name: one for one in here.project().pipelines}[name]


def sink_with(folder: Path, clauses: str, columns: str = "id bigint, at timestamptz, region text") -> PipelineSpec:
    source = f"CREATE SOURCE o ({columns}) FROM FILES (PATH = 'in', FORMAT = 'json');"
    return pipeline(folder, f"{LAKE}{source}CREATE SINK s FROM o {TO} {clauses};")


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        (
            "",
            {"commit_mode": "append", "flush_interval_secs": 1, "batch_size": 1_000_000, "file_format": "parquet", "id": "sql/s"},
        ),
        ("WITH (COMMIT INTERVAL '90 seconds')", {"flush_interval_secs": 90, "batch_size": 1_000_000, "batch_bytes": None}),
        ("WITH (MAXIMUM PERIOD = '1m30s')", {"flush_interval_secs": 90}),
        ("WITH (MINIMUM SIZE = '1MiB')", {"batch_bytes": 1 << 20, "flush_interval_secs": 3600}),
        ("WITH (MINIMUM SIZE = '2 GB', MAXIMUM PERIOD = '10s')", {"batch_bytes": 2 << 30, "flush_interval_secs": 10}),
        ("WITH (FORMAT = ORC, COMPRESSION = 'zstd')", {"file_format": "orc", "compression": "zstd"}),
        ("WITH (TARGET FILE SIZE = '64MiB', FORMAT VERSION = 3)", {"target_file_size_mb": 64, "format_version": 3}),
        ("KEY (ID)", {"commit_mode": "upsert", "key_fields": ("ID",), "case_sensitive": False}),
        ("KEY (id) MODE UPSERT WITH (LATEST BY = (at, 'id'))", {"commit_mode": "upsert", "order_by": ("at", "id")}),
        ("KEY (id) WITH (LATEST BY = at, HISTORY = 'scd2')", {"commit_mode": "upsert", "history": History()}),
        (
            "KEY (id) WITH (LATEST BY = at, HISTORY = scd2, VALID FROM COLUMN = 'since', VALID TO COLUMN = 'until', "
            "CURRENT COLUMN = 'latest', OPERATION COLUMN = 'change')",
            {"history": History(valid_from="since", valid_to="until", current="latest", operation="change")},
        ),
        (
            "KEY (id) WITH (LATEST BY = at, LATE = 'ignore', TOMBSTONE RETENTION = '2 days')",
            {"order_by": ("at",), "late": "ignore", "tombstone_retention_hours": 48},
        ),
        ("KEY (id) WITH (LATE = APPLY)", {"late": "apply", "tombstone_retention_hours": 168}),
        ("MODE APPEND WITH (TIMESTAMP COLUMN = 'ts')", {"commit_mode": "append", "time_column": "ts"}),
        ("", {"on_error": "stop"}),
        (
            "WITH (ON ERROR = 'dead_letter', DEAD LETTER TABLE = 'ops.bad', MAX DEAD LETTERS = 9, MAX DEAD LETTER RATE = 0.5)",
            {"on_error": "dead_letter", "letters_name": ("ops", "bad"), "max_dead_letters": 9, "max_dead_letter_rate": 0.5},
        ),
        ("WITH (TARGET FILE SIZE = '512MiB')", {"target_file_size_mb": 512}),
    ],
)
def test_clauses_of_a_sink(tmp_path: Path, clauses: str, expected: dict[str, Any]) -> None:
    sink = sink_with(tmp_path, clauses).sink
    assert {name: getattr(sink, name) for name in expected} == expected
    assert (sink.namespace, sink.table, sink.catalog.name) == ("n", "t", "lake")


def test_partitions(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, "PARTITION BY (day(at), bucket(16, id), truncate(region, 2), region)").sink
    assert [str(field) for field in sink.partition] == ["day(at)", "bucket(16, id)", "truncate(2, region)", "region"]


@pytest.mark.parametrize(
    ("clauses", "said"),
    [
        ("WITH (COMMIT INTERVAL '5s', MAXIMUM PERIOD '5s')", "say the same"),
        ("WITH (LATE = 'ignore', LATEST BY = at)", "LATEST BY has no meaning without a KEY"),
        ("KEY (id) WITH (LATE = 'ignore')", "LATE = 'ignore' needs LATEST BY"),
        ("KEY (id) WITH (LATE = 'drop')", "LATE cannot be 'drop'"),
        ("KEY (id) WITH (LATEST BY = at, TOMBSTONE RETENTION = '2h')", "no meaning without LATE = 'ignore'"),
        ("KEY (id) WITH (LATEST BY = at, LATE = ignore, TOMBSTONE RETENTION = '90m')", "a whole number of hours"),
        ("WITH (COMMIT INTERVAL '2h')", "at most 3600"),
        ("WITH (COMMIT INTERVAL '1 day')", "at most 3600"),
        ("WITH (COMMIT INTERVAL '1500ms')", "whole number of seconds"),
        ("WITH (MINIMUM SIZE = 'much')", "is no size"),
        ("WITH (TARGET FILE SIZE = '5kB')", "whole number of MiB"),
        ("WITH (TARGET FILE SIZE = '1GB')", "TARGET FILE SIZE is 1 MiB to 512 MiB"),
        ("WITH (TARGET FILE SIZE = '0')", "TARGET FILE SIZE is 1 MiB to 512 MiB"),
        ("WITH (DIFF COLUMN = 'd')", "it belongs to ENVELOPE DEBEZIUM"),
        ("WITH (ON ERROR = 'ignore')", "ON ERROR cannot be 'ignore'"),
        ("WITH (MAX DEAD LETTERS = 3)", "MAX DEAD LETTERS has no meaning without ON ERROR = 'dead_letter'"),
        ("WITH (ON ERROR = 'dead_letter', MAX DEAD LETTERS = 'x')", "MAX DEAD LETTERS must be a whole number, not 'x'"),
        ("WITH (ON ERROR = 'dead_letter', MAX DEAD LETTER RATE = 2)", "MAX DEAD LETTER RATE must be at most 1, not 2"),
        ("KEY (id) WITH (TIMESTAMP COLUMN = 'd')", "it belongs to MODE APPEND"),
        ("WITH (FORMAT VERSION = 1)", "FORMAT VERSION cannot be '1'"),
    ],
)
def test_clauses_that_do_not_fit(tmp_path: Path, clauses: str, said: str) -> None:
    here = session(tmp_path)
    run(here, f"{LAKE}CREATE SOURCE o (id bigint) FROM FILES (PATH = 'in', FORMAT = 'json')")
    assert said in refused(here, f"CREATE SINK s FROM o {TO} {clauses}").message


REST = "CREATE CONNECTION lake TO ICEBERG CATALOG ({});"
AWS = "CREATE CONNECTION aws TO AWS (ACCESS KEY ID = 'AKIA', SECRET ACCESS KEY = 'aws-secret', REGION = 'eu-west-1');"


def catalog(folder: Path, options: str, before: str = "", using: str = "") -> dict[str, str]:
    source = "CREATE SOURCE o FROM LOAD GENERATOR COUNTER;"
    script = f"{before}{REST.format(options)}{source}CREATE SINK s FROM o {TO} {using};"
    return catalog_settings(pipeline(folder, script).sink).options


def test_a_rest_catalog(tmp_path: Path) -> None:
    secret = "CREATE SECRET p AS 'rest-password';"
    login = "USER = 'me', PASSWORD SECRET = p, SCOPE = 'PRINCIPAL_ROLE:ALL'"
    options = f"TYPE = 'rest', URI = 'https://cat:8081/api', {login}, WAREHOUSE = 'w'"
    found = catalog(tmp_path, options, secret + AWS, "USING AWS CONNECTION aws")
    assert found["credential"] == "me:rest-password"
    assert (found["uri"], found["scope"], found["warehouse"]) == ("https://cat:8081/api", "PRINCIPAL_ROLE:ALL", "w")
    assert (found["s3.access-key-id"], found["s3.secret-access-key"], found["client.region"]) == (
        "AKIA",
        "aws-secret",
        "eu-west-1",
    )


def test_a_catalog_may_have_a_hyphen_in_its_name(tmp_path: Path) -> None:
    lake = LAKE.replace("CONNECTION lake", 'CONNECTION "my-lake"')
    script = f"{lake}CREATE SOURCE o FROM LOAD GENERATOR COUNTER;CREATE SINK s FROM o {TO};"
    made = pipeline(tmp_path, script.replace("CONNECTION lake", 'CONNECTION "my-lake"'))
    assert made.sink.catalog.name == "my-lake"
    (query,) = parse("SELECT * FROM s")
    assert isinstance(query, Query)
    assert with_tables(session(tmp_path).world, query).text == "SELECT * FROM `my-lake`.`n`.`t` AS `s`"


@pytest.mark.parametrize("kind", ["s3table", "s3tablesrest"])
def test_s3_tables_sign_their_requests(tmp_path: Path, kind: str) -> None:
    arn = "arn:aws:s3tables:eu-west-1:1:bucket/b"
    found = catalog(tmp_path, f"CATALOG TYPE = '{kind}', WAREHOUSE = '{arn}', AWS CONNECTION = aws", AWS)
    expected = {
        "uri": "https://s3tables.eu-west-1.amazonaws.com/iceberg",
        "warehouse": arn,
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "s3tables",
        "rest.signing-region": "eu-west-1",
        "rest.access-key-id": "AKIA",
        "rest.secret-access-key": "aws-secret",
        "s3.access-key-id": "AKIA",
    }
    assert {key: found[key] for key in expected} == expected


STORES = """CREATE CONNECTION google TO GCS (PROJECT 'p', SERVICE ACCOUNT KEY = '{"type": "of-google"}');
CREATE CONNECTION blobs TO AZURE (ACCOUNT 'acc', ACCESS KEY 'azure-secret-key');"""


def test_files_are_reached_in_other_stores(tmp_path: Path) -> None:
    options = "TYPE = 'sql', URI = 'sqlite:///c.db', WAREHOUSE = '{}', {} CONNECTION = {}"
    made = pipeline(
        tmp_path,
        f"""{STORES}{REST.format(options.format("gs://b/w", "GCS", "google"))}
        CREATE SOURCE o FROM LOAD GENERATOR COUNTER; CREATE SINK s FROM o {TO};""",
    ).sink
    assert made.gcs is not None
    assert made.gcs.service_account_key is not None
    assert (made.gcs.project_id, made.gcs.service_account_key.get_secret_value()) == ("p", '{"type": "of-google"}')
    (shown,) = run(session(tmp_path), "SHOW CREATE CONNECTION google")
    assert "of-google" not in shown.rows[0][1]
    assert "PROJECT = 'p'" in shown.rows[0][1]
    other = tmp_path / "other"
    found = catalog(other, options.format("abfss://c@acc.dfs.core.windows.net/w", "AZURE", "blobs"), STORES)
    assert found["adls.auth.shared-key.account.key"] == "azure-secret-key"
    said = "AZURE CONNECTION has no meaning in a catalog of type glue"
    assert said in refused(session(other), "CREATE CONNECTION g TO ICEBERG CATALOG (TYPE 'glue', AZURE CONNECTION blobs)").message
    assert "nothing of its own to connect to" in refused(session(other), "VALIDATE CONNECTION blobs").message


def test_s3_tables_sign_for_the_first_region_when_none_is_given(tmp_path: Path) -> None:
    keys = "CREATE CONNECTION aws TO AWS (ENDPOINT = 'http://store');"
    found = catalog(tmp_path, "TYPE = 's3table', WAREHOUSE = 'arn:aws:s3tables:x', AWS CONNECTION aws", keys)
    assert found["rest.signing-region"] == "us-east-1"


ROLE = "CREATE CONNECTION role TO AWS (ASSUME ROLE ARN = 'arn:aws:iam::1:role/r');"
KINDS = {
    "rest": "TYPE = 'rest', URI = 'http://x', AWS CONNECTION = {}",
    "sql": "TYPE = 'sql', URI = 'sqlite:///c.db', WAREHOUSE = 's3://b/w', AWS CONNECTION = {}",
    "hive": "TYPE = 'hive', URI = 'thrift://h:9083', WAREHOUSE = 's3://b/w', AWS CONNECTION = {}",
    "s3table": "TYPE = 's3table', WAREHOUSE = 'arn:aws:s3tables:x', AWS CONNECTION = {}",
    "glue": "TYPE = 'glue', WAREHOUSE = 's3://b/w', AWS CONNECTION = {}",
    "hadoop": "TYPE = 'hadoop', WAREHOUSE = 's3://b/w', AWS CONNECTION = {}",
}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        *((kind, True) for kind in ["rest", "sql", "hive", "glue", "s3table", "hadoop"]),
        *((kind, False) for kind in ["rest", "sql", "hive", "s3table", "hadoop"]),
    ],
)
def test_files_are_reached_with_the_role_of_their_connection(tmp_path: Path, kind: str, own: bool) -> None:
    options, using = KINDS[kind].format("role" if own else "aws"), "" if own else "USING AWS CONNECTION role"
    found = catalog(tmp_path, options, ROLE + AWS, using)
    assert found["client.factory"] == "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
    assert (found["client.assume-role.arn"], found["client.assume-role.region"]) == ("arn:aws:iam::1:role/r", "us-east-1")
    assert "s3.access-key-id" not in found


@pytest.mark.parametrize("kind", ["rest", "sql", "hive"])
def test_a_sink_with_keys_of_its_own_does_not_assume_the_role_of_its_catalog(tmp_path: Path, kind: str) -> None:
    found = catalog(tmp_path, KINDS[kind].format("role"), ROLE + AWS, "USING AWS CONNECTION aws")
    assert found["s3.access-key-id"] == "AKIA"
    assert "client.factory" not in found


@pytest.mark.parametrize(
    ("kind", "using", "said"),
    [
        ("glue", "role", "have one ASSUME ROLE ARN"),
        ("glue", "far", "have one REGION"),
    ],
)
def test_a_sink_cannot_reach_files_as_its_catalog_cannot(tmp_path: Path, kind: str, using: str, said: str) -> None:
    here = session(tmp_path)
    far = "CREATE CONNECTION far TO AWS (REGION = 'us-west-2');"
    run(here, f"{ROLE}{AWS}{far}{REST.format(KINDS[kind].format('aws'))}CREATE SOURCE o FROM LOAD GENERATOR COUNTER")
    error = refused(here, f"CREATE SINK s FROM o {TO} USING AWS CONNECTION {using}")
    assert said in error.message
    assert error.location is not None
    assert error.location.text.startswith(using, error.location.column - 1)


def test_glue_is_called_in_the_first_region_when_none_is_given_and_with_all_its_keys(tmp_path: Path) -> None:
    nowhere = (
        """CREATE CONNECTION aws TO AWS (ACCESS KEY ID = 'AKIA', SECRET ACCESS KEY = 'aws-secret', SESSION TOKEN = 'tok');"""
    )
    found = catalog(tmp_path, KINDS["glue"].format("aws"), nowhere)
    assert (found["client.region"], found["glue.session-token"]) == ("us-east-1", "tok")


def test_a_role_with_what_it_asks_for_and_encryption_by_the_store(tmp_path: Path) -> None:
    role = """CREATE CONNECTION aws TO AWS (ASSUME ROLE ARN = 'arn:aws:iam::1:role/r', EXTERNAL ID = 'x1',
              ASSUME ROLE SESSION NAME = 'frazil', SSE TYPE = 'kms', KMS KEY = 'alias/lake', PROFILE = 'writer');"""
    found = catalog(tmp_path, KINDS["rest"].format("aws"), role)
    assert (found["client.assume-role.external-id"], found["client.assume-role.session-name"]) == ("x1", "frazil")
    assert (found["s3.sse.type"], found["s3.sse.key"]) == ("kms", "alias/lake")


@pytest.mark.parametrize(
    ("statement", "said", "at"),
    [
        ("AWS (EXTERNAL ID = 'x')", "external_id has no meaning without role_arn", "EXTERNAL ID"),
        ("AWS (SSE TYPE = 'aes')", "SSE TYPE cannot be 'aes'; there are: s3, kms, dsse-kms, custom", "SSE TYPE"),
        ("AWS (KMS KEY = 'k')", "kms_key has no meaning without sse_type: kms or dsse-kms", "KMS KEY"),
        ("AZURE (ACCOUNT 'a', CLIENT ID 'c', ACCESS KEY 'k')", "CLIENT ID has no meaning beside ACCESS KEY", "CLIENT ID"),
        ("AZURE (ACCOUNT 'a', TENANT ID 't')", "tenant_id and client_secret belong together", "TENANT ID"),
        (
            "GCS (SERVICE ACCOUNT FILE 'f', ACCESS TOKEN 't')",
            "ACCESS TOKEN has no meaning beside SERVICE ACCOUNT FILE",
            "ACCESS TOKEN",
        ),
    ],
)
def test_a_store_with_options_that_do_not_fit_together(tmp_path: Path, statement: str, said: str, at: str) -> None:
    error = refused(session(tmp_path), f"CREATE CONNECTION c TO {statement}")
    assert said in error.message
    assert error.location is not None
    assert error.location.text.startswith(at, error.location.column - 1)


@pytest.mark.parametrize(
    ("options", "before", "said"),
    [
        ("TYPE = 's3table', WAREHOUSE = 'arn:x'", "", "S3 Tables need an AWS CONNECTION"),
        ("TYPE = 's3table', WAREHOUSE = 'w', AWS CONNECTION aws", AWS, "is the ARN of the table bucket"),
        ("TYPE = 's3table', WAREHOUSE = 'arn:x', AWS CONNECTION aws, USER 'u'", AWS, "USER has no meaning with S3 Tables"),
        ("TYPE = 'hadoop', WAREHOUSE = 'w', SCOPE = 's'", "", "SCOPE has no meaning in a catalog of type hadoop"),
        ("TYPE = 'sql', REF = 'r'", "", "REF has no meaning in a catalog of type sql"),
        ("TYPE = 'nessie', URI = 'http://n/iceberg', WAREHOUSE = 's3://b/w'", "", "for its Iceberg REST endpoint"),
        ("TYPE = 'bigquery', WAREHOUSE = 'gs://b/w'", "", "Project is required"),
        ("TYPE = 'rest', URI = 'https://c', ACCESS DELEGATION = 'x'", "", "ACCESS DELEGATION cannot be"),
        ("TYPE = 'rest', URI = 'https://c', SSL KEY = '/k.pem'", "", "cert_path and key_path belong together"),
        ("TYPE = 'hive'", "", "Hive metastore URI is required"),
        ("TYPE = 'glue'", "", "AWS region is required"),
        ("TYPE = 'sql', URI = 'sqlite:///x.db'", "", "Warehouse is required"),
        ("TYPE = 'rest'", "", "REST catalog URI is required for REST catalog type"),
        ("URI = 'http://x'", "", "TYPE is missing"),
        ("TYPE = 'rest', URI = 'http://x', NAME = 'a b'", "", "NAME must be made of letters, digits, underscores and hyphens"),
    ],
)
def test_catalogs_that_lack_something(tmp_path: Path, options: str, before: str, said: str) -> None:
    here = session(tmp_path)
    run(here, before)
    assert said in refused(here, REST.format(options)).message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("TYPE = 'hive', URI = 'thrift://h:9083', WAREHOUSE = 's3://b/w'", {"type": "hive", "uri": "thrift://h:9083"}),
        ("TYPE = 'glue', AWS CONNECTION = aws, WAREHOUSE = 's3://b/w'", {"type": "glue", "client.region": "eu-west-1"}),
        ("TYPE = 'hadoop', WAREHOUSE = 'file:///w'", {"type": "hadoop", "warehouse": "file:///w"}),
        (
            "TYPE = 'nessie', URI = 'http://n/api/v2', WAREHOUSE = 's3://b/w', REF = 'dev', TOKEN = 'tok-tok'",
            {"type": "nessie", "ref": "dev", "authentication.token": "tok-tok", "warehouse": "s3://b/w"},
        ),
        (
            "TYPE = 'bigquery', PROJECT = 'p', WAREHOUSE = 'gs://b/w'",
            {"type": "bigquery", "gcp.bigquery.project-id": "p", "warehouse": "gs://b/w"},
        ),
        (
            "TYPE = 'rest', URI = 'https://c', ACCESS DELEGATION = 'vended-credentials', SSL CERTIFICATE AUTHORITY = '/ca.pem'",
            {"header.X-Iceberg-Access-Delegation": "vended-credentials", "frazil.tls.ca-path": "/ca.pem"},
        ),
        (
            "TYPE = 'sql', URI = 'postgresql://h/d', USER 'u', PASSWORD 'sql-password', WAREHOUSE = 'file:///w'",
            {"jdbc.user": "u", "jdbc.password": "sql-password"},
        ),
    ],
)
def test_other_catalogs(tmp_path: Path, options: str, expected: dict[str, str]) -> None:
    found = catalog(tmp_path, options, AWS)
    assert {key: found[key] for key in expected} == expected


def test_a_kafka_source(tmp_path: Path) -> None:
    source = """CREATE SOURCE o (id bigint NOT NULL, note text) FROM KAFKA CONNECTION kafka (TOPIC 'orders', GROUP ID 'g')
                FORMAT JSON INCLUDE OFFSET AS place, TIMESTAMP;"""
    made = pipeline(tmp_path, f"{LAKE}{KAFKA}{source}CREATE SINK s FROM o {TO};")
    assert isinstance(made.source, KafkaSource)
    assert (made.source.bootstrap_servers, made.source.topics) == ("a:9092,b:9092", ("orders",))
    assert (made.source.start_offset, made.source.consumer_group) == ("earliest", "g")
    assert made.source.format.model_dump(by_alias=True)["schema"][0]["required"]
    assert made.source.metadata == ("offset", "timestamp")
    assert [(one.type, one.model_dump()["to"]) for one in made.transforms] == [
        ("rename_field", "place"),
        ("rename_field", "timestamp"),
    ]


@pytest.mark.parametrize(
    ("columns", "clauses", "said", "token"),
    [
        ("(id bigint, offset int)", "FORMAT JSON INCLUDE PARTITION, OFFSET", "the column 'offset' is declared already", "OFFSET"),
        ("(id bigint, Place int)", "FORMAT JSON INCLUDE OFFSET AS place", "the column 'place' is declared already", "place"),
        ("", "FORMAT JSON INCLUDE OFFSET AS x, TIMESTAMP AS X", "the column 'X' is there already", "X"),
        ("", "FORMAT TEXT INCLUDE OFFSET AS value", "the column 'value' is the value of the messages", "value"),
        ("(key text)", "KEY FORMAT TEXT VALUE FORMAT JSON", "the column 'key' is declared already", "TEXT"),
        ("", "KEY FORMAT BYTES VALUE FORMAT TEXT INCLUDE KEY", "the column 'key' is there already", "BYTES"),
    ],
)
def test_columns_of_one_name_are_refused_at_the_later(tmp_path: Path, columns: str, clauses: str, said: str, token: str) -> None:
    here = session(tmp_path)
    run(here, KAFKA)
    error = refused(here, f"CREATE SOURCE o {columns} FROM KAFKA CONNECTION kafka (TOPIC 't') {clauses}")
    assert said in error.message
    assert error.location is not None
    assert error.location.text.startswith(token, error.location.column - 1)


def test_sasl_and_tls_of_a_kafka_connection(tmp_path: Path) -> None:
    secure = """CREATE CONNECTION kafka TO KAFKA (BROKER 'a:9093', SASL MECHANISMS = 'scram-sha-256', SASL USERNAME = 'u',
                SASL PASSWORD = 'kafka-password', SSL CERTIFICATE AUTHORITY = '/ca.pem');"""
    source = "CREATE SOURCE o FROM KAFKA CONNECTION kafka (TOPIC 't', START TIMESTAMP = '2026-01-31T12:00:00Z') FORMAT TEXT;"
    made = pipeline(tmp_path, f"{LAKE}{secure}{source}CREATE SINK s FROM o {TO};").source
    assert isinstance(made, KafkaSource)
    assert made.security is not None
    assert (made.security.mechanism, made.security.password.get_secret_value()) == ("SCRAM-SHA-256", "kafka-password")
    assert made.tls is not None
    assert (made.tls.enabled, made.tls.ca_path) == (True, "/ca.pem")
    assert (made.start_offset, made.start_timestamp) == ("timestamp", "2026-01-31T12:00:00Z")


@pytest.mark.parametrize(
    ("clauses", "item", "sink", "order"),
    [
        ("FORMAT JSON", "o", "KEY (id)", "time"),
        ("KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE UPSERT", "o", "KEY (id)", "time"),
        ("FORMAT JSON", "o", "", "offset"),
        ("KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE DEBEZIUM", "o", "", "offset"),
        ("FORMAT JSON", "sums", "", "offset"),
    ],
)
def test_the_last_message_of_a_key_counts_whichever_partition_it_is_in(
    tmp_path: Path, clauses: str, item: str, sink: str, order: str
) -> None:
    source = f"CREATE SOURCE o (id bigint) FROM KAFKA CONNECTION kafka (TOPIC 't') {clauses};"
    view = "CREATE VIEW sums AS SELECT id, count(*) AS n FROM o GROUP BY id;" if item == "sums" else ""
    made = pipeline(tmp_path, f"{LAKE}{KAFKA}{source}{view}CREATE SINK s FROM {item} {TO} {sink};").source
    assert isinstance(made, KafkaSource)
    assert made.order == order


@pytest.mark.parametrize(
    ("clauses", "sink", "mode", "keyed"),
    [
        ("FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr", "", "append", False),
        ("FORMAT AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr ENVELOPE DEBEZIUM", "", "upsert", True),
        ("KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT", "KEY (key)", "upsert", True),
        ("KEY FORMAT JSON VALUE FORMAT JSON ENVELOPE DEBEZIUM", "MODE APPEND WITH (DIFF COLUMN = 'd')", "append", True),
        ("KEY FORMAT JSON VALUE FORMAT JSON", "", "append", True),
    ],
)
def test_envelopes_decide_the_mode(tmp_path: Path, clauses: str, sink: str, mode: str, keyed: bool) -> None:
    source = f"CREATE SOURCE o FROM KAFKA CONNECTION kafka (TOPIC 't') {clauses};"
    made = pipeline(tmp_path, f"{LAKE}{KAFKA}{REGISTRY}{source}CREATE SINK s FROM o {TO} {sink};")
    assert isinstance(made.source, KafkaSource)
    assert made.sink.commit_mode == mode
    assert (made.source.key_format is not None) == keyed
    assert made.source.tells_operations == ("ENVELOPE" in clauses)


def test_a_view_looks_at_the_rows_in_envelopes(tmp_path: Path) -> None:
    source = f"{KAFKA}CREATE SOURCE o (id bigint) FROM KAFKA CONNECTION kafka (TOPIC 't') FORMAT JSON ENVELOPE DEBEZIUM;"
    view = "CREATE VIEW v AS SELECT id FROM o WHERE id > 1;"
    made = pipeline(tmp_path, f"{LAKE}{source}{view}CREATE SINK s FROM v {TO} KEY (id);")
    assert [one.type for one in made.transforms] == ["unwrap_debezium", "where", "select"]
    assert made.sink.change_format == "rows"


def test_tables_of_a_database_each_have_their_own_slot(tmp_path: Path) -> None:
    script = f"""{LAKE}
    CREATE CONNECTION pg TO POSTGRES (HOST 'h', PORT 6543, DATABASE 'd', USER 'u', PASSWORD 'pg-password', SSL MODE require);
    CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (sales.orders, customers AS people);
    CREATE SOURCE rest FROM POSTGRES CONNECTION pg (PUBLICATION 'q') FOR ALL TABLES;
    CREATE SINK a FROM orders {TO}; CREATE SINK b FROM people {TO} WITH (HISTORY = 'scd2');
    CREATE SINK c FROM shop.sales.orders {TO};
    CREATE SINK d FROM rest.hr.staff {TO} MODE APPEND;"""
    here = session(tmp_path)
    run(here, script)
    found = {one.name: one for one in here.project().pipelines}
    sources = {name: one.source for name, one in found.items() if isinstance(one.source, PostgresCdcSource)}
    assert {name: (one.streams[0].full_name, one.slot, one.publication) for name, one in sources.items()} == {
        "a": ("sales.orders", "frazil_a", "p"),
        "b": ("public.customers", "frazil_b", "p"),
        "c": ("sales.orders", "frazil_c", "p"),
        "d": ("hr.staff", "frazil_d", "q"),
    }
    assert (sources["a"].port, sources["a"].sslmode, sources["a"].create_publication) == (6543, "require", False)
    assert [found[name].sink.commit_mode for name in "abd"] == ["upsert", "upsert", "append"]
    assert [found[name].sink.history for name in "ab"] == [None, History()]
    run(here, "CREATE SOURCE one FROM POSTGRES CONNECTION pg (PUBLICATION 'p', SLOT 'mine') FOR TABLES (items);")
    run(here, f"CREATE SINK e FROM items {TO}")
    assert "reads through the replication slot 'mine' already" in refused(here, f"CREATE SINK f FROM items {TO}").message


def test_generators_and_files(tmp_path: Path) -> None:
    counter = "CREATE SOURCE o FROM LOAD GENERATOR COUNTER (TICK INTERVAL '100ms', UP TO 7);"
    made = pipeline(tmp_path, f"{LAKE}{counter}CREATE SINK s FROM o {TO};")
    assert made.source == GeneratorSource(rows=7, rows_per_second=10)
    assert made.transforms[0].model_dump()["expressions"] == ("event_number + 1 AS counter",)
    shop = "CREATE SOURCE p FROM LOAD GENERATOR SHOP (ROWS 5, ROWS PER SECOND 2, SEED 3);"
    assert pipeline(tmp_path, f"{shop}CREATE SINK q FROM p {TO};", "q").source == GeneratorSource(
        rows=5, rows_per_second=2, seed=3
    )
    files = (
        "CREATE SOURCE f (a int) FROM FILES (PATH = 'in', FORMAT = 'csv', HEADER = true, PATTERN = '*.csv', RECURSIVE = true);"
    )
    read = pipeline(tmp_path, f"{files}CREATE SINK g FROM f {TO};", "g").source
    assert isinstance(read, FilesSource)
    assert (read.format, read.options, read.pattern, read.recursive) == ("csv", {"header": "true"}, "*.csv", True)


def test_a_grouped_view_is_upserted_by_its_groups(tmp_path: Path) -> None:
    script = f"""{LAKE}CREATE SOURCE o FROM LOAD GENERATOR SHOP;
    CREATE VIEW bought AS SELECT * FROM o WHERE event_type = 'purchase';
    CREATE MATERIALIZED VIEW m AS SELECT country, count(*) AS n, max(amount) AS most FROM bought GROUP BY country;
    CREATE SINK s FROM m {TO};"""
    made = pipeline(tmp_path, script)
    assert (made.sink.commit_mode, made.sink.key_fields) == ("upsert", ("country",))
    assert made.sink.combine == {"n": "sum", "most": "max"}
    assert [one.type for one in made.transforms] == ["where", "select"]
    place = made.transforms[0].place("condition")
    assert place is not None
    assert place.text[place.column - 1 :].startswith("event_type")
    here = session(tmp_path)
    assert "KEY must be the columns of GROUP BY: country" in refused(here, f"CREATE SINK t FROM m {TO} KEY (n)").message
    assert "which MODE APPEND cannot" in refused(here, f"CREATE SINK t FROM m {TO} MODE APPEND").message
    assert "groups change as rows come" in refused(here, "CREATE VIEW w AS SELECT n FROM m").message


@pytest.mark.skipif(not BESIDE, reason="the document is not beside the project")
@pytest.mark.parametrize("kind", ["rest", "s3table"])
def test_every_block_of_the_document_is_accepted(tmp_path: Path, kind: str) -> None:
    """As written, but for the choice that the first leaves open; S3 Tables have no user, and a table bucket that has a name."""
    catalog_block, aws_block, sink_block = blocks(BESIDE[0])
    block = catalog_block.replace("'rest' | 's3table'", f"'{kind}'").replace("'...'", "'arn:aws:s3tables:x'")
    if kind == "s3table":
        block = re.sub(r"(?m)^ *(USER|PASSWORD) .*\n", "", block)
    here = session(tmp_path)
    run(here, "CREATE SECRET iceberg_pass AS 'of-the-catalog'; CREATE CONNECTION \"...\" TO AWS (REGION = 'eu-west-1');")
    run(here, f"{block};{aws_block};")
    run(here, "CREATE SOURCE o FROM LOAD GENERATOR SHOP")
    run(here, "CREATE VIEW my_favorite_materialized_view AS SELECT user_id, country FROM o")
    run(here, sink_block)
    made = here.project().pipelines[0].sink
    assert (made.namespace, made.table, made.file_format) == ("namespace_name", "table_name", "parquet")
    assert (made.batch_bytes, made.flush_interval_secs) == (1 << 20, 10)
    assert made.s3 is not None
    assert made.s3.region == "eu-west-1"
    if kind == "rest":
        rest = made.catalog.rest
        assert rest is not None
        assert rest.uri == "https://my.awesome.cat:8081/api/catalog"
        assert rest.credential is not None
        assert rest.credential.get_secret_value() == "materialize:of-the-catalog"
    else:
        assert (made.catalog.type, made.catalog.location) == ("s3tables", "arn:aws:s3tables:x")
        signed = made.catalog.as_rest
        assert signed is not None
        assert signed.sigv4 is not None
        assert (signed.sigv4.name, signed.sigv4.region) == ("s3tables", "eu-west-1")
