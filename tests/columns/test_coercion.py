"""Values of other types than the table's: converted where nothing is lost, otherwise reported with column and value."""

from __future__ import annotations

import datetime
import json
import logging
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import frazil
from columns.test_schema import columns, json_folder
from helpers.lakes import Lake, run

UTC = datetime.UTC


def one_row(lake: Lake, table: str = "db.t") -> dict[str, Any]:
    (row,) = lake.table(table).toArrow().to_pylist()
    return dict(row)


# What a value of SQL becomes in a declared column. All go into one table.
FORMS: dict[str, tuple[str, str, Any]] = {
    "text_int": ("int", "' -7 '", -7),
    "text_bool": ("boolean", "'Yes'", True),
    "text_double": ("double", "'1e-3'", 0.001),
    "text_inf": ("double", "'-inf'", float("-inf")),
    "text_decimal": ("decimal(5, 2)", "'1.500'", Decimal("1.50")),
    "text_exponent": ("decimal(9, 2)", "'1.5e3'", Decimal("1500.00")),
    "text_bytes": ("binary", "'é'", "é".encode()),
    "text_day": ("date", "'2026-01-02'", datetime.date(2026, 1, 2)),
    "text_zone": ("timestamptz", "'2026-01-02T03:04:05.5+02:00'", datetime.datetime(2026, 1, 2, 1, 4, 5, 500_000, UTC)),
    "text_region": ("timestamptz", "'2026-07-02 03:04:05 Europe/Berlin'", datetime.datetime(2026, 7, 2, 1, 4, 5, tzinfo=UTC)),
    "text_minutes": ("timestamptz", "'2026-01-02T03:04+02:00'", datetime.datetime(2026, 1, 2, 1, 4, tzinfo=UTC)),
    "text_no_zone": ("timestamptz", "'2026-01-02T03:04'", datetime.datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
    "text_midnight": ("timestamptz", "'2026-01-02'", datetime.datetime(2026, 1, 2, tzinfo=UTC)),
    "text_wall": ("timestamp", "'2026-01-02 03:04:05'", datetime.datetime(2026, 1, 2, 3, 4, 5)),
    "text_zone_wall": ("timestamp", "'2026-01-02T03:04:05-08:00'", datetime.datetime(2026, 1, 2, 11, 4, 5)),
    "text_uuid": ("uuid", "'ABCDEF00-0000-0000-0000-00000000000A'", "abcdef00-0000-0000-0000-00000000000a"),
    "bytes_uuid": ("uuid", "x'abcdef0000000000000000000000000a'", "abcdef00-0000-0000-0000-00000000000a"),
    "bytes_text": ("string", "x'c3a9'", "é"),
    "long_int": ("int", "5L", 5),
    "long_double": ("double", "9007199254740992L", 9007199254740992.0),
    "double_int": ("int", "5.0D", 5),
    "double_float": ("float", "0.25D", 0.25),
    "double_decimal": ("decimal(5, 2)", "0.1D", Decimal("0.10")),
    "decimal_decimal": ("decimal(5, 1)", "1.500BD", Decimal("1.5")),
    "decimal_double": ("double", "0.1BD", 0.1),
    "decimal_long": ("long", "7.00BD", 7),
    "day_wall": ("timestamp", "date'2026-01-02'", datetime.datetime(2026, 1, 2)),
    "day_instant": ("timestamptz", "date'2026-01-02'", datetime.datetime(2026, 1, 2, tzinfo=UTC)),
    "instant_day": ("date", "timestamp'2026-01-02T00:00:00Z'", datetime.date(2026, 1, 2)),
    "instant_wall": ("timestamp", "timestamp'2026-01-02T03:04:05Z'", datetime.datetime(2026, 1, 2, 3, 4, 5)),
    "wall_instant": ("timestamptz", "timestamp_ntz'2026-01-02 03:04:05'", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    "instant_text": ("string", "timestamp'2026-01-02T03:04:05.5Z'", "2026-01-02T03:04:05.5Z"),
    "decimal_exponent": ("decimal(38, 18)", "'1.5e3'", Decimal("1500")),
    "decimal_small": ("decimal(5, 2)", "'-12500E-4'", Decimal("-1.25")),
    "first_year": ("date", "'0001-01-01'", datetime.date(1, 1, 1)),
    "last_moment": ("timestamp", "'9999-12-31T23:59:59.999999Z'", datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)),
    "number_text": ("string", "12", "12"),
    "struct_text": ("string", "named_struct('a', 1, 'at', timestamp'2026-01-02T03:04:05.123456Z', 'gone', cast(null as int))",
                    '{"a":1,"at":"2026-01-02T03:04:05.123456Z"}'),
    "list_text": ("string", "array(1, null)", "[1,null]"),
    "map_text": ("string", "map(date'2026-01-02', array(map(1, 'x')))", '{"2026-01-02":[{"1":"x"}]}'),
    "fields_map": ("map<string, long>", "named_struct('a', 1, 'b', cast(null as int))", [("a", 1)]),
    "in_lists": ("list<struct<x: int, y: date>>", "array(named_struct('y', '2026-01-02', 'x', '7'))",
                 [{"x": 7, "y": datetime.date(2026, 1, 2)}]),
    "in_maps": ("map<string, decimal(5, 2)>", "map('k', '1.5')", [("k", Decimal("1.50"))]),
    "map_keys": ("map<long, string>", "map(1, 2)", [(1, "2")]),
}  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_values_become_those_of_declared_columns_whatever_the_time_zone_of_the_session(lake: Lake, zone: str) -> None:
    query = "select " + ", ".join(f"{value} {name}" for name, (_, value, _) in FORMS.items())
    session = lake.spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    lake.sink(session.sql(query), schema={name: kind for name, (kind, _, _) in FORMS.items()}).write()
    lake.introduced()
    found = one_row(lake)
    for name, (_, _, expected) in FORMS.items():
        value = found[name].astimezone(UTC) if isinstance(expected, datetime.datetime) and expected.tzinfo else found[name]
        assert value == expected, name


# What has no form in a declared column, and how it is reported.
WRONG: dict[str, tuple[str, str, str]] = {
    "int_text": ("int", "'seven'", "seven"),
    "int_point": ("int", "'1.5'", "1.5"),
    "int_big": ("int", "3000000000L", "3000000000"),
    "int_half": ("int", "2.5D", "2.5"),
    "int_bool": ("int", "true", "true"),
    "int_list": ("int", "array(1)", "[1]"),
    "int_struct": ("int", "named_struct('x', 1)", "{1}"),
    "long_big": ("long", "'9223372036854775808'", "9223372036854775808"),
    "long_double": ("long", "9.3E18D", "9.3E18"),
    "bool_text": ("boolean", "'maybe'", "maybe"),
    "float_big": ("float", "1e300D", "1.0E300"),
    "float_digits": ("float", "0.123456789D", "0.123456789"),
    "float_int": ("float", "16777217", "16777217"),
    "double_long": ("double", "9223372036854775807L", "9223372036854775807"),
    "double_text": ("double", "'1e400'", "1e400"),
    "double_java": ("double", "'1.5f'", "1.5f"),
    "decimal_digits": ("decimal(5, 2)", "'1.239'", "1.239"),
    "decimal_tail": ("decimal(5, 2)", "'1.23000000000000000000000000000000000001'", "1.23000000000000000000000000000000000001"),
    "decimal_small": ("decimal(5, 2)", "'4e-19'", "4e-19"),
    "decimal_tiny": ("decimal(5, 2)", "'4e-60'", "4e-60"),
    "decimal_underflow": ("decimal(10, 2)", "'1e-400'", "1e-400"),
    "decimal_exponent": ("decimal(10, 2)", "'1e-1000000000'", "1e-1000000000"),
    "decimal_zeros": ("decimal(10, 2)", f"'1.{'0' * 44}1'", f"1.{'0' * 44}1"),
    "decimal_places": ("decimal(10, 2)", "'12345e-3'", "12345e-3"),
    "decimal_big": ("decimal(5, 2)", "1000", "1000"),
    "decimal_decimal": ("decimal(5, 2)", "1.239BD", "1.239"),
    "decimal_nan": ("decimal(5, 2)", "double('NaN')", "NaN"),
    # A double does not tell which of many numbers this was.
    "decimal_double": ("decimal(20, 2)", "12345678901234567.0D", "1.2345678901234568E16"),
    "day_text": ("date", "'2026-02-30'", "2026-02-30"),
    "day_time": ("date", "'2026-01-02T03:04:05'", "2026-01-02T03:04:05"),
    "day_month": ("date", "'2026-01'", "2026-01"),
    "day_instant": ("date", "timestamp'2026-01-02T03:04:05Z'", "2026-01-02 03:04:05"),
    "time_only": ("timestamptz", "'12:34:56'", "12:34:56"),
    "too_fine": ("timestamptz", "'2026-01-02T03:04:05.123456789Z'", "2026-01-02T03:04:05.123456789Z"),
    "too_fine_wall": ("timestamp", "'2026-01-02T03:04:05.1234567'", "2026-01-02T03:04:05.1234567"),
    "too_fine_short": ("timestamp", "'2026-01-02T3:04:05.1234567'", "2026-01-02T3:04:05.1234567"),
    "year_zero": ("date", "'0000-12-31'", "0000-12-31"),
    "year_zero_time": ("timestamptz", "'0000-12-31T23:00:00-02:00'", "0000-12-31T23:00:00-02:00"),
    "before_year_one": ("timestamptz", "'0001-01-01T00:00:00+14:00'", "0001-01-01T00:00:00+14:00"),
    "after_year_9999": ("timestamp", "'9999-12-31T23:59:59-14:00'", "9999-12-31T23:59:59-14:00"),
    "no_zone_such": ("timestamptz", "'2026-01-02T03:04:05 Middle/Earth'", "2026-01-02T03:04:05 Middle/Earth"),
    "uuid_short": ("uuid", "'1-1-1-1-1'", "1-1-1-1-1"),
    "uuid_bytes": ("uuid", "x'00ff'", "00FF"),
    "fixed_short": ("fixed[4]", "x'00ff'", "00FF"),
    "fixed_text": ("fixed[2]", "'abc'", "abc"),
    "text_bytes": ("string", "x'00ff'", "00FF"),
}  # fmt: skip


def test_what_is_wrong_is_reported_in_a_column_with_all_columns_values_and_types(lake: Lake) -> None:
    bad = ", ".join(f"{value} {name}" for name, (_, value, _) in WRONG.items())
    declared = {"id": "int"} | {name: kind for name, (kind, _, _) in WRONG.items()}
    lake.sink(f"select 1 id, {bad}", schema=declared, error_column="error", raw_column="raw").write()
    row = one_row(lake)
    assert row["id"] == 1
    assert {name for name in WRONG if row[name] is not None} == set()
    for name, (kind, _, shown) in WRONG.items():
        assert f"column '{name}' cannot hold this value as {kind}: {shown}" in row["error"].split("; ")
    raw = json.loads(row["raw"])
    assert (raw["id"], raw["int_text"], raw["day_instant"]) == (1, "seven", "2026-01-02T03:04:05.000000Z")


@pytest.mark.parametrize("name", ["int_half", "decimal_digits", "time_only", "uuid_short", "fixed_short", "double_long"])
def test_without_a_column_for_errors_the_batch_stops(lake: Lake, name: str) -> None:
    kind, value, shown = WRONG[name]
    with pytest.raises(frazil.DataError) as caught:
        lake.sink(f"select {value} c", schema={"c": kind}).write()
    assert caught.value.message == f"column 'c' cannot hold this value as {kind}: {shown}"
    assert caught.value.code == "value-not-convertible"
    assert lake.count() == 0


def test_a_long_value_is_reported_in_part(lake: Lake) -> None:
    with pytest.raises(frazil.DataError) as caught:
        lake.sink("select repeat('x', 1000000) c", schema={"c": "int"}).write()
    assert caught.value.message == f"column 'c' cannot hold this value as int: {'x' * 200}..."


def test_rows_without_errors_have_no_error_and_others_keep_what_is_right(lake: Lake) -> None:
    source = json_folder(
        lake,
        {"id": 1, "price": "1.50", "item": {"n": "1", "name": "a"}},
        {"id": 2, "price": "cheap", "item": {"n": "two", "name": "b"}},
    )
    declared = {"id": "long", "price": "decimal(5, 2)", "item": "struct<n: int, name: string>"}
    run(lake.pipeline(source, schema=declared, error_column="error", raw_column="raw"), once=True)
    good, bad = lake.rows("id, price, item.n, item.name, error, raw")
    assert good == (1, Decimal("1.50"), 1, "a", None, None)
    text = "column 'price' cannot hold this value as decimal(5, 2): cheap; column 'item.n' cannot hold this value as int: two"
    assert bad[:5] == (2, None, None, "b", text)
    assert json.loads(bad[5]) == {"id": 2, "price": "cheap", "item": {"n": "two", "name": "b"}}


def test_a_table_that_takes_its_columns_from_the_data_gets_those_for_errors(lake: Lake) -> None:
    lake.sink("select 1 id", error_column="error", schema_evolution="strict").write()
    assert columns(lake) == {"id": "int", "error": "string"}
    lake.sink("select 2 id").write()
    lake.sink("select 3 id", error_column="wrong", raw_column="raw").write()
    assert list(columns(lake)) == ["id", "error", "wrong", "raw"]


def test_a_required_column_stops_though_there_is_a_column_for_errors(lake: Lake) -> None:
    declared = {"id": {"type": "int", "required": True}, "n": "int"}
    for value, message in (("'x'", "cannot hold this value as int: x"), ("cast(null as string)", "is required")):
        with pytest.raises(frazil.DataError, match=message):
            lake.sink(f"select {value} id, 'y' n", schema=declared, error_column="error").write()
    assert lake.count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["equality_delete", "merge"])
