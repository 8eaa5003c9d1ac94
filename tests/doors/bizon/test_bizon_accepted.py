"""What Bizon accepts is accepted, and what has no effect here is reported when the file is loaded."""

from __future__ import annotations

from typing import Any

import pytest
from bizon.common.models import BizonConfig, StreamConfig, StreamDestinationConfig, StreamSourceConfig
from bizon.connectors.sources.kafka.src.config import KafkaAuthConfig, KafkaSourceConfig, TopicConfig
from bizon.destination.config import AbstractDestinationConfig, AbstractDestinationDetailsConfig
from bizon.engine.config import EngineConfig
from bizon.engine.runner.config import RunnerConfig
from bizon.source.auth.authenticators.basic import BasicHttpAuthParams
from bizon.source.config import SourceConfig
from pydantic import BaseModel

from frazil.doors.bizon import load_text
from frazil.doors.bizon.destination import Destination, DestinationConfig
from frazil.doors.bizon.file import BizonDocument, Engine, PagedDocument, Runner, Stream, StreamDestination, StreamSource
from frazil.doors.bizon.source import AuthParams, KafkaAuth, KafkaEntry, PagedEntry, TopicEntry
from frazil.errors import ConfigError, ConfigErrors
from frazil.model.pipeline import ProjectSpec
from frazil.reading.anatomy import keys_of
from frazil.sources.pages.bizon import BizonPager

DESTINATION = """\
destination:
  name: bigquery_iceberg
  config:
    project_id: proj
    dataset_id: set
    gcs_warehouse_bucket: bucket
    catalog_config:
      default: {type: rest, uri: "http://catalog:8181"}
"""

TABLES = """\
    destination_table_config:
      - destination_id: floes
        clustering_keys: [sea, place]
        iceberg_schema:
          - {name: floe, type: long}
          - {name: sea, type: string}
"""

KAFKA = """\
name: ice
source:
  name: kafka
  stream: topic
  sync_mode: stream
  bootstrap_servers: kafka:9092
  message_encoding: utf-8
  topics:
    - {name: ice.floes, destination_id: floes}
"""


def loaded(text: str) -> ProjectSpec:
    return load_text(text, "theirs.yaml", {})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (BizonConfig, BizonDocument),
        (BizonConfig, PagedDocument),
        (StreamConfig, Stream),
        (StreamSourceConfig, StreamSource),
        (StreamDestinationConfig, StreamDestination),
        (SourceConfig, KafkaEntry),
        (KafkaSourceConfig, KafkaEntry),
        (TopicConfig, TopicEntry),
        (KafkaAuthConfig, KafkaAuth),
        (BasicHttpAuthParams, AuthParams),
        (AbstractDestinationConfig, Destination),
        (AbstractDestinationDetailsConfig, DestinationConfig),
        (EngineConfig, Engine),
        (RunnerConfig, Runner),
    ],
)
def test_every_key_that_bizon_knows_is_known(theirs: type[BaseModel], ours: type[BaseModel]) -> None:
    assert set(theirs.model_fields) - set(keys_of(ours)) == set()


def test_keys_of_other_sources_are_checked_by_their_own_classes() -> None:
    assert PagedEntry.model_config["extra"] == "allow"


# What is changed into what, where it is reported, and what is said.
REPORTED: dict[str, tuple[str, str, str, str]] = {
    "a length of ids": ("  topics:", "  nb_bytes_schema_id: 4\n  topics:", "8:3", "`nb_bytes_schema_id` has no effect"),
    "a key that no source has": ("  topics:", "  colour: blue\n  topics:", "8:3", "`colour` has no effect"),
    "a cursor": ("  topics:", "  cursor_field: at\n  topics:", "8:3", "a topic is read by its offsets"),
    "a bound": ("  topics:", "  max_iterations: 3\n  topics:", "8:3", "`max_iterations` has no effect"),
    "keys of messages": ("  topics:", "  skip_message_invalid_keys: true\n  topics:", "8:3", "none is invalid"),
    "what is for other sources": ("  topics:", "  http: {timeout: 5}\n  topics:", "8:3", "read over HTTP"),
    "checkpoints of a stream": ("  topics:", "  force_ignore_checkpoint: true\n  topics:", "8:3", "`frazil reset`"),
    "a header": (
        "  topics:",
        "  authentication: {params: {username: u, password: p, auth_header: X}}\n  topics:",
        "8:55",
        "`auth_header` has no effect",
    ),
    "alerts": ("source:", "alerting: {type: slack, config: {webhook_url: 'http://h'}}\nsource:", "2:1", "sends no alerts"),
    "monitoring": ("source:", "monitoring: {type: datadog}\nsource:", "2:1", "`settings.metrics`"),
    "secrets": ("source:", "secrets: {gsm: {project_id: p}}\nsource:", "2:1", "Secret Manager is not asked"),
    "a buffer beside the settings": ("  config:", "  buffer_size: 400\n  config:", "12:3", "it belongs into `config`"),
    "columns of BigQuery": ("    dataset_id", "    unnest: true\n    dataset_id", "14:5", "`unnest` has no effect: columns are"),
    "an endless wait": ("    dataset_id", "    buffer_flush_timeout: 0\n    dataset_id", "14:5", "3,600 seconds at most"),
    "a table for no topic": ("destination_id: floes}", "destination_id: other}", "19:9", "no topic feeds the table `floes`"),
    "a topic for no table": ("destination_id: floes}", "destination_id: floe}", "9:7", "envelope. Did you mean `floes`?"),
    "the whole name of a table": ("destination_id: floes}", "destination_id: a.b.floes}", "9:7", "`a.b.floes` is called `floes`"),
    "a sort by no column": ("name: ice", "name: ice", "20:32", "`place` has no effect: the table `floes` has no column"),
    "no encoding": ("  message_encoding: utf-8\n", "", "2:1", "messages are read as JSON"),
}


