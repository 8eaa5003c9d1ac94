"""How a table follows its data: the changes as values, what each mode allows, and the schema that comes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.errors import ColumnsRefused, DataError
from frazil.model.coercion import convertible, is_json_text
from frazil.model.evolving import DroppedColumns, SchemaEvolution
from frazil.model.partition import PartitionField, Transform
from frazil.model.types import Column, Decimal, ListType, MapType, Primitive, StructType, Type


@dataclass(frozen=True)
class AddColumn:
    """A column to add: ``parent`` is the dotted path of the struct that gets it, empty for the table itself."""

    parent: str
    column: Column

    @property
    def path(self) -> str:
        """The dotted path of the column."""
        return _path(self.parent, self.column.name)


@dataclass(frozen=True)
class WidenColumn:
    """Another type, which holds every value of the old one."""

    path: str
    old: Type
    new: Type


@dataclass(frozen=True)
class MakeOptional:
    """Null is a value from now on."""

    path: str


@dataclass(frozen=True)
class RenameColumn:
    """Another name for the same column, by its id: what is in the files stays under it."""

    path: str
    name: str


@dataclass(frozen=True)
class DropColumn:
    """A column that is no longer the table's. Its values stay in the files and in the snapshots before."""

    path: str


@dataclass(frozen=True)
class SetPartition:
    """Another partitioning of new data; what is in the table stays where it is."""

    fields: tuple[PartitionField, ...]


@dataclass(frozen=True)
class AddUnpartitionedSpec:
    """A spec without fields beside the current one, for deletes that are to apply in every partition."""


ColumnChange = AddColumn | WidenColumn | MakeOptional | RenameColumn | DropColumn
"""One change of a table's columns. In a sequence, each names columns as they are after those before it."""

TableChange = ColumnChange | SetPartition | AddUnpartitionedSpec
"""One change of a table's columns or partitioning."""


@dataclass(frozen=True)
class Mismatch:
    """A column whose data, or what is declared of it, does not fit the table's type."""

    path: str
    data: Type
    table: Type


@dataclass(frozen=True)
class Difference:
    """What the data has and the table lacks, what does not fit, and which required columns the data lacks."""

    added: tuple[AddColumn, ...] = ()
    mismatched: tuple[Mismatch, ...] = ()
    absent: tuple[str, ...] = ()

    def __add__(self, other: Difference) -> Difference:
        return Difference(self.added + other.added, self.mismatched + other.mismatched, self.absent + other.absent)


@dataclass(frozen=True)
class Rules:
    """What may happen to a table.

    ``declared``: the types that the user declared; values are converted to them. ``keys``: columns that identify rows;
    ``layout``: paths of those that the table is or was partitioned or sorted by; ``compared``: those that live equality deletes
    use, until the deletes are settled. ``nulls``: paths at which the data has nulls. ``row_by_row``: rows whose values do not
    fit are reported one by one, so that a type which does not fit is no reason to stop. ``rejects``: such rows are left out, so
    that a missing required column is no reason to stop, either. ``partial``: columns that the data lacks keep the values that
    they have. ``renames``: columns that the source has renamed, under the names that the aliases leave them; ``apart``: those
    that it has renamed and the table does not follow, by their new names.
    """

    mode: SchemaEvolution = SchemaEvolution.ADD_COLUMNS
    declared: StructType = field(default_factory=lambda: StructType(()))
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dropped: DroppedColumns = DroppedColumns.SOFT
    keys: frozenset[str] = frozenset()
    layout: frozenset[str] = frozenset()
    compared: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()
    row_by_row: bool = False
    rejects: bool = False
    partial: bool = False
    renames: tuple[RenameColumn, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)

    def insists_on(self, name: str) -> bool:
        """Whether a column must have a value in every row."""
        declared = next((c for c in self.declared.fields if c.name == name), None)
        return name in self.keys or (declared is not None and declared.required)