def test_keys_stop_an_upsert_and_other_values_go_to_the_column_for_errors(lake: Lake, strategy: str) -> None:
    options: dict[str, Any] = {
        "schema": {"id": "uuid", "n": "int"},
        "error_column": "error",
        "commit_mode": "upsert",
        "key_fields": ["id"],
    }
    options |= {"upsert_strategy": strategy}
    name = str(uuid.UUID(int=0xABCDEF))
    lake.sink(f"select '{name}' id, '1' n", **options).write()
    lake.sink(f"select upper('{name}') id, 'two' n", **options).write()
    assert lake.rows() == [(name, None, "column 'n' cannot hold this value as int: two")]
    for key, code in (("'nobody'", "value-not-convertible"), ("cast(null as string)", "key-null")):
        with pytest.raises(frazil.DataError) as caught:
            lake.sink(f"select {key} id, '3' n", **options).write()
        assert caught.value.code == code
    assert lake.count() == 1


def test_rows_that_only_delete_need_no_other_values(lake: Lake) -> None:
    options: dict[str, Any] = {
        "schema": {"id": "int", "n": "int"},
        "commit_mode": "upsert",
        "key_fields": ["id"],
        "op_field": "op",
    }
    lake.sink("select 1 id, '1' n, 'i' op union all select 2, '2', 'i'", **options).write()
    lake.sink("select 1 id, 'gone' n, 'd' op", **options).write()
    assert lake.rows() == [(2, 2)]


