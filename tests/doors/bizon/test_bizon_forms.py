"""What a Bizon file says, as values for the engine: every option changes something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bizon_cases import EXAMPLES, ROOT
from ruamel.yaml import YAML

from frazil.doors.bizon import is_bizon, load_text
from frazil.files import load
from frazil.model.catalog import CatalogType
from frazil.model.changes import CommitMode
from frazil.model.format import AvroFormat, JsonFormat
from frazil.model.pipeline import PipelineSpec, ProjectSpec
from frazil.model.sink import FileFormat
from frazil.model.source import KafkaSource

OURS = Path(__file__).parent / "data" / "parts.md"
BESIDE = sorted((ROOT.parent / "shared" / "seeds").glob("002*.txt"))

WHOLE = """\
name: p
source:
  name: kafka
  bootstrap_servers: kafka:9092
  message_encoding: utf-8
  topics: [{name: a, destination_id: t}]
  SOURCE
destination:
  name: bigquery_iceberg
  config:
    project_id: proj
    dataset_id: set
    gcs_warehouse_bucket: bucket
    catalog_config: {default: {type: rest, uri: "http://catalog:8181"}}
    CONFIG
TOP
"""


def project(config: str = "", source: str = "", top: str = "", env: dict[str, str] | None = None) -> ProjectSpec:
    text = WHOLE.replace("CONFIG", config).replace("SOURCE", source).replace("TOP", top)
    return load_text(text, "b.yaml", env or {})


def pipeline(config: str = "", source: str = "", top: str = "", env: dict[str, str] | None = None) -> PipelineSpec:
    (one,) = project(config, source, top, env).pipelines
    return one


def kafka(source: str, env: dict[str, str] | None = None) -> KafkaSource:
    found = pipeline(source=source, env=env).source
    assert isinstance(found, KafkaSource)
    return found


def blocks(document: Path) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8", errors="replace"), re.DOTALL)


def cases() -> Iterator[Any]:
    for document in (OURS, *BESIDE):
        for number, block in enumerate(blocks(document)):
            yield pytest.param(block, id=f"{document.stem[:10]}-{number}")


@pytest.mark.parametrize("block", list(cases()))
def test_the_block_loads_as_written_and_nothing_of_it_is_lost(block: str) -> None:
    assert is_bizon(block)
    found = load_text(block, "block.yaml", {})
    assert found.sinks
    loader = YAML(typ="safe", pure=True)
    loader.allow_duplicate_keys = True
    written = loader.load(block)
    config = written.get("bigquery_iceberg") or (written.get("destination") or {}).get("config") or written
    for sink in found.sinks.values():
        assert sink.namespace == (re.findall(r"^\s*iceberg_namespace: (\w+)", block, re.MULTILINE) or ["bizon"])[-1]
        assert len(sink.partition) == len(config.get("time_partitioning", ()))
    for entry in config.get("destination_table_config", ()):
        sink = found.sinks[f"bigquery_iceberg.{entry['destination_id']}"]
        assert [column.name for column in sink.columns] == names_of(entry.get("iceberg_schema", ()))
        if "upsert" in entry:
            assert list(sink.key_fields) == entry["upsert"]["join_cols"]
            assert sink.when_matched_update_all is entry["upsert"]["when_matched_update_all"]
    for name, section in config.get("catalog_config", {}).items():
        (sink,) = found.sinks.values()
        kind = "hadoop" if section["type"] == "hive" else section["type"]
        assert (sink.catalog.name, sink.catalog.type.value) == (name, kind)
        if "warehouse" in section:
            assert sink.catalog.location == section["warehouse"]


def names_of(schema: Any) -> list[str]:
    return [entry["target_field"] for entry in schema.values()] if isinstance(schema, dict) else [e["name"] for e in schema]


def test_a_repeated_key_is_reported_and_the_last_one_counts() -> None:
    found = load_text("iceberg_namespace: a\niceberg_namespace: b\n", "b.yaml", {})
    assert [sink.namespace for sink in found.sinks.values()] == ["b"]
    assert found.notices == ("b.yaml:2:1: the key `iceberg_namespace` is written again; the last one counts",)


def test_the_examples_load() -> None:
    own = {"example.custom.yaml": EXAMPLES / "ice_charts.py"}
    files = sorted(EXAMPLES.glob("*.yaml"))
    names = {file.name: [one.name for one in load(file, custom_source=own.get(file.name)).pipelines] for file in files}
    assert names == {
        "example.advanced.yaml": ["ships", "positions", "ships_log"],
        "example.custom.yaml": ["charts"],
        "example.dev.yaml": ["events"],
        "example.iceberg.yaml": ["thickness"],
    }


def test_tables_are_in_the_bucket_and_big_query_shows_them() -> None:
    sink = pipeline('biglake_connection_id: eu.c\n    authentication: {service_account_key: "{}"}\n    dataset_location: EU').sink
    assert sink.gcs is not None
    assert sink.gcs.project_id == "proj"
    assert sink.biglake is not None
    assert (sink.biglake.connection, sink.biglake.dataset_id, sink.biglake.dataset_location) == ("proj.eu.c", "set", "EU")
    assert sink.biglake.service_account_key is not None
    assert not sink.biglake.no_auth


@pytest.mark.parametrize(
    ("config", "option", "value"),
    [
        ("table_format: orc", "file_format", FileFormat.ORC),
        ("target_file_size_mb: 7", "target_file_size_mb", 7),
        ("write_batch_size: 7", "batch_size", 7),
        ("buffer_flush_timeout: 7", "flush_interval_secs", 7),
        ("buffer_size: 2", "max_batch_size", 2048),
        ("buffer_size: 0", "max_batch_size", 1000),
        ("iceberg_namespace: a.b", "namespace", "a.b"),
        ("epoch_unit: millis", "epoch_unit", "millis"),
        ("on_error: dead_letter", "on_error", "dead_letter"),
    ],
)
def test_an_option_of_the_destination_is_one_of_the_sink(config: str, option: str, value: object) -> None:
    before = pipeline().sink
    after = pipeline(config).sink
    assert getattr(after, option) == value
    assert getattr(before, option) != value or option == "max_batch_size"


def test_retries_are_those_of_the_file() -> None:
    retry = pipeline("max_retry_attempts: 7\n    retry_backoff_base: 3\n    retry_backoff_max: 10").retry
    assert retry is not None
    assert (retry.max_retries, retry.initial_backoff_ms, retry.max_backoff_ms, retry.backoff_multiplier) == (7, 3000, 10_000, 3)
    usual = pipeline().retry
    assert usual is not None
    assert (usual.max_retries, usual.initial_backoff_ms, usual.max_backoff_ms) == (3, 2000, 60_000)


@pytest.mark.parametrize(
    ("source", "top", "goes_on"),
    [
        ("", "", False),
        ("sync_mode: incremental", "", False),
        ("sync_mode: stream", "", True),
        ("", "engine: {runner: {type: stream}}", True),
        ("", "engine: {runner: {type: process, log_level: CRITICAL}}", False),
    ],
)
def test_a_stream_goes_on_and_others_end(source: str, top: str, goes_on: bool) -> None:
    assert pipeline(source=source, top=top).once is not goes_on


def test_the_log_level_and_settings_of_the_run() -> None:
    assert project(top="engine: {runner: {log_level: CRITICAL}}").settings.log_level == "error"
    quiet = project().settings
    assert (quiet.health.enabled, quiet.metrics.enabled, quiet.parallel) == (False, False, 4)
    asked = project("max_concurrent_threads: 9", top="settings: {metrics: {port: 9999}}").settings
    assert (asked.metrics.port, asked.parallel) == (9999, 9)


def test_what_has_no_use_is_said() -> None:
    notices = project(top="engine: {backend: {type: sqlite}, queue: {type: python_queue}}").notices
    assert [notice.partition(" ")[2][:14] for notice in notices] == ["engine.backend", "engine.queue i"]


def test_kafka_settings() -> None:
    found = kafka("group_id: g\n  batch_size: 5\n  consumer_timeout: 3\n  skip_message_empty_value: false")
    assert (found.consumer_group, found.tombstones, found.start_offset) == ("g", "error", "earliest")
    assert found.options["kafka.max.poll.records"] == "5"
    assert found.options["kafka.default.api.timeout.ms"] == "3000"
    latest = kafka("consumer_config: {auto.offset.reset: largest, fetch.wait.max.ms: 7, client.rack: r}")
    assert latest.start_offset == "latest"
    assert latest.options == {"kafka.fetch.max.wait.ms": "7", "kafka.client.rack": "r"}
    assert (latest.tls, latest.security) == (None, None)


def test_kafka_settings_when_nothing_is_said() -> None:
    found = kafka("")
    assert (found.consumer_group, found.tombstones, found.start_offset) == ("bizon", "ignore", "earliest")
    assert (found.options, found.tls, found.security) == ({}, None, None)


def test_the_cluster_has_a_second_for_an_answer_however_short_the_wait_for_messages_is() -> None:
    options = kafka("consumer_timeout: 0.2").options
    assert options == {"kafka.default.api.timeout.ms": "1000", "kafka.request.timeout.ms": "1000"}


def test_words_of_kafka_settings_may_be_in_capitals_or_small_letters() -> None:
    words = "auto.offset.reset: LATEST, security.protocol: Ssl, enable.auto.commit: False"
    found = kafka(f"consumer_config: {{{words}, enable.ssl.certificate.verification: False}}")
    assert (found.start_offset, found.options) == ("latest", {})
    assert found.tls is not None
    assert found.tls.insecure
    verified = kafka("consumer_config: {security.protocol: SSL, enable.ssl.certificate.verification: TRUE}").tls
    assert verified is not None
    assert not verified.insecure


GROUP = (
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "session.timeout.ms",
)


@pytest.mark.parametrize("name", GROUP)
def test_settings_of_groups_are_said_to_have_no_effect(name: str) -> None:
    found = project(source=f"consumer_config: {{{name}: 45000}}")
    assert found.notices == (
        f"b.yaml:7:21: {name} has no effect: the partitions of a topic are not shared among members of a group",
    )
    (one,) = found.pipelines
    assert isinstance(one.source, KafkaSource)
    assert one.source.options == {}


def test_a_login_that_the_protocol_does_not_ask_for_is_said_to_be_none() -> None:
    login = "authentication: {params: {username: u, password: p}}"
    found = project(source=f"{login}\n  consumer_config: {{security.protocol: plaintext}}")
    assert found.notices == ("b.yaml:7:3: nobody logs in: security.protocol is PLAINTEXT",)


def test_messages_that_cannot_be_read_are_kept_as_letters() -> None:
    sink = pipeline("max_dead_letters: 5", "skip_message_on_decode_error: true").sink
    assert (sink.on_error, sink.max_dead_letters) == ("dead_letter", 5)
    assert pipeline("on_error: dead_letter", "skip_message_on_decode_error: true").sink.on_error == "dead_letter"


@pytest.mark.parametrize(
    ("path", "warehouse"),
    [
        ("", "gs://bucket/iceberg"),
        ("gcs_warehouse_path: /lake/ice/", "gs://bucket/lake/ice"),
        ("gcs_warehouse_path: ''", "gs://bucket"),
    ],
)
@pytest.mark.parametrize(
    "catalog",
    ['{type: rest, uri: "http://catalog:8181"}', "{type: sql, uri: 'postgresql://h/d'}", "{type: hive, uri: 'thrift://h:9083'}"],
    ids=["rest", "sql", "hive"],
)
def test_the_warehouse_is_a_folder_of_the_bucket(catalog: str, path: str, warehouse: str) -> None:
    text = WHOLE.replace('{type: rest, uri: "http://catalog:8181"}', catalog).replace("CONFIG", path)
    (found,) = load_text(re.sub("SOURCE|TOP", "", text), "b.yaml", {}).pipelines
    assert found.sink.catalog.location == warehouse


def test_a_warehouse_that_the_catalog_knows_by_its_name_goes_before_the_bucket() -> None:
    text = WHOLE.replace('"http://catalog:8181"', '"http://catalog:8181", warehouse: production')
    (found,) = load_text(re.sub("SOURCE|CONFIG|TOP", "", text), "b.yaml", {}).pipelines
    assert (found.sink.catalog.location, found.sink.gcs) == ("production", None)


def test_logins() -> None:
    usual = kafka("authentication: {type: basic, params: {username: u, password: BIZON_ENV_PW}}", {"BIZON_ENV_PW": "s$$ecret"})
    assert usual.security is not None
    assert (usual.security.mechanism, usual.security.user, usual.security.password.get_secret_value()) == (
        "PLAIN",
        "u",
        "s$$ecret",
    )
    assert usual.tls is not None
    scram = kafka(
        "authentication: {params: {username: u, password: 'pa$$word'}}\n"
        "  consumer_config: {security.protocol: sasl_plaintext, sasl.mechanisms: scram-sha-512}"
    )
    assert scram.security is not None
    assert (scram.security.mechanism, scram.security.password.get_secret_value()) == ("SCRAM-SHA-512", "pa$$word")
    assert scram.tls is None
    tls = kafka("consumer_config: {security.protocol: ssl, ssl.ca.location: /ca.pem}").tls
    assert tls is not None
    assert tls.ca_path == "/ca.pem"


@pytest.mark.parametrize("kind", ['{type: rest, uri: "http://c:8181"}', "{type: hive, uri: 'thrift://h:9083'}", "{type: hive}"])
def test_catalogs_have_the_names_that_they_have_for_py_iceberg(kind: str) -> None:
    def name(given: str) -> str:
        text = WHOLE.replace('{default: {type: rest, uri: "http://catalog:8181"}}', f"{{{given}: {kind}}}")
        (one,) = load_text(re.sub("SOURCE|CONFIG|TOP", "", text), "b.yaml", {}).pipelines
        return one.sink.catalog.name

    assert [name(given) for given in ("default", "my-catalog")] == ["default", "my-catalog"]
    made = [name(given) for given in ("prod.eu", "prod_eu", "prod/eu", "2nd", "é", "x" * 80)]
    assert made[0] == name("prod.eu"), "the same every time"
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", one) for one in made), made


@pytest.mark.parametrize("place", ["", "params: "])
def test_avro_has_a_registry(place: str) -> None:
    own = "schema_registry_url: 'http://r:8080', schema_registry_username: ru, schema_registry_password: rp"
    inner = f"params: {{{own}}}" if place else own
    text = (
        WHOLE.replace("utf-8", "avro").replace("SOURCE", f"authentication: {{{inner}}}").replace("CONFIG", "").replace("TOP", "")
    )
    (found,) = load_text(text, "b.yaml", {}).pipelines
    assert isinstance(found.source, KafkaSource)
    assert isinstance(found.source.format, AvroFormat)
    assert found.source.format.schema_registry is not None
    assert (found.source.format.schema_registry.url, found.source.format.schema_registry.api) == ("http://r:8080", "apicurio")
    assert found.source.format.schema_registry.user == "ru"


@pytest.mark.parametrize(
    ("url", "kind", "api"),
    [("http://r", "apicurio", "apicurio"), ("http://r/apis/registry/v2", "apicurio", "apicurio"),
     ("http://r/apis/ccompat/v7", "apicurio", "confluent"), ("http://r", "confluent", "confluent")],
)  # fmt: skip
def test_whose_ids_messages_have(url: str, kind: str, api: str) -> None:
    inner = f"schema_registry_url: '{url}', schema_registry_type: {kind}"
    text = (
        WHOLE.replace("utf-8", "avro").replace("SOURCE", f"authentication: {{{inner}}}").replace("CONFIG", "").replace("TOP", "")
    )
    (found,) = load_text(text, "b.yaml", {}).pipelines
    assert isinstance(found.source, KafkaSource)
    assert isinstance(found.source.format, AvroFormat)
    assert found.source.format.schema_registry is not None
    assert (found.source.format.schema_registry.url, found.source.format.schema_registry.api) == (url, api)


CATALOGS: dict[str, tuple[CatalogType, dict[str, Any]]] = {
    '{type: sql, uri: "postgresql+psycopg2://u:p@h/d", init_catalog_tables: false}': (
        CatalogType.SQL,
        {"warehouse": "gs://bucket/iceberg", "init_catalog_tables": False},
    ),
    '{type: rest, uri: "http://c", rest.credential: a:b, header.X: y}': (CatalogType.REST, {"properties": {"header.X": "y"}}),
    "{type: hive, hive.metastore.uris: 'thrift://h:9083'}": (CatalogType.HIVE, {"uri": "thrift://h:9083"}),
    "{type: hive, warehouse: /tmp/w}": (CatalogType.HADOOP, {"warehouse": "/tmp/w"}),
}


@pytest.mark.parametrize("written", CATALOGS)
def test_catalogs(written: str) -> None:
    kind, expected = CATALOGS[written]
    text = WHOLE.replace('{type: rest, uri: "http://catalog:8181"}', written)
    text = text.replace("SOURCE", "").replace("CONFIG", "").replace("TOP", "")
    (found,) = load_text(text, "b.yaml", {}).pipelines
    assert found.sink.catalog.type is kind
    section = getattr(found.sink.catalog, kind.value)
    assert {key: getattr(section, key) for key in expected} == expected


def test_upserts_of_all_tables_and_of_one() -> None:
    config = """upsert: {enabled: true, join_cols: [ID], case_sensitive: false}
    destination_table_config:
      - {destination_id: t, iceberg_schema: [{name: Id, type: long}]}
      - {destination_id: off, upsert: {enabled: false, join_cols: [Id]}, iceberg_schema: [{name: Id, type: long}]}"""
    both = "[{name: a, destination_id: t}, {name: b, destination_id: off}]"
    text = WHOLE.replace("[{name: a, destination_id: t}]", both).replace("CONFIG", config)
    one, other = (made.sink for made in load_text(re.sub("SOURCE|TOP", "", text), "b.yaml", {}).pipelines)
    assert (one.commit_mode, one.key_fields) == (CommitMode.UPSERT, ("Id",))
    assert other.commit_mode is CommitMode.APPEND


def test_an_upsert_without_join_cols_leaves_the_key_to_the_table() -> None:
    sink = pipeline("upsert: {enabled: true, when_matched_update_all: false}").sink
    assert (sink.commit_mode, sink.key_fields, sink.when_matched_update_all) == (CommitMode.UPSERT, (), False)


@pytest.mark.parametrize("field", ["bizon_loaded_at", "_bizon_loaded_at"])
def test_a_table_is_partitioned_by_either_name_of_a_column_of_bizons_own(field: str) -> None:
    config = f"""time_partitioning: [{{field: {field}, type: DAY}}]
    destination_table_config:
      - destination_id: t
        iceberg_schema:
          bizon_loaded_at: {{target_field: loaded, iceberg_type: timestamp}}"""
    sink = pipeline(config).sink
    assert [(one.source, one.transform) for one in sink.partition] == [("loaded", "day")]
    assert [column.name for column in sink.columns] == ["loaded"]


def test_pipelines_know_where_their_table_stands() -> None:
    declared = "destination_table_config:\n      - destination_id: t\n        clustering_keys: [_bizon_id]"
    assert str(pipeline(declared).place) == "b.yaml:16:9"
    assert str(pipeline().place) == "b.yaml:6:12", "at the topic that is led to it"


def test_an_empty_key_is_none() -> None:
    sink = pipeline('authentication: {service_account_key: ""}').sink
    assert sink.biglake is not None
    assert sink.biglake.service_account_key is None


def test_changes_of_rows_stand_between_messages_and_columns() -> None:
    top = 'transforms: [{label: flat, type: select, expressions: ["after.*"]}]'
    found = pipeline("destination_table_config: [{destination_id: t, iceberg_schema: [{name: id, type: long}]}]", top=top)
    assert [change.type for change in found.transforms] == ["select", "map_fields"]
    assert isinstance(found.source, KafkaSource)
    assert isinstance(found.source.format, JsonFormat)
    assert not found.source.format.columns, "fields that only the changes need are read, too"


def test_the_same_table_of_two_documents_makes_two_pipelines() -> None:
    plain = WHOLE.replace("SOURCE", "").replace("CONFIG", "").replace("TOP", "")
    found = load_text(f"{plain}---\n{plain.replace('name: p', 'name: q', 1)}", "b.yaml", {})
    assert [one.name for one in found.pipelines] == ["p.t", "q.t"]
    assert [one.sink_id for one in found.pipelines] == ["p/t", "q/t"]