def changes_for(table: StructType, data: StructType, rules: Rules) -> tuple[ColumnChange, ...]:
    """What must change in the table before the data can be written; a DataError where the mode does not allow it."""
    renames = (*alias_renames(table, rules.aliases), *rules.renames)
    table = evolved(table, renames)
    found = difference(table, as_declared(data, table, rules))
    drops = _drops(table, data, rules)
    gone = {change.path for change in drops}
    kept = {column.name for column in table.fields} if rules.partial else set()
    # If nothing is known of the data, because all messages are empty for example, its rows are checked instead.
    absent = tuple(path for path in found.absent if path not in gone and path not in kept) if data.fields else ()
    insisted = [path for path in absent if not rules.mode.widens or rules.insists_on(path) or rules.rejects]
    absent = tuple(path for path in absent if path not in insisted)
    if insisted and not rules.rejects:
        raise ColumnsRefused(
            "required-missing",
            f"The data has no column {', '.join(repr(path) for path in insisted)}, which the table requires.",
            fix="Supply the column, or make it optional in the table, as schema_evolution: type_widen does if it is no key.",
        )
    widened = _widened(found.mismatched) if rules.mode.widens else ()
    _require_allowed(found, [m for m in found.mismatched if m.path not in {w.path for w in widened}], rules)
    nulls = [path for path in required_paths(table) if path in rules.nulls and not rules.insists_on(path)]
    optional_now = (*absent, *nulls) if rules.mode.widens else ()
    return (*renames, *drops, *widened, *(MakeOptional(path) for path in dict.fromkeys(optional_now)), *found.added)


def _require_allowed(found: Difference, mismatched: Sequence[Mismatch], rules: Rules) -> None:
    if rules.mode is SchemaEvolution.STRICT and (found.added or mismatched):
        raise ColumnsRefused(
            "schema-strict",
            f"Schema evolution not allowed in strict mode: {_differences(found.added, mismatched, rules.apart)}",
            fix="Set schema_evolution: full to rename it, or change the table."
            if any(one.path in rules.apart for one in found.added)
            else "Set schema_evolution: add_columns, or change the table.",
        )
    if mismatched and not rules.row_by_row:
        fix = "Declare the column's type in the sink's schema to have values converted, or change the table."
        raise ColumnsRefused(
            "schema-mismatch",
            f"The data does not fit the table: {_differences((), mismatched, {})}",
            fix=f"Set schema_evolution: type_widen to widen the column. {fix}" if _widened(mismatched) else fix,
        )


def _widened(mismatched: Iterable[Mismatch]) -> tuple[WidenColumn, ...]:
    wider = [(m, promoted(m.table, m.data)) for m in mismatched]
    return tuple(WidenColumn(m.path, m.table, kind) for m, kind in wider if kind is not None)


def alias_renames(table: StructType, aliases: Mapping[str, tuple[str, ...]]) -> tuple[RenameColumn, ...]:
    """The columns that are in the table under an earlier name."""
    names = {column.name for column in table.fields}
    renames = []
    for name, olds in aliases.items():
        if nested := [old for old in olds if old not in names and _is_within(table, old)]:
            raise DataError(
                "alias-nested",
                f"aliases: {nested[0]!r} is a field within a struct, and only columns are renamed.",
                fix="Rename the field in the table (ALTER TABLE ... RENAME COLUMN), and take the alias out.",
            )
        earlier = [old for old in olds if old in names]
        if len(earlier) > (0 if name in names else 1):
            both = ", ".join(repr(known) for known in (*earlier, name) if known in names)
            raise DataError(
                "alias-ambiguous",
                f"aliases: the table has {both} as columns of their own, so that none can be renamed to {name!r}.",
                fix="Take the alias out, or drop the column that is not needed from the table.",
            )
        renames += [RenameColumn(old, name) for old in earlier]
    return tuple(renames)


def _is_within(kind: Type, path: str) -> bool:
    """Whether a path leads to a field of a struct."""
    first, _, rest = path.partition(".")
    inner = next((column.type for column in kind.fields if column.name == first), None) if isinstance(kind, StructType) else None
    return inner is not None and (not rest or _is_within(inner, rest))


def _drops(table: StructType, data: StructType, rules: Rules) -> tuple[DropColumn, ...]:
    """The columns that the data no longer has, where those are to go. Declared ones are the user's, and stay."""
    if rules.mode is not SchemaEvolution.FULL or rules.dropped is not DroppedColumns.HARD or not data.fields:
        return ()
    stay = {column.name for column in (*data.fields, *rules.declared.fields)}
    gone = [column.name for column in table.fields if column.name not in stay]
    for name in gone:
        if (why := _in_use(name, rules)) is not None:
            raise ColumnsRefused(
                "column-in-use",
                f"The data no longer has the column {name!r}, and it cannot be dropped: it {why}.",
                fix="Supply the column, declare it in the sink's schema to keep it, or set dropped_columns: soft."
                + (" A batch with max_equality_deletes: 0 settles the deletes." if name in rules.compared else ""),
            )
    return tuple(DropColumn(name) for name in gone)


def _in_use(name: str, rules: Rules) -> str | None:
    """What a column is needed for."""
    if name in rules.keys:
        return "identifies rows"
    if any(path == name or path.startswith(f"{name}.") for path in rules.layout):
        return "is or was used to partition or sort the table"
    if name in rules.compared:
        return "is what live equality deletes tell rows by"
    return None