def test_nulls_inside_of_structs_and_lists_that_must_not_be_are_reported(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    lake.spark.sql(f"create table {lake.name}.db.n (id int, s struct<a: int not null>, l array<int>) using iceberg")
    lake.sink("select 1 id, named_struct('a', 1) s", "db.n").write()
    with pytest.raises(frazil.DataError, match=r"column 's\.a' is required, and a row has no value for it") as caught:
        lake.sink("select 2 id, named_struct('a', cast(null as int)) s", "db.n").write()
    assert caught.value.code == "required-null"
    lake.sink("select 3 id, cast(null as struct<a: int>) s", "db.n").write()
    assert lake.rows("id, s.a", "db.n") == [(1, 1), (3, None)]


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("seconds", "1767323045", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("seconds", "1767323045.25D", datetime.datetime(2026, 1, 2, 3, 4, 5, 250_000, UTC)),
        ("seconds", "1767323045.123456BD", datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)),
        ("millis", "1767323045123L", datetime.datetime(2026, 1, 2, 3, 4, 5, 123000, UTC)),
        ("millis", "-62135596800000L", datetime.datetime(1, 1, 1, tzinfo=UTC)),
        ("micros", "1767323045123456L", datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)),
        ("nanos", "1767323045123456789L", datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)),
        ("nanos", "-1L", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    ],
)
def test_numbers_are_moments_in_utc(lake: Lake, unit: str, value: str, expected: datetime.datetime) -> None:
    declared = {"at": "timestamptz", "wall": "timestamp"}
    lake.sink(f"select {value} at, {value} wall", schema=declared, epoch_unit=unit).write()
    row = one_row(lake)
    assert row["at"].astimezone(UTC) == expected
    assert row["wall"] == expected.replace(tzinfo=None)


