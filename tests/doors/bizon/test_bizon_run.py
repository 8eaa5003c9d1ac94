"""Bizon files at work on a real Kafka: what its document promises, and none of the faults of the original."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bizon_cases import Lake, run

from frazil.doors.bizon import load_text
from frazil.errors import DataError
from frazil.model.events import Committed
from services.kafka import Message
from sources.decode.answering import answering
from sources.decode.test_avro_format import framed

ALL_TYPES = """\
destination_table_config:
  - destination_id: all
    time_partitioning:
      - {field: ts, type: HOUR}
      - {field: _bizon_loaded_at, type: DAY}
    iceberg_schema:
      - {name: i, type: int}
      - {name: l, type: long}
      - {name: f, type: float}
      - {name: d, type: double}
      - {name: s, type: string}
      - {name: b, type: binary}
      - {name: day, type: date}
      - {name: ts, type: timestamp}
      - {name: at, type: time}
      - {name: yes, type: boolean}
"""


def test_a_table_without_columns_gets_the_envelope(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    sent = Message('{"id": 1, "x": 1.10}', key='{"k": 1}', headers=(("h", b'a "quote"'),), timestamp_ms=1_700_000_000_123)
    bizon.send(topic, [sent, Message("no json", key="plain", timestamp_ms=1_700_000_000_000), None, b""])
    bizon.run(bizon.text("write_batch_size: 10", events=topic))
    found = {row._source_record_id: row for row in bizon.table("events").collect()}
    assert set(found) == {"partition_0_offset_0", "partition_0_offset_1"}, "a message without a value is passed over"
    first, second = found["partition_0_offset_0"], found["partition_0_offset_1"]
    assert json.loads(first._source_data) == {
        "topic": topic, "offset": 0, "partition": 0, "timestamp": 1_700_000_000_123, "keys": {"k": 1},
        "headers": {"h": 'a "quote"'}, "value": {"id": 1, "x": 1.1}, "schema": {},
    }  # fmt: skip
    assert '"value":{"id": 1, "x": 1.10}' in first._source_data, "the value is as it came"
    assert (json.loads(second._source_data)["value"], json.loads(second._source_data)["keys"]) == ("no json", "plain")
    assert first._source_timestamp == dt.datetime(2023, 11, 14, 22, 13, 20, 123000)
    assert first._bizon_id != second._bizon_id
    assert abs(first._bizon_loaded_at - dt.datetime.now(dt.UTC).replace(tzinfo=None)) < dt.timedelta(minutes=5)
    assert list(bizon.table("events").columns) == [
        "_bizon_extracted_at", "_bizon_id", "_bizon_loaded_at", "_source_record_id", "_source_timestamp", "_source_data",
    ]  # fmt: skip


@pytest.mark.slow
def test_all_types_and_several_partition_fields(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    row = {"i": 1, "l": "9007199254740993", "f": 0.5, "d": 1.5, "s": {"nested": [1]}, "b": "AAEC", "day": "2026-01-31",
           "ts": "2026-01-31T12:30:00.123456", "at": "12:30:15.5", "yes": True, "unknown": "left out"}  # fmt: skip
    bizon.send(topic, [row, {"i": None, "at": "00:00"}])
    bizon.run(bizon.text(ALL_TYPES, all=topic))
    names = ("i", "l", "f", "d", "s", "b", "day", "ts", "at", "yes")
    micros = (12 * 3600 + 30 * 60 + 15) * 1_000_000 + 500_000
    assert bizon.rows("all", *names) == sorted(
        [
            (1, 9007199254740993, 0.5, 1.5, '{"nested":[1]}', bytearray(b"\x00\x01\x02"), dt.date(2026, 1, 31),
             dt.datetime(2026, 1, 31, 12, 30, 0, 123456), micros, True),
            (None,) * 8 + (0, None),
        ],
        key=repr,
    )  # fmt: skip
    assert [row.partition.ts_hour is None for row in bizon.meta("all", "partitions")].count(True) == 1
    assert all(row.partition._bizon_loaded_at_day is not None for row in bizon.meta("all", "partitions"))


@pytest.mark.slow
def test_the_older_form_renames_and_partitions_by_the_names_of_the_data(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"a": 1, "b": 2, "created_at": "2026-01-31T12:00:00", "ts_ms": 1_700_000_000_123}])
    config = """\
