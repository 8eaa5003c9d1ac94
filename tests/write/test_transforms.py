"""Transforms: what becomes of columns and rows, that every row is accounted for, and that bad ones are refused at their place."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pyspark.sql import DataFrame, SparkSession

import frazil
from frazil.doors.yaml import load_text
from frazil.model.commit import RowCounts
from frazil.model.sink import SinkSpec
from frazil.model.transform import TransformSpec
from frazil.write.shape import Tally, source_rows
from helpers.lakes import Lake, commits, run

SALT = "a-salt-that-nobody-may-see"

SINK = SinkSpec.model_validate({"catalog": {"type": "memory"}, "namespace": "n", "table": "t"})

parse = TypeAdapter(tuple[TransformSpec, ...]).validate_python


def after(frame: DataFrame, *transforms: dict[str, Any]) -> DataFrame:
    return source_rows(frame, SINK, parse(transforms))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON, in the order of their text."""
    return [json.loads(text) for text in sorted(frame.toJSON().collect())]


@pytest.fixture
def order(spark: SparkSession) -> DataFrame:
    return spark.sql("""
        select 1L id, 'Ada' name,
               named_struct('city', 'Oslo', 'geo', named_struct('lat', 59.9D, 'lon', 10.7D)) address,
               array(named_struct('sku', 'a', 'n', 2), named_struct('sku', 'b', 'n', 1)) items""")


# Columns.


@pytest.mark.parametrize(
    ("transform", "columns"),
    [
        ({"from": "name", "to": "who"}, ["id", "who", "address", "items"]),
        ({"from": "name", "to": "NAME"}, ["id", "NAME", "address", "items"]),
        ({"from": "address.city", "to": "city"}, ["id", "name", "address", "items", "city"]),
    ],
)
def test_a_column_is_renamed(order: DataFrame, transform: dict[str, Any], columns: list[str]) -> None:
    assert after(order, {"type": "rename_field", **transform}).columns == columns


def test_columns_are_mapped_all_at_once(order: DataFrame) -> None:
    named = {"name": "id", "id": "name", "city": "address.city", "depth": "address.geo.alt", "x": "name.first", "z": "nowhere"}
    found = after(order, {"type": "map_fields", "columns": named})
    assert found.columns == [*named]
    assert found.first() == (1, "Ada", "Oslo", None, None, None)


def test_a_mapped_column_with_a_dot_in_its_name_comes_first(order: DataFrame) -> None:
    dotted = order.selectExpr("address", "'own' as `address.city`")
    assert after(dotted, {"type": "map_fields", "columns": {"city": "address.city"}}).first() == ("own",)


def test_mapped_columns_differ_by_more_than_case() -> None:
    with pytest.raises(ValidationError, match="'id' and 'ID' have the same name"):
        parse([{"type": "map_fields", "columns": {"id": "a", "ID": "b"}}])


def test_a_field_within_a_struct_is_renamed_in_its_place(order: DataFrame) -> None:
    made = after(order, {"type": "rename_field", "from": "address.geo.lat", "to": "address.geo.latitude"})
    assert rows(made.select("address")) == [{"address": {"city": "Oslo", "geo": {"latitude": 59.9, "lon": 10.7}}}]
    made = after(order, {"type": "rename_field", "from": "name", "to": "address.addressee"})
    assert rows(made.select("address.city", "address.addressee")) == [{"city": "Oslo", "addressee": "Ada"}]
    assert "name" not in made.columns


def test_a_null_struct_stays_null(spark: SparkSession) -> None:
    frame = spark.sql("select if(id = 0, null, named_struct('b', id, 'c', 1)) a from range(2)")
    for transform in (
        {"type": "rename_field", "from": "a.b", "to": "a.d"},
        {"type": "remove_field", "field": "a.b"},
        {"type": "add_field", "field": "a.x", "value": 1},
        {"type": "hash_field", "field": "a.b", "salt": SALT},
    ):
        assert after(frame, transform).where("a is null").count() == 1