def test_numbers_that_are_no_such_moments_are_reported(lake: Lake) -> None:
    # Milliseconds taken for seconds are a moment in the year 57974.
    declared = {"a": "timestamptz", "b": "date", "c": "date", "d": "timestamp"}
    frame = "select 1767323045123L a, 1767312000 b, 1767312001 c, 1.0000001BD d"
    lake.sink(frame, schema=declared, epoch_unit="seconds", error_column="error").write()
    row = one_row(lake)
    assert (row["a"], row["b"], row["c"], row["d"]) == (None, datetime.date(2026, 1, 2), None, None)
    assert [part.split("'")[1] for part in row["error"].split("; ")] == ["a", "c", "d"]


def test_numbers_without_a_unit_are_refused_with_the_cure(lake: Lake) -> None:
    with pytest.raises(frazil.DataError, match="column 'at' is int in the data and timestamptz in the table") as caught:
        lake.sink("select 1 at", schema={"at": "timestamptz"}).write()
    assert (caught.value.code, caught.value.fix[:14]) == ("epoch-unit", "Set epoch_unit")


def test_strict_casting_refuses_the_batch_by_its_types_alone(lake: Lake) -> None:
    declared = {"id": "int", "at": "timestamp", "price": "decimal(5, 2)"}
    with pytest.raises(frazil.DataError) as caught:
        lake.sink(
            "select 1L id, timestamp'2026-01-02T00:00:00Z' at, 1.5BD price where false", schema=declared, strict_casting=True
        ).write()
    assert caught.value.code == "strict-casting"
    assert "column 'id' is long in the data and int in the table; column 'at' is timestamptz" in caught.value.message
    lake.sink("select 1 id, timestamp_ntz'2026-01-02 00:00:00' at, 1.5BD price", schema=declared, strict_casting=True).write()
    assert lake.rows("id, price") == [(1, Decimal("1.50"))]


