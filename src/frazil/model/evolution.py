"""How a table's schema may follow its data: the differences as values, and what each mode allows."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import DataError
from frazil.model.sink import SchemaEvolution
from frazil.model.types import Column, Decimal, ListType, MapType, Primitive, StructType, Type


@dataclass(frozen=True)
class AddColumn:
    """A column to add: ``parent`` is the dotted path of the struct that gets it, empty for the table itself."""

    parent: str
    column: Column

    @property
    def path(self) -> str:
        """The dotted path of the column."""
        return f"{self.parent}.{self.column.name}" if self.parent else self.column.name


@dataclass(frozen=True)
class AddUnpartitionedSpec:
    """A spec without fields beside the current one, for deletes that are to apply in every partition."""


TableChange = AddColumn | AddUnpartitionedSpec
"""One change of a table's columns or partitioning."""


@dataclass(frozen=True)
class Mismatch:
    """A column whose data does not fit the table's type."""

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


def difference(table: StructType, data: StructType, parent: str = "") -> Difference:
    """Compares column by column, by name, into nested structs, lists and maps."""
    known = {column.name: column for column in table.fields}
    given = {column.name for column in data.fields}
    absent = tuple(_path(parent, c.name) for c in table.fields if c.required and c.name not in given)
    result = Difference(absent=absent)
    for column in data.fields:
        target = known.get(column.name)
        if target is None:
            # Rows that are already there have no value for it.
            result += Difference(added=(AddColumn(parent, Column(column.name, optional(column.type), doc=column.doc)),))
        else:
            result += _type_difference(target.type, column.type, _path(parent, column.name))
    return result


def _type_difference(table: Type, data: Type, path: str) -> Difference:
    match table, data:
        case StructType(), StructType():
            return difference(table, data, path)
        case ListType(), ListType():
            return _type_difference(table.element, data.element, f"{path}.element")
        case MapType(), MapType():
            return _type_difference(table.key, data.key, f"{path}.key") + _type_difference(
                table.value, data.value, f"{path}.value"
            )
        case _ if fits(data, table):
            return Difference()
        case _:
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


def changes_for(table: StructType, data: StructType, mode: SchemaEvolution, castable: frozenset[str]) -> tuple[AddColumn, ...]:
    """What must be added to the table before the data can be written; a DataError where the mode does not allow it.

    ``castable`` are the columns whose type the user declared: their values are converted, and a value that cannot be stops.
    """
    found = difference(table, data)
    mismatched = [m for m in found.mismatched if mode is SchemaEvolution.STRICT or not _convertible(m, castable)]
    if found.absent:
        raise DataError(
            "required-missing",
            f"The data has no column {', '.join(repr(name) for name in found.absent)}, which the table requires.",
            fix="Supply the column, or make it optional in the table.",
        )
    if mode is SchemaEvolution.STRICT and (found.added or mismatched):
        raise DataError(
            "schema-strict",
            f"Schema evolution not allowed in strict mode: {_told(found.added, mismatched)}",
            fix="Set schema_evolution: add_columns, or change the table.",
        )
    if mismatched:
        raise DataError(
            "schema-mismatch",
            f"The data does not fit the table: {_told((), mismatched)}",
            fix="Declare the column's type in the sink's schema to have values converted, or change the table.",
        )
    return found.added


def _convertible(mismatch: Mismatch, castable: frozenset[str]) -> bool:
    """A text, or a number into another kind of number, where no digits after the point can be lost unseen."""
    if mismatch.path not in castable:
        return False
    data, table = mismatch.data, mismatch.table
    nested = (StructType, ListType, MapType)
    if isinstance(data, nested) or isinstance(table, nested):
        return False
    integers = ("int", "long")
    return data.name == "string" or (data.name in integers and table.name in (*integers, "decimal", "double", "float"))


def _told(added: tuple[AddColumn, ...], mismatched: list[Mismatch]) -> str:
    parts = [f"column {a.path!r} ({a.column.type}) is not in the table" for a in added]
    parts += [f"column {m.path!r} is {m.data} in the data and {m.table} in the table" for m in mismatched]
    return "; ".join(parts)


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


def _path(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name
