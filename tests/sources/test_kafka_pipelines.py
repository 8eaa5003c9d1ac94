"""Topics of a real Kafka broker, through frazil into a table."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.errors import ConfigError, FrazilError
from frazil.model.commit import RowCounts
from frazil.model.events import Event, Lagged, Restarting, Stopped, Waiting
from frazil.model.pipeline import LetterTopic
from frazil.model.settings import RestartSettings, RetrySettings
from frazil.model.source import KafkaCluster
from frazil.runtime.plan import plan_pipeline
from frazil.runtime.verify import verify
from frazil.sources.kafka import KafkaTopics
from frazil.spark.kafka import KafkaClient
from helpers.lakes import IMPATIENT, Lake, StopAfter, commits, run, sqlite_lake
from services.kafka import Kafka, Message, write
from services.processes import wait_until


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return sqlite_lake(spark, tmp_path)


def source_of(kafka: Kafka, *topics: str, **options: Any) -> dict[str, Any]:
    given = {"bootstrap_servers": kafka.address(), "topics": topics, "start_offset": "earliest", "format": "raw"}
    return {"connector": "kafka", **given, **options}


def test_topics_go_into_a_table_and_a_restart_goes_on_where_it_ends(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [Message(str(number), f"k{number}", partition=number % 2) for number in range(10)])
    pipeline = lake.pipeline(source_of(kafka, topic))
    run(pipeline, once=True)
    assert lake.rows("offset, partition, value, keys, topic") == [
        (number // 2, number % 2, str(number), f"k{number}", topic) for number in sorted(range(10), key=lambda n: (n // 2, n % 2))
    ]
    kafka.produce(topic, [Message(None, "k0", (("why", b"deleted"),))])
    assert [committed.counts.read for committed in commits(run(pipeline, once=True))] == [1]
    assert commits(run(pipeline, once=True)) == []
    assert lake.count() == 11
    assert ("k0", "deleted", True) in lake.rows("keys, headers[0].value, value is null")


def test_from_now_on_means_from_the_first_run_on(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["before"])
    pipeline = lake.pipeline(source_of(kafka, topic, start_offset="latest"))
    run(pipeline, once=True)
    assert lake.count() == 0
    kafka.produce(topic, ["between the runs"])
    run(pipeline, once=True)
    assert lake.rows("value") == [("between the runs",)]


def test_a_beginning_that_cannot_be_kept_is_reported(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    pipeline = lake.pipeline(source_of(kafka, topic, start_offset="latest", format="json"))
    with pytest.raises(FrazilError, match=r"where reading begins cannot be kept: there is no table db\.t") as caught:
        run(pipeline, once=True)
    assert caught.value.code == "beginning-not-kept"
    assert not lake.exists()


def test_a_run_waits_for_the_message_that_tells_its_columns(kafka: Kafka, lake: Lake) -> None:
    topic, stop, events = kafka.create_topic(), StopAfter(1), list[Event]()
    pipeline = lake.pipeline(source_of(kafka, topic, start_offset="latest", format="json"), flush_interval_secs=1)
    thread = threading.Thread(target=run, args=(pipeline,), kwargs={"stop": stop, "events": events})
    began = time.monotonic()
    thread.start()
    try:
        wait_until(lambda: sum(isinstance(event, Waiting) for event in events) > 1, 120, "the run to wait")
        kafka.produce(topic, ['{"id": 1}'])
        thread.join(120)
    finally:
        stop.event.set()
        thread.join()
    assert lake.rows("id") == [(1,)]
    waits = sum(isinstance(event, Waiting) for event in events)
    assert waits <= (time.monotonic() - began) / KafkaTopics.poll_seconds + 3


UPSERT = {"commit_mode": "upsert", "key_fields": ["id"]}
JSON = {"type": "json", "schema": {"id": "long", "v": "string"}}


def row(number: int, text: str, partition: int, *, at: int = 0) -> Message:
    return Message(json.dumps({"id": number, "v": text}), partition=partition, timestamp_ms=at)


def test_rows_of_one_key_in_several_partitions_need_an_order(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [row(0, "x", 0), row(1, "old", 0, at=1_000), row(1, "new", 1, at=2_000)])
    with pytest.raises(FrazilError, match="from several partitions of the source") as caught:
        run(lake.pipeline(source_of(kafka, topic, format=JSON), **UPSERT), once=True)
    assert (caught.value.code, '{"id":1}' in caught.value.message) == ("duplicate-keys", True)
    assert "kafka_timestamp" in (caught.value.fix or "")
    timed = source_of(kafka, topic, format=JSON, metadata=["timestamp"])
    run(lake.pipeline(timed, **UPSERT, order_by=["kafka_timestamp"]), once=True)
    assert lake.rows("id, v") == [(0, "x"), (1, "new")]


def test_rows_of_one_key_in_several_topics_need_an_order(kafka: Kafka, lake: Lake) -> None:
    topics = [kafka.create_topic() for _ in range(2)]
    for topic, text in zip(topics, ("a", "b"), strict=True):
        kafka.produce(topic, [row(1, text, 0)])
    with pytest.raises(FrazilError, match="from several partitions of the source"):
        run(lake.pipeline(source_of(kafka, *topics, format=JSON), **UPSERT), once=True)


def test_the_offset_tells_the_last_row_of_a_key_within_a_partition(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic(partitions=2)
    several = [row(1, "old", 0), row(2, "old", 1), row(1, "new", 0), row(2, "newer", 1), row(2, "newest", 1)]
    kafka.produce(topic, [*several, row(3, "same", 0), row(3, "same", 1)])
    done = commits(run(lake.pipeline(source_of(kafka, topic, format=JSON), **UPSERT), once=True))
    assert lake.rows("id, v") == [(1, "new"), (2, "newest"), (3, "same")]
    assert [one.counts.superseded for one in done] == [4]


def test_deletes_of_keyed_messages_are_ordered_by_what_they_have(kafka: Kafka, lake: Lake) -> None:
    begin = int(time.time() * 1000)  # old messages would be deleted by the broker

    def message(number: int, at: int, text: str | None) -> Message:
        value = None if text is None else json.dumps({"at": at, "v": text})
        return Message(value, json.dumps({"id": number}), timestamp_ms=begin + at)

    topic = kafka.create_topic()
    kafka.produce(topic, [message(1, 1, "a"), message(1, 3, None), message(2, 1, "a"), message(3, 3, "a")])
    source = source_of(kafka, topic, format="json", key_format="json", metadata=["timestamp", "offset"])
    derived = {"type": "add_field", "field": "place", "expression": "at + 1"}
    for order, transforms in (("at", ()), ("place", (derived,))):
        with pytest.raises(ConfigError, match=f"'{order}' is a column of the rows") as caught:
            run(lake.pipeline(source, **UPSERT, late="ignore", order_by=[order], transforms=transforms), once=True)
        assert (caught.value.code, "kafka_timestamp" in caught.value.fix) == ("order-of-row", True)
    assert not lake.exists()
    ordered = lake.pipeline(source, **UPSERT, late="ignore", order_by=["kafka_timestamp", "kafka_offset"])
    run(ordered, once=True)
    assert lake.rows("id, v") == [(2, "a"), (3, "a")]
    kafka.produce(topic, [message(1, 2, "late"), message(2, 4, None), message(3, 2, None), message(3, 4, "b")])
    (commit,) = commits(run(ordered, once=True))
    assert (lake.rows("id, v"), commit.counts.superseded) == ([(3, "b")], 2)


def change(number: int, text: str, partition: int, **more: Any) -> Message:
    envelope = {"op": "u", "before": None, "after": {"id": number, "v": text}, "source": None, "transaction": None}
    return Message(json.dumps(envelope | more), partition=partition)


def debezium(kafka: Kafka, lake: Lake, *changes: Message) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, changes)
    options = {**JSON, "envelope": "debezium"}
    run(lake.pipeline(source_of(kafka, topic, format=options), **UPSERT, change_format="debezium"), once=True)


@pytest.mark.slow
def test_the_log_of_a_database_tells_the_last_change_in_several_partitions(kafka: Kafka, lake: Lake) -> None:
    debezium(
        kafka,
        lake,
        change(0, "x", 0, source={"lsn": 5}),
        change(1, "old", 0, source={"lsn": 6}),
        change(1, "new", 1, source={"lsn": 7}),
    )
    assert lake.rows("id, v") == [(0, "x"), (1, "new")]


@pytest.mark.slow
def test_changes_in_several_partitions_without_the_log_need_an_order(kafka: Kafka, lake: Lake) -> None:
    with pytest.raises(FrazilError, match="from several partitions of the source"):
        debezium(kafka, lake, change(1, "a", 0), change(1, "b", 1))


@pytest.mark.slow
def test_the_count_of_a_transaction_tells_nothing_of_another_one(kafka: Kafka, lake: Lake) -> None:
    first, second = {"id": "1", "total_order": 2}, {"id": "2", "total_order": 1}
    debezium(kafka, lake, change(1, "old", 0, transaction=first), change(1, "new", 0, transaction=second))
    assert lake.rows("id, v") == [(1, "new")]


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"change_format": "debezium"}, {"transforms": [{"type": "unwrap_debezium"}]}], ids=str)
def test_what_a_message_tells_beside_its_envelope_is_kept(kafka: Kafka, lake: Lake, way: dict[str, Any]) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [Message(json.dumps({"op": "c", "after": {"id": 1, "v": "a"}}), json.dumps({"id": 1}))])
    options = {"format": {**JSON, "envelope": "debezium"}, "key_format": "json", "metadata": ["offset", "topic"]}
    run(lake.pipeline(source_of(kafka, topic, **options, key_prefix="key_"), commit_mode="upsert", **way), once=True)
    assert lake.table().columns == ["id", "v", "key_id", "kafka_offset", "kafka_topic"]
    assert lake.rows() == [(1, "a", 1, 0, topic)]
    assert len(lake.metadata()["schemas"][-1]["identifier-field-ids"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"change_format": "debezium"}, {"transforms": [{"type": "unwrap_debezium"}]}], ids=str)
def test_a_record_that_lets_kafka_forget_a_key_belongs_to_no_table(kafka: Kafka, lake: Lake, way: dict[str, Any]) -> None:
    topic, key = kafka.create_topic(), json.dumps({"id": 1})
    origin = {"source": {"schema": "public", "table": "orders"}}
    changes = [{"op": "c", "after": {"id": 2, "v": "b"}}, {"op": "d", "before": {"id": 1}}]
    kafka.produce(topic, [*(Message(json.dumps(one | origin), key) for one in changes), Message(None, key)])
    source = source_of(kafka, topic, format={**JSON, "envelope": "debezium"}, key_format="json")
    done = commits(run(lake.pipeline(source, commit_mode="upsert", route={"source": True}, **way), once=True))
    assert sum((one.counts for one in done), RowCounts(0, 0)) == RowCounts(3, 1, deleted=1, filtered=1)
    assert [row.tableName for row in lake.spark.sql(f"show tables in {lake.name}.db").collect()] == [
        "frazil__ledger",
        "public_orders",
    ]


FORGETFUL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "envelopes": ({"envelope": "debezium"}, {"change_format": "debezium"}),
    "envelopes unwrapped": (
        {"envelope": "debezium"},
        {"transforms": [{"type": "unwrap_debezium"}, {"type": "where", "condition": "v <> 'z'"}]},
    ),
    "rows": ({}, {"transforms": [{"type": "add_field", "field": "w", "expression": "upper(v)"}]}),
}


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("way", FORGETFUL)
def test_a_batch_of_nothing_but_empty_records_changes_nothing(kafka: Kafka, lake: Lake, way: str) -> None:
    """As the first one after a start, which knows of no column yet."""
    envelope, options = FORGETFUL[way]
    topic = kafka.create_topic()
    after = {"id": 1, "v": "a"}
    kafka.produce(topic, [json.dumps({"op": "c", "after": after} if envelope else after)])
    source = source_of(kafka, topic, format={**JSON, **envelope}, metadata=["offset"], consumer_group=topic)
    pipeline = lake.pipeline(source, **{**UPSERT, "on_error": "dead_letter", **options})
    run(pipeline, once=True)
    kafka.produce(topic, [Message(None, "k"), Message(None, "k")])
    (done,) = commits(run(pipeline, once=True))
    assert done.counts == RowCounts(2, 0, filtered=2)
    kafka.produce(topic, [Message(None, "k"), Message("broken", "k")])
    (done,) = commits(run(pipeline, once=True))
    assert done.counts == RowCounts(2, 0, filtered=1, dead_lettered=1)
    assert lake.rows("id, v") == [(1, "a")]


@pytest.mark.slow
def test_a_batch_of_which_no_column_is_known_changes_nothing(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ['{"id": 1, "v": "a"}'])
    source = source_of(kafka, topic, format="json", consumer_group=topic)
    options = {"schema_evolution": "full", "dropped_columns": "hard", "on_error": "dead_letter"}
    pipeline = lake.pipeline(source, **UPSERT, **options)
    run(pipeline, once=True)
    kafka.produce(topic, [Message(None, "k"), Message("{}", "k"), Message("broken", "k")])
    (done,) = commits(run(pipeline, once=True))
    assert done.counts == RowCounts(3, 0, filtered=1, dead_lettered=2)
    assert lake.rows() == [(1, "a")]
    messages = {text for (text,) in lake.rows("error", "db.t__dead_letters")}
    assert any("'id'" in text for text in messages), "a row without its key"


def test_another_group_on_the_same_sink_is_refused(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    run(lake.pipeline(source_of(kafka, topic, consumer_group="one")), once=True)
    with pytest.raises(FrazilError, match="kafka:two"):
        run(lake.pipeline(source_of(kafka, topic, consumer_group="two")), once=True)


def test_a_plan_tells_the_cluster_nothing_and_a_run_tells_what_is_committed(
    kafka: Kafka, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "b"])
    pipeline = lake.pipeline(source_of(kafka, topic, consumer_group="one"))
    run(pipeline, once=True)
    committed: list[dict[tuple[str, int], int]] = []
    monkeypatch.setattr(KafkaClient, "tell_group", lambda _, __, offsets: committed.append(offsets))
    kafka.produce(topic, ["c"])
    assert plan_pipeline(pipeline, IMPATIENT).rows == 1
    assert committed == []
    run(pipeline, once=True)
    assert committed == [{(topic, 0): 2}]


@pytest.mark.slow(seconds=25)
def test_a_pipeline_is_started_again_when_the_broker_was_away_for_too_long(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    pipeline = lake.pipeline(source_of(kafka, topic), flush_interval_secs=1)
    restart = RestartSettings(initial_backoff_secs=0.2, max_backoff_secs=0.2, max_restarts=1000)
    settings = IMPATIENT.model_copy(update={"restart": restart, "retry": RetrySettings(max_retries=0)})
    events: list[Event] = []
    stop = StopAfter(2)
    running = threading.Thread(target=run, args=(pipeline,), kwargs={"settings": settings, "stop": stop, "events": events})
    running.start()
    try:
        wait_until(lambda: commits(events), 60, "the first message")
        kafka.stop()
        wait_until(lambda: any(isinstance(event, Restarting) for event in events), 60, "a restart")
        assert not any(isinstance(event, Stopped) for event in events)
    finally:
        kafka.start()
        kafka.produce(topic, ["b"])
        running.join(120)
        stop.event.set()
    assert lake.rows("value") == [("a",), ("b",)]
    assert isinstance(events[-1], Stopped)
    assert (events[-1].batches, events[-1].rows, events[-1].error) == (2, 2, None)
    assert any(isinstance(event, Lagged) and event.rows == 1 for event in events)


def test_a_continuous_run_takes_messages_as_they_come(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    pipeline = lake.pipeline(source_of(kafka, topic), flush_interval_secs=1)
    stop = StopAfter(2)
    later = threading.Timer(3, lambda: kafka.produce(topic, ["b"]))
    later.start()
    run(pipeline, stop=stop)
    later.join()
    assert lake.rows("value") == [("a",), ("b",)]


def test_dead_letters_go_to_a_topic_as_well(kafka: Kafka, lake: Lake) -> None:
    topic, dead = kafka.create_topic(), kafka.create_topic()
    kafka.produce(topic, [Message('{"id": 1}', "a"), Message("{broken", "b"), Message('{"id": "x"}', "c")])
    columns = {"type": "json", "schema": {"id": "long"}}
    pipeline = lake.pipeline(source_of(kafka, topic, format=columns), on_error="dead_letter")
    cluster = {"bootstrap_servers": kafka.address()}
    pipeline = pipeline.model_copy(update={"dead_letter_topic": LetterTopic(topic=dead, cluster=KafkaCluster(**cluster))})
    run(pipeline, once=True)
    assert lake.rows("id") == [(1,)]
    assert lake.count("db.t__dead_letters") == 2
    sent = {message.key(): message for message in kafka.consume(dead, 2)}
    assert {key: message.value() for key, message in sent.items()} == {b"b": b"{broken", b"c": b'{"id": "x"}'}
    headers = dict(sent[b"b"].headers())
    assert (headers["frazil.pipeline"], headers["frazil.table"], headers["frazil.stage"]) == (b"p", b"db.t", b"decode")
    assert (headers["frazil.code"], headers["frazil.batch"]) == (b"json-malformed", b"1")
    assert json.loads(headers["frazil.at"]) == {"topic": topic, "partition": 0, "offset": 1}


@pytest.mark.slow
def test_verify_counts_the_offsets_of_each_batch(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [Message(str(number), partition=number % 2) for number in range(10)])
    pipeline = lake.pipeline(source_of(kafka, topic))
    run(pipeline, once=True)
    kafka.produce(topic, ["more"])
    run(pipeline, once=True)
    kafka.produce(topic, ["unread"])
    verified = verify(pipeline, IMPATIENT)
    assert (verified.batches, verified.rows, verified.findings) == (2, 11, ())
    assert verified.notes == ("1 rows of the source are not in the table yet.",)
    producer = kafka.new_producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        write(producer, topic, ["x"])
        producer.flush(30)
        end(30)
    wait_until(lambda: KafkaTopics(pipeline.source, lake.spark).lag(None).rows == 16, 30, "the marker of the commit")
    run(pipeline, once=True)
    (found,) = verify(pipeline, IMPATIENT).findings
    assert (found.at, found.problem) == ("batch 3", "it read 2 rows, fewer rows than the 5 of its part of the source")


def test_a_message_cannot_rename_the_columns_of_its_topic(kafka: Kafka, lake: Lake) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [json.dumps({"id": number, "v": 1}) for number in range(20)] + ['{"ID": 99, "v": 1}'])
    pipeline = lake.pipeline(source_of(kafka, topic, format="json"), on_error="dead_letter")
    run(pipeline, once=True)
    kafka.produce(topic, ['{"ID": 98, "v": 1}', '{"id": 20, "_file": 1}', '{"id": 20, "v": 1}'])
    run(pipeline, once=True)
    assert (lake.table().columns, lake.rows("id")) == (["id", "v"], sorted([(number,) for number in range(21)], key=repr))
    assert [code for (code,) in lake.rows("code", "db.t__dead_letters")] == ["column-reserved", "json-key", "json-key"]