def test_extra_columns_can_be_left_out_or_refused(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.sink("select 1 id, named_struct('a', 1) s").write()
    more = "select 2 id, 'x' extra, named_struct('a', 2, 'b', 3) s"
    with caplog.at_level(logging.WARNING, "frazil"):
        lake.sink(more, extra_columns="ignore").write()
    assert "left out: extra, s.b" in caplog.text
    assert lake.rows("id, s") == [(1, (1,)), (2, (2,))]
    with pytest.raises(frazil.DataError, match=r"the table does not have: extra, s\.b"):
        lake.sink(more, extra_columns="refuse").write()
    assert list(columns(lake)) == ["id", "s"]
    lake.sink(more).write()
    assert list(columns(lake)) == ["id", "s", "extra"]


def test_a_column_that_differs_by_case_alone_is_not_left_out(lake: Lake) -> None:
    upsert = {"commit_mode": "upsert", "key_fields": ["id"]}
    lake.sink("select 1 id, 'good' name", **upsert).write()
    for extra in ("ignore", "evolve"):
        with pytest.raises(frazil.DataError, match="but for upper and lower case") as caught:
            lake.sink("select 1 id, 'better' Name", extra_columns=extra, **upsert).write()
        assert caught.value.code == "columns-differ-by-case"
    assert lake.rows() == [(1, "good")]


def test_a_column_that_was_declared_later_is_no_extra_one(lake: Lake) -> None:
    lake.sink("select 1 id").write()
    declared = {"id": "int", "late": "string"}
    for number, kept in enumerate(("ignore", "refuse"), 2):
        extra = ", 'y' extra" if kept == "ignore" else ""
        lake.sink(f"select {number} id, 'x' late{extra}", extra_columns=kept, schema=declared).write()
    assert lake.rows("*") == [(1, None), (2, "x"), (3, "x")]
    assert list(columns(lake)) == ["id", "late"]


def test_nested_values_become_texts_in_tables_that_others_made(lake: Lake) -> None:
    lake.sink("select 1 id, 'x' payload").write()
    lake.sink("select 2 id, named_struct('a', array(1, 2)) payload").write()
    assert lake.rows() == [(1, "x"), (2, '{"a":[1,2]}')]


def test_a_column_that_is_null_in_all_rows_of_json_fits_any_type(lake: Lake) -> None:
    declared = {"id": "long", "tags": "list<int>", "item": "struct<a: int>", "by_name": "map<string, int>", "n": "long"}
    nothing = dict.fromkeys(declared)
    run(lake.pipeline(json_folder(lake, nothing | {"id": 1}), schema=declared), once=True)
    assert lake.rows() == [(1, None, None, None, None)]
    with pytest.raises(frazil.DataError, match="column 'tags' cannot hold this value as list<int>: none"):
        lake.sink("select 2L id, 'none' tags", schema=declared).write()


def test_variants_take_anything_on_version_3(lake: Lake) -> None:
    declared = {"id": "int", "v": "variant"}
    options: dict[str, Any] = {"schema": declared, "format_version": 3}
    lake.sink("""select 1 id, parse_json('{"a": [1, null, "x"]}') v""", **options).write()
    lake.sink("select 2 id, named_struct('a', 1.5D, 'm', map('k', date'2026-01-02')) v", **options).write()
    lake.sink("select 3 id, 'text' v", **options).write()
    run(lake.pipeline(json_folder(lake, {"id": 4, "v": {"b": {"c": True}}}), name="json", **options), once=True)
    found = {row[0]: json.loads(row[1]) for row in lake.rows("id, to_json(v)")}
    assert found == {1: {"a": [1, None, "x"]}, 2: {"a": 1.5, "m": {"k": "2026-01-02"}}, 3: "text", 4: {"b": {"c": True}}}
    lake.sink("select 1 id, 'x' payload", "db.texts").write()
    lake.sink("select 2 id, parse_json('[1,{}]') payload", "db.texts").write()
    assert lake.rows(table="db.texts") == [(1, "x"), (2, "[1,{}]")]


def test_a_variant_for_a_table_of_version_2_is_refused_before_anything_is_made(lake: Lake) -> None:
    with pytest.raises(frazil.ConfigError, match="'v': the type variant needs version 3 of the table format, not 2") as caught:
        lake.sink("select parse_json('1') v").write()
    assert caught.value.code == "type-needs-v3"
    assert lake.nothing_written()
    lake.sink("select 1 id").write()
    with pytest.raises(frazil.ConfigError, match="needs version 3"):
        lake.sink("select 2 id, parse_json('1') v").write()


@pytest.mark.parametrize("kind", ["time", "timestamp_ns", "timestamptz_ns"])
def test_types_that_spark_cannot_write_are_refused_before_anything_is_made(lake: Lake, kind: str) -> None:
    with pytest.raises(frazil.ConfigError, match=f"Spark cannot write Iceberg's type {kind}"):
        lake.sink("select 'x' c", schema={"c": kind}, format_version=3).write()
    assert lake.nothing_written()


def test_a_struct_without_fields_is_refused_before_anything_is_made_or_becomes_text(lake: Lake) -> None:
    for query in ("select 1 id, named_struct() s", "select 1 id, array(named_struct('a', named_struct())) s"):
        with pytest.raises(frazil.ConfigError, match=r"Column 's.*' is a struct without fields") as caught:
            lake.sink(query).write()
        assert caught.value.code == "struct-empty"
    assert lake.nothing_written()
    lake.sink("select 1 id, named_struct() s", schema={"id": "int", "s": "string"}).write()
    assert lake.rows() == [(1, "{}")]


def test_a_table_of_others_with_such_a_column_is_refused_in_words(lake: Lake) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, TimeType

    lake.sink("select 1 id", "db.other").write()
    catalog = SqlCatalog(lake.name, uri=f"sqlite:///{lake.folder / 'catalog.db'}", warehouse=(lake.folder / "warehouse").as_uri())
    try:
        catalog.create_table("db.t", Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimeType())))
    finally:
        catalog.engine.dispose()
    with pytest.raises(frazil.ConfigError, match="Column 'at': Spark cannot write Iceberg's type time") as caught:
        lake.sink("select 1L id").write()
    assert caught.value.code == "type-not-in-spark"