def _differences(added: Sequence[AddColumn], mismatched: Sequence[Mismatch], apart: Mapping[str, str]) -> str:
    parts = [
        f"column {a.path!r} ({a.column.type}) is not in the table"
        + (f", which has it as {apart[a.path]!r}: the source has renamed it" if a.path in apart else "")
        for a in added
    ]
    parts += [f"column {m.path!r} is {m.data} in the data and {m.table} in the table" for m in mismatched]
    return "; ".join(parts)


# The difference of two schemas.


def difference(table: StructType, data: StructType, parent: str = "") -> Difference:
    """Compares column by column, by name, into nested structs, lists and maps."""
    known = {column.name: column for column in table.fields}
    given = {column.name for column in data.fields}
    result = Difference(absent=tuple(_path(parent, c.name) for c in table.fields if c.required and c.name not in given))
    for column in data.fields:
        target = known.get(column.name)
        if target is None:
            # Rows that are already there have no value for it.
            result += Difference(added=(AddColumn(parent, Column(column.name, optional(column.type), doc=column.doc)),))
            continue
        result += _type_difference(target.type, column.type, _path(parent, column.name))
    return result


def _type_difference(table: Type, data: Type, path: str) -> Difference:
    match table, data:
        case StructType(), StructType():
            return difference(table, data, path)
        case ListType(), ListType():
            return _type_difference(table.element, data.element, f"{path}.element")
        case MapType(), MapType() if _type_difference(table.key, data.key, path) == Difference():
            return _type_difference(table.value, data.value, f"{path}.value")
        case _ if fits(data, table) or is_json_text(data, table):
            return Difference()
        case _:
            # Of maps, those whose keys differ: keys never change.
            return Difference(mismatched=(Mismatch(path, data, table),))


def fits(data: Type, table: Type) -> bool:
    """Whether every value of the data's type is a value of the table's."""
    if isinstance(data, Decimal) and isinstance(table, Decimal):
        return data.scale == table.scale and data.precision <= table.precision
    if data == table:
        return True
    return (data.name, table.name) in (
        ("int", "long"),
        ("float", "double"),
        ("int", "double"),
        ("string", "uuid"),
        ("binary", "fixed"),
    )


def promoted(table: Type, data: Type) -> Type | None:
    """The type that a table's column can be widened to so that it holds the data's values as well, if there is one."""
    if isinstance(table, Decimal) and isinstance(data, Decimal):
        return data if table.scale == data.scale and table.precision < data.precision else None
    return data if (table.name, data.name) in (("int", "long"), ("float", "double")) else None


def as_declared(data: StructType, table: StructType, rules: Rules) -> StructType:
    """The data's columns with the types that the user declared for them, as far as values can be converted."""
    return _as_declared(data, rules.declared, table, rules.mode)


def _as_declared(data: StructType, declared: StructType, table: Type | None, mode: SchemaEvolution) -> StructType:
    wishes = {column.name: column for column in declared.fields}
    known = {column.name: column.type for column in table.fields} if isinstance(table, StructType) else {}
    return StructType(
        tuple(
            replace(c, type=_declared_type(c.type, wish.type, known.get(c.name), mode), doc=wish.doc or c.doc)
            if (wish := wishes.get(c.name)) is not None
            else c
            for c in data.fields
        )
    )


def _declared_type(data: Type, declared: Type, table: Type | None, mode: SchemaEvolution) -> Type:
    match data, declared:
        case StructType(), StructType():
            return _as_declared(data, declared, table, mode)
        case ListType(), ListType():
            inner = table.element if isinstance(table, ListType) else None
            return replace(data, element=_declared_type(data.element, declared.element, inner, mode))
        case MapType(), MapType():
            key, value = (table.key, table.value) if isinstance(table, MapType) else (None, None)
            key = _declared_type(data.key, declared.key, key, mode)
            return replace(data, key=key, value=_declared_type(data.value, declared.value, value, mode))
    if not (fits(data, declared) or convertible(data, declared)):
        return data
    if table is None or fits(declared, table) or (mode.widens and promoted(table, declared) is not None):
        return declared
    # The table has another type than the declared one, and is not to be changed: what it has is what counts.
    lenient = mode is not SchemaEvolution.STRICT and convertible(data, table)
    return table if lenient or fits(data, table) else declared