def test_a_column_whose_own_name_has_a_dot(spark: SparkSession) -> None:
    frame = spark.sql("select 1 as `a.b`, named_struct('c', 2) as a")
    assert after(frame, {"type": "rename_field", "from": "a.b", "to": "x"}).columns == ["x", "a"]
    assert after(frame, {"type": "remove_field", "field": "a.b"}).columns == ["a"]


def test_columns_are_removed(order: DataFrame) -> None:
    assert after(order, {"type": "remove_field", "field": "name"}).columns == ["id", "address", "items"]
    made = after(order, {"type": "remove_field", "fields": ["name", "items", "address.geo.lat", "address.city"]})
    assert rows(made) == [{"id": 1, "address": {"geo": {"lon": 10.7}}}]


def test_a_struct_goes_with_its_last_field(order: DataFrame) -> None:
    made = after(order, {"type": "remove_field", "fields": ["address.geo.lat", "address.geo.lon"]})
    assert rows(made.select("address")) == [{"address": {"city": "Oslo"}}]


def test_columns_are_added(order: DataFrame) -> None:
    made = after(
        order,
        {"type": "add_field", "field": "kind", "value": "web"},
        {"type": "add_field", "field": "nothing", "value": None},
        {"type": "add_field", "field": "pieces", "expression": "aggregate(items, 0, (sum, item) -> sum + item.n)"},
        {"type": "add_field", "field": "address.upper", "expression": "upper(address.city)"},
    )
    assert dict(made.dtypes)["nothing"] == "string"
    found = made.select("kind", "nothing", "pieces", "address.upper").first()
    assert found is not None
    assert tuple(found) == ("web", None, 3, "OSLO")


def test_columns_are_selected(order: DataFrame) -> None:
    expressions = ["id * 2 as twice", "address.*", "size(items) as n"]
    made = after(order, {"type": "select", "expressions": expressions})
    assert rows(made) == [{"twice": 2, "city": "Oslo", "geo": {"lat": 59.9, "lon": 10.7}, "n": 2}]
    made = after(order, {"type": "select", "expressions": ["*", "1 as one"]})
    assert made.columns == ["id", "name", "address", "items", "one"]


def test_structs_are_laid_flat(order: DataFrame) -> None:
    assert after(order, {"type": "flatten"}).columns == [
        "id", "name", "address_city", "address_geo_lat", "address_geo_lon", "items",
    ]  # fmt: skip
    made = after(order, {"type": "flatten", "fields": ["address"], "separator": "__", "depth": 1})
    assert made.columns == ["id", "name", "address__city", "address__geo", "items"]
    again = after(made, {"type": "flatten", "fields": ["address__geo"]})
    assert again.columns == ["id", "name", "address__city", "address__geo_lat", "address__geo_lon", "items"]
    assert rows(again.drop("items")) == [
        {"id": 1, "name": "Ada", "address__city": "Oslo", "address__geo_lat": 59.9, "address__geo_lon": 10.7}
    ]


# Rows.


def test_rows_are_filtered(spark: SparkSession) -> None:
    frame = spark.sql("select id, named_struct('k', if(id = 2, null, id % 2)) a from range(4)")
    assert after(frame, {"type": "filter", "field": "a.k", "equals": 1}).count() == 2
    assert after(frame, {"type": "filter", "field": "a.k", "equals": None}).count() == 1
    assert rows(after(frame, {"type": "where", "condition": "a.k = 1 and id > 1"}).select("id")) == [{"id": 3}]
    assert after(frame, {"type": "where", "condition": "a.k is null or id = 0"}).count() == 2


def test_a_row_of_each_element(order: DataFrame) -> None:
    made = after(order, {"type": "unnest", "field": "items", "as": "item"}, {"type": "flatten", "fields": ["item"]})
    assert made.columns == ["id", "name", "address", "item_sku", "item_n"]
    assert rows(made.select("id", "item_sku")) == [{"id": 1, "item_sku": "a"}, {"id": 1, "item_sku": "b"}]
    assert after(order, {"type": "unnest", "field": "items"}).columns == order.columns