# Random values: as texts of JSON into a table, and back.

ANY_TYPE: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "truth": ("boolean", st.booleans()),
    "small": ("int", st.integers(-(2**31), 2**31 - 1)),
    "big": ("long", st.integers(-(2**63), 2**63 - 1)),
    "single": ("float", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "ratio": ("double", st.floats(allow_nan=False, allow_infinity=False)),
    "price": ("decimal(12, 3)", st.decimals(-999_999_999, 999_999_999, places=3)),
    "day": ("date", st.dates()),
    "wall": ("timestamp", st.datetimes()),
    "instant": ("timestamptz", st.datetimes(datetime.datetime(2, 1, 1), datetime.datetime(9998, 1, 1), timezones=st.sampled_from(
        [datetime.timezone(datetime.timedelta(minutes=m)) for m in (-720, -570, 0, 345, 840)]))),
    "text": ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    "who": ("uuid", st.uuids()),
    "numbers": ("list<int>", st.lists(st.integers(-5, 5), max_size=3)),
    "inner": ("struct<a: int, d: date>", st.fixed_dictionaries({"a": st.integers(-5, 5), "d": st.dates()})),
}  # fmt: skip

ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in ANY_TYPE.items()})


def as_json(value: Any) -> Any:
    match value:
        case datetime.date():
            return value.isoformat()
        case Decimal() | uuid.UUID():
            return str(value)
        case dict():
            return {key: as_json(item) for key, item in value.items()}
        case _:
            return value


