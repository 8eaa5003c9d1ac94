"""Every type from every form of source into a declared table, read back by readers that frazil did not write."""

from __future__ import annotations

import datetime
import json
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ValidationError
from pyspark.sql import DataFrame, SparkSession

from frazil.columns.types import spark_schema
from frazil.model.types import Column, StructType, parse_type
from helpers.lakes import Lake, run, sqlite_lake
from helpers.readers import EXTENSIONS, by_pyiceberg, extension_file, newest_metadata

Row = dict[str, Any]

COLUMNS = {
    "n": "int",
    "truth": "boolean",
    "small": "int",
    "big": "long",
    "single": "float",
    "ratio": "double",
    "odd": "double",
    "price": "decimal(9, 2)",
    "exact": "decimal(38, 10)",
    "day": "date",
    "wall": "timestamp",
    "instant": "timestamptz",
    "text": "string",
    "who": "uuid",
    "four": "fixed[4]",
    "content": "binary",
    "nested": "struct<a: int, b: struct<c: list<string>, at: timestamptz, d: struct<e: struct<f: decimal(5, 1)>>>>",
    "numbers": "list<long>",
    "table": "list<list<decimal(10, 2)>>",
    "by_name": "map<string, double>",
    "days": "map<string, list<struct<x: int, d: date>>>",
}

UTC = datetime.UTC
NOBODY = dict.fromkeys(COLUMNS)
ROWS: list[Row] = [
    {
        "n": 0, "truth": True, "small": 7, "big": 8, "single": 0.1, "ratio": 0.1, "odd": 1.5,
        "price": Decimal("12.50"), "exact": Decimal("1.0000000000"),
        "day": datetime.date(2026, 1, 2), "wall": datetime.datetime(2026, 1, 2, 3, 4, 5, 123456),
        "instant": datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC), "text": "plain", "who": str(uuid.UUID(int=7)),
        "four": b"abcd", "content": b"x",
        "nested": {"a": 1, "b": {"c": ["x", "y"],
                   "at": datetime.datetime(2026, 1, 2, tzinfo=UTC), "d": {"e": {"f": Decimal("1.5")}}}},
        "numbers": [1, 2, 3], "table": [[Decimal("1.10")], [Decimal("2.20"), Decimal("3.30")]],
        "by_name": {"a": 1.5, "b": 2.5}, "days": {"k": [{"x": 1, "d": datetime.date(2026, 1, 2)}]},
    },
    {
        "n": 1, "truth": False, "small": -(2**31), "big": -(2**63), "single": -3.4028234663852886e38,
        "ratio": -1.7976931348623157e308,
        "odd": -math.inf, "price": Decimal("-9999999.99"), "exact": Decimal("-9999999999999999999999999999.9999999999"),
        "day": datetime.date(1, 1, 1), "wall": datetime.datetime(1, 1, 1),
        "instant": datetime.datetime(1, 1, 1, tzinfo=UTC), "text": "", "who": str(uuid.UUID(int=0)),
        "four": b"\0\0\0\0", "content": b"",
        "nested": {"a": -(2**31), "b": {"c": [],
                   "at": datetime.datetime(1, 1, 1, tzinfo=UTC), "d": {"e": {"f": Decimal("-9999.9")}}}},
        "numbers": [-(2**63), 2**63 - 1], "table": [[], [Decimal("-99999999.99")]], "by_name": {"a": -0.5}, "days": {"k": []},
    },
    {
        "n": 2, "truth": None, "small": 2**31 - 1, "big": 2**63 - 1, "single": 1.401298464324817e-45, "ratio": 5e-324,
        "odd": math.nan, "price": Decimal("9999999.99"), "exact": Decimal("9999999999999999999999999999.9999999999"),
        "day": datetime.date(9999, 12, 31), "wall": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "instant": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "text": "grüße 日本 🧊 \0 end",
        "who": str(uuid.UUID(int=2**128 - 1)),
        "four": b"\x00\x01\x7f~", "content": "\0🧊é".encode(),
        "nested": {"a": None, "b": None},
        "numbers": [None, 0], "table": [None, [None]], "by_name": {"grüße 🧊": math.pi},
        "days": {"k": [None, {"x": None, "d": None}]},
    },
    NOBODY | {"n": 3, "text": "long " * 210_000, "odd": math.inf},
    NOBODY | {"n": 4},
]  # fmt: skip

SCHEMA = StructType(tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS.items()))


def typed_frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in ROWS], spark_schema(SCHEMA))


# The forms that rows come in. Each gives a source, or a frame.


def json_file(lake: Lake) -> dict[str, Any]:
    (lake.folder / "in").mkdir()
    lines = [json.dumps({name: plain_json(value) for name, value in row.items() if value is not None}) for row in ROWS]
    (lake.folder / "in" / "rows.json").write_text("\n".join(lines))
    return {"connector": "files", "path": str(lake.folder / "in"), "format": "json"}


