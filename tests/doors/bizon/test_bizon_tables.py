"""Tables of Bizon files over several runs: columns that come later, keys of their own, catalogs; and what shows only at work."""

from __future__ import annotations

import datetime as dt

import pytest
from bizon_cases import Lake

from frazil.errors import ConfigError, DataError, FrazilError, Retryable

TABLE = """\
{more}
destination_table_config:
  - destination_id: t
    iceberg_schema: [{columns}]
"""


def config(columns: str = "{name: id, type: long}, {name: v, type: string}", more: str = "") -> str:
    return TABLE.format(columns=columns, more=more)


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


UPSERT = "upsert: {enabled: true}"


@pytest.mark.slow
def test_a_schema_that_grows_between_runs_adds_columns(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "not asked for"}])
    bizon.run(bizon.text(config("{name: id, type: long}"), t=topic))
    bizon.send(topic, [{"id": 2, "v": "b", "at": "2026-01-31T12:00:00"}])
    bizon.run(bizon.text(config("{name: at, type: timestamp}, {name: id, type: long}, {name: v, type: string}"), t=topic))
    assert bizon.rows("t", "id", "v", "at") == [(1, None, None), (2, "b", dt.datetime(2026, 1, 31, 12))]
    assert set(bizon.table("t").columns) == {"id", "v", "at"}


@pytest.mark.slow
def test_an_upsert_without_join_cols_takes_the_identifier_fields_of_the_table(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    bizon.run(bizon.text(config(more="upsert: {enabled: true, join_cols: [id]}"), t=topic))
    bizon.send(topic, [{"id": 2, "v": "c"}, {"id": 3, "v": "d"}])
    bizon.run(bizon.text(config(more=UPSERT), t=topic))
    assert bizon.rows("t", "id", "v") == [(1, "a"), (2, "c"), (3, "d")]


@pytest.mark.parametrize("there", [False, True], ids=["a new table", "a table without any"])
def test_an_upsert_that_has_no_key_at_all_is_refused_at_its_table(bizon: Lake, there: bool) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "a"}])
    if there:
        bizon.run(bizon.text(config(), t=topic))
        bizon.send(topic, [{"id": 1, "v": "b"}])
    text = bizon.text(config(more=UPSERT), t=topic)
    with pytest.raises(ConfigError, match=r"ns\.t: upsert sinks must specify a key") as caught:
        bizon.run(text)
    assert str(caught.value.location) == f"bizon.yaml:{line_of(text, '- destination_id: t')}:9"
    assert "join_cols" in caught.value.fix


MOMENTS = "{name: ts, type: timestamp}, {name: tz, type: timestamptz}, {name: day, type: date}"


@pytest.mark.slow
def test_times_may_be_numbers_and_texts_side_by_side(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    noon, millis, midnight = dt.datetime(2026, 1, 31, 12, 0, 0, 123000), 1_769_860_800_123, 1_769_817_600_000
    iso = "2026-01-31T12:00:00.123"
    bizon.send(topic, [{"ts": millis, "tz": millis, "day": midnight}, {"ts": iso, "tz": f"{iso}Z", "day": "2026-01-31"}])
    bizon.send(topic, [{"ts": str(millis), "tz": None}, {"ts": 9_000_000_000_000_000_000}, {"day": millis}])
    bizon.run(bizon.text(config(MOMENTS, "epoch_unit: millis\non_error: dead_letter"), t=topic))
    whole = (noon, noon, dt.date(2026, 1, 31))
    found = bizon.table("t").selectExpr("ts", "cast(tz as timestamp_ntz) as tz", "day").collect()
    assert sorted(map(tuple, found), key=repr) == sorted([whole, whole, (noon, None, None)], key=repr)
    letters = {bytes(row.raw) for row in bizon.table("t__dead_letters").collect()}
    assert letters == {b'{"ts": 9000000000000000000}', b'{"day": 1769860800123}'}, "no such year, and no whole day"


def test_a_catalog_whose_tables_are_not_to_be_made_must_have_them(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "a"}])
    made = bizon.text(config(more="max_retry_attempts: 0"), t=topic)
    not_made = made.replace("{type: sql,", "{type: sql, init_catalog_tables: false,")
    with pytest.raises(FrazilError) as caught:
        bizon.run(not_made)
    assert str(caught.value.location) == f"bizon.yaml:{line_of(not_made, '{type: sql')}:7"
    assert "no such table: iceberg_tables" in str(caught.value)
    bizon.run(made)
    bizon.send(topic, [{"id": 2, "v": "b"}])
    bizon.run(not_made)
    assert bizon.rows("t", "id", "v") == [(1, "a"), (2, "b")]


def test_a_catalog_that_does_not_answer_is_reported_at_its_place(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1}])
    text = bizon.text("max_retry_attempts: 0", ships=topic)
    begin = text.index("{type: sql")
    away = "{type: rest, uri: 'http://127.0.0.1:1', warehouse: w}"
    text = text[:begin] + away + text[text.index("}", begin) + 1 :]
    with pytest.raises(Retryable, match=r"127\.0\.0\.1:1") as caught:
        bizon.run(text)
    assert str(caught.value.location) == f"bizon.yaml:{line_of(text, '{type: rest')}:7"


def test_data_that_does_not_fit_a_column_of_another_type_is_reported_at_the_table(bizon: Lake) -> None:
    topic = bizon.kafka.create_topic()
    bizon.send(topic, [{"id": 1, "v": "a"}])
    bizon.run(bizon.text(config(), t=topic))
    bizon.send(topic, [{"id": "two", "v": "b"}])
    text = bizon.text(config("{name: id, type: string}, {name: v, type: string}"), t=topic)
    with pytest.raises(DataError, match="column 'id' cannot hold this value as long: two") as caught:
        bizon.run(text)
    assert str(caught.value.location) == f"bizon.yaml:{line_of(text, '- destination_id: t')}:9"