time_partitioning:
  - {field: created_at, type: DAY}
destination_table_config:
  - destination_id: events
    iceberg_schema:
      a: {target_field: b, iceberg_type: long}
      b: {target_field: a, iceberg_type: long}
      created_at: {target_field: event_timestamp, iceberg_type: timestamp}
      bizon_loaded_at: {target_field: loaded, iceberg_type: timestamp}
      source_timestamp: {target_field: sent, iceberg_type: timestamp}
"""
    bizon.run(bizon.text(config, "timestamp_ms_name: ts_ms", events=topic))
    assert bizon.rows("events", "a", "b", "event_timestamp") == [(2, 1, dt.datetime(2026, 1, 31, 12))]
    assert bizon.table("events").columns == ["b", "a", "event_timestamp", "loaded", "sent"]
    assert bizon.rows("events", "sent") == [(dt.datetime(2023, 11, 14, 22, 13, 20, 123000),)]
    assert [row.partition.event_timestamp_day for row in bizon.meta("events", "partitions")] == [dt.date(2026, 1, 31)]
    assert bizon.table("events").where("loaded is null").count() == 0


LONG = """\
{more}
destination_table_config:
  - destination_id: t
    iceberg_schema: [{{name: id, type: long}}, {{name: v, type: string}}]
"""


def test_a_bad_value_stops_the_pipeline_or_is_kept_aside_and_never_lost(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "a"}, {"id": "two", "v": "b"}, b"no json", {"id": "3", "v": "c"}])
    stream = bizon.text(LONG.format(more="buffer_flush_timeout: 1"), t=topic).replace("incremental", "stream")
    with pytest.raises(DataError) as caught:
        run(load_text(stream, "b.yaml", {}), once=False)
    assert caught.value.code in ("json-malformed", "value-not-convertible"), "whichever Spark meets first"
    # Nothing was passed over meanwhile: the same file with another setting has all of it.
    result = bizon.run(bizon.text(LONG.format(more="on_error: dead_letter"), t=topic))
    assert bizon.rows("t", "id", "v") == [(1, "a"), (3, "c")]
    letters = {row.stage: bytes(row.raw) for row in bizon.table("t__dead_letters").collect()}
    assert letters == {"cast": b'{"id": "two", "v": "b"}', "decode": b"no json"}
    (committed,) = [event for event in result if isinstance(event, Committed)]
    assert (committed.counts.read, committed.counts.written, committed.counts.dead_lettered) == (4, 2, 2)


UPSERT = """\
{more}
destination_table_config:
  - destination_id: {table}
    upsert: {{enabled: true, join_cols: [{key}], {how}}}
    iceberg_schema: [{{name: id, type: long}}, {{name: v, type: string}}]
"""


def test_upserts_in_their_three_scenarios(bizon: Lake) -> None:
    full, insert, update = (bizon.kafka.create_topic() for _ in range(3))
    first, second = [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}, {"id": 2, "v": "c"}], [{"id": 2, "v": "d"}, {"id": 3, "v": "e"}]
    schema = "iceberg_schema: [{name: id, type: long}, {name: v, type: string}]"
    config = f"""\
upsert: {{enabled: true, join_cols: [ID], case_sensitive: false}}
destination_table_config:
  - destination_id: full
    {schema}
  - destination_id: insert
    upsert: {{enabled: true, join_cols: [id], when_matched_update_all: false}}
    {schema}
  - destination_id: update
    upsert: {{enabled: true, join_cols: [id], when_not_matched_insert_all: false}}
    {schema}
