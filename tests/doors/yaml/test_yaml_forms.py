from __future__ import annotations

from pathlib import Path

import pytest
from yaml_cases import CATALOG, DATA, ROOT, file_text, loaded, place_of, problem, problems, stands_at

from frazil.doors.yaml import load
from frazil.model.source import FilesSource, GeneratorSource, KafkaSource, PostgresCdcSource
from frazil.model.transform import AddField, RenameField

SINK = "connector: iceberg\n    config: {catalog: {type: hadoop, warehouse: w}, namespace: n, table: t}"


def test_one_source_and_one_sink_are_a_pipeline_named_like_the_sink() -> None:
    (pipeline,) = loaded(file_text()).pipelines
    assert (pipeline.name, pipeline.source_name, pipeline.sink_name) == ("lake", "events", "lake")
    assert isinstance(pipeline.source, GeneratorSource)
    assert pipeline.sink_id == "lake/lake"


def test_what_is_switched_off_does_not_count() -> None:
    text = f"""
sources:
  a: {{connector: generator, enabled: false}}
  b: {{connector: generator}}
sinks:
  s:
    {SINK}
"""
    assert [(p.name, p.source_name) for p in loaded(text).pipelines] == [("s", "b")]


def test_two_sources_without_pipelines_are_a_question() -> None:
    text = f"""
sources:
  a: {{connector: generator}}
  b: {{connector: generator}}
sinks:
  s:
    {SINK}
"""
    found = problem(text)
    assert found.code == "no-pipeline"
    assert "pipelines: {s: {source: a, sink: s}}" in found.fix


def test_declared_pipelines() -> None:
    text = f"""
sources:
  a: {{connector: generator, rate_limit: 70, transforms: [{{type: remove_field, field: one}}]}}
  b: {{connector: generator, enabled: false}}
sinks:
  s:
    rate_limit: 0
    transforms: [{{type: remove_field, field: three}}]
    {SINK}
pipelines:
  first:
    source: a
    sink: s
    rate_limit: 50
    transforms: [{{type: remove_field, field: two}}]
  second: {{source: b, sink: s}}
  third: {{source: a, sink: s, enabled: no}}
"""
    first, second, third = loaded(text).pipelines
    assert [transform.field for transform in first.transforms] == ["one", "two", "three"]  # type: ignore[union-attr]
    assert (first.rate_limit, second.rate_limit, third.rate_limit) == (50, None, 70)
    assert (first.enabled, second.enabled, third.enabled) == (True, False, False)
    assert len({each.sink_id for each in (first, second, third)}) == 3


def test_an_empty_pipelines_section_is_none() -> None:
    assert [pipeline.name for pipeline in loaded(file_text(top="pipelines:\n")).pipelines] == ["lake"]


def test_a_pipeline_names_what_is_in_the_file() -> None:
    text = file_text(top="pipelines:\n  p: {source: event, sink: lakes}\n  q: {source: nothing, sink: lake}\n")
    source, sink, other = problems(text)
    assert (source.code, source.fix, stands_at(source)) == ("unknown-source", "Did you mean `events`?", place_of(text, "event,"))
    assert (sink.code, sink.fix, stands_at(sink)) == ("unknown-sink", "Did you mean `lake`?", place_of(text, "lakes"))
    assert (other.code, other.fix) == ("unknown-source", "Sources in this file: events.")


def test_a_sink_without_a_table_loads_until_a_pipeline_uses_it() -> None:
    config = "batch_size: 5\n"
    alone = "sinks:\n" + file_text(config).split("sinks:\n")[1]
    assert loaded(alone).sinks["lake"].table is None
    text = file_text(config)
    found = problems(text)
    assert [each.message for each in found] == ["Namespace is required", "Table name is required"]
    assert {stands_at(each) for each in found} == {place_of(text, "lake:")}


def test_an_empty_namespace_is_a_missing_one() -> None:
    assert problem(file_text('namespace: ""\ntable: t\n')).message == "Namespace is required"
    assert problem(file_text('namespace: n\ntable: ""\n')).message == "Table name is required"


def test_two_pipelines_under_one_id_would_fence_each_other() -> None:
    pipelines = "pipelines:\n  p: {source: events, sink: lake}\n  q: {source: events, sink: lake}\n"
    assert len(loaded(file_text(top=pipelines)).pipelines) == 2
    found = problem(file_text("namespace: db\ntable: t\nid: fixed\n", top=pipelines))
    assert found.code == "shared-sink-id"
    assert "`p` and `q`" in found.message


