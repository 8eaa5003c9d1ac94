"""Columns of the data that a table cannot have, where rows are judged one by one: those that have a value there are refused.

Whoever can write records must not be able to stop a pipeline by a name or a type that he made up. So, where bad rows are kept
apart, what would be an error of the whole batch is one of the rows that bring it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from frazil.model.coercion import CoercionOptions, EpochUnit, ExtraColumns, Way, way
from frazil.model.evolving import SchemaEvolution
from frazil.model.names import MOST_COLUMNS, NAME_LENGTH
from frazil.model.types import ListType, MapType, StructType, Type

METADATA_COLUMNS = frozenset(
    f"_{name}" for name in ("file", "pos", "deleted", "spec_id", "partition", "row_id", "last_updated_sequence_number")
)
"""Names that Iceberg keeps for columns of its own, which Spark shows in every table."""

ELEMENT, VALUE = "element", "value"

Path = tuple[str, ...]
"""The names that lead to a column; ELEMENT and VALUE lead into lists and maps."""


@dataclass(frozen=True)
class Refusal:
    """A column that the table does not take, and why."""

    path: Path
    code: str
    text: str


def surplus(table: StructType, data: StructType, extra: ExtraColumns, mode: SchemaEvolution) -> tuple[Refusal, ...]:
    """The columns of the data that a table with these columns lacks and cannot be given."""
    found = _Surplus(extra, mode, _dotted(table, ()), MOST_COLUMNS - _count(table))
    return tuple(found.of(table, data, ()))


def refused_casts(table: StructType, data: StructType, options: CoercionOptions) -> tuple[Refusal, ...]:
    """The columns of the data whose values the options do not let become the table's, though they could."""
    return tuple(_casts(table, data, (), options))


def _casts(table: Type, data: Type, path: Path, options: CoercionOptions) -> Iterator[Refusal]:
    match table, data:
        case StructType(), StructType():
            known = {field.name: field.type for field in table.fields}
            for field in data.fields:
                if field.name in known:
                    yield from _casts(known[field.name], field.type, (*path, field.name), options)
        case ListType(), ListType():
            yield from _casts(table.element, data.element, (*path, ELEMENT), options)
        case MapType(), MapType():
            yield from _casts(table.value, data.value, (*path, VALUE), options)
        case MapType(), StructType():
            for field in data.fields:
                yield from _casts(table.value, field.type, (*path, field.name), options)
        case _:
            needed, full_name = way(data, table), ".".join(path)
            words = f"column {full_name!r} is {data} in the data and {table} in the table"
            if needed is Way.EPOCH and options.epoch_unit is None:
                text = f"{words}: what the numbers count is not known; epoch_unit says it, as one of {', '.join(EpochUnit)}"
                yield Refusal(path, "epoch-unit", text)
            elif needed in (Way.LOSSY, Way.ZONED) and options.strict_casting:
                yield Refusal(path, "strict-casting", f"{words}: strict_casting refuses what could lose something")