"""
    text = bizon.text(config, full=full, insert=insert, update=update)
    appended = bizon.text(f"destination_table_config: [{{destination_id: update, {schema}}}]", update=update)
    bizon.send(update, [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}])
    bizon.run(appended)
    for topic in (full, insert):
        bizon.send(topic, first)
    bizon.run(text)
    assert bizon.rows("full", "id", "v") == [(1, "b"), (2, "c")], "the first batch has no duplicates, the last row counts"
    assert bizon.data_snapshots("full") == 1, "one snapshot a batch"
    for topic in (full, insert, update):
        bizon.send(topic, second)
    bizon.run(text)
    assert bizon.rows("full", "id", "v") == [(1, "b"), (2, "d"), (3, "e")]
    assert [row[0] for row in bizon.rows("insert", "id")] == [1, 2, 3]
    assert (2, "c") in bizon.rows("insert", "id", "v"), "known rows are not touched"
    assert bizon.rows("update", "id", "v") == [(1, "a"), (2, "d")]
    assert bizon.data_snapshots("full") == 2
    # Who reads such tables with PyIceberg finds no deletes by key in them.
    assert not [row for row in bizon.meta("full", "delete_files") if row.content == 2]


def test_the_last_message_of_a_key_counts_whichever_partition_or_topic_it_is_in(bizon: Lake) -> None:
    several, other = bizon.kafka.create_topic(partitions=2), bizon.kafka.create_topic()

    def message(id_: int, v: str, at: int, partition: int = 0) -> Message:
        return Message(json.dumps({"id": id_, "v": v}), partition=partition, timestamp_ms=1_700_000_000_000 + at)

    # Neither in the order of offsets nor in that of partitions.
    bizon.send(several, [message(1, "last", 40), message(2, "old", 10), message(3, "old", 20)])
    bizon.send(several, [message(1, "old", 5, 1), message(1, "old", 30, 1), message(2, "old", 31, 1), message(3, "old", 32, 1)])
    # Its clock went back, and its offsets did not.
    bizon.send(other, [message(2, "old", 60), message(2, "last", 1), message(4, "only", 2)])
    bizon.send(several, [message(3, "same time, and the topic's second partition", 90)])
    bizon.send(several, [message(3, "same time, and the topic's second partition", 90, 1)])
    config = """\
destination_table_config:
  - destination_id: t
    upsert: {enabled: true, join_cols: [id]}
    iceberg_schema: [{name: id, type: long}, {name: v, type: string}, {name: _source_record_id, type: string}]
