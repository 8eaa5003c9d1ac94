"""Changes of a table as values: what each mode allows, and that applying them leaves nothing to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import DataError
from frazil.model.evolution import (
    AddColumn,
    ColumnChange,
    DropColumn,
    MakeOptional,
    RenameColumn,
    Rules,
    SetPartition,
    WidenColumn,
    changes_for,
    difference,
    evolved,
    fits,
    partition_after,
    partition_change,
    renamed,
    required_paths,
)
from frazil.model.evolving import DroppedColumns, SchemaEvolution
from frazil.model.partition import PartitionField
from frazil.model.plan import PlannedColumn, planned_columns
from frazil.model.types import Column, Decimal, ListType, MapType, Primitive, StructType, Type, parse_type
from tiers import examples

INT, LONG, FLOAT, DOUBLE, TEXT = (Primitive(name) for name in ("int", "long", "float", "double", "string"))
STRICT, ADD, WIDEN, FULL = SchemaEvolution


def schema(text: str) -> StructType:
    """`id!: int, name: string`; the mark makes a column required."""
    required = {part.partition("!")[0].strip() for part in text.replace("<", ",").split(",") if "!" in part}
    kind = parse_type(f"struct<{text.replace('!', '')}>")
    assert isinstance(kind, StructType)
    return StructType(tuple(replace(column, required=column.name in required) for column in kind.fields))


def changes(table: str, data: str, mode: SchemaEvolution = ADD, **rules: Any) -> tuple[ColumnChange, ...]:
    return changes_for(schema(table), schema(data), Rules(mode, **rules))


def refusal(table: str, data: str, mode: SchemaEvolution = ADD, **rules: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        changes(table, data, mode, **rules)
    return caught.value


# Widening.


@pytest.mark.parametrize(
    ("table", "data", "path"),
    [
        ("a: int", "a: long", "a"),
        ("a: float", "a: double", "a"),
        ("a: decimal(4, 2)", "a: decimal(12, 2)", "a"),
        ("s: struct<a: int>", "s: struct<a: long>", "s.a"),
        ("l: list<int>", "l: list<long>", "l.element"),
        ("m: map<string, float>", "m: map<string, double>", "m.value"),
        ("l: list<struct<m: map<string, int>>>", "l: list<struct<m: map<string, long>>>", "l.element.m.value"),
    ],
)
def test_a_column_is_widened_where_the_mode_says_so(table: str, data: str, path: str) -> None:
    for mode in (WIDEN, FULL):
        (change,) = changes(table, data, mode)
        assert isinstance(change, WidenColumn)
        assert change.path == path
        assert evolved(schema(table), [change]) == schema(data)
        assert changes(data, table, mode) == (), "narrower data fits"
    for mode, code in ((STRICT, "schema-strict"), (ADD, "schema-mismatch")):
        found = refusal(table, data, mode)
        assert found.code == code
        assert repr(path) in found.message
    assert "type_widen" in refusal(table, data).fix


@pytest.mark.parametrize(
    ("table", "data"),
    [
        ("a: int", "a: string"),
        ("a: int", "a: double"),
        ("a: long", "a: double"),
        ("a: float", "a: long"),
        ("a: decimal(4, 2)", "a: decimal(12, 3)"),
        ("a: decimal(12, 3)", "a: decimal(12, 2)"),
        ("a: date", "a: timestamp"),
        ("a: struct<b: int>", "a: int"),
        ("a: list<int>", "a: int"),
        ("m: map<int, string>", "m: map<long, string>"),
        ("m: map<struct<a: int>, string>", "m: map<struct<a: int, b: int>, string>"),
    ],
)
def test_what_cannot_be_widened_is_refused_in_every_mode(table: str, data: str) -> None:
    for mode in SchemaEvolution:
        assert refusal(table, data, mode).code == ("schema-strict" if mode is STRICT else "schema-mismatch")


# Columns that come, and columns that are required.


def test_columns_are_added_as_optional_ones_inside_of_others_too() -> None:
    found = changes("id!: int, s: struct<a: int>", "id: int, s: struct<a: int, b: list<int>>, n!: string")
    assert [change.path for change in found if isinstance(change, AddColumn)] == ["s.b", "n"]
    after = evolved(schema("id!: int, s: struct<a: int>"), found)
    assert after == schema("id!: int, s: struct<a: int, b: list<int>>, n: string")
    assert "column 'n' (string) is not in the table" in refusal("id: int", "id: int, n: string", STRICT).message


def test_a_required_column_that_the_data_lacks() -> None:
    table, data = "id!: int, name!: string", "id: int"
    for mode in (STRICT, ADD):
        assert refusal(table, data, mode).code == "required-missing"
    for mode in (WIDEN, FULL):
        assert changes(table, data, mode) == (MakeOptional("name"),)
        assert refusal(table, data, mode, keys=frozenset({"name"})).code == "required-missing"
        assert refusal(table, data, mode, declared=schema("name!: string")).code == "required-missing"


def test_a_required_column_that_the_data_has_as_null() -> None:
    table = StructType((Column("id", INT, required=True), Column("l", ListType(StructType((Column("a", INT, True),)), True))))
    assert required_paths(table) == ("id", "l.element", "l.element.a")
    rules = Rules(WIDEN, nulls=frozenset({"id", "l.element.a"}))
    assert changes_for(table, table, rules) == (MakeOptional("id"), MakeOptional("l.element.a"))
    assert required_paths(evolved(table, changes_for(table, table, rules))) == ("l.element",)
    assert changes_for(table, table, replace(rules, keys=frozenset({"id"}))) == (MakeOptional("l.element.a"),)
    assert changes_for(table, table, replace(rules, mode=ADD)) == ()


# Declared columns.


def test_a_declared_column_is_no_evolution_where_the_table_has_its_type() -> None:
    declared = schema("at: timestamptz, n: int, s: struct<d: date>")
    for mode in SchemaEvolution:
        assert changes("at: timestamptz, n: int", "at: string, n: long", mode, declared=declared) == ()
        assert changes("s: struct<d: date>", "s: struct<d: string>", mode, declared=declared) == ()
    assert refusal("at: timestamptz, other: int", "other: string", STRICT, declared=declared).code == "schema-strict"


def test_a_declared_column_that_the_table_lacks_is_added_with_its_type() -> None:
    declared = StructType((Column("price", Decimal(10, 2), doc="in euro"),))
    (added,) = changes("id: int", "id: int, price: string", declared=declared)
    assert added == AddColumn("", Column("price", Decimal(10, 2), doc="in euro"))


def test_a_declared_column_may_be_wider_than_the_tables() -> None:
    declared = schema("n: long")
    assert changes("n: int", "n: string", WIDEN, declared=declared) == (WidenColumn("n", INT, LONG),)
    assert changes("n: int", "n: int", WIDEN, declared=declared) == (WidenColumn("n", INT, LONG),)
    assert changes("n: int", "n: string", ADD, declared=declared) == (), "values are tried one by one"
    assert changes("n: int", "n: int", STRICT, declared=declared) == ()
    assert refusal("n: int", "n: string", STRICT, declared=declared).code == "schema-strict"


# Other names.


def test_a_column_gets_its_new_name_once() -> None:
    aliases = {"email": ("mail", "e-mail")}
    table, data = "id: int, mail: string", "id: int, email: string"
    found = changes(table, data, FULL, aliases=aliases)
    assert found == (RenameColumn("mail", "email"),)
    assert evolved(schema(table), found) == schema(data)
    assert changes(data, data, FULL, aliases=aliases) == ()
    assert changes("id: int", data, FULL, aliases=aliases) == (AddColumn("", Column("email", TEXT)),)


def test_other_changes_name_the_column_by_its_new_name() -> None:
    found = changes("n!: int", "m: long", FULL, aliases={"m": ("n",)}, nulls=frozenset({"m"}))
    assert found == (RenameColumn("n", "m"), WidenColumn("m", INT, LONG), MakeOptional("m"))
    assert evolved(schema("n!: int"), found) == schema("m: long")
    assert (renamed("n", found), renamed("n.a", found), renamed("nn", found)) == ("m", "m.a", "nn")


@pytest.mark.parametrize("table", ["mail: string, email: string", "mail: string, post: string"])
def test_a_name_that_could_be_several_columns_is_refused(table: str) -> None:
    assert refusal(table, "email: string", FULL, aliases={"email": ("mail", "post")}).code == "alias-ambiguous"


def test_a_field_within_a_struct_has_no_alias() -> None:
    nested = "s: struct<old: struct<deep: int>>"
    assert refusal(nested, nested, FULL, aliases={"s.new": ("s.old",)}).code == "alias-nested"
    assert refusal(nested, nested, FULL, aliases={"s.old.new": ("s.old.deep",)}).code == "alias-nested"
    assert changes("s: struct<new: int>", "s: struct<new: int>", FULL, aliases={"s.new": ("s.old",)}) == ()


# Columns that go.


def test_a_column_that_the_data_lacks_stays_unless_configured_otherwise() -> None:
    table, data = "id: int, old: string, kept: string, s: struct<a: int, b: int>", "id: int, s: struct<a: int>"
    assert changes(table, data, FULL) == ()
    hard = {"dropped": DroppedColumns.HARD, "declared": schema("kept: string")}
    assert changes(table, data, FULL, **hard) == (DropColumn("old"),)
    assert changes(table, data, WIDEN, **hard) == ()
    assert evolved(schema(table), [DropColumn("old")]) == schema("id: int, kept: string, s: struct<a: int, b: int>")


def test_a_required_column_that_is_dropped_needs_nothing_else() -> None:
    assert changes("id: int, old!: string", "id: int", FULL, dropped=DroppedColumns.HARD) == (DropColumn("old"),)


@pytest.mark.parametrize(("rule", "path"), [("keys", "old"), ("layout", "old"), ("layout", "old.a"), ("compared", "old")])
def test_a_column_in_use_is_not_dropped(rule: str, path: str) -> None:
    rules = {rule: frozenset({path})}
    found = refusal("id: int, old: struct<a: int>", "id: int", FULL, dropped=DroppedColumns.HARD, **rules)
    assert found.code == "column-in-use"
    assert "'old'" in found.message


def test_names_with_dots_are_not_paths() -> None:
    table = StructType((Column("a.b", INT), Column("a", StructType((Column("c", INT),)))))
    wider = StructType((Column("a.b", LONG), Column("a", StructType((Column("c", LONG), Column("d", TEXT))))))
    assert evolved(table, changes_for(table, wider, Rules(WIDEN))) == wider


# As a plan tells it.


def test_a_plan_tells_what_each_column_was() -> None:
    table = schema("id!: int, mail: string, gone: date, s: struct<a: int>")
    made = changes_for(
        table,
        schema("id: long, email: string, s: struct<a: long, b: string>, more: list<int>"),
        Rules(FULL, aliases={"email": ("mail",)}, dropped=DroppedColumns.HARD, nulls=frozenset({"id"})),
    )
    assert planned_columns(table, made) == (
        PlannedColumn("id", "long", False, "widen, optional", old_type="int"),
        PlannedColumn("email", "string", False, "rename", old_name="mail"),
        PlannedColumn("s", "struct<a: long, b: string>", False, "keep"),
        PlannedColumn("more", "list<int>", False, "add"),
        PlannedColumn("s.a", "long", False, "widen", old_type="int"),
        PlannedColumn("s.b", "string", False, "add"),
        PlannedColumn("gone", "date", False, "drop"),
    )


# Partitioning.


def partition(*fields: str) -> tuple[PartitionField, ...]:
    return tuple(PartitionField.model_validate(field) for field in fields)


def test_a_partitioning_changes_when_it_divides_otherwise() -> None:
    have = (("ts", "day"), ("id", "bucket[16]"))
    assert partition_change(have, partition("bucket(16, id)", "day(ts)")) is None
    assert partition_change((*have, ("x", "void")), partition("bucket(16, id)", "day(ts)", "void(y)")) is None
    change = partition_change(have, partition("bucket(8, id)", "day(ts)"))
    assert change == SetPartition(partition("bucket(8, id)", "day(ts)"))
    assert partition_after(have, [change]) == (("id", "bucket[8]"), ("ts", "day"))
    assert partition_after(have, [RenameColumn("id", "nr")]) == (("ts", "day"), ("nr", "bucket[16]"))


# Whatever the schemas are.

NAMES = st.sampled_from(["a", "b", "c", "a.b"])
PRIMITIVES = st.sampled_from(
    [
        *(Primitive(name) for name in ("int", "long", "float", "double", "string", "date")),
        Decimal(4, 2),
        Decimal(12, 2),
        Decimal(4, 0),
    ]
)


def structs(kinds: st.SearchStrategy[Type], names: st.SearchStrategy[str] = NAMES) -> st.SearchStrategy[StructType]:
    columns = st.builds(Column, names, kinds, st.booleans())
    lists = st.lists(columns, min_size=1, max_size=3, unique_by=lambda column: column.name)
    return lists.map(lambda found: StructType(tuple(found)))


TYPES: st.SearchStrategy[Type] = st.recursive(
    PRIMITIVES,
    lambda kinds: st.one_of(
        structs(kinds), st.builds(ListType, kinds, st.booleans()), st.builds(MapType, PRIMITIVES, kinds, st.booleans())
    ),
    max_leaves=6,
)
SCHEMAS = structs(TYPES)
# Data comes under new names only.
TABLES = structs(TYPES, st.one_of(NAMES, st.just("old")))
RULES = st.builds(
    Rules,
    mode=st.sampled_from(SchemaEvolution),
    declared=st.one_of(st.just(StructType(())), SCHEMAS),
    aliases=st.sampled_from([{}, {"c": ("old",)}]),
    dropped=st.sampled_from(DroppedColumns),
    keys=st.frozensets(NAMES, max_size=1),
)


@given(TABLES, SCHEMAS, RULES)
@settings(max_examples=examples(200), deadline=None)
def test_after_the_changes_there_is_nothing_to_change(table: StructType, data: StructType, rules: Rules) -> None:
    try:
        found = changes_for(table, data, rules)
    except DataError:
        return
    after = evolved(table, found)
    assert changes_for(after, data, rules) == ()
    left = difference(after, data)
    assert left.added == left.absent == ()


@given(TABLES, SCHEMAS, RULES)
@settings(max_examples=examples(200), deadline=None)
def test_no_change_narrows(table: StructType, data: StructType, rules: Rules) -> None:
    """What is in the table stays readable: every column is still there, as wide at least, unless it was to be dropped."""
    try:
        found = changes_for(table, data, rules)
    except DataError:
        return
    after = {column.name: column for column in evolved(table, found).fields}
    gone = {change.path for change in found if isinstance(change, DropColumn)}
    assert not gone or rules.dropped is DroppedColumns.HARD
    for column in table.fields:
        name = renamed(column.name, found)
        if name not in gone:
            assert holds(after[name].type, column.type)
            assert after[name].required <= column.required


def holds(after: Type, before: Type) -> bool:
    """Whether every value of the type before is one of the type after."""
    match after, before:
        case StructType(), StructType():
            names = {field.name: field for field in after.fields}
            return all(holds(names[f.name].type, f.type) and names[f.name].required <= f.required for f in before.fields)
        case ListType(), ListType():
            return holds(after.element, before.element) and after.element_required <= before.element_required
        case MapType(), MapType():
            return after.key == before.key and holds(after.value, before.value) and after.value_required <= before.value_required
        case _:
            return fits(before, after)
