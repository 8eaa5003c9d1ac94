from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.model.types import (
    PRIMITIVES,
    Column,
    Decimal,
    Fixed,
    ListType,
    MapType,
    Primitive,
    StructType,
    Type,
    parse_type,
    schema_json,
)

NAMES = st.text(st.characters(exclude_characters="`", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=12)
LEAVES: st.SearchStrategy[Type] = st.one_of(
    st.sampled_from(PRIMITIVES).map(Primitive),
    st.integers(1, 38).flatmap(lambda precision: st.builds(Decimal, st.just(precision), st.integers(0, precision))),
    st.builds(Fixed, st.integers(1, 1000)),
)
TYPES: st.SearchStrategy[Type] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(ListType, inner),
        st.builds(MapType, inner, inner),
        st.lists(st.builds(Column, NAMES, inner), min_size=1, max_size=4).map(lambda fields: StructType(tuple(fields))),
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(TYPES)
def test_what_is_printed_is_what_was_read(kind: Type) -> None:
    assert parse_type(str(kind)) == kind


@settings(deadline=None)
@given(st.text(st.sampled_from("struct<>map(),: intlongdecimal[]0189`ab_ "), max_size=40))
def test_any_text_is_a_type_or_a_clear_error(text: str) -> None:
    try:
        kind = parse_type(text)
    except ValueError as error:
        message = str(error)
        assert "type" in message or "decimal" in message or "fixed" in message
    else:
        assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("BIGINT", "long"),
        ("bool", "boolean"),
        ("varchar(20)", "string"),
        ("double precision", "double"),
        ("timestamp_ltz", "timestamptz"),
        ("timestamp_ntz", "timestamp"),
        ("numeric(10,2)", "decimal(10, 2)"),
        ("decimal", "decimal(38, 9)"),
        ("decimal(7)", "decimal(7, 0)"),
        ("fixed(16)", "fixed[16]"),
        ("array<text>", "list<string>"),
        ("map<string,array<int>>", "map<string, list<int>>"),
        ("struct<a:int,`b c`:struct<d:date>>", "struct<a: int, `b c`: struct<d: date>>"),
    ],
)
def test_what_users_write(text: str, printed: str) -> None:
    assert str(parse_type(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the type is empty"),
        ("lnog", "unknown type 'lnog'; known: boolean, int"),
        ("decimal(39, 2)", "a precision of 1 to 38"),
        ("decimal(5, 6)", "a scale not above it"),
        ("decimal(5, 2, 1)", "decimal"),
        ("decimal(a)", "a number was expected, not 'a'"),
        ("fixed[0]", "at least 1"),
        ("fixed[1, 2]", "one length"),
        ("list<int", "ends too early"),
        ("list int", "unknown type 'list int'"),
        ("struct<a int>", "':' was expected"),
        ("struct<a: int; b: int>", "cannot read the type"),
        ("int>", "'>' was not expected"),
        ("map<int>", "',' was expected"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".*") as caught:
        parse_type(text)
    assert message in str(caught.value)


def test_a_column_is_found_by_its_path() -> None:
    kind = parse_type("struct<a: struct<b: int, c: list<int>>>")
    assert isinstance(kind, StructType)
    found = kind.column("a.b")
    assert found is not None
    assert str(found.type) == "int"
    assert kind.column("a.x") is None
    assert kind.column("a.c.element") is None


def test_a_new_schema_numbers_its_fields_level_by_level_and_knows_its_keys() -> None:
    schema = StructType(
        (Column("id", Primitive("long")), Column("tags", ListType(Primitive("string"))), Column("n", Primitive("int"), doc="a"))
    )
    json = schema_json(schema, ("id",))
    assert json["identifier-field-ids"] == [1]
    assert [(field["id"], field["name"], field["required"]) for field in json["fields"]] == [
        (1, "id", True), (2, "tags", False), (3, "n", False),
    ]  # fmt: skip
    assert json["fields"][1]["type"] == {"type": "list", "element-id": 4, "element-required": False, "element": "string"}
    assert json["fields"][2]["doc"] == "a"