"""
    text = bizon.text(config, t=several)
    bizon.run(text.replace('"t"}]', f'"t"}}, {json.dumps({"name": other, "destination_id": "t"})}]'))
    assert bizon.rows("t", "id", "v") == [
        (1, "last"), (2, "last"), (3, "same time, and the topic's second partition"), (4, "only"),
    ]  # fmt: skip
    assert bizon.rows("t", "id", "_source_record_id")[2] == (3, "partition_1_offset_4")
    assert bizon.data_snapshots("t") == 1, "it was one batch"


@pytest.mark.slow
def test_six_tables_are_made_and_written_side_by_side(bizon: Lake) -> None:
    topics = {f"t{n}": bizon.kafka.create_topic() for n in range(5)}
    late = bizon.kafka.create_topic()
    for name, topic in topics.items():
        bizon.send(topic, [{"id": n, "v": name} for n in range(3)])
    bizon.send(late, [{"id": 9, "v": "late"}])
    schema = "iceberg_schema: [{name: id, type: long}, {name: v, type: string}]"
    entries = "\n".join(f"  - {{destination_id: {name}, {schema}}}" for name in topics)
    text = bizon.text(f"table_format: avro\ndestination_table_config:\n{entries}", **topics)
    more = json.dumps({"name": late, "destination_id": "t0"})
    text = text.replace('"destination_id": "t4"}]', f'"destination_id": "t4"}}, {more}]')
    assert load_text(text, "b.yaml", {}).settings.parallel == 4
    result = bizon.run(text)
    assert {event.pipeline for event in result if isinstance(event, Committed)} == set(topics)
    for name in topics:
        assert bizon.table(name).count() == (4 if name == "t0" else 3)
    assert {row.file_format for row in bizon.meta("t1", "files")} == {"AVRO"}


def test_a_table_that_is_not_declared_gets_the_columns_of_the_envelope(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1}])
    bizon.run(bizon.text(LONG.format(more=""), other=topic))
    ((data,),) = bizon.rows("other", "_source_data")
    assert json.loads(data)["value"] == {"id": 1}


SHIP = {"type": "record", "name": "Ship", "fields": [
    {"name": "imo", "type": "long"}, {"name": "name", "type": "string"},
    {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
]}  # fmt: skip


@contextmanager
def registry_of(*schemas: object) -> Iterator[Any]:
    """A registry that is made up: it has these schemas. What a real one answers is tested where Avro is read."""
    known = {"/system/info": {}} | {f"/ids/globalIds/{number}": schema for number, schema in enumerate(schemas, 1)}

    def answer(path: str) -> tuple[int, object]:
        found = known.get(path.removeprefix("/apis/registry/v2").partition("?")[0])
        return (404, {}) if found is None else (200, found)

    with answering(answer) as registry:
        yield registry


@pytest.mark.slow
def test_avro_into_the_envelope_and_into_columns(bizon: Lake) -> None:
    plain, named = bizon.kafka.create_topic(), bizon.kafka.create_topic()
    seen = dt.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=dt.UTC)
    message = framed(1, SHIP, {"imo": 1, "name": "Fram", "seen": seen, "at": dt.time(12, 30)})
    for topic in (plain, named):
        bizon.send(topic, [message])
    config = """\
destination_table_config:
  - destination_id: plain
  - destination_id: named
    time_partitioning: [{field: seen, type: DAY}]
    iceberg_schema:
      imo: {target_field: id, iceberg_type: int}
      seen: {target_field: seen_at, iceberg_type: timestamp}
      at: {target_field: at, iceberg_type: time}
      _source_data: {target_field: raw, iceberg_type: string}
"""
    with registry_of(SHIP) as registry:
        text = bizon.text(config, f"authentication: {{schema_registry_url: '{registry.url}'}}", plain=plain, named=named)
        bizon.run(text.replace("utf-8", "avro"))
    (row,) = bizon.table("plain").collect()
    value = {"imo": 1, "name": "Fram", "seen": "2026-01-31T12:00:00.123456Z"}
    found = json.loads(row._source_data)["value"]
    assert found | value == found
    (row,) = bizon.table("named").collect()
    assert (row.id, row.seen_at, row.at) == (1, seen.replace(tzinfo=None), (12 * 60 + 30) * 60_000_000)
    assert json.loads(row.raw)["value"]["imo"] == 1
    assert bizon.table("named").columns == ["id", "seen_at", "at", "raw"]


RENAMED = """\
destination_table_config:
  - destination_id: renamed
    time_partitioning: [{field: made, type: DAY}]
    iceberg_schema:
      a: {target_field: b, iceberg_type: long}
      b: {target_field: a, iceberg_type: long}
      user_id: {target_field: uid, iceberg_type: string}
      opens: {target_field: at, iceberg_type: time}
      made: {target_field: event_timestamp, iceberg_type: timestamp}
      source_timestamp: {target_field: sent, iceberg_type: timestamp}