def test_a_list_within_a_struct(spark: SparkSession) -> None:
    frame = spark.sql("select 1 id, named_struct('tags', array('x', 'y'), 'n', 5) body")
    made = after(frame, {"type": "unnest", "field": "body.tags"})
    assert rows(made) == [{"id": 1, "body": {"n": 5}, "tags": "x"}, {"id": 1, "body": {"n": 5}, "tags": "y"}]


def test_empty_lists(spark: SparkSession) -> None:
    frame = spark.sql("select * from values (1, array(7)), (2, array()), (3, null), (4, array(null)) as t(id, list)")
    gone = after(frame, {"type": "unnest", "field": "list"})
    assert rows(gone) == [{"id": 1, "list": 7}, {"id": 4}]
    kept = after(frame, {"type": "unnest", "field": "list", "keep_empty": True})
    assert rows(kept) == [{"id": 1, "list": 7}, {"id": 2}, {"id": 3}, {"id": 4}]


def test_of_elements_that_share_a_place_the_last_is_last(spark: SparkSession) -> None:
    frame = spark.sql("select array('b', 'a') list, 5L __frazil_order union all select array('c'), 4L")
    made = after(frame, {"type": "unnest", "field": "list"})
    assert made.columns == ["list", "__frazil_order"]
    assert [row.list for row in made.orderBy("__frazil_order").collect()] == ["c", "b", "a"]


# Personal data.


@pytest.mark.parametrize(("algorithm", "digest"), [("sha256", hashlib.sha256), ("sha512", hashlib.sha512)])
def test_values_are_hashed(spark: SparkSession, algorithm: str, digest: Any) -> None:
    frame = spark.sql("select * from values (1, 'ada@x', x'00ff', 7L), (2, null, null, null) as t(id, email, raw, n)")
    made = after(frame, {"type": "hash_field", "fields": ["email", "raw", "n"], "algorithm": algorithm, "salt": SALT})
    salt = SALT.encode()
    assert [tuple(row) for row in made.orderBy("id").collect()] == [
        (1, *[digest(salt + value).hexdigest() for value in (b"ada@x", b"\x00\xff", b"7")]),
        (2, None, None, None),
    ]


def test_a_shorter_hash(spark: SparkSession) -> None:
    frame = spark.sql("select * from values ('a'), ('a'), ('b'), (null) as t(v)")
    made = after(frame, {"type": "hash_field", "field": "v", "algorithm": "xxhash64", "salt": SALT})
    assert made.dtypes == [("v", "bigint")]
    assert sorted(made.groupBy("v").count().select("count").collect()) == [(1,), (1,), (2,)]
    assert made.where("v is null").count() == 1
    other = after(frame, {"type": "hash_field", "field": "v", "algorithm": "xxhash64", "salt": SALT + "!"})
    assert made.intersect(other).where("v is not null").count() == 0


def test_the_salt_is_in_no_plan(spark: SparkSession) -> None:
    frame = after(spark.sql("select string(id) email from range(3)"), {"type": "hash_field", "field": "email", "salt": SALT})
    frame = frame.where("email is not null")
    assert frame.count() == 3
    for mode in ("extended", "cost", "formatted"):
        shown = io.StringIO()
        with redirect_stdout(shown):
            frame.explain(mode)
        assert "email" in shown.getvalue()
        assert SALT not in shown.getvalue()
        assert SALT.encode().hex() not in shown.getvalue().lower()
    assert SALT not in str(frame.schema) + repr(parse([{"type": "hash_field", "field": "email", "salt": SALT}]))


# Hidden columns.


HIDDEN = "named_struct('stage', 'decode', 'code', 'bad', 'text', 'why')"