@pytest.mark.parametrize("case", REPORTED)
def test_what_has_no_effect_is_reported_at_its_place(case: str) -> None:
    before, after, place, words = REPORTED[case]
    text = KAFKA + DESTINATION + TABLES
    assert before in text
    project = loaded(text.replace(before, after, 1))
    found = [notice for notice in project.notices if words in notice]
    assert [notice.partition(": ")[0] for notice in found] == [f"theirs.yaml:{place}"], project.notices
    assert len(project.pipelines) == 1


def test_a_table_that_only_a_topic_names_has_the_columns_of_the_envelope() -> None:
    topics = "    - {name: ice.floes, destination_id: floes}\n    - {name: ice.log, destination_id: log}\n"
    text = (KAFKA + DESTINATION + TABLES).replace("    - {name: ice.floes, destination_id: floes}\n", topics)
    floes, log = (pipeline.sink for pipeline in loaded(text).pipelines)
    assert [column.name for column in floes.columns] == ["floe", "sea"]
    assert [column.name for column in log.columns][-1] == "_source_data"
    assert [field.of.source for field in floes.sort_by] == ["sea"]


def test_a_table_may_have_the_whole_name_that_it_has_in_bigquery() -> None:
    (pipeline,) = loaded(
        (KAFKA + DESTINATION + TABLES).replace("destination_id: floes", "destination_id: proj.set.floes")
    ).pipelines
    assert (pipeline.name, pipeline.sink.full_name) == ("floes", "bizon.floes")
    assert [column.name for column in pipeline.sink.columns] == ["floe", "sea"]


def test_a_misspelt_key_of_the_source_is_an_error_still() -> None:
    with pytest.raises(ConfigErrors, match="Did you mean `batch_size`"):
        loaded((KAFKA + DESTINATION).replace("  topics:", "  batch_sise: 3\n  topics:"))


def test_avro_that_is_asked_for_needs_a_registry() -> None:
    with pytest.raises(ConfigErrors, match="avro needs a schema registry"):
        loaded((KAFKA + DESTINATION).replace("utf-8", "avro"))
    registry = "  authentication: {schema_registry_url: 'http://registry:8080'}\n"
    (pipeline,) = loaded((KAFKA + DESTINATION).replace("  message_encoding: utf-8\n", registry)).pipelines
    source: Any = pipeline.source
    assert source.format.schema_registry.url == "http://registry:8080"


def test_tables_know_a_document_by_its_id() -> None:
    def sink_id(text: str) -> str | None:
        return loaded(text).pipelines[0].sink.id

    assert sink_id(KAFKA + DESTINATION) == "ice/floes"
    assert sink_id(f"id: ice\n{KAFKA.replace('name: ice', 'name: renamed', 1)}{DESTINATION}") == "ice/floes"


STREAMS = """\
streams:
  - name: floes
    source: {topic: ice.floes}
    destination:
      table_id: proj.set.floes
      clustering_keys: [id]
      record_schema: [{name: id, type: INTEGER}]
  - name: other
    source: {endpoint: /other}
    destination: {table_id: proj.set.other}
"""


def test_topics_may_stand_in_streams() -> None:
    without = KAFKA[: KAFKA.index("  topics:")]
    project = loaded(without + DESTINATION + STREAMS)
    (pipeline,) = project.pipelines
    source: Any = pipeline.source
    assert (pipeline.name, source.topics) == ("floes", ("ice.floes",))
    message = "\n".join(project.notices)
    for words in ("`record_schema` has no effect", "`clustering_keys` has no effect", "`other` has no effect: it names no topic"):
        assert words in message
    project = loaded(KAFKA + DESTINATION + STREAMS)
    assert "`streams` has no effect: the source names its topics" in "\n".join(project.notices)


PAGED = """\
name: creatures
source:
  name: dummy
  stream: seals
  config: {nb_records: 10}
"""


def test_a_stream_that_is_not_there_is_reported_and_stops_a_run() -> None:
    project = loaded(PAGED + DESTINATION)
    assert project.notices[0].startswith("theirs.yaml:4:3: the source dummy has no stream `seals`: a run would stop. Known")
    source: Any = project.pipelines[0].source
    with pytest.raises(ConfigError, match="The source dummy has no stream 'seals'"):
        BizonPager(source)


def test_keys_that_another_source_does_not_have_are_reported() -> None:
    text = PAGED.replace("seals", "creatures").replace(
        "  config:", "  authentication: {type: api_key, params: {token: t}}\n  config:"
    )
    project = loaded(text + DESTINATION)
    assert [notice for notice in project.notices if "`config` has no effect" in notice]
    source: Any = project.pipelines[0].source
    assert "config" not in source.config
    with pytest.raises(ConfigErrors, match="Did you mean `sync_mode`"):
        loaded(text.replace("  config:", "  sync_mod: incremental\n  config:") + DESTINATION)