def plain_json(value: Any) -> Any:
    match value:
        case datetime.datetime() if value.tzinfo is not None and datetime.datetime(2, 1, 1, tzinfo=UTC) < value:
            return value.astimezone(datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))).isoformat()
        case datetime.datetime() | datetime.date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.decode()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else str(value)
        case dict():
            return {key: plain_json(item) for key, item in value.items()}
        case list():
            return [plain_json(item) for item in value]
        case _:
            return value


def avro_file(lake: Lake) -> dict[str, Any]:
    typed_frame(lake.spark).coalesce(1).write.format("avro").save(str(lake.folder / "in"))
    return {"connector": "files", "path": str(lake.folder / "in"), "format": "avro", "pattern": "*.avro"}


def parquet_file(lake: Lake) -> dict[str, Any]:
    import pyarrow
    import pyarrow.parquet

    (lake.folder / "in").mkdir()
    rows = [{name: as_pairs(value) for name, value in row.items()} for row in ROWS]
    schema = pyarrow.schema([(name, arrow_type(parse_type(kind))) for name, kind in COLUMNS.items()])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), lake.folder / "in" / "rows.parquet")
    return {"connector": "files", "path": str(lake.folder / "in"), "format": "parquet"}


def as_pairs(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) and not {"a", "x"} >= set(value) - {"b"} else value


def arrow_type(kind: Any) -> Any:
    import pyarrow

    match kind.name:
        case "struct":
            return pyarrow.struct([(field.name, arrow_type(field.type)) for field in kind.fields])
        case "list":
            return pyarrow.list_(arrow_type(kind.element))
        case "map":
            return pyarrow.map_(arrow_type(kind.key), arrow_type(kind.value))
        case "decimal":
            return pyarrow.decimal128(kind.precision, kind.scale)
        case "fixed":
            return pyarrow.binary(kind.length)
        case name:
            return {
                "boolean": pyarrow.bool_(), "int": pyarrow.int32(), "long": pyarrow.int64(), "float": pyarrow.float32(),
                "double": pyarrow.float64(), "date": pyarrow.date32(), "timestamp": pyarrow.timestamp("us"),
                "timestamptz": pyarrow.timestamp("us", "UTC"), "string": pyarrow.string(), "uuid": pyarrow.string(),
                "binary": pyarrow.binary(),
            }[name]  # fmt: skip


def sql_query(_lake: Lake) -> dict[str, Any]:
    names = list(COLUMNS)
    selects = [", ".join(f"{literal(row[name], parse_type(COLUMNS[name]))} {name}" for name in names) for row in ROWS]
    return {"connector": "query", "query": " union all ".join(f"select {values}" for values in selects)}


def literal(value: Any, kind: Any) -> str:
    """The value as SQL writes it."""
    if value is None:
        return "null"
    match kind.name:
        case "struct":
            fields = ", ".join(f"'{f.name}', {literal(value[f.name], f.type)}" for f in kind.fields)
            return f"named_struct({fields})"
        case "list":
            return f"array({', '.join(literal(item, kind.element) for item in value)})"
        case "map":
            pairs = [f"{literal(key, kind.key)}, {literal(item, kind.value)}" for key, item in value.items()]
            return f"map({', '.join(pairs)})"
        case "date":
            return f"date'{value}'"
        case "timestamp":
            return f"timestamp_ntz'{value.isoformat()}'"
        case "timestamptz":
            return f"timestamp'{value.isoformat()}'"
        case "binary" | "fixed":
            return f"x'{value.hex()}'"
        case "float" | "double":
            return f"{kind.name}('{value!r}')"
        case "decimal":
            return f"{value}BD"
        case "long":
            return f"bigint('{value}')"
        case "int":
            return f"int('{value}')"
        case "boolean":
            return str(value)
        case _:
            return "repeat('long ', 210000)" if len(value) > 1_000_000 else f"cast(x'{value.encode().hex()}' as string)"


SOURCES: dict[str, Callable[[Lake], dict[str, Any]]] = {
    "JSON": json_file,
    "Avro": avro_file,
    "Parquet": parquet_file,
    "SQL": sql_query,
}


# Readers.


def by_spark(lake: Lake) -> list[Row]:
    return list(lake.table().toArrow().to_pylist())


def by_duckdb(lake: Lake) -> list[Row]:
    """In UTC: the first and the last days that there are have no name in other zones."""
    import duckdb

    with duckdb.connect() as connection:
        for name in EXTENSIONS:
            connection.load_extension(str(extension_file(name)))
        connection.execute("set TimeZone = 'UTC'")
        return list(connection.sql(f"select * from iceberg_scan('{newest_metadata(lake)}')").to_arrow_table().to_pylist())


READERS: dict[str, Callable[[Lake], list[Row]]] = {"Spark": by_spark, "PyIceberg": by_pyiceberg, "DuckDB": by_duckdb}


