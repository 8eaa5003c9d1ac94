"""The configuration: what it means to the engine, and the mistakes that users make in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType, TimeType

import frazil
from frazil.bytewax import IcebergSink, IcebergSinkConfig
from frazil.spark.catalogs import catalog_settings

SCHEMA = Schema(
    NestedField(10, "id", LongType(), required=True),
    NestedField(20, "name", StringType(), required=False),
    NestedField(30, "at", TimestamptzType(), required=False, doc="when"),
    identifier_field_ids=[10],
)
ARROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def config(**given: Any) -> IcebergSinkConfig:
    rest = {"catalog_uri": "http://catalog:8181", "table_name": "db.t", "warehouse_path": "lake", "catalog_type": "rest"}
    return IcebergSinkConfig(**(rest | given))


def test_defaults_and_presets_are_those_of_the_document() -> None:
    made = config()
    assert (made.batch_size, made.batch_interval_seconds, made.num_partitions, made.file_format) == (1000, 15, 1, "parquet")
    presets = [made.for_high_throughput(), made.for_low_latency(), made.for_petabyte_scale()]
    assert [(one.batch_size, one.batch_interval_seconds, one.num_partitions) for one in presets] == [
        (10_000, 30, 8),
        (100, 5, 2),
        (50_000, 60, 32),
    ]
    assert {one.table_name for one in presets} == {"db.t"}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (["name", "day(at)", "bucket(4, id)"], ["identity(name)", "day(at)", "bucket[4](id)"]),
        ([20, 30], ["identity(name)", "identity(at)"]),
        (
            PartitionSpec(
                PartitionField(30, 1000, DayTransform(), "at_day"),
                PartitionField(10, 1001, BucketTransform(4), "b"),
                PartitionField(20, 1002, IdentityTransform(), "name"),
            ),
            ["day(at)", "bucket[4](id)", "identity(name)"],
        ),
    ],
)
def test_partition_specs_by_name_by_ordinal_and_of_pyiceberg(spec: Any, fields: list[str]) -> None:
    made = config(table_schema=SCHEMA, partition_spec=spec).spec.partition
    assert [f"{one.iceberg_transform}({one.source})" for one in made] == fields
    if isinstance(spec, PartitionSpec):
        assert [one.field_name for one in made] == ["at_day", "b", "name"]


def test_the_ordinals_of_an_arrow_schema_are_places() -> None:
    made = config(arrow_schema=ARROW, partition_spec=[3, 2]).spec.partition
    assert [one.source for one in made] == ["at", "name"]


@pytest.mark.parametrize(
    "order",
    [
        ["at desc", "bucket(4, id) asc nulls last"],
        SortOrder(
            SortField(30, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
            SortField(10, transform=BucketTransform(4), direction=SortDirection.ASC, null_order=NullOrder.NULLS_LAST),
        ),
    ],
)
def test_sort_orders(order: Any) -> None:
    made = config(table_schema=SCHEMA, sort_order=order).spec.sort_by
    assert [str(one) for one in made] == ["at desc nulls last", "bucket(4, id) asc nulls last"]


def test_a_schema_of_pyiceberg_keeps_everything() -> None:
    columns = config(table_schema=SCHEMA).spec
    assert [(c.name, c.type, c.required, c.doc) for c in columns.columns] == [
        ("id", "long", True, None),
        ("name", "string", False, None),
        ("at", "timestamptz", False, "when"),
    ]
    assert columns.key_fields == ("id",)


@pytest.mark.parametrize(
    ("given", "section", "expected"),
    [
        ({}, "rest", {"uri": "http://catalog:8181"}),
        ({"catalog_type": "nessie"}, "rest", {"uri": "http://catalog:8181"}),
        (
            {"extra_options": {"oauth2-server-uri": "http://t", "scope": "all"}},
            "rest",
            {"oauth2_server_uri": "http://t", "scope": "all"},
        ),
        ({"extra_options": {"header.X": "1"}}, "rest", {"properties": {"header.X": "1"}}),
        ({"catalog_type": "sql", "catalog_uri": "sqlite:///c.db"}, "sql", {"uri": "sqlite:///c.db"}),
        ({"catalog_type": "jdbc", "catalog_uri": "postgresql://h/db", "extra_options": {"user": "u"}}, "sql", {"user": "u"}),
        (
            {"catalog_type": "nessie", "catalog_uri": "http://n/api/v2", "extra_options": {"ref": "dev"}},
            "nessie",
            {"uri": "http://n/api/v2", "ref": "dev"},
        ),
        ({"catalog_type": "bigquery", "catalog_uri": "", "extra_options": {"project_id": "p"}}, "bigquery", {"project_id": "p"}),
        (
            {"catalog_type": "hadoop", "catalog_uri": "", "extra_options": {"s3.write.tags.team": "a"}},
            "hadoop",
            {"properties": {"s3.write.tags.team": "a"}},
        ),
        ({"catalog_type": "sql", "catalog_uri": "mysql+pymysql://h/d"}, "sql", {"uri": "mysql+pymysql://h/d"}),
        ({"catalog_type": "hive", "catalog_uri": "thrift://h:9083"}, "hive", {"uri": "thrift://h:9083"}),
        ({"catalog_type": "glue", "catalog_uri": "https://glue.eu-west-1.amazonaws.com"}, "glue", {"region": "eu-west-1"}),
        (
            {"catalog_type": "glue", "catalog_uri": "http://localhost:5000", "extra_options": {"region": "us-east-1"}},
            "glue",
            {"region": "us-east-1", "endpoint": "http://localhost:5000"},
        ),
        *(
            ({"catalog_type": "glue", "catalog_uri": "", "extra_options": {name: "eu-west-1"}}, "glue", {"region": "eu-west-1"})
            for name in ("region", "glue.region", "client.region")
        ),
        (
            {
                "catalog_type": "glue",
                "catalog_uri": "",
                "extra_options": {"glue.region": "r", "client.region": "of all", "glue.id": "7", "client.profile-name": "p"},
            },
            "glue",
            {"region": "r", "catalog_id": "7", "profile": "p"},
        ),
    ],
)
def test_catalogs(given: dict[str, Any], section: str, expected: dict[str, Any]) -> None:
    catalog = config(**given).spec.catalog
    assert catalog.type == section
    made = getattr(catalog, section).model_dump()
    assert {name: made[name] for name in expected} == expected
    assert catalog.location == "lake"


def test_catalogs_without_an_address() -> None:
    for kind in ("hadoop", "memory", "in-memory"):
        assert config(catalog_type=kind, catalog_uri="").spec.catalog.location == "lake"
        assert config(catalog_type=kind, catalog_uri="lake").spec.catalog.location == "lake"


@pytest.mark.parametrize(
    ("given", "store", "expected"),
    [
        ({"s3.access-key-id": "k", "s3.region": "r"}, "s3", {"client.region": "r", "s3.access-key-id": "k"}),
        ({"client.access-key-id": "k", "s3.secret-access-key": "s"}, "s3", {"s3.access-key-id": "k"}),
        ({"client.access-key-id": "all", "s3.access-key-id": "k"}, "s3", {"s3.access-key-id": "k"}),
        ({"s3.sse.type": "kms", "s3.sse-kms-key-id": "k"}, "s3", {"s3.sse.type": "kms", "s3.sse.key": "k"}),
        ({"s3.proxy-uri": "http://p:1"}, "s3", {"http-client.proxy-endpoint": "http://p:1"}),
        ({"s3.signer.uri": "http://s"}, "s3", {"signer.uri": "http://s"}),
        ({"s3.write.tags.team": "a"}, "s3", {"s3.write.tags.team": "a"}),
        ({"gcs.project-id": "p", "gcs.service.host": "http://g"}, "gcs", {"gcs.project-id": "p", "gcs.service.host": "http://g"}),
        ({"gcs.oauth2.token": "t", "gcs": {"project_id": "p"}}, "gcs", {"gcs.oauth2.token": "t", "gcs.project-id": "p"}),
        (
            {"adls.account-name": "a", "adls.account-key": "k"},
            "azure",
            {"adls.auth.shared-key.account.name": "a", "adls.auth.shared-key.account.key": "k"},
        ),
        (
            {"adls.account-name": "a", "adls.sas-token": "s"},
            "azure",
            {"adls.sas-token.a.dfs.core.windows.net": "s"},
        ),
    ],
)
def test_properties_of_stores_by_the_names_of_pyiceberg(given: dict[str, Any], store: str, expected: dict[str, str]) -> None:
    spec = config(extra_options=given).spec
    settings = catalog_settings(spec)
    assert getattr(spec, store) is not None
    assert {"s3": "aws", "gcs": "gcp", "azure": "azure"}[store] in settings.components, "the jars for it are there"
    assert {name: settings.options.get(name) for name in expected} == expected


def test_options_of_stores_sinks_and_spark(tmp_path: Path) -> None:
    made = config(
        temp_dir=str(tmp_path),
        location="s3://b/t",
        file_format="orc",
        extra_options={
            "s3.endpoint": "http://minio:9000",
            "s3.access-key-id": "key",
            "s3.path-style-access": "true",
            "compression": "zstd",
            "target_file_size_mb": 64,
            "id": "mine",
            "catalog_name": "prod",
            "spark": {"master": "local[2]"},
            "retry": {"max_retries": 3},
        },
    )
    spec = made.spec
    assert spec.s3 is not None
    assert (spec.s3.endpoint, spec.s3.path_style_access) == ("http://minio:9000", True)
    assert (spec.compression, spec.target_file_size_mb, spec.id, spec.catalog.name) == ("zstd", 64, "mine", "prod")
    assert (spec.location, spec.file_format) == ("s3://b/t", "orc")
    assert (made.settings.spark.master, made.settings.retry.max_retries) == ("local[2]", 3)
    assert made.settings.spark.conf == {"spark.local.dir": str(tmp_path)}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"batch_sise": 5}, "batch_sise: there is no option of this name.\nDid you mean 'batch_size'?"),
    ({"catalog_uri": None}, "catalog_uri: "),
    ({"batch_size": 0}, "batch_size: input should be greater than or equal to 1"),
    ({"batch_size": 100_001}, "batch_size: input should be less than or equal to 100000"),
    ({"batch_interval_seconds": 301}, "batch_interval_seconds: input should be less than or equal to 300"),
    ({"num_partitions": 101}, "num_partitions: input should be less than or equal to 100"),
    ({"table_name": "orders"}, "table_name: 'orders' is not namespace.table"),
    ({"catalog_type": "hvie"}, "catalog_type: there is no catalog of type 'hvie'.\nDid you mean 'hive'?"),
    ({"catalog_uri": "catalog:8181"}, "catalog_uri: Invalid REST catalog URI: catalog:8181"),
    ({"catalog_type": "sql", "catalog_uri": "oracle://h/db"}, "catalog_uri: Invalid SQL catalog URI"),
    ({"catalog_type": "hadoop"}, "catalog_uri: a catalog of type hadoop has no address"),
    ({"catalog_type": "glue", "catalog_uri": ""}, "catalog_uri: AWS region is required for Glue catalog type"),
    ({"file_format": "csv"}, "file_format: input should be 'parquet', 'orc' or 'avro'"),
    ({"temp_dir": "/no/such/folder"}, "temp_dir: '/no/such/folder' is not a folder that can be written to"),
    ({"table_schema": ARROW}, "table_schema: it must be a pyiceberg.schema.Schema, not Schema; pass it as arrow_schema"),
    ({"arrow_schema": SCHEMA}, "arrow_schema: it must be a pyarrow.Schema, not Schema; pass it as table_schema"),
    ({"arrow_schema": {"id": "long"}}, "arrow_schema: it must be a pyarrow.Schema, not dict"),
    (
        {"table_schema": SCHEMA, "arrow_schema": pa.schema([("id", pa.int64())])},
        "arrow_schema: it does not agree with table_schema: the field 'name'",
    ),
    ({"arrow_schema": pa.schema([("t", pa.time64("us"))])}, "arrow_schema: the field 't' has Arrow's type time64[us]"),
    ({"arrow_schema": pa.schema([("s", pa.struct([("n", pa.timestamp("ns"))]))])}, "arrow_schema: the field 's.n' has"),
    ({"partition_spec": ["id"]}, "partition_spec: it is for a new table, whose columns are not declared"),
    (
        {"table_schema": SCHEMA, "partition_spec": ["ids"]},
        "partition_spec: partition column 'ids' is not among the declared columns",
    ),
    (
        {"table_schema": SCHEMA, "partition_spec": [2]},
        "partition_spec: the schema has no field with the ordinal 2.\nIt has: 10 id, 20 name, 30 at.",
    ),
    ({"table_schema": SCHEMA, "partition_spec": "id"}, "partition_spec: it must be PyIceberg's PartitionSpec, or a list"),
    ({"table_schema": SCHEMA, "partition_spec": [1.5]}, "partition_spec: 1.5 is neither the name of a field nor its ordinal"),
    (
        {"table_schema": SCHEMA, "partition_spec": ["day(name)"]},
        "partition_spec: day(name) cannot be applied: column 'name' has type string",
    ),
    ({"table_schema": SCHEMA, "partition_spec": ["weekly(at)"]}, "partition_spec: unknown transform 'weekly'"),
    ({"table_schema": SCHEMA, "sort_order": ["when desc"]}, "sort_order: sort column 'when' is not among the declared columns"),
    ({"on_fresh_start": "maybe"}, "on_fresh_start: input should be 'auto', 'undo' or 'append'"),
    (
        {"extra_options": {"compresion": "zstd"}},
        "extra_options.compresion: there is no option of this name.\nDid you mean 'compression'?",
    ),
    ({"extra_options": {"commit_mode": "upsert"}}, "extra_options.commit_mode: there is no option of this name"),
    *(
        (
            {"extra_options": {name: "x"}} | more,
            f"extra_options.{name}: there is no option of this name.\n{cure}",
        )
        for name, cure, more in (
            ("s3.acces-key-id", "Did you mean 's3.access-key-id'?", {}),
            ("s3.endpont", "Did you mean 's3.endpoint'?", {}),
            ("s3.sse.typ", "Did you mean 's3.sse.type'?", {}),
            ("s3.signer", "Write 's3.remote-signing-enabled': 'true'.", {}),
            ("s3.unheard-of", "Known: s3.acceleration-enabled, ", {}),
            ("adls.acount-name", "Did you mean 'adls.account-name'?", {}),
            ("gcs.projectid", "Did you mean 'gcs.project-id'?", {}),
            ("glue.regoin", "Did you mean 'glue.region'?", {"catalog_type": "glue", "catalog_uri": ""}),
        )
    ),
    ({"extra_options": {"s3.region": "r", "s3": "r"}}, "extra_options.s3: input should be a valid dictionary"),
    ({"extra_options": {"compression": "rar"}}, "extra_options.compression: input should be"),
    ({"extra_options": {"catalog_name": "a b"}}, "extra_options.catalog_name: string should match pattern"),
    (
        {"table_schema": Schema(NestedField(1, "at", TimeType(), required=False))},
        "table_schema: there are columns whose types cannot be written from Bytewax: 'at' (time).",
    ),
    ({"extra_options": {"extra_columns": "evolve"}}, "extra_options.extra_columns: input should be 'ignore' or 'refuse'"),
    ({"extra_options": {"raw_column": "raw"}}, "extra_options.raw_column: it has no meaning without error_column"),
    (
        {"table_schema": SCHEMA, "extra_options": {"error_column": "at"}},
        "extra_options.error_column: 'at' is not an optional string column",
    ),
    (
        {"extra_options": {"spark": {"mastr": "local"}}},
        "extra_options.spark.mastr: there is no option of this name.\nDid you mean 'master'?",
    ),
]


@pytest.mark.parametrize(("given", "message"), MISTAKES, ids=[message.partition("\n")[0][:60] for _, message in MISTAKES])
def test_a_mistake_is_reported_with_its_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(frazil.ConfigError) as caught:
        config(**given)
    assert message in str(caught.value)


def test_a_missing_argument_and_a_wrong_one_are_reported_together() -> None:
    with pytest.raises(frazil.ConfigErrors) as caught:
        IcebergSinkConfig(table_name="db.t", warehouse_path="w", catalog_type="rest", batch_size="many")
    assert [one.message.partition(":")[0] for one in caught.value.errors] == ["catalog_uri", "batch_size"]


def test_a_sink_takes_a_config() -> None:
    with pytest.raises(frazil.ConfigError, match="config: it must be an IcebergSinkConfig, not dict"):
        IcebergSink({"table_name": "db.t"})  # type: ignore[arg-type]


def test_without_the_package_the_error_names_what_to_install() -> None:
    code = "import sys; sys.modules['bytewax'] = None\nimport frazil.bytewax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "The sink of Bytewax needs the package bytewax.\nInstall it: pip install 'frazil[bytewax]'." in done.stderr


HUSH = "hush-hush"
SECRETS: list[dict[str, Any]] = [
    {"catalog_uri": f"http://user:{HUSH}@catalog:8181"},
    {"catalog_type": "sql", "catalog_uri": f"postgresql://user:{HUSH}@h/db"},
    {"catalog_type": "sql", "catalog_uri": f"jdbc:postgresql://h/db?user=u&password={HUSH}"},
    {"catalog_type": "sql", "catalog_uri": "postgresql://h/db", "extra_options": {"password": HUSH}},
    {"catalog_type": "glue", "catalog_uri": "", "extra_options": {"region": "r", "glue.secret-access-key": HUSH}},
    *(
        {"extra_options": options}
        for options in (
            {"credential": f"id:{HUSH}"},
            {"token": HUSH},
            {"header.Authorization": f"Bearer {HUSH}"},
            {"s3.secret-access-key": HUSH},
            {"s3.access-key-id": HUSH},
            {"s3.session-token": HUSH},
            {"client.secret-access-key": HUSH},
            {"adls.account-key": HUSH},
            {"adls.auth.shared-key.account.key": HUSH},
            {"adls.sas-token": HUSH},
            {"adls.connection-string": f"AccountName=a;AccountKey={HUSH}"},
            {"gcs.oauth2.token": HUSH},
            {"s3": {"secret_access_key": HUSH}},
            {"azure": {"storage_account": "a", "access_key": HUSH}},
            {"gcs": {"service_account_key": HUSH}},
            {"spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": HUSH}}},
        )
    ),
]


def test_a_secret_is_not_shown_by_the_sink_that_is_made_of_it() -> None:
    made = config(extra_options={"credential": f"id:{HUSH}", "s3.secret-access-key": HUSH})
    assert HUSH not in repr(made.spec)


@pytest.mark.parametrize("given", SECRETS, ids=str)
def test_a_secret_is_not_shown(given: dict[str, Any]) -> None:
    made = config(**given)
    for shown in (repr(made), str(made), repr(made.for_low_latency())):
        assert HUSH not in shown
        assert "table_name='db.t'" in shown, "the rest is"
