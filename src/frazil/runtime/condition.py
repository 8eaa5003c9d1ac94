"""Which rows are meant: by a condition in SQL, or by a file of keys."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from frazil.columns.fixed_time import at_one_time
from frazil.columns.schema import quoted
from frazil.errors import ConfigError
from frazil.iceberg.contents import MATCH, Wanted
from frazil.model.forget import KeyFile
from frazil.model.names import nearest
from frazil.spark.predicates import columns_used, impurity

_KEY = "__frazil_key_"
_NUMBER = "__frazil_row"
_NOT_AS_KEY = (ArrayType, BinaryType, MapType, StructType, VariantType)


@dataclass(frozen=True)
class Asked:
    """The rows that are meant, and how a proof names them."""

    wanted: Wanted
    named: Mapping[str, Any]


def rows_where(session: SparkSession, schema: StructType, condition: str) -> Asked:
    """The rows for which a condition in SQL holds. It must depend on nothing but the row."""
    fixed = at_one_time(session, condition, "--where")
    try:
        filtered = session.createDataFrame([], schema).where(functions.expr(fixed))
    except (AnalysisException, ParseException) as error:
        raise _wrong(condition, str(error), _fix(error, schema)) from error
    if why := impurity(filtered):
        raise ConfigError(
            "condition-changes",
            f"--where: {condition}: {why}, and it must hold for the same rows in every file and whenever it is asked.",
            fix="Select the keys of the rows first, and give them as a file: --keys FILE.",
        )
    used = columns_used(filtered)

    def mark(rows: DataFrame) -> DataFrame:
        return rows.withColumn(MATCH, functions.coalesce(functions.expr(fixed), functions.lit(False)))

    return Asked(Wanted(mark, used), {"where": condition})


def rows_with_keys(session: SparkSession, schema: StructType, file: Path) -> Asked:
    """The rows that have the values of a row of the file in the columns that it names."""
    content = _content(file)
    columns, rows = _rows_of(file, content)
    _require_known(file, columns, schema)
    if not rows:
        raise ConfigError("keys-empty", f"{file} has no rows: nothing is to be forgotten.", fix="Write the keys into it.")
    keys = _typed(session, schema, file, columns, rows)
    described = KeyFile(tuple(columns), keys.count(), hashlib.sha256(content).hexdigest())

    def mark(frame: DataFrame) -> DataFrame:
        same = reduce(Column.__and__, (frame[quoted(name)] == keys[f"{_KEY}{n}"] for n, name in enumerate(columns)))
        met = frame.join(keys.withColumn(MATCH, functions.lit(True)), same, "left")
        return met.withColumn(MATCH, functions.coalesce(functions.col(MATCH), functions.lit(False)))

    named = {"keys": {"columns": list(described.columns), "count": described.count, "sha256": described.sha256}}
    return Asked(Wanted(mark, tuple(columns)), named)


def _wrong(condition: str, words: str, fix: str) -> ConfigError:
    line = words.strip().splitlines()[0].partition(" SQLSTATE: ")[0]
    return ConfigError("condition-wrong", f"--where: {condition}: {line}", fix=fix)


def _fix(error: AnalysisException, schema: StructType) -> str:
    name = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "")
    near = nearest(name, schema.fieldNames()) if name else None
    listed = f"The table has the columns {', '.join(schema.fieldNames())}; texts stand in single quotes."
    return f"Did you mean {near}? {listed}" if near else listed


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            "file-missing", f"{file} cannot be read: {error.strerror}.", fix="--keys names a file of keys."
        ) from error


def _rows_of(file: Path, content: bytes) -> tuple[list[str], list[tuple[str | None, ...]]]:
    """The columns of a file of keys, and its rows as texts."""
    match file.suffix.lower():
        case ".csv":
            lines = list(csv.reader(io.StringIO(_text(file, content))))
            rows = [[value or None for value in line] for line in lines[1:] if line]
            return _whole(file, [name.strip() for name in lines[0]] if lines else [], rows)
        case ".jsonl" | ".ndjson" | ".json":
            return _json_rows(file, _text(file, content))
        case ".parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(io.BytesIO(content))
            return list(table.column_names), [tuple(map(_as_text, row.values())) for row in table.to_pylist()]
        case _:
            raise ConfigError(
                "keys-unreadable",
                f"{file} is none of a CSV, JSON lines or Parquet file, by its name.",
                fix="Name it .csv, .jsonl or .parquet.",
            )


def _json_rows(file: Path, text: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
    columns: list[str] = []
    rows: list[list[str | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConfigError("keys-unreadable", f"Line {number} of {file} is no JSON object.", fix="Write one object a line.")
        columns = columns or list(value)
        if set(value) != set(columns):
            names = ", ".join(columns)
            raise ConfigError(
                "keys-incomplete", f"Line {number} of {file} has not the columns {names}.", fix="Let all lines have them."
            )
        rows.append([_as_text(value[name]) for name in columns])
    return _whole(file, columns, rows)


def _text(file: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("keys-unreadable", f"{file} is not encoded in UTF-8.", fix="Convert it.") from None


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | float) else str(value)


def _whole(
    file: Path, columns: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> tuple[list[str], list[tuple[str | None, ...]]]:
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            words = f"Row {number} of {file} has {len(row)} values for {len(columns)} columns."
            raise ConfigError("keys-incomplete", words, fix="Let the first line name all columns.")
    return list(columns), [tuple(row) for row in rows]


def _require_known(file: Path, columns: Sequence[str], schema: StructType) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    for name in columns:
        if name not in types:
            near = nearest(name, types)
            raise ConfigError(
                "keys-unknown-column",
                f"{file} has a column {name!r}, and the table has none of this name.",
                fix=f"Did you mean {near}?" if near else f"The table has the columns {', '.join(types)}.",
            )
        if isinstance(types[name], _NOT_AS_KEY):
            words = f"The column {name!r} is a {types[name].simpleString()}, which cannot be a key."
            raise ConfigError("keys-not-simple", words, fix="Use --where.")
    if len(set(columns)) != len(columns):
        raise ConfigError("keys-unknown-column", f"{file} names a column twice.", fix="Name each once.")


def _typed(
    session: SparkSession, schema: StructType, file: Path, columns: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> DataFrame:
    """The keys as values of the table's types, each once."""
    arrays = [pyarrow.array([row[n] for row in rows], pyarrow.string()) for n in range(len(columns))]
    names = [f"{_KEY}{n}" for n in range(len(columns))]
    numbers = pyarrow.array(range(1, len(rows) + 1), pyarrow.int64())
    texts = session.createDataFrame(pyarrow.table([*arrays, numbers], [*names, _NUMBER]))
    types = [schema[name].dataType for name in columns]
    typed = texts.select(_NUMBER, *[functions.col(n).try_cast(t).alias(n) for n, t in zip(names, types, strict=True)])
    lacking = reduce(Column.__or__, (functions.col(name).isNull() for name in names))
    if (wrong := typed.where(lacking).orderBy(_NUMBER).first()) is not None:
        place = next(n for n, name in enumerate(names) if wrong[name] is None)
        raise ConfigError(
            "keys-incomplete",
            f"Row {wrong[_NUMBER]} of {file} has no value for the column {columns[place]!r}, or none of type "
            f"{types[place].simpleString()}.",
            fix="A key has a value in each column. Rows without one are found by --where.",
        )
    return typed.drop(_NUMBER).distinct()