def test_the_form_with_a_broker() -> None:
    project = load(DATA / "broker-form.yaml", {})
    by_name = {pipeline.name: pipeline for pipeline in project.pipelines}
    assert list(by_name) == ["sensors-to-all_ice", "old_sensors-to-all_ice", "all_ice", "river"]
    direct = by_name["sensors-to-all_ice"]
    assert isinstance(direct.source, FilesSource)
    assert direct.source.options == {"header": "true"}
    assert direct.transforms == (
        RenameField.model_validate({"from": "temp", "to": "temperature"}),
        AddField(field="kind", value=7),
    )
    assert (direct.enabled, direct.rate_limit, direct.dead_letter_topic.topic) == (True, 400, "ice.dead")
    assert not by_name["old_sensors-to-all_ice"].enabled
    from_broker = by_name["all_ice"].source
    assert isinstance(from_broker, KafkaSource)
    assert (from_broker.topics, from_broker.bootstrap_servers) == (("water",), "kafka-1:9092,kafka-2:9092")
    assert (from_broker.consumer_group, from_broker.start_offset) == ("frazil", "timestamp")
    assert from_broker.start_timestamp == "2026-01-31T12:00:00Z"
    assert from_broker.tls is not None
    assert from_broker.tls.ca_path == "/etc/ssl/ca.pem"
    river = by_name["river"]
    assert isinstance(river.source, KafkaSource)
    assert (river.source.topics, river.source.start_offset, river.enabled) == (("river",), "earliest", False)
    settings = project.settings
    assert (settings.log_level, settings.retry.max_retries, settings.retry.backoff_multiplier) == ("warning", 3, 1.5)
    assert (settings.health.path, settings.metrics.enabled, settings.state_dir) == ("/healthz", False, "./state")


def test_topics_need_a_source_or_a_broker() -> None:
    text = file_text(entry="topics: [a.b]\n")
    found = problem(text)
    assert found.code == "no-broker"
    assert stands_at(found) == place_of(text, "topics")
    paired = file_text(entry="topics: [a.b]\n", source="topic: a.b\n")
    assert [pipeline.name for pipeline in loaded(paired).pipelines] == ["events-to-lake"]


def test_topics_beside_pipelines_must_agree() -> None:
    pipelines = "pipelines:\n  p: {source: events, sink: lake}\n"
    assert problem(file_text(entry="topics: [a.b]\n", top=pipelines)).code == "topics-with-pipeline"
    agreeing = file_text(entry="topics: [a.*]\n", source="topic: a.b\n", top=pipelines)
    assert [pipeline.name for pipeline in loaded(agreeing).pipelines] == ["p"]


@pytest.mark.parametrize("key", ["consumer_group: g", "start_offset: latest"])
def test_options_of_topics_mean_nothing_without_topics(key: str) -> None:
    text = file_text(entry=f"{key}\n")
    found = problem(text)
    assert "has no meaning without topics" in found.message
    assert stands_at(found) == place_of(text, key)


def test_a_start_offset_is_a_word_or_a_time() -> None:
    entry = "topics: [a]\nstart_offset: {}\n"
    top = "broker: {bootstrap_servers: 'b:1, b:2'}\n"
    assert "`timestamp` is required" in problem(file_text(entry=entry.format("{}"), top=top)).message
    assert "cannot read the time" in problem(file_text(entry=entry.format("{timestamp: noon}"), top=top)).message
    found = problem(file_text(entry=entry.format("timestamp"), top=top))
    assert (found.code, found.fix) == ("unknown-value", "Known values: latest, earliest.")
    (pipeline,) = loaded(file_text(entry=entry.format("earliest"), top=top)).pipelines
    assert isinstance(pipeline.source, KafkaSource)
    assert pipeline.source.bootstrap_servers == "b:1,b:2"


def test_a_kafka_source_takes_the_broker_of_the_file() -> None:
    text = f"""
broker:
  bootstrap_servers: [k:9092]
  tls: {{enabled: true}}
  security: {{mechanism: PLAIN, user: me, password: secret}}
sources:
  k: {{connector: kafka, config: {{topics: [a]}}}}
  own: {{connector: kafka, config: {{topics: [a], bootstrap_servers: "o:1"}}}}
sinks:
  s:
    {SINK}
pipelines: {{p: {{source: k, sink: s}}}}
"""
    sources = loaded(text).sources
    shared, own = sources["k"], sources["own"]
    assert isinstance(shared, KafkaSource)
    assert isinstance(own, KafkaSource)
    assert (shared.bootstrap_servers, own.bootstrap_servers) == ("k:9092", "o:1")
    assert shared.tls is not None
    assert shared.security is not None
    assert (own.tls, own.security) == (None, None)


