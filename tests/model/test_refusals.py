"""Which columns of the data a table cannot take, and what the table's columns are called in the source."""

from __future__ import annotations

import pytest

from frazil.model.changes import ChangeFormat
from frazil.model.coercion import CoercionOptions, ExtraColumns
from frazil.model.evolving import SchemaEvolution
from frazil.model.names import MOST_COLUMNS
from frazil.model.origins import source_columns
from frazil.model.refusals import refused_casts, surplus, without
from frazil.model.transform import (
    AddField,
    Flatten,
    MapFields,
    RenameField,
    SelectColumns,
    TransformSpec,
    Unnest,
    UnwrapDebezium,
    WhereRows,
)
from frazil.model.types import Column, StructType, parse_type


def schema(text: str) -> StructType:
    kind = parse_type(f"struct<{text}>")
    assert isinstance(kind, StructType)
    return kind


TABLE = schema("id: long, s: struct<a: int>, l: list<struct<x: int>>, m: map<string, int>")


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        ("id: long, v: int", {}),
        ("ID: long", {"ID": "columns-differ-by-case"}),
        ("v: int, V: int", {"V": "columns-differ-by-case"}),
        ("_file: string, `_POS`: int", {"_file": "column-reserved", "_POS": "column-reserved"}),
        ("s: struct<A: int, `_file`: int>", {"s.A": "columns-differ-by-case"}),
        ("l: list<struct<X: int>>", {"l.element.X": "columns-differ-by-case"}),
        ("`s.a`: int, `s.b`: int", {"s.a": "column-name"}),
        ("`l.element`: int, `m.key`: int", {"l.element": "column-name", "m.key": "column-name"}),
        ("n: struct<b: struct<c: int>>, `n.b`: int", {"n.b": "column-name"}),
        (f"{'x' * 256}: int", {"x" * 256: "column-name"}),
    ],
)  # fmt: skip
def test_names_that_a_table_cannot_take(data: str, refused: dict[str, str]) -> None:
    found = surplus(TABLE, schema(data), ExtraColumns.EVOLVE, SchemaEvolution.ADD_COLUMNS)
    assert {".".join(one.path): one.code for one in found} == refused


def test_a_table_is_widened_so_far_and_no_further() -> None:
    data = StructType(tuple(Column(f"c{n}", parse_type("int")) for n in range(MOST_COLUMNS + 5)))
    found = surplus(StructType(()), data, ExtraColumns.EVOLVE, SchemaEvolution.ADD_COLUMNS)
    assert [one.path for one in found] == [(f"c{MOST_COLUMNS + n}",) for n in range(5)]
    assert surplus(data, data, ExtraColumns.EVOLVE, SchemaEvolution.ADD_COLUMNS) == ()


@pytest.mark.parametrize(
    ("extra", "mode", "code"),
    [("refuse", "add_columns", "extra-column"), ("evolve", "strict", "schema-strict"), ("ignore", "strict", None)],
)
def test_options_refuse_new_columns(extra: str, mode: str, code: str | None) -> None:
    found = surplus(TABLE, schema("id: long, v: int"), ExtraColumns(extra), SchemaEvolution(mode))
    assert [one.code for one in found] == ([] if code is None else [code])


def test_casts_are_refused_where_they_are() -> None:
    table, data = schema("n: int, l: list<struct<x: int>>, at: date"), schema("n: int, l: list<struct<x: long>>, at: long")
    strict = refused_casts(table, data, CoercionOptions(strict_casting=True))
    assert {one.path: one.code for one in strict} == {("l", "element", "x"): "strict-casting", ("at",): "epoch-unit"}
    assert [one.path for one in refused_casts(table, data, CoercionOptions(epoch_unit="millis"))] == []


def test_what_is_left_without_them() -> None:
    data = schema("id: long, V: int, l: list<struct<x: int, X: int>>")
    assert without(data, [("V",), ("l", "element", "X")]) == schema("id: long, l: list<struct<x: int>>")


@pytest.mark.parametrize(
    ("transforms", "names"),
    [
        ([RenameField(**{"from": "email", "to": "mail"})], ["email", "id"]),
        ([AddField(field="id", value=1), WhereRows(condition="true")], ["mail"]),
        ([MapFields(columns={"id": "user.id", "mail": "m"})], ["m"]),
        ([Flatten()], ["id", "mail"]),
        ([Flatten(fields=["m"], separator="a")], ["id", "m"]),
        ([Unnest(field="mails", **{"as": "mail"})], ["id", "mails"]),
        ([SelectColumns(expressions=["id", "mail"])], []),
        ([UnwrapDebezium()], ["before", "after"]),
    ],
)
def test_columns_as_the_source_has_them(transforms: list[TransformSpec], names: list[str]) -> None:
    found = source_columns(schema("id: long, mail: string"), ChangeFormat.ROWS, transforms)
    assert [column.name for column in found.fields] == names