def as_read(value: Any) -> Any:
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case uuid.UUID():
            return str(value)
        case _:
            return value


# Each example runs a pipeline: what fails is reported as it was generated.
@pytest.mark.slow
@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, min_size=1, max_size=30))
def test_random_values_come_back_from_json_as_they_were(lake: Lake, rows: list[dict[str, Any]]) -> None:
    table = f"db.t{uuid.uuid4().hex[:8]}"
    folder = lake.folder / table
    folder.mkdir()
    lines = [json.dumps({"n": n} | {name: as_json(value) for name, value in row.items()}) for n, row in enumerate(rows)]
    # Of a list or a text that is empty in all rows Spark's reader sees no column.
    lines.append(json.dumps({"n": len(rows), "numbers": [0], "text": "x"}))
    (folder / "rows.json").write_text("\n".join(lines))
    source = {"connector": "files", "path": str(folder), "format": "json"}
    run(lake.pipeline(source, table, schema={"n": "int"} | {name: kind for name, (kind, _) in ANY_TYPE.items()}), once=True)
    found = sorted(lake.table(table).toArrow().to_pylist(), key=lambda row: int(row["n"]))[:-1]
    assert [{name: as_read(row[name]) for name in ANY_TYPE} for row in found] == [
        {name: as_read(value) for name, value in row.items()} for row in rows
    ]


ORDERED = {
    "schema": {"id": "long", "n": "long", "v": "string"}, "commit_mode": "upsert", "key_fields": ["id"], "order_by": ["n"]
}  # fmt: skip


def test_texts_are_in_the_order_of_what_the_table_has_them_as(lake: Lake) -> None:
    lake.sink("select * from values ('1', '9', 'nine'), ('1', '10', 'ten') t(id, n, v)", **ORDERED).write()
    assert lake.rows() == [(1, 10, "ten")]


def test_a_delete_whose_place_in_the_order_cannot_be_read_is_a_fault(lake: Lake) -> None:
    rows = "select * from values ('1', '9', 'nine', 'u'), ('1', 'ten', null, 'd'), ('2', '1', 'one', 'u') t(id, n, v, op)"
    with pytest.raises(frazil.DataError, match="column 'n' cannot hold this value as long: ten"):
        lake.sink(rows, **ORDERED, op_field="op").write()
    counts = lake.sink(rows, **ORDERED, op_field="op", on_error="dead_letter").write().counts
    assert (lake.rows("id, v"), counts.dead_lettered) == ([(1, "nine"), (2, "one")], 1)


def test_keys_of_a_map_that_become_the_same_are_a_fault_of_the_row(lake: Lake) -> None:
    options = {"schema": {"id": "long", "m": "map<int, string>"}}
    lake.sink("select 1L id, map(1, 'a') m", **options).write()
    rows = "select * from values (2L, map('1', 'a', '01', 'b')), (3L, map('2', 'c')), (4L, null) t(id, m)"
    text = "column 'm' has keys that become the same as int: 1, 01"
    with pytest.raises(frazil.DataError, match=text):
        lake.sink(rows, **options).write()
    counts = lake.sink(rows, **options, on_error="dead_letter").write().counts
    assert (lake.rows("id, m"), counts.dead_lettered) == ([(1, {1: "a"}), (3, {2: "c"}), (4, None)], 1)
    assert lake.rows("error", "db.t__dead_letters") == [(text,)]


def test_keys_of_a_map_become_what_is_declared(lake: Lake) -> None:
    lake.sink("select 1L id, map('7', 'a') m", schema={"id": "long", "m": "map<int, string>"}).write()
    assert lake.rows() == [(1, {7: "a"})]