class _Surplus:
    """Goes through the columns of the data. ``taken`` are dotted names, which Iceberg does not let two columns share."""

    def __init__(self, extra: ExtraColumns, mode: SchemaEvolution, taken: Iterator[str], room: int) -> None:
        self._extra = extra
        self._mode = mode
        self._taken = set(taken)
        self._room = room

    def of(self, table: Type | None, data: Type, path: Path) -> Iterator[Refusal]:
        """The refusals within a type. ``table`` is what the table has in this place; None where it has nothing."""
        if not isinstance(data, StructType):
            self._taken |= {".".join((*path, name)) for name, _ in _parts(data)}
        match table, data:
            case ((StructType() | None), StructType()):
                yield from self._fields(table, data, path)
            case ((ListType() | None), ListType()):
                yield from self.of(None if table is None else table.element, data.element, (*path, ELEMENT))
            case ((MapType() | None), MapType()):
                yield from self.of(None if table is None else table.value, data.value, (*path, VALUE))

    def _fields(self, table: StructType | None, data: StructType, path: Path) -> Iterator[Refusal]:
        known = {field.name: field for field in table.fields} if table is not None else {}
        spelled = {name.lower(): name for name in known}
        for field in data.fields:
            inner = (*path, field.name)
            if field.name in known:
                yield from self.of(known[field.name].type, field.type, inner)
            elif (refused := self._new(inner, spelled)) is not None:
                yield refused
            elif self._extra is ExtraColumns.EVOLVE:
                spelled[field.name.lower()] = field.name
                self._room -= 1
                self._taken.add(".".join(inner))
                yield from self.of(None, field.type, inner)

    def _new(self, path: Path, spelled: dict[str, str]) -> Refusal | None:  # noqa: PLR0911 - one for each case
        """Why a column that the table lacks is not added to it."""
        name, full_name = path[-1], ".".join(path)
        other = spelled.get(name.lower())
        if other is not None:
            words = f"the column {full_name!r} has the name of {other!r}, but for upper and lower case"
            return Refusal(path, "columns-differ-by-case", words)
        if self._extra is ExtraColumns.REFUSE:
            return Refusal(
                path, "extra-column", f"the table has no column {full_name!r}, and extra_columns: refuse takes no others"
            )
        if self._extra is ExtraColumns.IGNORE:
            return None
        if self._mode is SchemaEvolution.STRICT:
            return Refusal(
                path, "schema-strict", f"the table has no column {full_name!r}, and schema_evolution: strict adds none"
            )
        if len(path) == 1 and name.lower() in METADATA_COLUMNS:
            return Refusal(path, "column-reserved", f"Iceberg keeps the name {name!r} for a column of its own")
        if not 0 < len(name) <= NAME_LENGTH:
            shown = f"{name[:40]}..." if name else ""
            words = f"a column cannot have the name {shown!r}: names have from 1 to {NAME_LENGTH} characters"
            return Refusal(path, "column-name", words)
        if full_name in self._taken:
            return Refusal(path, "column-name", f"the name {full_name!r} of a column leads to another one in the table already")
        if self._room <= 0:
            words = f"the table is not widened to more than {MOST_COLUMNS} columns, and has no column {full_name!r}"
            return Refusal(path, "too-many-columns", words)
        return None


def without(data: StructType, paths: Sequence[Path]) -> StructType:
    """The data's columns but for those at some paths."""
    kept = []
    for field in data.fields:
        inner = [path[1:] for path in paths if path[0] == field.name]
        if () not in inner:
            kept.append(replace(field, type=_without(field.type, inner)))
    return StructType(tuple(kept))


def _without(kind: Type, paths: Sequence[Path]) -> Type:
    if not paths:
        return kind
    match kind:
        case StructType():
            return without(kind, paths)
        case ListType():
            return replace(kind, element=_without(kind.element, [path[1:] for path in paths]))
        case MapType():
            return replace(kind, value=_without(kind.value, [path[1:] for path in paths]))
        case _:
            return kind


def _dotted(kind: Type, path: Path) -> Iterator[str]:
    """The names of all that is inside, as Iceberg finds columns by them."""
    for name, part in _parts(kind):
        yield ".".join((*path, name))
        yield from _dotted(part, (*path, name))


def _parts(kind: Type) -> list[tuple[str, Type]]:
    match kind:
        case StructType():
            return [(field.name, field.type) for field in kind.fields]
        case ListType():
            return [(ELEMENT, kind.element)]
        case MapType():
            return [("key", kind.key), (VALUE, kind.value)]
        case _:
            return []


def _count(kind: Type) -> int:
    match kind:
        case StructType():
            return sum(1 + _count(field.type) for field in kind.fields)
        case ListType():
            return _count(kind.element)
        case MapType():
            return _count(kind.value)
        case _:
            return 0
