"""Mistakes that users make: each is reported before anything is written, with the argument or the hint that it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.common.configuration.container import Container
from dlt.common.configuration.exceptions import ConfigFieldMissingException, ConfigurationValueError
from dlt.common.configuration.specs.pluggable_run_context import PluggableRunContext
from dlt.common.destination import Destination
from dlt.common.exceptions import DictValidationException
from dlt.common.schema.exceptions import SchemaCorruptedException
from dlt.pipeline.exceptions import PipelineStepFailed
from dlt_lakes import DltLake, resource

from frazil.dlt import IcebergRestConfiguration, iceberg_adapter, iceberg_partition, iceberg_rest
from frazil.doors.dlt.storage import newest_metadata
from frazil.errors import ConfigError

REST = {"catalog_uri": "https://h/c"}
SQLITE = {"catalog_uri": "sqlite:///c.db"}


def resolved(**options: Any) -> IcebergRestConfiguration:
    """The settings as dlt hands them to the client."""
    return iceberg_rest(**options).configuration(IcebergRestConfiguration()._bind_dataset_name("ds"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"catalog_uri": "localhost:19120"}, "catalog_uri: 'localhost:19120' is no address of a catalog: write http://"),
        (SQLITE, "warehouse: a SQL catalog needs to know where new tables are put"),
        ({**SQLITE, "warehouse": "w", "token": "t"}, "token: it has no meaning for a SQL catalog"),
        ({**REST, "signing_region": "us-east-1"}, "signing_region: it has no meaning without sigv4_enabled=True"),
        ({**REST, "oauth2_server_uri": "https://h"}, "oauth2_server_uri: it has no meaning without a credential"),
        ({**REST, "warehouse": "w", "table_location_layout": "{schema}/{table_name}"}, "table_location_layout: .*'schema'"),
        (
            {**REST, "warehouse": "w", "table_location_layout": "{table_name}_{location_tag}", "register_new_tables": True},
            "register_new_tables: .*{location_tag}",
        ),
        ({**REST, "warehouse": "w", "table_location_layout": "{namespace}"}, "table_location_layout: without {table_name}"),
        ({**REST, "table_location_layout": "{table_name}"}, "table_location_layout: a relative one needs a warehouse"),
        ({**REST, "namespace": "{dataset}"}, "namespace: .*'dataset'.*it may hold {dataset_name}"),
        ({**REST, "namespace": "a..b"}, "namespace: Invalid namespace 'a..b': a level is empty"),
        ({**REST, "readers": ["pyicberg"]}, "readers: Input should be .*'pyiceberg'"),
        ({**REST, "format_version": 1}, "format_version: Input should be 2 or 3"),
        ({**REST, "max_retries": -1}, "max_retries: .* greater than or equal to 0"),
        ({**REST, "retry_backoff_base": 0.5}, "retry_backoff_base: .* greater than or equal to 1"),
        ({**REST, "internal_table_prefix": "_"}, "internal_table_prefix: it must have at least one character"),
        ({**REST, "merge_batch_size": 0}, "merge_batch_size: it must be at least 1, not 0"),
        ({**REST, "merge_batch_size": -5}, "merge_batch_size: it must be at least 1, not -5"),
        ({**REST, "merge_batch_size": "x"}, "merge_batch_size: Input should be a valid integer"),
        ({**REST, "sigv4_enabled": "perhaps"}, "sigv4_enabled: Input should be a valid boolean"),
        ({**REST, "spark_conf": {"spark.x": [1]}}, "spark_conf: Input should be a valid string"),
        ({**REST, "signing_name": "glue"}, "signing_name: it has no meaning without sigv4_enabled=True"),
        ({**REST, "scope": "catalog"}, "scope: it has no meaning without a credential"),
        ({**SQLITE, "warehouse": "w", "scope": "catalog"}, "scope: it has no meaning without a credential"),
        ({**REST, "s3_access_key_id": "k"}, "s3_access_key_id: it has no meaning without s3_secret_access_key"),
        ({**REST, "s3_secret_access_key": "k"}, "s3_secret_access_key: it has no meaning without s3_access_key_id"),
        (
            {**REST, "warehouse": "production", "table_location_layout": "{table_name}"},
            "table_location_layout: a relative one needs a warehouse .* not a name",
        ),
        (
            {**SQLITE, "warehouse": "s3://b/w", "register_new_tables": True},
            "register_new_tables: only folders of this machine can be looked through, not 's3://b/w/default/'",
        ),
        (
            {**SQLITE, "warehouse": "w", "table_location_layout": "gs://b/{table_name}", "register_new_tables": True},
            "register_new_tables: only folders of this machine can be looked through, not 'gs://b/'",
        ),
        (
            {**REST, "warehouse": "production", "register_new_tables": True},
            "register_new_tables: .* 'production', does not tell in which the catalog puts tables: set table_location_layout",
        ),
    ],
)
def test_an_argument(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationValueError, match=message):
        resolved(**options)


def test_an_argument_that_is_not_known_or_missing() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'catalog_url'\.\nDid you mean 'catalog_uri'"):
        iceberg_rest(catalog_url="https://h/c")
    with pytest.raises(ConfigFieldMissingException, match="catalog_uri"):
        resolved(namespace="n")


def test_the_credentials_that_dlt_has_for_every_destination_are_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = r"unknown option 'credentials'\.\nDid you mean 'credential'\?"
    with pytest.raises(ConfigError, match=f"iceberg_rest: {text}"):
        iceberg_rest(**REST, credentials="id:secret")
    with pytest.raises(PipelineStepFailed, match=f"run: {text}"):
        DltLake(tmp_path).pipeline().run(resource([ROW]), credentials="id:secret")
    monkeypatch.setenv("DESTINATION__ICEBERG_REST__CREDENTIALS", "id:secret")
    with pytest.raises(ConfigError, match=f"the variable DESTINATION__ICEBERG_REST__CREDENTIALS: {text}"):
        resolved(**REST)


def test_a_setting_that_is_not_known_in_dlt_s_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESTINATION__ICEBERG_REST__TOKNE", "t")
    text = r"the variable DESTINATION__ICEBERG_REST__TOKNE: unknown option 'tokne'\.\nDid you mean 'token'"
    with pytest.raises(ConfigError, match=text):
        resolved(**REST)
    monkeypatch.delenv("DESTINATION__ICEBERG_REST__TOKNE")
    # dlt looks under the name of the pipeline first.
    pipeline = dlt.pipeline("mine", destination=iceberg_rest(**REST), pipelines_dir=str(tmp_path))
    monkeypatch.setenv("MINE__DESTINATION__ICEBERG_REST__TOKNE", "t")
    with pytest.raises(ConfigError, match="the variable MINE__DESTINATION__ICEBERG_REST__TOKNE: unknown option 'tokne'"):
        pipeline.destination_client()
    monkeypatch.delenv("MINE__DESTINATION__ICEBERG_REST__TOKNE")
    # What is another pipeline's, another destination's, or dlt's own, is none of ours.
    monkeypatch.setenv("OTHER__DESTINATION__ICEBERG_REST__TOKNE", "t")
    monkeypatch.setenv("DESTINATION__OTHER__TOKNE", "t")
    monkeypatch.setenv("DESTINATION__ICEBERG_REST__CAPABILITIES__NAMING_CONVENTION", "direct")
    (tmp_path / ".dlt").mkdir()
    (tmp_path / ".dlt" / "config.toml").write_text("[destination.iceberg_rest]\nnamespace = 'n'\nmax_retry = 3\n")
    project = Container()[PluggableRunContext]
    before = project.context.run_dir
    project.reload(str(tmp_path))
    try:
        with pytest.raises(ConfigError, match=r"config.toml, \[destination.iceberg_rest\]: unknown option 'max_retry'"):
            resolved(**REST)
        (tmp_path / ".dlt" / "config.toml").write_text("[mine.destination.iceberg_rest]\nmax_retry = 3\n")
        project.reload(str(tmp_path))
        text = r"config.toml, \[mine.destination.iceberg_rest\]: unknown option 'max_retry'"
        with pytest.raises(ConfigError, match=text):
            pipeline.destination_client()
        (tmp_path / ".dlt" / "config.toml").write_text("[destination.iceberg_rest]\nnamespace = 'n'\n")
        project.reload(str(tmp_path))
        assert resolved(**REST).namespace == "n"
    finally:
        project.reload(before)


@pytest.mark.parametrize(
    ("namespace", "layout", "place", "elsewhere"),
    [
        ("a.b", None, "a/b/t", "a.b/t"),
        ("a.b", "{namespace}/{table_name}", "a.b/t", "a/b/t"),
        ("n", "{dataset_name}/of_{table_name}/data", "ds/of_t/data", "n/t"),
        ("n", "{table_name}/{table_name}", "t/t", "t/u"),
    ],
)
def test_tables_are_looked_for_where_the_layout_puts_them(
    tmp_path: Path, namespace: str, layout: str | None, place: str, elsewhere: str
) -> None:
    warehouse = tmp_path / "a [house]"
    for folder in (place, elsewhere):
        (warehouse / folder / "metadata").mkdir(parents=True)
        for name in ("00009-a.metadata.json", "00010-b.metadata.json"):
            (warehouse / folder / "metadata" / name).touch()
    options = {**SQLITE, "warehouse": str(warehouse), "namespace": namespace, "table_location_layout": layout}
    config = resolved(**options, register_new_tables=True)
    newest = f"file://{warehouse}/{place}/metadata/00010-b.metadata.json"
    assert list(newest_metadata(config.searched())) == [("t", newest)]


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESTINATION__ICEBERG_REST__TOKEN", "t0ken")
    options: Any = {
        "catalog_uri": "https://user:passw0rd@h/c", "credential": "id:cr3d", "oauth2_server_uri": "https://user:oa0th@h/t",
        "s3_access_key_id": "acc3ss", "s3_secret_access_key": "s3cret", "s3_endpoint": "https://user:end0@h",
        "spark_conf": {"spark.hadoop.fs.s3a.secret.key": "sp4rk"},
    }  # fmt: skip
    config = resolved(**options)
    made = Destination.from_reference("frazil.dlt.iceberg_rest", **options)
    assert config.token == "t0ken"
    text = f"{config} {config!r} {made} {made!r} {config.data_location()} {config.sink('t')!r} {config.spark_settings!r}"
    secrets = ("t0ken", "passw0rd", "cr3d", "oa0th", "acc3ss", "s3cret", "end0", "sp4rk")
    assert not [secret for secret in secrets if secret in text], text


def test_no_secret_is_in_dlt_s_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "CATALOG_URI": "https://user:passw0rd@h/c", "CREDENTIAL": "id:cr3d", "OAUTH2_SERVER_URI": "https://user:oa0th@h/t",
        "S3_ENDPOINT": "https://h?token=end0", "SPARK_CONF": '{"spark.hadoop.fs.s3a.secret.key": "sp4rk"}',
        "WAREHOUSE": "s3://key:hous3@b/w", "NAMESPACE": "shown",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(f"DESTINATION__ICEBERG_REST__{name}", value)
    pipeline = dlt.pipeline("p", destination=iceberg_rest(), pipelines_dir=str(tmp_path))
    pipeline.extract(resource([ROW]))
    trace = pipeline.last_trace
    text = f"{trace.asstr(2)} {trace.asdict()} {trace.resolved_config_values}"
    assert "iceberg_rest.namespace` = shown" in text
    assert "iceberg_rest.catalog_uri` = https://user:**********@h/c" in text
    secrets = ("passw0rd", "cr3d", "oa0th", "end0", "sp4rk", "hous3")
    assert not [secret for secret in secrets if secret in text], text


def merge(**more: Any) -> dict[str, Any]:
    return {"write_disposition": {"disposition": "merge", **more}}


ROW = {"id": 1, "price": 1.5, "name": "n", "day": "2026-11-16", "gone": True}


def partitioned(column: str, transform: str, **more: Any) -> dict[str, Any]:
    return {"columns": {column: {"x-partition": True, "x-partition-transform": transform, **more}}}


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        (partitioned("name", "daily"), "column 'name': x-partition-transform: unknown transform 'daily'; did you mean 'day'"),
        (partitioned("name", "bucket"), "column 'name'.*bucket needs a width"),
        (partitioned("name", "bucket(4)"), r"column 'name': cannot read x-partition-transform 'bucket\(4\)'.*bucket\[N\]"),
        (partitioned("day", "hour", data_type="date"), r"hour\(day\) cannot be applied: column 'day' has type date"),
        ({"columns": {"name": {"x-partition-transform": "day"}}}, "hint 'x-partition-transform' has no meaning without"),
        ({"columns": {"name": {"x-partitioned": True}}}, "column 'name': unknown hint 'x-partitioned'; did you mean 'x-part"),
        (
            {"columns": {"day": {"data_type": "timestamp", "precision": 10}}},
            "column 'day': a timestamp has no precision 10",
        ),
        ({"primary_key": "price", **merge()}, "the primary_key 'price' is a double"),
        (merge(strategy="upsert"), "No primary key defined for table `t`"),
        ({"primary_key": "id", **merge(strategy="delete-insert", source_filter="id > 1")}, "does not support `source_filter`"),
    ],
)
def test_a_hint(tmp_path: Path, hints: dict[str, Any], message: str) -> None:
    pipeline = DltLake(tmp_path).pipeline()
    pipeline.extract(resource([ROW], **hints))
    pipeline.normalize()
    with pipeline.destination_client() as client, pytest.raises(SchemaCorruptedException, match=message):
        client.verify_schema()


def test_a_resource_that_has_the_name_of_one_of_dlt_s_own_tables(tmp_path: Path) -> None:
    pipeline = DltLake(tmp_path).pipeline(internal_table_prefix="dlt")
    pipeline.extract([resource([ROW], "dlt_users"), resource([ROW], "dlt_loads")])
    pipeline.normalize()
    text = "Table 'dlt_loads': with internal_table_prefix='dlt' it has the name of dlt's own table '_dlt_loads'"
    with pipeline.destination_client() as client:
        client.verify_schema(only_tables=["dlt_users", "_dlt_loads"])
        with pytest.raises(SchemaCorruptedException, match=text):
            client.verify_schema()


def test_a_strategy_that_is_not_there(tmp_path: Path) -> None:
    pipeline = DltLake(tmp_path).pipeline()
    text = "`scd2` merge strategy not supported for table `t`.*delete-insert"
    with pytest.raises(PipelineStepFailed, match=text):
        pipeline.extract(resource([ROW], **merge(strategy="scd2")))


def test_nested_rows_that_cannot_be_found(tmp_path: Path) -> None:
    """Tables that were appended to before do not know to which row of the root the rows of the third level belong."""
    pipeline = DltLake(tmp_path).pipeline()
    pipeline.extract(resource([{"id": 1, "parts": [{"bits": [{"b": 1}]}]}]))
    pipeline.normalize()
    pipeline.extract(resource([{"id": 1}], primary_key="id", **merge()))
    pipeline.normalize()
    text = "'t__parts__bits': it has no column that tells to which row of 't'.*drop_resources"
    with pipeline.destination_client() as client, pytest.raises(SchemaCorruptedException, match=text):
        client.verify_schema(only_tables=["t"])


def test_the_hint_of_older_documents_is_refused_by_dlt_itself(tmp_path: Path) -> None:
    columns = {"day": {"data_type": "date", "partition": True, "partition_transform": "day"}}
    with pytest.raises(PipelineStepFailed, match="partition_transform") as failed:
        DltLake(tmp_path).pipeline().extract(resource([ROW], columns=columns))
    assert isinstance(failed.value.__cause__, DictValidationException)


def test_the_adapter_s_arguments() -> None:
    with pytest.raises(ValueError, match="num_buckets must be a number and comes first"):
        iceberg_partition.bucket("user_id", 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="width must be positive, got 0"):
        iceberg_partition.truncate(0, "email")
    with pytest.raises(ConfigError, match="partition: the column 'ts' is named twice"):
        iceberg_adapter([ROW], partition=[iceberg_partition.day("ts"), iceberg_partition.hour("ts")])
    with pytest.raises(ConfigError, match="partition: 5 is neither a column's name"):
        iceberg_adapter([ROW], partition=[5])  # type: ignore[list-item]