@pytest.mark.parametrize(
    "transforms",
    [
        [{"type": "select", "expressions": ["list"]}],
        [{"type": "select", "expressions": ["*"]}],
        [{"type": "flatten"}],
        [{"type": "filter", "field": "id", "equals": 5}],
        [{"type": "where", "condition": "id = 5"}],
        [{"type": "unnest", "field": "list"}],
        [{"type": "hash_field", "field": "id", "salt": SALT}, {"type": "rename_field", "from": "id", "to": "n"}],
    ],
    ids=lambda given: given[0]["type"],
)
def test_a_record_that_could_not_be_read_passes_with_its_hidden_columns(
    spark: SparkSession, transforms: list[dict[str, Any]]
) -> None:
    frame = spark.sql(f"""
        select cast(null as int) id, cast(null as array<int>) list, {HIDDEN} __frazil_error, x'01' __frazil_raw
        union all select 1, array(), null, x'02'""")
    made = after(frame, *transforms)
    assert [name for name in made.columns if name.startswith("__frazil_")] == ["__frazil_error", "__frazil_raw"]
    assert made.where("__frazil_error is not null").select("__frazil_raw").collect() == [(bytearray(b"\x01"),)]


@pytest.mark.parametrize(
    "transform",
    [
        {"type": "rename_field", "from": "__frazil_at", "to": "at"},
        {"type": "rename_field", "from": "at", "to": "__frazil_at"},
        {"type": "remove_field", "field": "__frazil_at"},
        {"type": "remove_field", "fields": ["a", "__frazil_at"]},
        {"type": "add_field", "field": "at", "expression": "`__FRAZIL_at`"},
        {"type": "select", "expressions": ["__frazil_at as at"]},
        {"type": "where", "condition": "__frazil_error is null"},
        {"type": "unnest", "field": "a", "as": "__frazil_x"},
    ],
)
def test_hidden_columns_cannot_be_named(transform: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="frazil's own"):
        parse([transform])


# Every row is accounted for.


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([], RowCounts(0, 0)),
        ([{"type": "filter", "field": "id", "equals": 1}], RowCounts(3, 0, filtered=3)),
        ([{"type": "unnest", "field": "list"}], RowCounts(0, 0, filtered=2, extra=2)),
        ([{"type": "unnest", "field": "list", "keep_empty": True}], RowCounts(-2, 0, extra=2)),
        (
            [
                {"type": "where", "condition": "id < 4"},
                {"type": "unnest", "field": "list"},
                {"type": "where", "condition": "list > 10"},
            ],
            RowCounts(2, 0, filtered=1 + 1 + 2, extra=2),
        ),
    ],
)
def test_the_tally(spark: SparkSession, transforms: list[dict[str, Any]], expected: RowCounts) -> None:
    frame = spark.sql("select * from values (1, array(7, 11, 12)), (2, array()), (3, array(1)), (4, null) as t(id, list)")
    tally = Tally()
    out = len(source_rows(frame, SINK, parse(transforms), tally).collect())
    counted = tally.of(out)
    assert counted == expected
    assert (RowCounts(out, out) + counted).balanced
    assert out + counted.read == 4 or not transforms


def test_a_filter_that_keeps_nothing_at_all(spark: SparkSession) -> None:
    tally = Tally()
    transforms = [{"type": "add_field", "field": "kind", "value": 1}, {"type": "filter", "field": "kind", "equals": 2}]
    assert source_rows(spark.sql("select 1 id"), SINK, parse(transforms), tally).collect() == []
    assert tally.of(0) == RowCounts(1, 0, filtered=1)


UNNEST = [
    {"type": "where", "condition": "id <> 9"},
    {"type": "unnest", "field": "items", "as": "item"},
    {"type": "flatten"},
]

ORDERS = [
    {"id": 1, "items": [{"sku": "a", "n": "2"}, {"sku": "b", "n": "many"}, {"sku": "c", "n": "1"}]},
    {"id": 2, "items": []},
    {"id": 9, "items": [{"sku": "d", "n": "1"}]},
]

COUNTED = {"in": "3", "out": "2", "filtered": "2", "dead-lettered": "1", "extra": "2"}