"""

EARLIER = {"type": "record", "name": "Event", "fields": [
    {"name": "a", "type": "long"}, {"name": "b", "type": "long"},
    {"name": "uid", "type": "string"}, {"name": "sent", "type": "string"},
]}  # fmt: skip
LATER = EARLIER | {"fields": [
    *EARLIER["fields"], {"name": "user_id", "type": "string"}, {"name": "opens", "type": "string"},
    {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "ts", "type": "long"},
]}  # fmt: skip

NOON, BEGIN = dt.datetime(2026, 1, 31, 12), dt.datetime(2023, 11, 14, 22, 13, 20)


@pytest.mark.slow
def test_names_of_avro_are_exchanged_taken_over_and_missing(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    first = {"a": 1, "b": 2, "uid": "not asked for", "sent": "nor this"}
    second = first | {"user_id": "u", "opens": "09:00", "made": NOON.replace(tzinfo=dt.UTC), "ts": 1_700_000_000_000}
    with registry_of(EARLIER, LATER) as registry:
        source = f"timestamp_ms_name: ts\nauthentication: {{schema_registry_url: '{registry.url}'}}"
        text = bizon.text(RENAMED, source, renamed=topic).replace("utf-8", "avro")
        # A batch that knows nothing of the later fields, and one that has both.
        bizon.send(topic, [Message(framed(1, EARLIER, first), timestamp_ms=1_600_000_000_000)])
        bizon.run(text)
        bizon.send(topic, [framed(1, EARLIER, first | {"a": 3}), framed(2, LATER, second)])
        bizon.run(text)
    assert bizon.rows("renamed", "a", "b", "uid", "at", "event_timestamp") == sorted(
        [(2, 1, None, None, None), (2, 3, None, None, None), (2, 1, "u", 9 * 3_600_000_000, NOON)], key=repr
    )
    assert bizon.table("renamed").columns == ["b", "a", "uid", "at", "event_timestamp", "sent"]
    sent = {row[0] for row in bizon.rows("renamed", "sent")}
    assert {BEGIN, dt.datetime(2020, 9, 13, 12, 26, 40)} < sent, "the field's time, or where that is missing the message's own"


def test_a_time_of_avros_own_type_is_the_time_of_the_message(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    message = framed(1, SHIP, {"imo": 1, "name": "Fram", "seen": NOON.replace(tzinfo=dt.UTC), "at": dt.time(12, 30)})
    bizon.send(topic, [message])
    with registry_of(SHIP) as registry:
        source = f"timestamp_ms_name: seen\nauthentication: {{schema_registry_url: '{registry.url}'}}"
        bizon.run(bizon.text("write_batch_size: 10", source, ships=topic).replace("utf-8", "avro"))
    assert bizon.rows("ships", "_source_timestamp") == [(NOON,)]


@pytest.mark.slow
def test_names_are_exchanged_taken_over_and_missing_after_changes_of_rows(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    transforms = 'transforms: [{type: where, condition: "a > 0"}]\n'
    text = bizon.text(RENAMED, "timestamp_ms_name: ts", renamed=topic) + transforms
    bizon.send(topic, [{"a": 1, "b": 2, "uid": "not asked for"}, {"a": 0}])
    bizon.run(text)
    bizon.send(
        topic, [{"a": 1, "b": 2, "user_id": "u", "opens": "09:00", "made": "2026-01-31T12:00:00", "ts": 1_700_000_000_000}]
    )
    bizon.run(text)
    assert bizon.rows("renamed", "a", "b", "uid", "at", "event_timestamp") == sorted(
        [(2, 1, None, None, None), (2, 1, "u", 9 * 3_600_000_000, NOON)], key=repr
    )
    assert (BEGIN,) in bizon.rows("renamed", "sent")


def test_changes_of_rows_reach_into_the_message(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"after": {"id": 1, "price": 2, "amount": 3}, "op": "c"}, {"after": {"id": 2}, "op": "d"}])
    config = """\
destination_table_config:
  - destination_id: orders
    iceberg_schema: [{name: id, type: long}, {name: total, type: long}, {name: _source_record_id, type: string}]
"""
    text = (
        bizon.text(config, orders=topic)
        + """\
transforms:
  - {type: where, condition: "op <> 'd'"}
  - {label: flat, type: select, expressions: ["after.*", _source_record_id]}
  - {type: add_field, field: total, expression: price * amount}
"""
    )
    bizon.run(text)
    assert bizon.rows("orders", "id", "total", "_source_record_id") == [(1, 6, "partition_0_offset_0")]