def alike(value: Any, kind: Any) -> Any:
    """A value in one form, whichever reader it comes from."""
    if value is None:
        return None
    match kind.name:
        case "struct":
            return {field.name: alike(value[field.name], field.type) for field in kind.fields}
        case "list":
            return [alike(item, kind.element) for item in value]
        case "map":
            return {alike(key, kind.key): alike(item, kind.value) for key, item in dict(value).items()}
        case "uuid":
            return str(uuid.UUID(bytes=value) if isinstance(value, bytes) else value)
        case "timestamptz":
            return value.astimezone(UTC)
        case "float":
            return struct.unpack("f", struct.pack("f", value))[0]
        case "double":
            return "NaN" if math.isnan(value) else value
        case _:
            return value


def in_order(rows: list[Row]) -> list[Row]:
    found = [{name: alike(row[name], parse_type(kind)) for name, kind in COLUMNS.items()} for row in rows]
    return sorted(found, key=lambda row: row["n"])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", [*SOURCES, "Python"])
def test_every_type_comes_back_as_it_was(spark: SparkSession, tmp_path: Path, form: str, version: int) -> None:
    lake = sqlite_lake(spark, tmp_path)
    options: dict[str, Any] = {"schema": COLUMNS, "format_version": version}
    if form == "Python":
        lake.sink(typed_frame(spark), **options).write()
    else:
        run(lake.pipeline(SOURCES[form](lake), **options), once=True)
    expected = in_order(ROWS)
    for reader, read in READERS.items():
        found = in_order(read(lake))
        assert len(found) == len(expected), reader
        for row, wanted in zip(found, expected, strict=True):
            for name in COLUMNS:
                assert row[name] == wanted[name], f"{name} of row {wanted['n']} by {reader}"


# Whatever comes is a value of the one type, in version 3.
LOOSE = {"n": "int", "thing": "variant", "items": "variant", "word": "variant", "count": "variant", "truth": "variant"}
LOOSE_ROWS: list[Row] = [
    {"n": 0, "thing": {"a": 1, "b": {"c": "grüße 🧊"}}, "items": [1, 2, None], "word": "{plain", "count": 7, "truth": True},
    {"n": 1, "thing": {"a": -(2**63), "b": {"c": ""}}, "items": [], "word": "long " * 30_000, "count": 2**63 - 1, "truth": False},
    {"n": 2, "thing": None, "items": None, "word": None, "count": None, "truth": None},
]
LOOSE_TYPES = "n int, thing struct<a: long, b: struct<c: string>>, items array<int>, word string, count long, truth boolean"


def loose_source(lake: Lake, form: str) -> dict[str, Any]:
    frame = lake.spark.createDataFrame([tuple(row.values()) for row in LOOSE_ROWS], LOOSE_TYPES)
    if form == "SQL":
        frame.createOrReplaceTempView("loose")
        return {"connector": "query", "query": "select * from loose"}
    name = form.lower()
    frame.coalesce(1).write.format(name).save(str(lake.folder / "in"))
    return {"connector": "files", "path": str(lake.folder / "in"), "format": name, "pattern": f"*.{name}"}


@pytest.mark.parametrize("form", [*SOURCES, "Python"])
def test_variants_come_back_as_they_were(spark: SparkSession, tmp_path: Path, form: str) -> None:
    lake = sqlite_lake(spark, tmp_path)
    options: dict[str, Any] = {"schema": LOOSE, "format_version": 3}
    if form == "Python":
        lake.sink(spark.createDataFrame([tuple(row.values()) for row in LOOSE_ROWS], LOOSE_TYPES), **options).write()
    else:
        run(lake.pipeline(loose_source(lake, form), **options), once=True)
    names = [name for name in LOOSE if name != "n"]
    by_spark = lake.table().orderBy("n").selectExpr(*[f"to_json({name}) {name}" for name in names]).collect()
    import duckdb

    with duckdb.connect() as connection:
        for name in EXTENSIONS:
            connection.load_extension(str(extension_file(name)))
        columns = ", ".join(f"cast({name} as json)" for name in names)
        by_duckdb = connection.sql(f"select {columns} from iceberg_scan('{newest_metadata(lake)}') order by n").fetchall()
    for found in (by_spark, by_duckdb):
        rows = [dict(zip(names, (json.loads(value or "null") for value in row), strict=True)) for row in found]
        assert rows == [{name: row[name] for name in names} for row in LOOSE_ROWS]


def test_pyiceberg_does_not_open_a_table_with_variants(spark: SparkSession, tmp_path: Path) -> None:
    """When it does, it joins the readers above, and the page on types is to say so."""
    lake = sqlite_lake(spark, tmp_path)
    lake.sink(spark.sql("select 1 n, parse_json('7') v"), schema={"n": "int", "v": "variant"}, format_version=3).write()
    with pytest.raises(ValidationError, match="Unsupported field type: 'variant'"):
        by_pyiceberg(lake)