def written(folder: Path, *records: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir()
    (folder / "part.json").write_text("\n".join(json.dumps(record) for record in records))
    schema = {"id": "long", "items": "list<struct<sku: string, n: string>>"}
    return {"connector": "files", "path": str(folder), "format": "json", "schema": schema}


def test_the_sums_of_a_batch_hold(lake: Lake, tmp_path: Path) -> None:
    """Three records: one of three elements, of which one cannot be written, one of none, and one that is filtered."""
    source = written(tmp_path / "in", *ORDERS)
    schema = {"id": "long", "item_sku": "string", "item_n": "int"}
    pipeline = lake.introduced().pipeline(source, transforms=UNNEST, schema=schema, on_error="dead_letter")
    (done,) = commits(run(pipeline, once=True))
    assert lake.rows() == [(1, "a", 2), (1, "c", 1)]
    assert done.counts == RowCounts(read=3, written=2, dead_lettered=1, filtered=2, extra=2)
    summary = lake.data_snapshots()[-1].summary
    assert {name: summary[f"frazil.rows-{name}"] for name in COUNTED} == COUNTED
    (letter,) = lake.rows("cast(raw as string)", "db.t__dead_letters")
    assert json.loads(letter[0]) == ORDERS[0]


def test_the_sums_of_a_batch_into_many_tables_hold(lake: Lake, tmp_path: Path) -> None:
    source = written(tmp_path / "in", *ORDERS)
    pipeline = lake.introduced().pipeline(source, transforms=UNNEST, on_error="dead_letter")
    sink = {"catalog": lake.catalog, "namespace": "db", "on_error": "dead_letter", "schema": {"id": "long", "item_n": "int"}}
    sink["route"] = {"field": "item_sku"}
    routed = pipeline.model_validate(pipeline.model_dump() | {"source": source, "transforms": UNNEST, "sink": sink})
    events = commits(run(routed, once=True))
    assert {name: lake.count(f"db.{name}") for name in "abc"} == {"a": 1, "b": 0, "c": 1}
    summary = lake.data_snapshots("db.frazil__ledger")[-1].summary
    assert {name: summary[f"frazil.rows-{name}"] for name in COUNTED} == COUNTED
    assert sum((event.counts for event in events), RowCounts(0, 0)).balanced
    assert sum(event.counts.read for event in events) == 3


# The message of a device, as the network server sends it.

UPLINK = {
    "deduplicationId": "7c1f",
    "time": 1767225600123,
    "deviceInfo": {"devEui": "0a0b0c", "tenantId": "org-7", "tags": {"site": "north"}},
    "fPort": 2,
    "object": {"temperature": -3.5, "battery": 91},
    "rxInfo": [{"gatewayId": "g1", "rssi": -97}, {"gatewayId": "g2", "rssi": -110}],
}

FLAT = [
    {"type": "rename_field", "from": "deviceInfo.devEui", "to": "device_id"},
    {"type": "rename_field", "from": "deviceInfo.tenantId", "to": "organization_id"},
    {"type": "rename_field", "from": "time", "to": "event_timestamp"},
    {"type": "add_field", "field": "event_type", "expression": "if(fPort = 0, 'mac', 'uplink')"},
    {"type": "add_field", "field": "payload", "expression": "to_json(object)"},
    {"type": "remove_field", "fields": ["deduplicationId", "deviceInfo", "fPort", "object", "rxInfo"]},
]


def test_a_nested_message_becomes_its_flat_row(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    broken = UPLINK | {"time": 10**17}
    (folder / "m.json").write_text("\n".join(json.dumps(message) for message in (UPLINK, broken)))
    source = {"connector": "files", "path": str(folder), "format": "json"}
    schema = {
        "device_id": "string",
        "organization_id": "string",
        "event_timestamp": "timestamptz",
        "event_type": "string",
        "payload": "string",
        "error": "string",
        "raw": "string",
    }
    options = {"epoch_unit": "millis", "on_error": "columns", "error_column": "error", "raw_column": "raw"}
    run(lake.introduced().pipeline(source, transforms=FLAT, schema=schema, **options), once=True)
    payload = '{"battery":91,"temperature":-3.5}'
    columns = "device_id, organization_id, unix_millis(event_timestamp), event_type, payload, error is null, raw is null"
    assert lake.rows(columns) == [
        ("0a0b0c", "org-7", UPLINK["time"], "uplink", payload, True, True),
        ("0a0b0c", "org-7", None, "uplink", payload, False, False),
    ]


# What is wrong is refused at its place in the file.

FILE = """\
sources:
  numbers: {{connector: generator}}
sinks:
  lake:
    connector: iceberg
    config: {{catalog: {{type: memory}}, namespace: n, table: t}}
    transforms:
      - {transform}
"""


def refused(frame: DataFrame, transform: str) -> frazil.ConfigError:
    (pipeline,) = load_text(FILE.format(transform=transform), "p.yaml", {}).pipelines
    with pytest.raises(frazil.ConfigError) as caught:
        source_rows(frame, pipeline.sink, pipeline.transforms)
    return caught.value


BAD: Sequence[tuple[str, str, str, str]] = [
    ("{type: remove_field, field: nam}", "nam}", "transform-column", "there is no column 'nam'"),
    ("{type: remove_field, config: {fields: [id, nam]}}", "nam]", "transform-column", "there is no column 'nam'"),
    ("{type: remove_field, fields: [id, name, address, items]}", "{type: remove", "transform-column", "no column would be left"),
    ("{type: rename_field, from: address.town, to: x}", "address.town", "transform-column", "no field 'town' in 'address'"),
    ("{type: rename_field, from: items.sku, to: x}", "items.sku", "transform-column", "'items' has no fields: it is array<"),
    ("{type: rename_field, from: id, to: Name}", "Name", "transform-column", "there already is a column 'name'"),
    ("{type: rename_field, from: id, to: address.city}", "address.city", "transform-column", "a field 'city' in 'address'"),
    ("{type: rename_field, from: id, to: nowhere.id}", "nowhere.id", "transform-column", "there is no column 'nowhere'"),
    ("{type: rename_field, from: id, to: name.id}", "name.id", "transform-column", "'name' has no fields: it is string"),
    ("{type: rename_field, from: address, to: address.x}", "address.x", "transform-column", "cannot be moved into itself"),
    ("{type: add_field, field: ID, value: 1}", "ID", "transform-column", "there already is a column 'id'"),
    ("{type: add_field, field: x, expression: nam || 'x'}", "nam ||", "transform-expression", "there is no `nam`"),
    ("{type: add_field, field: x, expression: id +}", "id +", "transform-expression", "Syntax error"),
    ("{type: add_field, field: x, expression: explode(items)}", "explode(", "transform-expression", "several of one"),
    ("{type: add_field, field: x, expression: sum(id)}", "sum(", "transform-expression", "one row of several"),
    ("{type: select, expressions: [id, address.town]}", "address.town", "transform-expression", "`town`"),
    ("{type: select, expressions: [id, nope(id)]}", "nope(", "transform-expression", "nope"),
    ("{type: select, expressions: [id, 'window(now(), \"1 day\").end']}", "'window(", "transform-expression", "leaves rows out"),
    ("{type: select, expressions: ['*', count(id)]}", "count(", "transform-expression", "one row of several"),
    ("{type: select, expressions: ['*', 1 as ID]}", "1 as ID", "transform-clash", "'*' and '1 as ID' both make a column 'id'"),
    ("{type: select, expressions: ['*', '*']}", "'*']", "transform-clash", "both make a column 'id'"),
    ("{type: where, condition: id}", "id}", "transform-expression", "cannot be understood"),
    ("{type: where, condition: nam = 1}", "nam =", "transform-expression", "there is no `nam`"),
    ("{type: where, condition: count(id) > 1}", "count(", "transform-expression", "expression 'count(id) > 1'"),
    ("{type: filter, field: address, equals: x}", "address", "transform-column", "equal to no single value"),
    ("{type: filter, field: nam, equals: x}", "nam,", "transform-column", "there is no column 'nam'"),
    ("{type: flatten, fields: [name]}", "name]", "transform-column", "'name' is no struct: it is string"),
    ("{type: flatten, fields: [address.geo]}", "address.geo", "transform-column", "'address.geo' is within another struct"),
    ("{type: unnest, field: address}", "address", "transform-column", "'address' is no list: it is struct<"),
    ("{type: unnest, field: items, as: name}", "name}", "transform-column", "there already is a column 'name'"),
    ("{type: unnest, field: items, as: address.item}", "address.item", "transform-column", "is a path"),
    ("{type: hash_field, field: items, salt: abcdefgh}", "items", "transform-column", "only single values are hashed"),
]


@pytest.mark.parametrize(("transform", "at", "code", "message"), BAD, ids=[each[0] for each in BAD])
def test_what_cannot_be_done_is_refused_at_its_place(order: DataFrame, transform: str, at: str, code: str, message: str) -> None:
    error = refused(order, transform)
    assert (error.code, message in error.message) == (code, True), error.message
    assert "\n" not in error.message
    text = FILE.format(transform=transform)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if transform in content)
    assert error.location is not None
    assert (error.location.line, error.location.column) == (line, text.splitlines()[line - 1].rindex(at) + 1)


def test_known_columns_are_reported_without_the_hidden_ones(spark: SparkSession) -> None:
    frame = spark.sql("select 1 id, 'x' name, x'01' __frazil_raw")
    for transform in ("{type: remove_field, field: a}", "{type: select, expressions: [a]}"):
        assert refused(frame, transform).fix == "Columns: id, name."


def test_a_clash_of_flattened_names(spark: SparkSession) -> None:
    refused(spark.sql("select 1 `a.b`, named_struct('b', 2) a"), "{type: flatten, separator: .}")
    error = refused(spark.sql("select 1 a_b, named_struct('b', 2) a"), "{type: flatten}")
    assert (error.code, error.message) == (
        "transform-clash", "flatten: 'a_b' and 'a.b' would both become the column 'a_b'",
    )  # fmt: skip


def test_a_salt_in_the_file_is_not_shown(spark: SparkSession) -> None:
    error = refused(spark.sql("select 1 id"), f"{{type: hash_field, salt: {SALT}, field: nam}}")
    assert error.location is not None
    assert SALT not in error.location.text + str(error)
    assert "hash_field" in error.location.text


@pytest.mark.parametrize(
    "transform",
    [
        {"type": "remove_field"},
        {"type": "remove_field", "field": "a", "fields": ["b"]},
        {"type": "hash_field", "salt": SALT},
        {"type": "hash_field", "field": "a"},
        {"type": "hash_field", "field": "a", "salt": "short"},
        {"type": "hash_field", "field": "a", "salt": SALT, "algorithm": "md5"},
        {"type": "add_field", "field": "a"},
        {"type": "add_field", "field": "a", "value": None, "expression": "1"},
        {"type": "select", "expressions": []},
        {"type": "flatten", "depth": 0},
        {"type": "flatten", "separator": ""},
    ],
)
def test_options_that_do_not_fit_together(transform: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse([transform])


def test_with_an_error_column_a_row_is_written_without_the_value_that_cannot_be_computed(lake: Lake) -> None:
    source = {"connector": "query", "query": "select * from values (1L, '2'), (2L, 'two') as t(id, v)"}
    transforms = [{"type": "add_field", "field": "n", "expression": "cast(v as int) * 2"}]
    run(lake.pipeline(source, transforms=transforms, error_column="why"), once=True)
    assert lake.rows("id, v, n, why is null, why like '%cast(v as int) * 2%'") == [
        (1, "2", 4, True, None),
        (2, "two", None, False, True),
    ]
