"""Columns and the fields of structs by their path: found, set, taken away, or refused at their place in the user's file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, StructField, StructType

from frazil.columns.schema import data_columns, quoted
from frazil.errors import ColumnMissing, ConfigError
from frazil.model.transform import RowTransform, Way

_NO_COLUMN = "transform-column"


@dataclass(frozen=True)
class Spot:
    """A column, or a field within one: the names that lead there, and its type."""

    names: tuple[str, ...]
    kind: DataType

    @property
    def path(self) -> str:
        """As users write it."""
        return ".".join(self.names)

    @property
    def value(self) -> Column:
        """The value at the path in a row."""
        return functions.col(".".join(quoted(name) for name in self.names))

    @property
    def inner(self) -> str:
        """The way within the column, as Spark takes it."""
        return ".".join(quoted(name) for name in self.names[1:])


def refusal(
    transform: RowTransform,
    way: Way,
    message: str,
    *,
    code: str = _NO_COLUMN,
    kind: type[ConfigError] | None = None,
    fix: str = "",
) -> ConfigError:
    """Why a transform cannot be applied, at its place; by default, because it names a column that it cannot use."""
    kind = kind or (ColumnMissing if code == _NO_COLUMN else ConfigError)
    return kind(code, f"{transform.type}: {message}", fix=fix, location=transform.place(*way))


def known_spot(frame: DataFrame, path: str) -> Spot | None:
    """The column or the field of this path, where there is one; a column whose own name has dots in it comes first."""
    names = (path,) if path in data_columns(frame) else tuple(path.split("."))
    kind: DataType = _data(frame)
    for name in names:
        if not isinstance(kind, StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return Spot(names, kind)


def spot(frame: DataFrame, path: str, transform: RowTransform, way: Way) -> Spot:
    """Where a path leads in a data frame; an error when there is no such column or field."""
    if (known := known_spot(frame, path)) is not None:
        return known
    names = path.split(".")
    kind: DataType = _data(frame)
    for number, name in enumerate(names):
        above = ".".join(names[:number])
        if not isinstance(kind, StructType):
            words = f"{above!r} has no fields: it is {kind.simpleString()}"
            hint = "unnest the list first: a row is made of each of its elements." if kind.typeName() == "array" else ""
            raise refusal(transform, way, words, fix=hint)
        if name not in kind.names:
            words = f"there is no field {name!r} in {above!r}" if above else f"there is no column {name!r}"
            raise refusal(transform, way, words, fix=_known(kind.names, "Fields" if above else "Columns"))
        kind = kind[name].dataType
    raise AssertionError("it was found before")


def _data(frame: DataFrame) -> StructType:
    return StructType([field for field in frame.schema.fields if field.name in data_columns(frame)])


def _known(names: Iterable[str], what: str) -> str:
    return f"{what}: {', '.join(names) or 'none'}."


def new_spot(frame: DataFrame, path: str, transform: RowTransform, way: Way, *, besides: Spot | None = None) -> Spot:
    """A place that is still free, within a struct that is there; ``besides`` is about to leave its own."""
    above, _, name = path.rpartition(".")
    taken = data_columns(frame)
    names: tuple[str, ...] = (name,)
    if above:
        holder = spot(frame, above, transform, way)
        if not isinstance(holder.kind, StructType):
            raise refusal(transform, way, f"{above!r} has no fields: it is {holder.kind.simpleString()}")
        taken, names = holder.kind.names, (*holder.names, name)
    for other in taken:
        # Spark does not distinguish names by case.
        if other.lower() == name.lower() and (besides is None or (*names[:-1], other) != besides.names):
            there = f"a field {other!r} in {above!r}" if above else f"a column {other!r}"
            raise refusal(transform, way, f"there already is {there}", fix="Choose another name, or remove it before.")
    return Spot(names, StructType())


def placed(frame: DataFrame, at: Spot, value: Column) -> DataFrame:
    """The frame with a value there; a struct that is null stays null."""
    top, *inner = at.names
    if not inner:
        return frame.withColumn(top, value)
    return frame.withColumn(top, functions.col(quoted(top)).withField(at.inner, value))


def without(frame: DataFrame, gone: Spot) -> DataFrame:
    """The frame without a column or field, and without a struct that would be empty."""
    top, *inner = gone.names
    if not inner:
        return frame.drop(top)
    holder = Spot(gone.names[:-1], _kind(frame, gone.names[:-1]))
    if isinstance(holder.kind, StructType) and len(holder.kind.names) == 1:
        return without(frame, holder)
    return frame.withColumn(top, functions.col(quoted(top)).dropFields(gone.inner))


def renamed(frame: DataFrame, old: Spot, name: str) -> DataFrame:
    """The frame with another name for a column or field, which stays where it is."""
    top, *inner = old.names
    if not inner:
        return frame.withColumnRenamed(top, name)
    kind = _renamed(frame.schema[top].dataType, tuple(inner), name)
    return frame.withColumn(top, functions.col(quoted(top)).cast(kind))


def _kind(frame: DataFrame, names: tuple[str, ...]) -> DataType:
    kind: DataType = frame.schema
    for name in names:
        assert isinstance(kind, StructType), "it was found before"
        kind = kind[name].dataType
    return kind


def _renamed(kind: DataType, inner: tuple[str, ...], name: str) -> StructType:
    """Structs are cast by position, so that a type with another name is enough."""
    assert isinstance(kind, StructType), "it was found before"
    fields = []
    for field in kind.fields:
        if field.name != inner[0]:
            fields.append(field)
        elif len(inner) == 1:
            fields.append(StructField(name, field.dataType, field.nullable, field.metadata))
        else:
            fields.append(StructField(field.name, _renamed(field.dataType, inner[1:], name), field.nullable, field.metadata))
    return StructType(fields)