def test_streams_stand_beside_config_or_in_it() -> None:
    login, streams = "config: {host: h, database: d, user: u}\n", "streams: [{name: a}, {name: b, namespace: n}]\n"
    text = file_text(source=login + streams).replace("generator", "postgres-cdc")
    found = problem(text)
    assert "the source has 2 tables, whose columns differ" in found.message
    assert stands_at(found) == place_of(text, "table: t")
    (pipeline,) = loaded(text.replace("table: t\n", "route: {source: true}\n")).pipelines
    assert isinstance(pipeline.source, PostgresCdcSource)
    assert [(each.namespace, each.name) for each in pipeline.source.streams] == [("public", "a"), ("n", "b")]
    text = file_text(source="streams: [{name: a}]\n")
    found = problem(text)
    assert "it belongs to postgres-cdc" in found.message
    assert stands_at(found) == place_of(text, "streams")


def test_different_dead_letter_topics_are_a_question() -> None:
    found = problem(file_text(entry="dead_letter_topic: a\n", source="dead_letter_topic: b\n"))
    assert found.code == "two-dead-letter-topics"


def test_named_values_can_be_reused() -> None:
    text = """
x-shared: &shared
  namespace: db
  batch_size: 7
sources: {a: {connector: generator}}
sinks:
  s:
    connector: iceberg
    config:
      <<: *shared
      batch_size: 9
      table: t
      catalog: {type: hadoop, warehouse: w}
"""
    sink = loaded(text).sinks["s"]
    assert (sink.namespace, sink.table, sink.batch_size) == ("db", "t", 9)


@pytest.mark.parametrize("version", ["1.0", '"1.0"', "1", "'1'"])
def test_versions(version: str) -> None:
    assert loaded(f"version: {version}\n" + file_text()).pipelines


def test_the_examples_load() -> None:
    env = {"CATALOG_CREDENTIAL": "some-token", "S3_KEY": "some-key", "S3_SECRET": "some-secret"}
    examples = sorted((ROOT / "examples").glob("*.yaml"))
    assert len(examples) >= 4
    for example in examples:
        project = load(example, env)
        assert project.pipelines, example


@pytest.mark.parametrize("given", ["jsno", "{type: jsno}"])
def test_a_format_that_is_none(given: str) -> None:
    text = file_text(source=f"config: {{bootstrap_servers: k, topics: [t], format: {given}}}\n").replace("generator", "kafka")
    found = problem(text)
    assert "cannot be `jsno`" in found.message
    assert "Did you mean `json`?" in found.fix
    assert stands_at(found) == place_of(text, "jsno")


def test_a_topic_for_dead_letters_is_in_the_cluster_of_the_file_or_of_the_source() -> None:
    text = file_text(entry="dead_letter_topic: dead\n", top="broker: {bootstrap_servers: 'k:9092'}\n")
    (pipeline,) = loaded(text).pipelines
    assert pipeline.sink.on_error == "dead_letter"
    assert pipeline.dead_letter_topic is not None
    assert (pipeline.dead_letter_topic.topic, pipeline.dead_letter_topic.cluster.bootstrap_servers) == ("dead", "k:9092")
    text = file_text(source="dead_letter_topic: dead\nconfig: {bootstrap_servers: 'own:9092', topics: [t]}\n")
    (pipeline,) = loaded(text.replace("generator", "kafka")).pipelines
    assert pipeline.dead_letter_topic is not None
    assert pipeline.dead_letter_topic.cluster.bootstrap_servers == "own:9092"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (file_text(entry="dead_letter_topic: dead\n"), "dead_letter_topic needs a Kafka cluster"),
        (
            file_text(
                "namespace: db\ntable: t\non_error: stop\n", "dead_letter_topic: dead\n", top="broker: {bootstrap_servers: k}\n"
            ),
            "dead_letter_topic has no meaning with on_error: stop",
        ),
    ],
)
def test_a_topic_for_dead_letters_that_cannot_be(text: str, message: str) -> None:
    found = problem(text)
    assert message in found.message
    assert stands_at(found) == place_of(text, "dead_letter_topic")


def test_places_are_kept_and_not_dumped(tmp_path: Path) -> None:
    text = file_text()
    file = tmp_path / "p.yaml"
    file.write_text(text)
    project = load(file, {})
    place = project.places["sinks.lake.config.catalog.sql.uri"]
    assert (place.file, place.line, place.column) == (str(file), *place_of(text, "uri"))
    assert place.text == "          uri: sqlite:///lake/catalog.db"
    assert "places" not in project.model_dump()
    assert CATALOG.splitlines()[0] in project.places["sinks.lake.config.catalog"].text