def overruled(declared: Type, table: Type, path: str = "") -> tuple[Mismatch, ...]:
    """Where a declared type is not the one that values get: the table has another, which does not hold all of its values."""
    match declared, table:
        case StructType(), StructType():
            known = {column.name: column.type for column in table.fields}
            pairs = [(_path(path, c.name), c.type, known[c.name]) for c in declared.fields if c.name in known]
        case ListType(), ListType():
            pairs = [(f"{path}.element", declared.element, table.element)]
        case MapType(), MapType():
            pairs = [(f"{path}.key", declared.key, table.key), (f"{path}.value", declared.value, table.value)]
        case _:
            return () if fits(declared, table) else (Mismatch(path, declared, table),)
    return tuple(found for inner, wish, have in pairs for found in overruled(wish, have, inner))


def required_paths(kind: Type, path: str = "", required: bool = False) -> tuple[str, ...]:
    """The paths of all that must have a value: columns, fields of structs, elements of lists, values of maps."""
    own = (path,) if required else ()
    match kind:
        case StructType():
            inner = (required_paths(c.type, _path(path, c.name), c.required) for c in kind.fields)
            return (*own, *(found for paths in inner for found in paths))
        case ListType():
            return (*own, *required_paths(kind.element, f"{path}.element", kind.element_required))
        case MapType():
            return (*own, *required_paths(kind.value, f"{path}.value", kind.value_required))
        case _:
            return own


def optional(kind: Type) -> Type:
    """The type with nothing in it required."""
    match kind:
        case StructType():
            return StructType(tuple(Column(c.name, optional(c.type), doc=c.doc) for c in kind.fields))
        case ListType():
            return ListType(optional(kind.element))
        case MapType():
            return MapType(optional(kind.key), optional(kind.value))
        case Primitive() | _:
            return kind


# What comes of changes.


def evolved(schema: StructType, changes: Iterable[TableChange]) -> StructType:
    """The schema after the changes, in their order."""
    for change in changes:
        schema = _evolved_fields(schema, change, "")
    return schema


def _evolved_fields(kind: StructType, change: TableChange, parent: str) -> StructType:
    fields = []
    for column in kind.fields:
        path = _path(parent, column.name)
        match change:
            case DropColumn(gone) if gone == path:
                continue
            case RenameColumn(old, name) if old == path:
                fields.append(replace(column, name=name))
            case _:
                inner, required = _evolved_type(column.type, column.required, change, path)
                fields.append(replace(column, type=inner, required=required))
    if isinstance(change, AddColumn) and change.parent == parent:
        fields.append(change.column)
    return StructType(tuple(fields))


def _evolved_type(kind: Type, required: bool, change: TableChange, path: str) -> tuple[Type, bool]:
    """The type of the column, element or value at a path, and whether it is required."""
    match change, kind:
        case WidenColumn(), _ if change.path == path:
            return change.new, required
        case MakeOptional(), _ if change.path == path:
            return kind, False
        case _, StructType():
            return _evolved_fields(kind, change, path), required
        case _, ListType():
            return ListType(*_evolved_type(kind.element, kind.element_required, change, f"{path}.element")), required
        case _, MapType():
            value, value_required = _evolved_type(kind.value, kind.value_required, change, f"{path}.value")
            return MapType(kind.key, value, value_required), required
        case _:
            return kind, required


def renamed(path: str, changes: Iterable[TableChange]) -> str:
    """What a column's path is after the changes."""
    for change in changes:
        if isinstance(change, RenameColumn) and (path == change.path or path.startswith(f"{change.path}.")):
            path = change.name + path[len(change.path) :]
    return path


Partition = tuple[tuple[str, str], ...]
"""A table's partitioning: source columns and transforms as Iceberg spells them, `("id", "bucket[16]")`."""


def partition_change(have: Partition, wanted: Sequence[PartitionField]) -> SetPartition | None:
    """The change from one partitioning to another, or None when both divide the rows alike."""
    change = SetPartition(tuple(wanted))
    return None if dividing(have) == dividing(partition_after(have, (change,))) else change


def dividing(partition: Partition) -> frozenset[tuple[str, str]]:
    """What divides the rows: the order of the fields does not, nor does a void one."""
    return frozenset(one for one in partition if one[1] != Transform.VOID.value)


def partition_after(have: Partition, changes: Iterable[TableChange]) -> Partition:
    """The partitioning of new data after the changes."""
    changes = tuple(changes)
    for change in changes:
        if isinstance(change, SetPartition):
            return tuple((one.source, one.iceberg_transform) for one in change.fields if one.transform is not Transform.VOID)
    return tuple((renamed(source, changes), transform) for source, transform in have)


def _path(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name
