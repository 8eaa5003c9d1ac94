"""Every type of PostgreSQL: the frame holds what the database says, from the snapshot and from the log alike."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import DataError
from frazil.sources.postgres.types import DOUBLE, INT, LONG, STRING, array_items, array_of, decimal, values, widened
from sources.postgres.databases import Database, Reader, data

Follow = Callable[..., Reader]

# type, Spark's type, literals in SQL
TYPES: dict[str, tuple[str, str, list[str]]] = {
    "b": ("boolean", "boolean", ["true", "false"]),
    "i2": ("smallint", "int", ["-32768", "32767"]),
    "i4": ("int", "int", ["-2147483648", "2147483647"]),
    "i8": ("bigint", "bigint", ["-9223372036854775808", "9223372036854775807"]),
    "f4": ("real", "float", ["1.17549e-38", "3.4028235e38"]),
    "f8": ("double precision", "double", ["0.1", "-1.7976931348623157e308"]),
    "n": ("numeric(12, 3)", "decimal(12,3)", ["123456789.123", "-0.001"]),
    "n38": ("numeric(38, 10)", "decimal(38,10)", ["1234567890123456789012345678.0123456789", "0"]),
    "nneg": ("numeric(3, -2)", "decimal(5,0)", ["12345", "99900"]),
    "ntiny": ("numeric(2, 5)", "decimal(5,5)", ["0.00012", "0"]),
    "nfree": ("numeric", "string", ["1e40", "0.1234567890123456789012345678901234567890123"]),
    "t": ("text", "string", ["'héllo \"wörld\" \\ {} , ''x'''", "''"]),
    "vc": ("varchar(5)", "string", ["'abc'", "'日本語'"]),
    "c": ("char(4)", "string", ["'ab'", "'abcd'"]),
    "by": ("bytea", "binary", ["'\\x00ff10'", "'\\x'"]),
    "d": ("date", "date", ["'2024-02-29'", "'0001-01-01'"]),
    "ts": ("timestamp", "timestamp_ntz", ["'2024-02-29 23:59:59.999999'", "'1582-10-10 00:00:00'"]),
    "tz": ("timestamptz", "timestamp", ["'2024-03-31 02:30:00+02'", "'1900-01-01 00:00:00.5+05:30'"]),
    "tm": ("time", "string", ["'12:34:56.789'", "'24:00:00'"]),
    "tmz": ("timetz", "string", ["'12:34:56+02'", "'00:00:00-11'"]),
    "iv": ("interval", "string", ["'1 year 2 days 03:04:05.6'", "'-5 minutes'"]),
    "u": ("uuid", "string", ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"]),
    "j": ("json", "string", ["'{\"a\": [1, 2,  3]}'", "'null'"]),
    "jb": ("jsonb", "string", ['\'{"a":   "x\\ny"}\'', "'[]'"]),
    "e": ("mood", "string", ["'happy'", "'very sad'"]),
    "dom": ("price", "decimal(8,2)", ["1.50", "999999.99"]),
    "domdom": ("fine_price", "decimal(8,2)", ["1.5", "2"]),
    "ai": ("int[]", "array<int>", ["'{1,NULL,3}'", "'{}'"]),
    "at": ("text[]", "array<string>", ["array['a,b', 'q\"x', 'back\\slash', '', 'NULL', null, '{}']", "'[5:6]={x,y}'"]),
    "an": ("numeric(5, 1)[]", "array<decimal(5,1)>", ["'{1.5,2}'", "'{NULL}'"]),
    "atz": ("timestamptz[]", "array<timestamp>", ["array['2024-01-01 12:00+01'::timestamptz]", "'{}'"]),
    "ae": ("mood[]", "array<string>", ["'{happy,\"very sad\"}'", "'{}'"]),
    "ab": ("bytea[]", "array<binary>", ["array['\\x01'::bytea]", "'{}'"]),
    "abool": ("boolean[]", "array<boolean>", ["'{t,f,NULL}'", "'{}'"]),
    "bx": ("box[]", "string", ["'{(1,1),(0,0);(2,2),(1,1)}'", "'{}'"]),
    "ip": ("inet", "string", ["'10.0.0.1/8'", "'::1'"]),
    "m": ("macaddr", "string", ["'08:00:2b:01:02:03'", "'00:00:00:00:00:00'"]),
    "bits": ("bit(3)", "string", ["B'101'", "B'000'"]),
    "r": ("int4range", "string", ["'[1,5)'", "'empty'"]),
    "p": ("point", "string", ["'(1.5,2)'", "'(0,0)'"]),
    "comp": ("pair", "string", ["'(1,\"a b\")'", "'(,)'"]),
    "o": ("oid", "bigint", ["4294967295", "0"]),
    "ts_v": ("tsvector", "string", ["'a fat cat'", "''"]),
    "x": ("xml", "string", ["'<a/>'", "'text'"]),
}


@pytest.fixture
def everything(database: Database) -> Database:
    database.run(
        "create type mood as enum ('happy', 'very sad')",
        "create type pair as (a int, b text)",
        "create domain price as numeric(8, 2)",
        "create domain fine_price as price check (value > 0)",
        f"create table everything (id int primary key, {', '.join(f'{name} {kind}' for name, (kind, _, _) in TYPES.items())})",
    )
    return database


def fill(database: Database) -> None:
    for number in (0, 1):
        literals = ", ".join(f"{texts[number]}" for _, _, texts in TYPES.values())
        database.run(f"insert into everything values ({number}, {literals})")
    database.run("insert into everything values (2)")


def told(database: Database, name: str, kind: str) -> list[Any]:
    """What the database says, as psycopg reads it where Spark has the type, otherwise as text."""
    text = f"case when num_nulls({name}) = 0 then format('%s', {name}) end"
    shown = text if kind == "string" else f"{name}::text[]" if kind == "array<string>" else name
    # The texts of the source do not depend on what a session has set.
    database.run("set timezone = 'UTC'", "set intervalstyle = 'iso_8601'")
    return [row[0] for row in database.rows(f"select {shown} from everything order by id")]


@pytest.mark.parametrize("way", ["snapshot", "log"])
def test_values_are_what_the_database_says(everything: Database, follow: Follow, way: str) -> None:
    reader = follow("everything")
    if way == "log":
        reader.batch()
    fill(everything)
    part = reader.plan()
    assert part is not None
    frame = reader.source.read(part)
    rows = frame.orderBy("id").collect()
    assert [row["__frazil_error"] for row in rows] == [None] * 3
    types = dict(frame.dtypes)
    for name, (_, kind, _) in TYPES.items():
        assert types[name] == kind, name
        expected = told(everything, name, kind)
        got = [row[name] for row in rows]
        assert got[2] is None, name
        if kind == "float":
            expected = [value and struct.unpack("f", struct.pack("f", value))[0] for value in expected]
        assert [plain(value) for value in got] == [plain(value) for value in expected], name


def plain(value: Any) -> Any:
    """One way of writing what psycopg and Spark give as different objects of Python."""
    match value:
        case list():
            return [plain(item) for item in value]
        case dt.datetime():
            # Spark gives times with a zone as naive ones of the machine's zone.
            return value.astimezone().replace(tzinfo=None) if value.tzinfo else value
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return value


def test_the_time_of_a_zone_is_the_same_moment(database: Database, follow: Follow) -> None:
    database.run("create table t (id int primary key, at timestamptz, wall timestamp)")
    database.run("insert into t values (1, '2024-03-31 02:30:00.000001+02', '2024-03-31 02:30:00.000001')")
    part = (reader := follow("t")).plan()
    assert part is not None
    row = reader.source.read(part).selectExpr("unix_micros(at) AS at", "cast(wall AS string) AS wall").first()
    assert row is not None
    assert row.at == database.value("select (extract(epoch from at) * 1000000)::bigint from t")
    assert row.wall == "2024-03-31 02:30:00.000001"


@pytest.mark.parametrize("way", ["snapshot", "log"])
@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        ("date", "'infinity'"),
        ("date", "'0044-03-15 BC'"),
        ("date", "'20000-01-01'"),
        ("timestamp", "'-infinity'"),
        ("timestamptz", "'infinity'"),
        ("numeric(5, 2)", "'NaN'"),
        ("int[]", "'{{1,2},{3,4}}'"),
        ("date[]", "'{2024-01-01,infinity}'"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_an_error_of_its_row(
    database: Database, follow: Follow, kind: str, literal: str, way: str
) -> None:
    database.run(f"create table odd (id int primary key, v {kind})")
    reader = follow("odd")
    if way == "log":
        reader.batch()
    database.run(f"insert into odd values (1, null), (2, {literal}), (3, null)")
    part = reader.plan()
    assert part is not None
    rows = {json.loads(bytes(row["__frazil_raw"]))["row"]["id"]: row for row in reader.source.read(part).collect()}
    assert {str(key) for key in rows} == {"1", "2", "3"}
    bad = rows["2"]
    assert data(bad) == {"id": None, "v": None}
    assert bad["__frazil_error"]["code"] == "value-not-representable"
    assert "column 'v'" in bad["__frazil_error"]["text"]
    assert json.loads(bytes(bad["__frazil_raw"]))["row"]["v"] == database.value("select v::text from odd where id = 2")
    assert [row["__frazil_error"] for key, row in rows.items() if key != "2"] == [None, None]


def test_a_column_that_is_named_as_frazils_own_is_refused(database: Database, follow: Follow) -> None:
    database.run("create table odd (id int primary key, __frazil_op text)")
    reader = follow("odd")
    part = reader.plan()
    assert part is not None
    with pytest.raises(DataError, match=r"The table public\.odd has columns .* __frazil_op"):
        reader.source.read(part)


def test_floats_may_be_no_numbers(database: Database, follow: Follow) -> None:
    database.run("create table f (id int primary key, v float8)")
    database.run("insert into f values (1, 'NaN'), (2, 'Infinity'), (3, '-Infinity'), (4, '-0')")
    rows = follow("f").batch()
    assert rows is not None
    by_id = {row.id: row.v for row in rows}
    assert math.isnan(by_id[1])
    assert (by_id[2], by_id[3], math.copysign(1, by_id[4])) == (math.inf, -math.inf, -1)


@pytest.mark.parametrize(
    ("option", "kind", "good"),
    [("string", "string", "1.50"), ("double", "double", 1.5), ("decimal(10, 3)", "decimal(10,3)", Decimal("1.500"))],
)
def test_numbers_without_bounds_become_what_is_asked_for(
    database: Database, follow: Follow, option: str, kind: str, good: Any
) -> None:
    database.run("create table n (id int primary key, v numeric)", "insert into n values (1, 1.50), (2, 0.00001)")
    reader = follow("n", unbounded_numeric=option)
    part = reader.plan()
    assert part is not None
    frame = reader.source.read(part)
    assert dict(frame.dtypes)["v"] == kind
    rows = frame.collect()
    assert good in [row.v for row in rows]
    errors = [row["__frazil_error"] for row in rows if row["__frazil_error"]]
    assert len(errors) == (1 if kind.startswith("decimal") else 0), "a value that would be rounded is not taken"


def test_few_bad_values_among_many_are_found() -> None:
    texts = pa.array([str(number) if number % 997 else "x" for number in range(5000)])
    array, errors = values(texts, INT)
    assert sorted(errors) == [0, 997, 1994, 2991, 3988, 4985]
    assert array.null_count == 6
    assert array[998].as_py() == 998


def test_arrays_are_read_as_postgres_writes_them() -> None:
    assert array_items('{a,"b,c","d\\"e\\\\","NULL",NULL,""}') == ["a", "b,c", 'd"e\\', "NULL", None, ""]
    assert array_items("{}") == []
    assert array_items("[-1:0]={1,2}") == ["1", "2"]
    with pytest.raises(ValueError, match="several dimensions"):
        array_items("{{1},{2}}")


def test_types_widen_to_one_that_holds_both() -> None:
    assert widened(INT, LONG) == LONG
    assert widened(decimal(6, 2), decimal(5, 4)) == decimal(8, 4)
    assert widened(decimal(38, 2), decimal(38, 4)) == STRING
    assert widened(INT, decimal(4, 2)) == decimal(12, 2)
    assert widened(INT, DOUBLE) == DOUBLE
    assert widened(LONG, DOUBLE) == STRING
    assert widened(array_of(INT), array_of(LONG)) == array_of(LONG)
